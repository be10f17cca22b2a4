"""The gateway process as others see it: its pid, and what it said about itself last.

`gateway.pid` is there while a gateway runs in this home, and `gateway.lock` is locked and names it as
well; the file `gateway_state.json` stays. Where these cannot be written no gateway starts; one that
runs goes on.
"""

import contextlib
import errno
import logging
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from hermes_agent import lease
from hermes_core import clock, config
from hermes_core.errors import HermesError, StoreError, StoreFullError, StoreIOError, UsageError
from hermes_core.locks import LockFile, LockHeldError
from hermes_core.paths import make_folder, write_private
from hermes_core.secrets import redact

logger = logging.getLogger(__name__)

State = Literal["starting", "running", "draining", "stopped", "startup_failed", "degraded"]
ALIVE: tuple[State, ...] = ("running", "draining", "degraded")
"""What a gateway says of itself between its start and its end; one that is gone and says so crashed."""
_OVER: tuple[State, ...] = ("stopped", "startup_failed")
DEGRADED = 4
"""The exit status of commands that find a gateway running without one of its platforms."""
_KIND = "hermes-gateway"
_home: list[LockFile] = []
"""The lock of the home, while this process has it."""
_told: dict[Path, dict[str, Any]] = {}
"""What this process said about itself last, by its file, which is made whole of it when it is lost."""
_writing = threading.Lock()
"""Platforms say how they do from several threads."""


def pid_file() -> Path:
    return config.home().root / "gateway.pid"


def state_file() -> Path:
    return config.home().root / "gateway_state.json"


def lock_file() -> Path:
    return pid_file().with_suffix(".lock")


def write_pid_file() -> None:
    """Say that this process is the gateway of the home.

    Raises UsageError when another one is, and StoreError when it cannot be written.
    """
    make_folder(pid_file().parent)
    _take_home()
    try:
        _write(pid_file(), _record())
    except StoreError:
        _leave_home()
        raise


def _record() -> bytes:
    """This process as the gateway of the home."""
    record = {"pid": os.getpid(), "kind": _KIND, "start_time": lease.process_name()}
    return msgspec.json.encode(record)


def _take_home() -> None:
    """Take the lock of the home, which ends with its process, whatever ends that.

    Its holder is written into it as well, so that it is known also when `gateway.pid` is lost.
    """
    lock = LockFile(lock_file())
    try:
        lock.acquire()
    except OSError as error:
        raise unwritable(lock.path, error) from error
    except LockHeldError:
        who = get_running_pid()
        raise UsageError(
            f"A gateway runs in this home already{f', as process {who}' if who else ''}.",
            fix="hermes gateway stop ends it; hermes gateway run --replace takes over.",
        ) from None
    _home.append(lock)
    with contextlib.suppress(OSError):  # a full disk: then `gateway.pid` cannot be written either
        lock.write(_record())


def remove_pid_file() -> None:
    """Say that no gateway runs any more, when it was this process."""
    try:
        if _read(pid_file()).get("pid") == os.getpid():
            pid_file().unlink(missing_ok=True)
    except OSError as error:  # whoever reads it sees that its process is gone
        logger.warning("%s stays: %s", pid_file(), error)
    _leave_home()


def _leave_home() -> None:
    while _home:
        lock = _home.pop()
        with contextlib.suppress(OSError):
            lock.write(b"")
        lock.release()


def get_running_pid() -> int | None:
    """The process of the gateway in this home; None when none runs."""
    named = (_alive(_read(path)) for path in (pid_file(), lock_file()))
    return next((pid for pid in named if pid is not None), None)


def _alive(record: dict[str, Any]) -> int | None:
    """The process of a record, when it says whole which one that is, and it has not ended."""
    pid, name = record.get("pid"), str(record.get("start_time", ""))
    if not isinstance(pid, int) or f":{pid}:" not in name or lease.is_gone(f"{name}:0"):
        return None
    return pid


def is_gateway_running() -> bool:
    return get_running_pid() is not None


def write_runtime_status(
    *,
    gateway_state: State | None = None,
    exit_reason: str | None = None,
    active_agents: int | None = None,
    platform: str | None = None,
    platform_state: str | None = None,
    error_code: str | None = None,
    error_message: str | None = None,
) -> None:
    """Say something about the gateway; what is not said stays as it was.

    Raises StoreError and ConfigError when it is starting and that cannot be written.
    """
    now = datetime.fromtimestamp(clock.now(), UTC).isoformat()
    given = {
        "pid": os.getpid(),
        "kind": _KIND,
        "gateway_state": gateway_state,
        "exit_reason": exit_reason,
        "active_agents": active_agents,
        "updated_at": now,
    }
    told = {
        "state": platform_state,
        "error_code": error_code,
        "error_message": redact(error_message) if error_message else error_message,
        "updated_at": now,
    }
    with _writing:
        said = _last_told() if gateway_state != "starting" else {}
        said |= {name: value for name, value in given.items() if value is not None}
        if platform is not None:
            said.setdefault("platforms", {})[platform] = told
        if gateway_state in _OVER:
            said["platforms"] = _left(said.get("platforms", {}), now)
        _told[state_file()] = said
        try:
            _write(state_file(), msgspec.json.format(msgspec.json.encode(said)))
        except HermesError as error:
            if gateway_state == "starting":
                raise
            logger.warning("what the gateway does now is not told: %s", error)


def _last_told() -> dict[str, Any]:
    """What this process said last; before it said anything, what the last gateway did."""
    return _told.get(state_file()) or read_runtime_status()


def is_told() -> bool:
    """Whether the file says what this process said last; it may be lost, or one from elsewhere.

    Of a home that is gone nobody is told.
    """
    with _writing:
        is_gone = not state_file().parent.exists()
        return is_gone or read_runtime_status() == _told.get(state_file())


def _left(platforms: dict[str, dict[str, Any]], now: str) -> dict[str, dict[str, Any]]:
    """Platforms whose gateway is over: only one that failed for good is still what it was."""
    over = {"state": "disconnected", "updated_at": now}
    return {
        name: one if one["state"] == "failed" else {**one, **over}
        for name, one in platforms.items()
    }


def read_runtime_status() -> dict[str, Any]:
    """What the gateway said about itself last."""
    return _read(state_file())


def not_connected() -> dict[str, str]:
    """Why each platform is not connected that is not, as the gateway said last."""
    platforms: dict[str, dict[str, Any]] = read_runtime_status().get("platforms", {})
    return {
        name: one["error_message"] or one["state"]
        for name, one in platforms.items()
        if one["state"] != "connected"
    }


def _write(path: Path, content: bytes) -> None:
    try:
        write_private(path, content.decode())
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> StoreError:
    """That a file of the gateway cannot be written, in words."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        fix = "Make room on this disk, and start the gateway again."
        return StoreFullError(f"{path} cannot be written: {error.strerror}.", fix=fix)
    fix = f"See to it that you may write in {path.parent}, and start the gateway again."
    return StoreIOError(f"{path} cannot be written: {error.strerror}.", fix=fix)


def _read(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return {}
