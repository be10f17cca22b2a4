"""Classify paths: in the workspace, among temporary files, among secrets, in Hermes's own home."""

import fnmatch
import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from hermes_agent.approval.danger.kinds import Access, Danger, Kind
from hermes_core.errors import ToolError

_SECRET_FOLDERS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".password-store", ".config/gcloud", ".config/gh",
    ".config/hub", ".config/op", ".local/share/keyrings", "Library/Keychains", ".mozilla",
    ".config/google-chrome", ".config/chromium", ".config/rclone", ".terraform.d",
)  # fmt: skip
_SECRET_FILES = (
    ".docker/config.json", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".git-credentials",
    ".config/git/credentials", ".npmrc", ".pypirc", ".cargo/credentials", ".cargo/credentials.toml",
    ".gem/credentials", ".vault-token", ".bash_history", ".zsh_history", ".python_history",
    ".psql_history", ".mysql_history", ".config/fish/fish_history",
)  # fmt: skip
"""Relative to the person's own home."""

_SECRET_NAMES = (
    ".env", ".env.*", "*.env", ".envrc", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore",
    "*.kdbx", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".htpasswd", "credentials.json",
    "client_secret*.json", "service-account*.json", "service_account*.json", "secrets.yml",
    "secrets.yaml", "secrets.json", "secrets.toml", ".netrc", ".pgpass", ".git-credentials",
)  # fmt: skip
_HARMLESS_NAMES = ("*.example", "*.sample", "*.template", "*.dist", "*.pub", "cacert.pem")
_SYSTEM_SECRETS = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssl/private")
_PUBLIC_FOLDERS = ("/etc/ssl/certs", "/usr/share/ca-certificates", "/usr/lib/ssl")

_SYSTEM_FOLDERS = (
    "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/boot", "/sys", "/proc", "/System",
    "/Library", "/private/etc",
)  # fmt: skip
_START_FILES = (
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv",
    ".zprofile", ".zlogin", ".kshrc", ".xinitrc", ".xprofile", ".pam_environment", ".inputrc",
    ".gitconfig", ".vimrc",
)  # fmt: skip
_START_FOLDERS = (
    ".config/autostart", ".config/systemd", ".config/fish", ".config/git", ".ssh", "bin", ".local/bin",
    "Library/LaunchAgents",
)  # fmt: skip
_PROTECTED = (
    "AGENTS.md", "CLAUDE.md", "HERMES.md", ".mcp.json", ".envrc", ".git/hooks", ".git/config",
    ".github/workflows", ".gitlab-ci.yml", ".circleci", ".vscode",
)  # fmt: skip
"""In any folder: instructions for agents, and what git, CI and editors run by themselves."""
_OPEN_TO_ALL = ("memories", "skills")
"""Folders of Hermes's home that tools may read: what they themselves wrote."""

_HARMLESS_DEVICES = (
    "/dev/null",
    "/dev/stdout",
    "/dev/stderr",
    "/dev/stdin",
    "/dev/tty",
    "/dev/zero",
)


class Place(NamedTuple):
    """The folders of a conversation, with every link resolved."""

    workspace: str
    home: str
    """Hermes's own home."""
    outputs: str = ""
    """The folder in it with the long outputs of this conversation; empty: none."""


def place_of(workspace: Path, home: Path, outputs: Path | None = None) -> Place:
    """The place of a conversation."""
    own = os.path.realpath(outputs) if outputs is not None else ""
    return Place(os.path.realpath(workspace), os.path.realpath(home), own)


def resolve(path: str, cwd: str) -> str:
    """The absolute path that is meant, every link followed; `~` is the person's home.

    Raises ToolError for what is not a path, and for links that we may not read, as in /proc of others.
    """
    meant = os.path.normpath(Path(cwd) / expand(path))
    try:
        # A stream's name is a link into /proc, which says nothing.
        return meant if _is_harmless_device(meant) else os.path.realpath(meant)
    except OSError as error:
        raise ToolError(f"{path} cannot be followed: {error.strerror}.") from error
    except ValueError as error:  # NUL, or a lone surrogate
        raise ToolError(f"{path!r} is not a valid path.", fix="Give the path of a file.") from error


def resolve_entry(path: str, cwd: str) -> str:
    """The absolute path of an entry of a folder: a link itself, not where it leads."""
    folder, _, name = expand(path).rpartition("/")
    if name in ("", ".", ".."):
        return resolve(path, cwd)
    folder = resolve(folder or ("/" if path.startswith("/") else "."), cwd)
    return f"{folder.rstrip('/')}/{name}"


