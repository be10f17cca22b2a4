"""The memory of the process: what is searched for rubbish, and where threads take it from."""

import gc
import platform
import subprocess
import sys
import weakref

import pytest

from hermes_core.gc_tuning import freeze, unfreeze, use_small_generations


class Knot:
    """Something that only a search can free."""

    def __init__(self) -> None:
        self.self = self


def test_what_was_left_out_is_searched_again_when_it_settles_anew():
    knot = Knot()
    reference = weakref.ref(knot)
    try:
        freeze()
        del knot
        gc.collect()
        assert reference() is not None, "it was in use when the process settled"
        freeze()
        assert reference() is None
    finally:
        unfreeze()
        gc.freeze()  # as it was for the other tests


def test_a_search_in_short_steps_finds_the_same():
    before = gc.get_threshold()
    try:
        use_small_generations()
        reference = weakref.ref(Knot())
        lists = [[] for _ in range(gc.get_threshold()[0] + 1)]
        assert reference() is None and lists
    finally:
        gc.set_threshold(*before)


_CHILD = """
import ctypes, sys, threading
from hermes_core import gc_tuning

if sys.argv[1] == "shared":
    gc_tuning.limit_arenas()
both = threading.Barrier(16)


def work():
    kept = ctypes.CDLL(None).malloc(100_000)
    both.wait()


threads = [threading.Thread(target=work) for _ in range(16)]
for one in threads:
    one.start()
for one in threads:
    one.join()
ctypes.CDLL(None).malloc_info(0, ctypes.c_void_p.in_dll(ctypes.CDLL(None), "stdout"))
"""


def _places(how: str) -> int:
    """From how many places sixteen threads have taken memory."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, how], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.count("<heap nr=")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is a wish to glibc")
def test_threads_take_memory_from_the_same_few_places() -> None:
    assert _places("shared") <= 2 < _places("alone")
