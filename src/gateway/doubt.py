"""Doubt: a piece may have arrived although no answer said so.

It is the error of the piece in the outbox, so that it outlives the process and people can read it, and
with it how many answers were lost. An attempt that a crash cut off is in doubt too, but is not counted:
nobody knows whether its request was ever written.
"""

import re

from hermes_state.values import Row

UNSURE = "unsure: it may have arrived"
GIVEN_UP = "given up: it is not known whether it arrived"
_LOST = re.compile(re.escape(UNSURE) + r"; answers lost: (\d+)")
_REPEATS_AFTER_S = (0.0, 10.0, 120.0)
"""When a piece is repeated that everybody sees again: each lost answer may be one more copy in the chat.
A network that is down refuses connections, which leaves no doubt; who connects and gets no answer that
often is cut off after what was asked was done."""


def of(row: Row) -> str | None:
    """The doubt about a piece; None when it surely has not arrived."""
    error: str = row["error"] or ""
    return error if error.startswith(UNSURE) else None


def lost(row: Row) -> int:
    """How many answers about a piece were lost."""
    found = _LOST.fullmatch(row["error"] or "")
    return int(found[1]) if found is not None else 0


def one_more(row: Row) -> str:
    """The doubt about a piece when one more answer is lost."""
    return f"{UNSURE}; answers lost: {lost(row) + 1}"


def wait_s(row: Row) -> float | None:
    """How long a marked repeat waits when one more answer is lost; None: there is to be none."""
    number = lost(row)
    return _REPEATS_AFTER_S[number] if number < len(_REPEATS_AFTER_S) else None
