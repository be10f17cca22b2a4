"""The process: pipes, signals, and the way out. `python -m tui_gateway.entry` serves stdio.

The main thread does nothing but wait for a reason to leave, so that a signal finds it holding no lock;
requests are read by a thread of their own.
"""

import atexit
import contextlib
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, NoReturn

from hermes_core.errors import HermesError
from hermes_core.installation import install_command
from hermes_protocol import errors
from tui_gateway import protocol, server
from tui_gateway.pool import run_logged
from tui_gateway.transport import (
    MAX_LINE_BYTES,
    DescriptorWriter,
    LineReader,
    QueuedTransport,
    Transport,
)

if TYPE_CHECKING:
    from tui_gateway.ws import Tell

logger = logging.getLogger(__name__)

_GRACE_S = 1.0
"""From the request to leave to the end of the process, whatever hangs."""
_TWICE_S = 5.0
"""A second Ctrl-C within this time leaves; a single one stops the turns that run."""
_SWEEP_AFTER_S = 0.3
_LOOK_EVERY_S = 5.0


class _ExitRequests:
    """Reasons to leave, and Ctrl-C: the number of a signal, or words. One thread waits for them.

    A pipe wakes it, because the system may hand a signal to any thread, and only a pipe reaches the one
    that waits from there.
    """

    def __init__(self) -> None:
        self._items: deque[int | str] = deque()
        self._reading = self._writing = -1

    def put(self, request: int | str) -> None:
        """Add a reason, from any thread or signal handler."""
        self._items.append(request)
        with contextlib.suppress(OSError):  # full of wakes, one more is not needed; or not open yet
            os.write(self._writing, b".")

    def open(self) -> None:
        """Let signals wake the thread that waits, whichever thread gets them."""
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)

    def get(self) -> int | str:
        """Return the oldest reason; wait for one."""
        while not self._items:
            os.read(self._reading, 1)
        return self._items.popleft()


_exit_requests = _ExitRequests()


def main(arguments: Sequence[str] = ()) -> int:
    """Serve until there is nobody left to serve; returns the exit status."""
    _open_missing()
    if arguments:
        return _serve_sockets(arguments)
    out = DescriptorWriter(_reserve_stdout())
    transport = QueuedTransport(
        out.send, lambda reason: _exit_requests.put(f"the client is gone: {reason}")
    )
    server.serve_stdio(transport)
    return _supervise(lambda: _serve_stdio(transport), lambda: transport.drain(_GRACE_S / 5))


def _serve_sockets(arguments: Sequence[str]) -> int:
    try:
        from tui_gateway import ws  # noqa: PLC0415 -- a server on stdio needs no sockets

        service = ws.open_service(arguments)
    except ModuleNotFoundError as error:
        sys.stderr.write(f"{error}. Install it with: {install_command('tui')}\n")
        return 1
    except HermesError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    return _supervise(service.start, service.close)


def serve(port: int, file: Path | None = None, tell: "Tell | None" = None) -> NoReturn:
    """Serve a websocket in the foreground until a signal ends it; raises HermesError.

    `file` gets the address instead of the one in the home. `tell` says where it listens; without it a
    program is told.
    """
    from tui_gateway import ws  # noqa: PLC0415 -- as above

    service = ws.Service(port, file or ws.token_file(), tell=tell or ws.print_greeting)
    _supervise(service.start, service.close, ends_at_once=True)


def _serve_stdio(transport: Transport) -> None:
    transport.write(protocol.ready())
    threading.Thread(
        target=_read, args=(LineReader(0, MAX_LINE_BYTES), transport), daemon=True
    ).start()


