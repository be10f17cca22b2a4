"""How many examples a random test tries: few in every run, many when somebody looks for errors."""

from hypothesis import settings


def examples(count: int) -> int:
    """`count`, or ten times as many in `make fuzz`."""
    return count if settings().derandomize else 10 * count
