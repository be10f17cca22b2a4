"""Progress reports of a download."""

from collections.abc import Callable
from typing import NamedTuple


class Step(NamedTuple):
    """The progress of a download, or a message about it."""

    text: str
    done: int = 0
    total: int = 0
    """In bytes; 0 when there is only something to say."""


Progress = Callable[[Step], None]


def ignore(_step: Step) -> None:
    """The watcher of a fetch that nobody watches."""


def megabytes(count: float) -> str:
    """A size as a person reads it."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(count, 0) / 1e6:.0f} MB"
