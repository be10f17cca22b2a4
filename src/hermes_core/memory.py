"""The memory of the process: when it is searched for rubbish, and how much of it.

A search of everything halts all threads for a tenth of a second and more, in the middle of a drawing or
of a commit that others wait for.
"""

import gc

_SEARCH_DUE = 9
"""After so many small searches; Python begins a large one by itself soon after."""


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
