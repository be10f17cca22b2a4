"""Garbage-collector and malloc tuning for long-lived processes.

A full collection stops all threads for 0.1 seconds and more, in the middle of drawing or of a commit.
"""

import gc
from contextlib import suppress

_ARENA_MAX = -8
"""M_ARENA_MAX of mallopt(3)."""
_ARENAS = 2
_SMALL_GENERATIONS = (300, 3, 80)
_DUE_COUNT = 9
"""Collections of the middle generation after which Python soon begins a full one by itself."""


def limit_arenas() -> None:
    """Let all threads allocate from the same few malloc arenas.

    By default glibc gives each thread its own arena, and memory freed in one is not reused by others.
    Does nothing where there is no mallopt.
    """
    import ctypes  # noqa: PLC0415 -- only a process that lasts asks for this, and the others start quickly

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, _ARENAS)


def use_small_generations() -> None:
    """Collect young objects in many short steps, since each stops all threads.

    Full collections stay as rare as before.
    """
    gc.set_threshold(*_SMALL_GENERATIONS)


def freeze() -> None:
    """Exclude current objects, such as code and styles, from later collections.

    Collects earlier excluded objects once more, so that they do not pile up.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def unfreeze() -> None:
    """Include everything in collections again."""
    gc.unfreeze()


def full_collection_due() -> bool:
    """Return whether Python will soon start a full collection."""
    return gc.get_count()[2] >= _DUE_COUNT


def collect() -> None:
    """Collect now, while nothing is being drawn."""
    gc.collect()
