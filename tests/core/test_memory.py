"""The memory of the process: what is searched for rubbish."""

import gc
import weakref

from hermes_core import memory


class Knot:
    """Something that only a search can free."""

    def __init__(self) -> None:
        self.self = self


def test_what_was_left_out_is_searched_again_when_it_settles_anew():
    knot = Knot()
    gone = weakref.ref(knot)
    try:
        memory.settle()
        del knot
        gc.collect()
        assert gone() is not None, "it was in use when the process settled"
        memory.settle()
        assert gone() is None
    finally:
        memory.unsettle()
