"""Start threads where memory may be short."""

import threading

_ROOM = 16 << 20
"""Bytes of address space that a new thread and its first steps take, with a margin."""


def start(thread: threading.Thread) -> None:
    """Start a thread; raises RuntimeError when there is no memory for it.

    `Thread.start` waits for the thread to begin, and so for ever for one that runs out of memory before.
    """
    try:
        bytearray(_ROOM)
    except MemoryError as error:
        raise RuntimeError("can't start new thread") from error
    thread.start()
