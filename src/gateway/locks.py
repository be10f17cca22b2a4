"""One gateway an account: a lock on this machine that ends with its process, whatever ends that.

Beside the lock lies the mark: how far the account was dealt with. It belongs to the account and not to a
home, so that another home goes on where this one stopped.
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
_LOOK_EVERY_S = 0.1


class Holder(msgspec.Struct, frozen=True):
    """The process that has a lock, as it wrote itself down."""

    pid: int
    kind: Kind
    process: str
    """Its name that no other process ever has."""

    @property
    def is_gateway_here(self) -> bool:
        """Whether this is beyond doubt a gateway that runs on this machine."""
        is_named = self.process.startswith(f"{os.uname().nodename}:{self.pid}:")
        return self.kind == "gateway" and is_named and not lease.is_gone(f"{self.process}:0")


class AccountUsedError(PlatformError):
    """Another process speaks for the account."""

    def __init__(self, platform: str, holder: Holder | None, *, is_ours: bool) -> None:
        kind, pid = (holder.kind, holder.pid) if holder else ("gateway", "unknown")
        super().__init__(
            f"Another {kind}, process {pid}, uses this {platform} account.",
            fix="It is used here when that one ends; hermes gateway run --replace ends it now.",
        )
        self.pid = holder.pid if holder and holder.is_gateway_here and is_ours else None
        """The process that may be asked to stop."""


class AccountLock:
    """The right to speak for an account of a platform."""

    def __init__(self, platform: str, identity: str, kind: Kind = "gateway") -> None:
        name = hashlib.sha256(f"{platform}:{identity}".encode()).hexdigest()[:16]
        self.path = _folder() / f"{platform}-{name}.lock"
        self._platform = platform
        self._kind: Kind = kind
        self._file = LockFile(self.path)

    def take(self) -> None:
        """Take it; raises AccountUsedError while another process has it."""
        if self.is_held:
            return
        make_folder(self.path.parent)
        try:
            self._file.acquire()
        except LockHeldError as held:
            is_ours = held.owner == os.getuid()
            raise AccountUsedError(self._platform, _read(held.record), is_ours=is_ours) from None
        record = Holder(os.getpid(), self._kind, lease.process_name())
        with suppress(OSError):  # a full disk: it is locked, without the name of its holder
            self._file.write(msgspec.json.encode(record))

    @property
    def mark(self) -> "AccountMark":
        return AccountMark(self)

    @property
    def is_held(self) -> bool:
        return self._file.is_held

    def release(self) -> None:
        """Give it back."""
        self._file.release()


class AccountMark:
    """How far an account was dealt with; written by who holds its lock."""

    def __init__(self, lock: AccountLock) -> None:
        self._lock = lock
        self._path = lock.path.with_suffix(".mark")

    def read(self) -> str | None:
        try:
            return self._path.read_text("utf-8")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            logger.warning("the mark %s cannot be read: %s", self._path, error)
            return None

    def write(self, said: str) -> None:
        if not self._lock.is_held:
            return  # another gateway has the account by now, and is further
        try:
            write_private(self._path, said)
        except OSError as error:
            logger.warning("the mark %s cannot be written: %s", self._path, error)


def take_over(accounts: Iterable[AccountLock], patience_s: float) -> None:
    """Have the gateways that use these accounts stop, and wait until they have; raises UsageError."""
    deadline = time.monotonic() + patience_s
    asked: set[int] = set()
    for account in accounts:
        while (used := _used(account)) is not None:
            if used.pid is None:
                raise UsageError(
                    f"{used.message} It is no gateway of yours on this machine, and is left alone.",
                    fix="End it, and try again.",
                )
            if used.pid not in asked:
                asked.add(used.pid)
                with suppress(ProcessLookupError):
                    os.kill(used.pid, signal.SIGTERM)
            if time.monotonic() > deadline:
                raise UsageError(
                    f"Process {used.pid} has not ended within {patience_s:g} seconds.",
                    fix=f"kill -9 {used.pid} ends it; nothing that was accepted is lost.",
                )
            time.sleep(_LOOK_EVERY_S)


def _used(account: AccountLock) -> AccountUsedError | None:
    """Why an account cannot be had now; None when it is free."""
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
