"""Ways to a client, each with one verb: write a frame.

A client may be slow or may not read at all, and nobody here waits for it: frames are queued, pieces of
one reply that follow each other are joined while they wait, and a client whose queue grows beyond all
measure is given up.
"""

import contextlib
import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec

from hermes_core.secrets import redact_bytes
from hermes_core.text import without_surrogates
from tui_gateway.protocol import Frame

MAX_QUEUED_BYTES = 64 * 1024 * 1024
_LARGEST_SHARE = 8
MAX_LINE_BYTES = 32 * 1024 * 1024
_CHUNK = 256 * 1024
_GATHER_S = 0.01
"""For how long a piece of a reply waits for the next ones, which go out with it."""
_JOINED = frozenset({"message.delta", "reasoning.delta", "thinking.delta", "tool.progress"})
"""Events whose texts add up."""

_encoder = msgspec.json.Encoder(enc_hook=str)


class Transport(Protocol):
    """Somebody to write to."""

    def write(self, frame: Frame) -> bool:
        """Hand over a frame, without waiting for it to arrive; False when the client is gone."""
        ...


def encode(frame: Frame) -> bytes:
    """A frame as bytes without a line break and without secrets."""
    try:
        return redact_bytes(_encoder.encode(frame))
    except UnicodeEncodeError:  # half characters somewhere inside: rare, so mended the slow way
        return redact_bytes(_encoder.encode(_whole(frame)))


def decode(data: bytes | str) -> object:
    """Decode what a client sent; raises ValueError or RecursionError."""
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        # Half characters are common where JavaScript cuts texts; the fast decoder takes none.
        import json  # noqa: PLC0415 -- rarely needed

        return _whole(json.loads(data))


