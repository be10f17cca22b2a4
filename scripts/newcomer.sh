#!/usr/bin/env bash
# Runs a command as a newcomer would: in a fresh clone under /tmp that `make setup` has set up, with HOME
# under /tmp, without a network, and not as root. What this machine does not allow is left out and said.
set -euo pipefail
cd "$(dirname "$0")/.."
place=$(mktemp -d /tmp/hermes-newcomer-XXXXXX)
trap 'rm -rf "$place"' EXIT
GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*' git clone -q . "$place/hermes"
mkdir "$place/home"
cd "$place/hermes"

user=(setpriv --reuid 65534 --regid 65534 --clear-groups)
is_usable='import ensurepip, sys; sys.exit(sys.version_info < (3, 11))'
python=${PYTHON:-python3}
if [ "$(id -u)" = 0 ] && ! "${user[@]}" "$python" -c "$is_usable" 2>/dev/null \
  && "${user[@]}" /usr/bin/python3 -c "$is_usable" 2>/dev/null; then
  python=/usr/bin/python3 # the other one belongs to root alone
fi
make setup PYTHON="$python"

offline=(unshare --net "$PWD/.venv/bin/python" "$PWD/scripts/loopback.py")
if [ "$(id -u)" != 0 ]; then
  user=()
elif ! chmod 755 "$place" || ! "${user[@]}" sh -c '.venv/bin/python -c pass' 2>/dev/null; then
  echo "as root: another user cannot run this interpreter"
  user=()
else
  chown -R 65534:65534 "$place"
fi
if ! "${offline[@]}" true 2>/dev/null; then
  echo "with a network: this machine does not let us cut it"
  offline=()
fi
env HOME="$place/home" "${offline[@]}" "${user[@]}" "$@"
