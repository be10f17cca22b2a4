"""The conversation to open at the start."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Opening:
    """The conversation to open at the start; without any field, a new one."""

    resume: str = ""
    """An id or a title."""
    continues: bool = False
    """The one that was active last."""
    live: str | None = None
    """One that lives in a running server, by any of its names; empty: the one active last."""
    cwd: str = ""
    model: str = ""
    pulls: bool = False
    """Fetch the embedded model without asking, when there is no other."""