def expand(path: str) -> str:
    """The path with a leading `~` replaced by the person's home."""
    if path == "~" or path.startswith("~/"):
        return own_home() + path[1:]
    return path


def own_home() -> str:
    """The person's home folder."""
    return str(Path.home())


def of_read(path: str, place: Place) -> list[Danger]:
    """Reading is dangerous where secrets are."""
    if is_secret(path, place):
        reason = f"Reads {path}, which may hold secrets"
        return [Danger("secrets", reason, f"read:{path}", access_to_read(path))]
    return []


def of_write(path: str, place: Place) -> list[Danger]:
    """Writing is dangerous outside the workspace, and where it changes what others run."""
    found = _of_write(path, place)
    if found is None:
        return []
    return [Danger(*found, f"write:{path}", Access(writes=(path,)))]


def _of_write(path: str, place: Place) -> tuple[Kind, str] | None:
    if is_of_hermes(path, place):
        return "privilege", f"Changes Hermes's own file {path}"
    if path.startswith("/dev/") and not _is_harmless_device(path):
        return "destructive", f"Writes to the device {path}"
    if _is_harmless_device(path):
        return None
    if _is_protected(path) or any(is_under(path, led) for led in _led_to(place.workspace)):
        return "privilege", f"Changes {path}, which other programs run or follow"
    if is_inside(path, place):
        if is_secret(path, place) and os.path.lexists(path):
            return "secrets", f"Changes {path}, which may hold secrets"
        return None
    if is_of_system(path):
        return "privilege", f"Changes the system's {path}"
    return "outside", f"Writes {path}, outside the workspace"


def access_to_read(path: str) -> Access:
    """Return what a command needs to read this path; what other processes show is not seen inside."""
    return Access(unconfined=True) if is_under(path, "/proc") else Access(reads=(path,))


def access_to_change(path: str, place: Place, *, removes: bool = False) -> Access:
    """Return what a command needs to change this path, or to make or remove it.

    A file that is there is given alone. To make or remove one, a command needs the folder it is in;
    a folder that holds everything is not given, so such a command runs outside the sandbox.
    """
    if path.endswith("/.git/config"):
        return Access(writes=(str(Path(path).parent),))  # git makes a new file beside it
    if not removes and os.path.lexists(path):
        return Access(unconfined=True) if is_under(path, "/dev") else Access(writes=(path,))
    folder = str(Path(path).parent)
    while not os.path.lexists(folder):
        folder = str(Path(folder).parent)
    if is_under(folder, place.workspace) or is_temporary(path, place):
        return Access(writes=(path,))
    homes = (place.home, os.path.realpath(own_home()))
    holds_all = folder.count("/") <= 1 or any(is_under(home, folder) for home in homes)
    if holds_all or is_of_system(folder) or is_under(folder, "/dev"):
        return Access(unconfined=True)
    return Access(writes=(folder,))


_CREDENTIALS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("ssh", "scp", "sftp", "rsync", "mosh", "ssh-copy-id"), (".ssh",)),
    "git": (".ssh", ".git-credentials", ".config/git/credentials", ".netrc"),
    "gh": (".config/gh",), "hub": (".config/hub",), "aws": (".aws",), "az": (".azure",),
    "gcloud": (".config/gcloud",), "gsutil": (".config/gcloud",), "rclone": (".config/rclone",),
    "kubectl": (".kube",), "helm": (".kube",), "oc": (".kube",), "vault": (".vault-token",),
    "terraform": (".terraform.d", ".aws"), "npm": (".npmrc",), "pnpm": (".npmrc",),
    "yarn": (".npmrc",), "twine": (".pypirc",), "cargo": (".cargo/credentials.toml",),
    "gem": (".gem/credentials",), "psql": (".pgpass",), "curl": (".netrc",), "op": (".config/op",),
}  # fmt: skip


def access_to_account(program: str, hosts: Iterable[str] = ()) -> Access:
    """Return what a program needs to act in the person's name elsewhere: its keys, and the hosts."""
    home = os.path.realpath(own_home())
    paths = (f"{home}/{name}" for name in _CREDENTIALS.get(program, ()))
    return Access(reads=tuple(filter(os.path.lexists, paths)), hosts=tuple(hosts))


def is_inside(path: str, place: Place) -> bool:
    """Return whether changes there are the conversation's own: its workspace, or a temporary file."""
    return is_under(path, place.workspace) or is_temporary(path, place)


