"""How many examples a random test tries: a sample in every run, all of them in `make fuzz`."""

from hypothesis import settings

SHARE = 4
"""The default tests try one example in so many; they see the same ones each time."""


def examples(count: int) -> int:
    """A share of `count`, or ten times as many in `make fuzz`."""
    return max(3, count // SHARE) if settings().derandomize else 10 * count
