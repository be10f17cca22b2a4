"""Shell commands that a person types (`!ls`), run for them outside of any conversation.

The person who typed a command needs no approval for it. It runs on the host, without our secrets in its
environment, and is bounded in time and output.
"""

import subprocess
import threading
import time
from pathlib import Path
from typing import NamedTuple

from hermes_agent.sandbox.child import Child, Ending
from hermes_agent.tools.output import Capture, Plain
from hermes_agent.turn.stop import Stop
from hermes_core import config
from hermes_core.secrets import redact
from tui_gateway.transport import Transport

_MAX_CHARS = 20_000
"""Kept of the beginning, and of the end, of each stream."""
_TIMEOUT_STATUS = 124
_INTERRUPT_STATUS = 130

_lock = threading.Lock()
_running: list[tuple[Transport | None, Stop]] = []


class Finished(NamedTuple):
    """The output of a command, and its exit status."""

    stdout: str
    stderr: str
    code: int


def run(command: str, cwd: Path, client: Transport | None, timeout_s: float) -> Finished:
    """Run a command and return its output; raises OSError when it cannot be started."""
    entry = (client, Stop())
    with _lock:
        _running.append(entry)  # before it starts, so that no interrupt misses it
    try:
        return _run(command, cwd, entry[1], timeout_s)
    finally:
        with _lock:
            _running.remove(entry)


def _run(command: str, cwd: Path, stop: Stop, timeout_s: float) -> Finished:
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        cwd=cwd,
        env=config.child_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )
    child = Child(process)
    child.deadline = time.monotonic() + timeout_s
    stdout, stderr = _Stream(), _Stream()
    ending = child.follow({child.stdout: stdout.take, child.stderr: stderr.take}, stop)
    code, note = _status(ending, child, timeout_s)
    return Finished(stdout.text(), stderr.text() + note, code)


def interrupt(client: Transport | None) -> None:
    """Stop the commands that a client has started."""
    with _lock:
        stops = [stop for owner, stop in _running if owner is client]
    for stop in stops:
        stop.set()


def _status(ending: Ending, child: Child, timeout_s: float) -> tuple[int, str]:
    match ending:
        case "timeout":
            return _TIMEOUT_STATUS, f"[stopped after {timeout_s:g} s]\n"
        case "stopped":
            return _INTERRUPT_STATUS, "[interrupted]\n"
        case "exited":
            return child.reap(), ""


class _Stream:
    """One output stream as plain text."""

    def __init__(self) -> None:
        self._plain = Plain()
        self._capture = Capture(_MAX_CHARS)

    def take(self, data: bytes) -> None:
        self._capture.add(self._plain.feed(data))

    def text(self) -> str:
        self._capture.add(self._plain.end())
        return redact(self._capture.text())
