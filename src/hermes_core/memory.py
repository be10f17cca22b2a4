"""The memory of the process: when it is searched for rubbish, and how much of it.

A search of everything halts all threads for a tenth of a second and more, in the middle of a drawing or
of a commit that others wait for.
"""

import gc

_USUAL = gc.get_threshold()
_SEARCH_DUE = 9
"""After so many small searches; Python begins a large one by itself soon after."""


def settle() -> None:
    """Leave out of later searches what is in use now: the code and the looks, nearly all there is.

    What was left out before is searched once more, so that nothing piles up.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def search_rarely() -> None:
    """Have Python search what has lasted for a while less often by itself: for a process that settles.

    What a turn leaves is nearly all gone with it, so there is little to find, and each search of the
    middle-aged halts everybody for milliseconds.
    """
    gc.set_threshold(700, 25, 40)


def unsettle() -> None:
    """Leave nothing out any more, and search as usual."""
    gc.unfreeze()
    gc.set_threshold(*_USUAL)


def is_untidy() -> bool:
    """Whether Python will soon begin a large search, wherever it is just then."""
    return gc.get_count()[2] >= _SEARCH_DUE


def tidy() -> None:
    """Search now, while nothing is being drawn."""
    gc.collect()
