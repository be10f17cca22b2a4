"""A child process and all it started: its output is followed, and it is ended as a whole."""

import contextlib
import os
import select
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping
from typing import IO, Literal

from hermes_agent.sandbox.orphan_killer import orphan_killer
from hermes_agent.turn.stop import Stop

Ending = Literal["exited", "timeout", "stopped"]
Take = Callable[[bytes], None]

_CHUNK = 65_536
_STRAGGLERS_S = 0.2
"""How long the output of what a finished command left running is still waited for."""
_EXIT_TIMEOUT_S = 5.0
"""How long a child may take to read what it is sent."""
_POLITE_S = 0.05
"""Between asking to end and ending by force; a stopped turn has to be back soon."""


class Child:
    """A process that leads a group of its own."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self.on_kill: Callable[[], None] = _nothing
        """What else ends it, when signals do not reach all of it."""
        self._at_end: list[Callable[[], None]] = []
        self._pauses = 0
        self._remaining: float | None = None
        """Of its time, while that is paused."""
        self.notes: list[str] = []
        """What happened to it that its output may not say."""
        self._group = str(process.pid)
        self._wake_read, self._wake_write = os.pipe()
        self._exited = threading.Event()
        self._lock = threading.Lock()
        self._reaping = threading.Lock()
        self._is_open = True
        """Until it is reaped: then its number and our ends of its pipes may be somebody else's."""
        self.deadline: float | None = None
        """On the monotonic clock; None waits for ever. May be moved while the child is followed."""
        orphan_killer.watch(self._group)
        threading.Thread(target=self._watch, name=f"child-{process.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stdout(self) -> int:
        return _number(self._process.stdout)

    @property
    def stderr(self) -> int:
        return _number(self._process.stderr)

    def follow(self, streams: Mapping[int, Take], stop: Stop | None = None) -> Ending:
        """Hand over output as it comes until the child ends, its time is over or the turn is stopped.

        When this returns the child and all it started have ended.
        """
        has_ended = False
        try:
            if stop is None:
                ending = self._follow(streams, None)
            else:
                with stop.callback(self.wake):
                    ending = self._follow(streams, stop)
            if ending != "exited":
                self.terminate()
                self._drain(streams)
            has_ended = True
            return ending
        finally:
            if not has_ended:
                self.terminate()
            self.reap()

    def _follow(self, streams: Mapping[int, Take], stop: Stop | None) -> Ending:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_read, selectors.EVENT_READ)
            for stream in streams:
                selector.register(stream, selectors.EVENT_READ)
            stragglers_until = None
            while True:
                now = time.monotonic()
                if stop is not None and stop.is_set:
                    return "stopped"
                if self._exited.is_set():
                    stragglers_until = stragglers_until or now + _STRAGGLERS_S
                    if len(selector.get_map()) == 1 or now >= stragglers_until:
                        return "exited"
                elif self.deadline is not None and now >= self.deadline:
                    return "timeout"
                until = stragglers_until or self.deadline
                self._take(selector, streams, None if until is None else max(until - now, 0))

    def _take(
        self, selector: selectors.BaseSelector, streams: Mapping[int, Take], seconds: float | None
    ) -> None:
        for key, _ in selector.select(seconds):
            if key.fd == self._wake_read:
                os.read(self._wake_read, _CHUNK)
            elif data := os.read(key.fd, _CHUNK):
                streams[key.fd](data)
            else:
                selector.unregister(key.fd)

    def _drain(self, streams: Mapping[int, Take]) -> None:
        """Take what was printed before the end, without waiting for more."""
        for stream, take in streams.items():
            os.set_blocking(stream, False)
            with contextlib.suppress(BlockingIOError):
                while data := os.read(stream, _CHUNK):
                    take(data)

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        """Stop its time while a person is waited for; may overlap."""
        with self._lock:
            if not self._pauses and self.deadline is not None:
                self._remaining, self.deadline = self.deadline - time.monotonic(), None
            self._pauses += 1
        try:
            yield
        finally:
            with self._lock:
                self._pauses -= 1
                if not self._pauses and self._remaining is not None:
                    self.deadline, self._remaining = time.monotonic() + self._remaining, None
            self.wake()

    def at_end(self, callback: Callable[[], None]) -> None:
        """Call this once when it and all it started have ended."""
        self._at_end.append(callback)

    def wake(self) -> None:
        """Wake `follow`."""
        with self._lock:
            if self._is_open:
                os.write(self._wake_write, b".")

    def send(self, data: bytes) -> None:
        """Write to its input; raises BrokenPipeError or TimeoutError when nobody reads it."""
        if self._process.stdin is None:
            raise BrokenPipeError
        stream = self._process.stdin.fileno()
        os.set_blocking(stream, False)
        while data:
            try:
                data = data[os.write(stream, data) :]
            except BlockingIOError:
                if not select.select([], [stream], [], _EXIT_TIMEOUT_S)[1]:
                    raise TimeoutError from None

    def terminate(self) -> None:
        """End the whole group: politely, and at once by force."""
        self._signal(signal.SIGTERM)
        self._exited.wait(_POLITE_S)
        self._signal(signal.SIGKILL)
        self.on_kill()

    def reap(self) -> int:
        """End what is left of the group and return the exit status; may be called again."""
        with self._reaping:
            if self._is_open:
                self._exited.wait()
                self._signal(signal.SIGKILL)
                with self._lock:
                    self._process.wait()
                    self._is_open = False
                    self._close()
                orphan_killer.release(self._group)
                for callback in self._at_end:
                    callback()
        return self._process.returncode

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _watch(self) -> None:
        """Notice the end of the leader without reaping it."""
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        self._exited.set()
        self.wake()

    def _signal(self, number: signal.Signals) -> None:
        with self._lock, contextlib.suppress(ProcessLookupError, PermissionError):
            if self._is_open:
                os.killpg(self._process.pid, number)


def _nothing() -> None:
    pass


def _number(stream: "IO[bytes] | None") -> int:
    if stream is None:
        raise ValueError("this stream was not asked for")
    return stream.fileno()
