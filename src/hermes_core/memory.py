"""The memory of the process: where threads take it from, and when it is searched for rubbish.

A search of everything halts all threads for a tenth of a second and more, in the middle of a drawing or
of a commit that others wait for.
"""

import gc
from contextlib import suppress

_ARENA_MAX = -8
"""The name of this wish in the C library."""
_ARENAS = 2
_SHORT_STEPS = (300, 3, 80)
"""How many new objects make a step, how many steps a longer one, how many of these a search of all."""
_SEARCH_DUE = 9
"""After so many small searches; Python begins a large one by itself soon after."""


def share() -> None:
    """Have all threads of a process that has many take memory from the same few places.

    Left to itself the C library gives each thread a place of its own, and what one has freed lies idle
    while another asks the system for more. Where there is no such library nothing is changed.
    """
    import ctypes  # noqa: PLC0415 -- only a process that lasts asks for this, and the others start quickly

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, _ARENAS)


def search_often() -> None:
    """Search for rubbish in many short steps: each halts all threads, and the long ones for 10 ms.

    Everything is searched as seldom as before.
    """
    gc.set_threshold(*_SHORT_STEPS)


def settle() -> None:
    """Leave out of later searches what is in use now: the code and the looks, nearly all there is.

    What was left out before is searched once more, so that nothing piles up.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def unsettle() -> None:
    """Leave nothing out any more."""
    gc.unfreeze()


def is_untidy() -> bool:
    """Whether Python will soon begin a large search, wherever it is just then."""
    return gc.get_count()[2] >= _SEARCH_DUE


def tidy() -> None:
    """Search now, while nothing is being drawn."""
    gc.collect()
