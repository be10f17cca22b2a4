"""One gateway an account: a lock on this machine that ends with its process, whatever ends that."""

import fcntl
import hashlib
import os
from contextlib import suppress
from pathlib import Path

from gateway.platforms.base import PlatformError
from hermes_core import config
from hermes_core.paths import make_folder


class AccountLock:
    """The right to speak for an account of a platform."""

    def __init__(self, platform: str, identity: str) -> None:
        name = hashlib.sha256(f"{platform}:{identity}".encode()).hexdigest()[:16]
        self.path = _folder() / f"{platform}-{name}.lock"
        self._platform = platform
        self._descriptor = -1

    def take(self) -> None:
        """Take it; raises PlatformError while another process has it."""
        if self._descriptor >= 0:
            return
        make_folder(self.path.parent)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(descriptor, 32).decode("ascii", "replace")
            os.close(descriptor)
            raise PlatformError(
                f"Another gateway, process {holder or 'unknown'}, uses this {self._platform} account.",
                fix="It is taken over when that one ends: hermes gateway run --replace.",
            ) from None
        self._descriptor = descriptor
        with suppress(OSError):  # a full disk: it is locked, without the name of its holder
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Give it back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _folder() -> Path:
    named = config.variable("HERMES_GATEWAY_LOCK_DIR")
    if named:
        return Path(named)
    state = config.variable("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "hermes" / "gateway-locks"
