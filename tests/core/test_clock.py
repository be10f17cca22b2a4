"""The one clock."""

import time
from datetime import timedelta, timezone

import pytest

from hermes_core import clock


def test_it_reads_the_wall_clock() -> None:
    before = time.time()
    assert before <= clock.now() <= time.time()


@pytest.mark.parametrize(
    ("seconds", "year"),
    [(0.0, 1970), (1.8e9, 2027), (1e20, 9999), (float("inf"), 9999), (-1e15, 1900), (-1e300, 1900)],
)
def test_every_number_has_a_date_in_every_zone(seconds: float, year: int) -> None:
    assert clock.date(seconds).year == year
    assert clock.date(seconds).astimezone(timezone(timedelta(hours=14)))


def test_another_clock_holds_for_a_block_and_no_longer_even_after_an_error() -> None:
    with pytest.raises(RuntimeError), clock.replaced(lambda: 42.0):
        assert clock.now() == 42.0
        with clock.replaced(lambda: 43.0):
            assert clock.now() == 43.0
        assert clock.now() == 42.0
        raise RuntimeError
    assert clock.now() > 43.0


@pytest.mark.parametrize(
    ("past", "expected"),
    [
        (5, "just now"),
        (90, "1 min ago"),
        (7200, "2 h ago"),
        (86400 * 3, "3 d ago"),
        (86400 * 800, "2 y ago"),
    ],
)
def test_moments_are_told_in_the_largest_unit(past: float, expected: str) -> None:
    assert clock.ago(1_000_000_000.0 - past, 1_000_000_000.0) == expected
    assert clock.ago(None, 0) == ""
