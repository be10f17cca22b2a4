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
