"""The memory of the process: what is searched for rubbish, and how often."""

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


def test_who_settles_no_longer_searches_as_before():
    usual = gc.get_threshold()
    memory.search_rarely()
    assert gc.get_threshold() != usual
    memory.unsettle()
    assert gc.get_threshold() == usual
    assert gc.get_freeze_count() == 0