def _open_missing() -> None:
    """Open missing standard streams: else the next file that is opened would become one."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison] -- it was closed
        sys.stderr = os.fdopen(2, "w")


def _reserve_stdout() -> int:
    """Keep standard output for the protocol; whatever else is printed goes to standard error."""
    out = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return out


# -- reading -----------------------------------------------------------------------------------------


def _read(lines: LineReader, transport: Transport) -> None:
    """Deal with one line after the other until there are no more. The boundary of the loop."""
    for line in lines:
        try:
            if line is None:
                text = f"A line may have {MAX_LINE_BYTES} bytes."
                transport.write(protocol.refusal(None, errors.PARSE_ERROR, text))
            elif line.strip():
                server.receive(line, transport)
        except Exception:
            logger.exception("A request failed; the server continues")
    _exit_requests.put("the input was closed")


# -- leaving -----------------------------------------------------------------------------------------


def _supervise(
    serve: Callable[[], None], finish: Callable[[], object], *, ends_at_once: bool = False
) -> NoReturn:
    """Serve until there is a reason to leave; then end every session and go, within a second.

    `ends_at_once`: a single Ctrl-C is a reason, since the clients have terminals of their own.
    """
    sys.excepthook = _log_crash
    threading.excepthook = lambda crash: _log_crash(
        crash.exc_type, crash.exc_value or crash.exc_type(), crash.exc_traceback
    )
    _exit_requests.open()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _log_signal)
    serve()
    is_leaving = threading.Event()
    threading.Thread(target=_run_maintenance, args=(is_leaving,), name="sweep", daemon=True).start()
    reason = _wait_for_exit(ends_at_once=ends_at_once)
    is_leaving.set()
    _exit(reason, finish)


def _log_signal(number: int, _frame: FrameType | None) -> None:
    """Take note of a signal. What follows from it is done outside of the handler, by the main thread."""
    _exit_requests.put(number)


def _wait_for_exit(*, ends_at_once: bool) -> str:
    interrupted_at = -_TWICE_S
    while True:
        request = _exit_requests.get()
        if request != signal.SIGINT or ends_at_once:
            return request if isinstance(request, str) else signal.Signals(request).name
        now = time.monotonic()
        if now - interrupted_at < _TWICE_S:
            return "Ctrl-C, twice"
        interrupted_at = now
        threading.Thread(target=server.interrupt_all, daemon=True).start()


def _exit(reason: str, finish: Callable[[], object]) -> NoReturn:
    """End every session and the process; what has not ended in time is left behind.

    The interpreter is not taken apart: a thread that is still busy could keep it from coming to an end.
    """
    limit = threading.Timer(_GRACE_S, os._exit, (0,))
    limit.daemon = True
    limit.start()
    logger.info("leaving: %s", reason)

    def end() -> None:
        server.shut_down()
        finish()
        atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]

    try:
        run_logged(end, "Leaving")
    finally:
        with contextlib.suppress(OSError, ValueError):  # last: nobody may read it
            sys.stderr.write(f"[gateway] leaving: {reason}\n")
            sys.stderr.flush()
        os._exit(0)


def _run_maintenance(is_leaving: threading.Event) -> None:
    """End what earlier processes left open, then follow what other processes answer."""
    if not is_leaving.wait(_SWEEP_AFTER_S):
        run_logged(_end_orphans, "Ending orphans")
    while not is_leaving.wait(_LOOK_EVERY_S):
        run_logged(server.report_foreign_answers, "Looking for answers of other processes")


def _end_orphans() -> None:
    for session_id in server.end_orphans():
        logger.info("Session %s was open in a process that has ended; closed it", session_id)


def _log_crash(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Write an error that nobody caught to a file of the home, and one line to standard error."""
    from hermes_core import config, secrets  # noqa: PLC0415 -- rarely needed
    from hermes_core.paths import make_folder  # noqa: PLC0415 -- as above

    text = secrets.redact("".join(traceback.format_exception(kind, error, trace)))
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"[gateway-crash] {secrets.redact(repr(error))}\n")
        sys.stderr.flush()
    with contextlib.suppress(OSError):
        path = make_folder(config.home().logs) / "tui_gateway_crash.log"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
