"""A client of the JSON-RPC server in the same process."""

import threading

import msgspec

from tui_gateway.transport import Frame, encode


class MemoryTransport:
    """A client inside the process, which keeps what it is sent."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self._news = threading.Condition()

    def write(self, frame: Frame) -> bool:
        """Keep a frame as a client would read it."""
        read = msgspec.json.decode(encode(frame))
        with self._news:
            self.frames.append(read)
            self._news.notify_all()
        return True

    def events(self, kind: str) -> list[Frame]:
        """The events of a kind so far."""
        with self._news:
            found = [frame["params"] for frame in self.frames if "method" in frame]
        return [params for params in found if params["type"] == kind]

    def wait_for(self, kind: str, number: int = 1, seconds: float = 5.0) -> Frame:
        """The event of a kind, or the second, or the third; raises TimeoutError."""
        with self._news:
            if not self._news.wait_for(lambda: len(self.events(kind)) >= number, seconds):
                frames = [frame.get("params", frame) for frame in self.frames]
                raise TimeoutError(f"no {kind} (number {number}) came; there were {frames}")
        return self.events(kind)[number - 1]
