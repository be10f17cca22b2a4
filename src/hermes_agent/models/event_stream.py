"""Server-sent events: cut the bytes of a response into the data of its events."""

from collections.abc import Callable, Iterable, Iterator

from hermes_agent.models.limits import MAX_EVENT_BYTES, TooLargeError


def payloads(
    chunks: Iterable[bytes], on_line: Callable[[], None] = lambda: None
) -> Iterator[bytes]:
    """Yield the data of each event, without names, ids and comments; raises TooLargeError.

    `on_line` is called after each chunk that completed a line: only that is progress.
    """
    rest = bytearray()
    data: list[bytes] = []
    size = 0
    for chunk in chunks:
        lines = chunk.split(b"\n")
        lines[0] = bytes(rest) + lines[0] if len(lines) > 1 and rest else lines[0]
        if len(lines) > 1:
            rest.clear()
            on_line()
        rest += lines.pop()
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:].strip())
                size += len(line)
            elif data and (not line or line == b"\r"):
                yield data[0] if len(data) == 1 else b"\n".join(data)
                data, size = [], 0
        if size + len(rest) > MAX_EVENT_BYTES:
            raise TooLargeError("a longer event")
    if rest.startswith(b"data:"):
        data.append(bytes(rest[5:].strip()))
    if data:
        yield b"\n".join(data)
