"""Account locks: one gateway per account on this machine; a lock ends with its process.

Beside the lock is the mark: how far the account was processed. It belongs to the account and not to a
home, so that another home continues where this one stopped.
"""

import hashlib
import logging
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from gateway.platforms.base import PlatformError
from hermes_agent import lease
from hermes_core import config
from hermes_core.errors import UsageError
from hermes_core.locks import LockFile, LockHeldError
from hermes_core.paths import make_folder, write_private

logger = logging.getLogger(__name__)

Kind = Literal["gateway", "setup"]
_POLL_INTERVAL_S = 0.1


class Holder(msgspec.Struct, frozen=True):
    """The process that holds a lock, as it recorded itself."""

    pid: int
    kind: Kind
    process: str
    """Its unique name."""

    @property
    def is_gateway_here(self) -> bool:
        """Return whether this is certainly a gateway that runs on this machine."""
        is_named = self.process.startswith(f"{os.uname().nodename}:{self.pid}:")
        return self.kind == "gateway" and is_named and not lease.is_gone(f"{self.process}:0")


class AccountUsedError(PlatformError):
    """Another process uses the account."""

    def __init__(self, platform: str, holder: Holder | None, *, is_ours: bool) -> None:
        kind, pid = (holder.kind, holder.pid) if holder else ("gateway", "unknown")
        super().__init__(
            f"Another {kind}, process {pid}, uses this {platform} account.",
            fix="Wait for that process to end, or stop it with: hermes gateway run --replace",
        )
        self.pid = holder.pid if holder and holder.is_gateway_here and is_ours else None
        """The process that may be asked to stop."""


class AccountLock:
    """The lock of an account of a platform."""

    def __init__(self, platform: str, identity: str, kind: Kind = "gateway") -> None:
        name = hashlib.sha256(f"{platform}:{identity}".encode()).hexdigest()[:16]
        self.path = _folder() / f"{platform}-{name}.lock"
        self._platform = platform
        self._kind: Kind = kind
        self._file = LockFile(self.path)

    def take(self) -> None:
        """Acquire the lock; raises AccountUsedError while another process holds it."""
        if self.is_held:
            return
        make_folder(self.path.parent)
        try:
            self._file.acquire()
        except LockHeldError as held:
            is_ours = held.owner == os.getuid()
            raise AccountUsedError(self._platform, _read(held.record), is_ours=is_ours) from None
        record = Holder(os.getpid(), self._kind, lease.process_name())
        with suppress(OSError):  # a full disk: the lock has no record of its holder
            self._file.write(msgspec.json.encode(record))

    @property
    def mark(self) -> "AccountMark":
        return AccountMark(self)

    @property
    def is_held(self) -> bool:
        return self._file.is_held

    def release(self) -> None:
        """Release the lock."""
        self._file.release()


class AccountMark:
    """The mark of an account; written by the holder of its lock."""

    def __init__(self, lock: AccountLock) -> None:
        self._lock = lock
        self._path = lock.path.with_suffix(".mark")

    def read(self) -> str | None:
        try:
            return self._path.read_text("utf-8")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            logger.warning("Cannot read mark %s: %s", self._path, error)
            return None

    def write(self, position: str, /) -> None:
        if not self._lock.is_held:
            return  # another gateway has the account by now
        try:
            write_private(self._path, position)
        except OSError as error:
            logger.warning("Cannot write mark %s: %s", self._path, error)


def take_over(accounts: Iterable[AccountLock], timeout_s: float) -> None:
    """Stop the gateways that use these accounts, and wait for their end; raises UsageError."""
    deadline = time.monotonic() + timeout_s
    stopping: set[int] = set()
    for account in accounts:
        while (used := _used(account)) is not None:
            if used.pid is None:
                raise UsageError(
                    f"{used.message} It is not your gateway on this machine, so it was not stopped.",
                    fix="Stop it, and try again.",
                )
            if used.pid not in stopping:
                stopping.add(used.pid)
                with suppress(ProcessLookupError):
                    os.kill(used.pid, signal.SIGTERM)
            if time.monotonic() > deadline:
                raise UsageError(
                    f"Process {used.pid} has not ended within {timeout_s:g} seconds.",
                    fix=f"End it with: kill -9 {used.pid}. Accepted messages are safe.",
                )
            time.sleep(_POLL_INTERVAL_S)


def _used(account: AccountLock) -> AccountUsedError | None:
    """Return why an account cannot be locked now; None when it is free."""
    try:
        account.take()
    except AccountUsedError as error:
        return error
    account.release()
    return None


def _read(record: bytes) -> Holder | None:
    try:
        return msgspec.json.decode(record, type=Holder)
    except msgspec.DecodeError:
        return None


def _folder() -> Path:
    named = config.variable("HERMES_GATEWAY_LOCK_DIR")
    if named:
        return Path(named)
    state = config.variable("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "hermes" / "gateway-locks"
