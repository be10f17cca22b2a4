"""The outcome of a check of `hermes doctor`."""

from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """The result of one check."""

    what: str
    state: Literal["ok", "fixed", "warning", "problem"]
    detail: str
    fix: str = ""
    """What to do, for a warning or a problem."""