def _whole(value: Any) -> Any:  # noqa: ANN401 -- whatever JSON is
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [_whole(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


class _JoinedDeltas:
    """Events of one kind that follow each other, as one event with the number of the last."""

    __slots__ = ("frame", "key", "texts")

    def __init__(self, key: object) -> None:
        self.key = key
        self.frame: Frame = {}
        self.texts: list[str] = []

    def encoded(self) -> bytes:
        params = self.frame["params"]
        payload = {**params["payload"], "text": "".join(self.texts)}
        return encode({**self.frame, "params": {**params, "payload": payload}})


def _joins(frame: Frame) -> object:
    """Return what a frame shares with those it may be joined with; None when it stands alone."""
    params: Frame = frame.get("params") or {}
    if params.get("type") not in _JOINED or "rendered" in params["payload"]:
        return None
    return params["type"], params["session_id"], params.get("log"), params["payload"].get("tool_id")


class QueuedTransport:
    """Writes in a thread of its own, so that senders need not wait."""

    def __init__(
        self,
        send: Callable[[bytes], None],
        on_gone: Callable[[str], None],
        *,
        ending: bytes = b"\n",
        limit_bytes: int = MAX_QUEUED_BYTES,
    ) -> None:
        """`send` may block and raises OSError when the client is gone; `on_gone` is told why, once."""
        self._send = send
        self._on_gone = on_gone
        self._ending = ending
        self._limit = limit_bytes
        self._queue: deque[bytes | _JoinedDeltas] = deque()
        self._size = 0
        self._news = threading.Condition()
        self._is_sending = False
        self.is_gone = False
        threading.Thread(target=self._run, name="transport", daemon=True).start()

    def write(self, frame: Frame) -> bool:
        """Queue a frame; False when the client is gone."""
        key = _joins(frame)
        data = b"" if key is not None else encode(frame)
        with self._news:
            if self.is_gone:
                return False
            length = len(self._queue)
            if key is None:
                self._size += self._weight(data)
                self._queue.append(data)
            else:
                self._size += self._join(key, frame)
            is_full = self._size > self._limit
            if not self._is_sending and len(self._queue) > length:  # else it looks when it is done
                self._news.notify()
        if is_full:
            self._give_up("it does not read its events")
        return not is_full

    def _weight(self, data: bytes) -> int:
        """Return the size of a frame for the limit; a single frame above the limit is still sent."""
        return min(len(data), self._limit // _LARGEST_SHARE)

    def _join(self, key: object, frame: Frame) -> int:
        last = self._queue[-1] if self._queue else None
        if not isinstance(last, _JoinedDeltas) or last.key != key:
            last = _JoinedDeltas(key)
            self._queue.append(last)
        last.frame = frame
        last.texts.append(str(frame["params"]["payload"]["text"]))
        return len(last.texts[-1])

    def drain(self, seconds: float) -> bool:
        """Wait until everything is sent; tells whether it is."""
        with self._news:
            return self._news.wait_for(self._is_drained, seconds)

    def _is_drained(self) -> bool:
        return self.is_gone or not (self._queue or self._is_sending)

    def close(self) -> None:
        """Send nothing more."""
        with self._news:
            self.is_gone = True
            self._queue.clear()
            self._news.notify_all()

    def _give_up(self, reason: str) -> None:
        with self._news:
            was_gone = self.is_gone
        self.close()
        if not was_gone:
            self._on_gone(reason)

    def _run(self) -> None:
        while True:
            with self._news:
                self._is_sending = False
                self._news.notify_all()
                self._news.wait_for(lambda: self._queue or self.is_gone)
                self._news.wait_for(self._is_due, _GATHER_S)
                if self.is_gone:
                    return
                waiting = list(self._queue)
                self._queue.clear()
                self._is_sending = True
            try:
                self._send_all(waiting)
            except (OSError, ValueError) as error:
                self._give_up(str(error))
                return

    def _is_due(self) -> bool:
        """Return whether there is more to send than pieces of one reply."""
        return self.is_gone or len(self._queue) > 1 or isinstance(self._queue[0], bytes)

    def _send_all(self, waiting: list[bytes | _JoinedDeltas]) -> None:
        """Send what was waiting, lines together; it counts as queued until it is sent."""
        frames = [item if isinstance(item, bytes) else item.encoded() for item in waiting]
        if self._ending:
            self._send(self._ending.join((*frames, b"")))
        else:
            for frame in frames:
                self._send(frame)
        with self._news:
            self._size -= sum(
                self._weight(item) if isinstance(item, bytes) else sum(map(len, item.texts))
                for item in waiting
            )


class DescriptorWriter:
    """Bytes into a pipe or a file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, data: bytes) -> None:
        """Write all of it, however long the other side takes; raises OSError."""
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._descriptor, view) :]
            except BlockingIOError:  # somebody shares the pipe and has made it non-blocking
                select.select([], [self._descriptor], [])

    def close(self) -> None:
        """Let the other side see the end."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


class LineReader:
    """Lines out of a pipe or a file; None stands for one that was too long and has been left out.

    It reads the descriptor itself: a thread that waits inside a file object of Python's keeps the
    interpreter from ending.
    """

    def __init__(self, descriptor: int, longest: int) -> None:
        self._descriptor = descriptor
        self._longest = longest
        self._read = bytearray()
        self._looked_at = 0
        self._is_skipping = False

    def __iter__(self) -> Iterator[bytes | None]:
        while data := self._more():
            self._read += data
            while (end := self._read.find(b"\n", self._looked_at)) >= 0:
                line = bytes(self._read[:end])
                del self._read[: end + 1]
                self._looked_at = 0
                yield None if self._is_skipping or len(line) > self._longest else line
                self._is_skipping = False
            self._looked_at = len(self._read)
            if len(self._read) > self._longest:
                self._read.clear()
                self._looked_at, self._is_skipping = 0, True
        if self._read.strip() and not self._is_skipping:
            yield bytes(self._read)

    def _more(self) -> bytes:
        while True:
            try:
                return os.read(self._descriptor, _CHUNK)
            except BlockingIOError:  # somebody shares the pipe and has made it non-blocking
                select.select([self._descriptor], [], [])
            except OSError:
                return b""
