"""The status of the gateway process, in files: its pid and its last reported state.

`gateway.pid` exists while a gateway runs in this home; `gateway.lock` is locked and names the process as
well; `gateway_state.json` stays. A gateway that cannot write them does not start; a running one goes on.
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
"""States between start and end; a dead process in one of them has crashed."""
_OVER: tuple[State, ...] = ("stopped", "startup_failed")
DEGRADED = 4
"""The exit status of commands that find a gateway running without one of its platforms."""
_KIND = "hermes-gateway"
_home: list[LockFile] = []
"""The lock of the home, while this process has it."""
_written: dict[Path, dict[str, Any]] = {}
"""The last status of this process, by its file, to restore one that is lost."""
_writing = threading.Lock()
"""Platforms report their state from several threads."""


def pid_file() -> Path:
    return config.home().root / "gateway.pid"


def state_file() -> Path:
    return config.home().root / "gateway_state.json"


def lock_file() -> Path:
    return pid_file().with_suffix(".lock")


def write_pid_file() -> None:
    """Record that this process is the gateway of the home.

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
    """Return the record of this process."""
    record = {"pid": os.getpid(), "kind": _KIND, "start_time": lease.process_name()}
    return msgspec.json.encode(record)


def _take_home() -> None:
    """Acquire the lock of the home, which ends with its process.

    It names its holder too, in case `gateway.pid` is lost.
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
            fix="Stop it with: hermes gateway stop. To take over: hermes gateway run --replace",
        ) from None
    _home.append(lock)
    with contextlib.suppress(OSError):  # a full disk: then `gateway.pid` cannot be written either
        lock.write(_record())


def remove_pid_file() -> None:
    """Remove the pid file and release the lock, if this process is the gateway."""
    try:
        if _read(pid_file()).get("pid") == os.getpid():
            pid_file().unlink(missing_ok=True)
    except OSError as error:  # readers see that its process has ended
        logger.warning("Could not remove %s: %s", pid_file(), error)
    _leave_home()


def _leave_home() -> None:
    while _home:
        lock = _home.pop()
        with contextlib.suppress(OSError):
            lock.write(b"")
        lock.release()


def get_running_pid() -> int | None:
    """Return the process id of the gateway in this home; None when none runs."""
    named = (_alive(_read(path)) for path in (pid_file(), lock_file()))
    return next((pid for pid in named if pid is not None), None)


def _alive(record: dict[str, Any]) -> int | None:
    """Return the process id of a record, if the record is complete and the process alive."""
    pid, name = record.get("pid"), str(record.get("start_time", ""))
    if not isinstance(pid, int) or f":{pid}:" not in name or lease.is_gone(f"{name}:0"):
        return None
    return pid


def write_runtime_status(
    *,
    gateway_state: State | None = None,
    exit_reason: str | None = None,
    active_agents: int | None = None,
    sandbox: str | None = None,
    platform: str | None = None,
    platform_state: str | None = None,
    error_code: str | None = None,
    error_message: str | None = None,
) -> None:
    """Update the status file; values that are not given stay as they are.

    Raises StoreError and ConfigError when it is starting and that cannot be written.
    """
    now = datetime.fromtimestamp(clock.now(), UTC).isoformat()
    changes = {
        "pid": os.getpid(),
        "kind": _KIND,
        "gateway_state": gateway_state,
        "exit_reason": exit_reason,
        "active_agents": active_agents,
        "sandbox": sandbox,
        "updated_at": now,
    }
    platform_status = {
        "state": platform_state,
        "error_code": error_code,
        "error_message": redact(error_message) if error_message else error_message,
        "updated_at": now,
    }
    with _writing:
        values = _last_status() if gateway_state != "starting" else {}
        values |= {name: value for name, value in changes.items() if value is not None}
        if platform is not None:
            values.setdefault("platforms", {})[platform] = platform_status
        if gateway_state in _OVER:
            values["platforms"] = _after_end(values.get("platforms", {}), now)
        _written[state_file()] = values
        try:
            _write(state_file(), msgspec.json.format(msgspec.json.encode(values)))
        except HermesError as error:
            if gateway_state == "starting":
                raise
            logger.warning("Could not write gateway_state.json: %s", error)


def _last_status() -> dict[str, Any]:
    """Return the last status of this process, else of the last gateway."""
    return _written.get(state_file()) or read_runtime_status()


def is_written() -> bool:
    """Return whether the file has the last status of this process; it may be lost or foreign.

    A deleted home counts as written.
    """
    with _writing:
        is_deleted = not state_file().parent.exists()
        return is_deleted or read_runtime_status() == _written.get(state_file())


def _after_end(platforms: dict[str, dict[str, Any]], now: str) -> dict[str, dict[str, Any]]:
    """Return the platforms of a gateway that has ended: disconnected, unless they failed for good."""
    over = {"state": "disconnected", "updated_at": now}
    return {
        name: each if each["state"] == "failed" else {**each, **over}
        for name, each in platforms.items()
    }


def read_runtime_status() -> dict[str, Any]:
    """Return the last status of the gateway."""
    return _read(state_file())


def not_connected() -> dict[str, str]:
    """Return why platforms are not connected, by platform, from the last status."""
    platforms: dict[str, dict[str, Any]] = read_runtime_status().get("platforms", {})
    return {
        name: each["error_message"] or each["state"]
        for name, each in platforms.items()
        if each["state"] != "connected"
    }


def _write(path: Path, content: bytes) -> None:
    try:
        write_private(path, content.decode())
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> StoreError:
    """Return the error for a file that cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        fix = "Free space on this disk, and start the gateway again."
        return StoreFullError(f"{path} cannot be written: {error.strerror}.", fix=fix)
    fix = f"Check the permissions of {path.parent}, and start the gateway again."
    return StoreIOError(f"{path} cannot be written: {error.strerror}.", fix=fix)


def _read(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError):
        return {}