def is_temporary(path: str, place: Place) -> bool:
    """Return whether it is a temporary file; not so when the workspace itself lies among those."""
    return any(
        is_under(path, folder) and path != folder and not is_under(place.workspace, folder)
        for folder in _temporary_folders()
    )


@lru_cache(maxsize=1)
def _temporary_folders() -> tuple[str, ...]:
    import tempfile  # noqa: PLC0415 -- slow to load, and only commands need it

    named = (tempfile.gettempdir(), "/tmp", "/var/tmp")
    return tuple(dict.fromkeys(os.path.realpath(folder) for folder in named))


def is_secret(path: str, place: Place) -> bool:
    """Return whether a path may hold secrets, by where it lies and what it is called."""
    if is_of_hermes(path, place):
        is_own = bool(place.outputs) and is_under(path, place.outputs)
        return not is_own and not any(is_under(path, f"{place.home}/{n}") for n in _OPEN_TO_ALL)
    if any(is_under(path, folder) for folder in _SYSTEM_SECRETS):
        return True
    if path.startswith("/proc/") and path.endswith(("/environ", "/mem")):
        return True
    home = os.path.realpath(own_home())
    if any(is_under(path, f"{home}/{name}") for name in (*_SECRET_FOLDERS, *_SECRET_FILES)):
        return not path.endswith(".pub")
    name = Path(path).name
    if any(fnmatch.fnmatch(name, pattern) for pattern in _HARMLESS_NAMES):
        return False
    if any(is_under(path, folder) for folder in _PUBLIC_FOLDERS):
        return False
    return any(fnmatch.fnmatch(name, pattern) for pattern in _SECRET_NAMES)


def secret_places(place: Place) -> list[str]:
    """Folders and files that a sandbox hides."""
    home = os.path.realpath(own_home())
    return [place.home, *(f"{home}/{name}" for name in (*_SECRET_FOLDERS, *_SECRET_FILES))]


def holds_secrets_below(path: str, place: Place) -> bool:
    """Return whether going through this folder would go through secrets too."""
    return any(
        is_under(secret, path) and os.path.lexists(secret) for secret in secret_places(place)
    )


def is_of_system(path: str) -> bool:
    """Return whether it came with the system."""
    return any(is_under(path, folder) for folder in _SYSTEM_FOLDERS)


def is_broad(path: str, place: Place) -> bool:
    """Return whether everything that matters would go with this folder."""
    protected = (place.workspace, place.home, os.path.realpath(own_home()))
    return any(is_under(folder, path) for folder in protected) or path.count("/") <= 1


def is_under(path: str, folder: str) -> bool:
    """Return whether a resolved path is the folder or lies in it."""
    return path == folder or path.startswith(folder if folder.endswith("/") else folder + "/")


def is_of_hermes(path: str, place: Place) -> bool:
    """Return whether it is in Hermes's home, and not in a workspace that somebody put there."""
    own = is_under(place.workspace, place.home) and is_under(path, place.workspace)
    return is_under(path, place.home) and not own


def _is_harmless_device(path: str) -> bool:
    return path in _HARMLESS_DEVICES or path.startswith(("/dev/fd/", "/dev/pts/", "/dev/shm/"))


def _is_protected(path: str) -> bool:
    home = os.path.realpath(own_home())
    if any(path == f"{home}/{name}" for name in _START_FILES):
        return True
    if any(is_under(path, f"{home}/{name}") for name in _START_FOLDERS):
        return True
    inner = f"{path.casefold()}/"  # some file systems take both cases for one name
    return any(f"/{name.casefold()}/" in inner for name in _PROTECTED)


def _led_to(workspace: str) -> list[str]:
    """Return where protected paths of a workspace lead that are links, as CLAUDE.md often is."""
    links = filter(os.path.islink, (f"{workspace}/{name}" for name in _PROTECTED))
    found = [os.path.realpath(link) for link in links]
    return [path for path in found if is_under(path, workspace) and path != workspace]


def protected_in(workspace: str) -> tuple[list[str], list[str]]:
    """Return protected paths at the top of a workspace, and the folders they are in.

    `.git/config` is not among them: git itself writes it for everyday commands.
    """
    names = [name for name in _PROTECTED if name != ".git/config"]
    parents = dict.fromkeys(name.partition("/")[0] for name in names if "/" in name)
    paths = [*(f"{workspace}/{name}" for name in names), *_led_to(workspace)]
    return paths, [f"{workspace}/{name}" for name in parents]
