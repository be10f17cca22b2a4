"""The one clock."""

import time

import pytest

from hermes_core import clock


def test_it_reads_the_wall_clock() -> None:
    before = time.time()
    assert before <= clock.now() <= time.time()


def test_another_clock_holds_for_a_block_and_no_longer_even_after_an_error() -> None:
    with pytest.raises(RuntimeError), clock.reading(lambda: 42.0):
        assert clock.now() == 42.0
        with clock.reading(lambda: 43.0):
            assert clock.now() == 43.0
        assert clock.now() == 42.0
        raise RuntimeError
    assert clock.now() > 43.0
