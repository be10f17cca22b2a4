"""Expansion: the originals behind a summary, or behind a message that was cut."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hermes_agent.compaction.draft import span_of
from hermes_agent.compaction.transcript import number, words_of
from hermes_core.errors import SessionNotFoundError, UsageError
from hermes_core.text import truncate
from hermes_state.protocol import Store
from hermes_state.values import Row

MOST_CHARACTERS = 20_000
_LEAST_EACH = 200
_RANGE = re.compile(r"\s*#?(\d+)\s*(?:(?:-|–|—|\.\.|to)\s*#?(\d+))?\s*", re.IGNORECASE)


def expand(store: Store, session_id: str, which: int | str = "") -> list[Row]:
    """The originals that a summary stands for, of a range (`12-34`), or of one number.

    A number is that of a message, or the id of a summary; nothing at all means the latest summary.
    """
    members = _members(store, session_id)
    first, last = _wanted(store, members, str(which))
    originals = _originals(store, members)
    found = [originals[key] for key in sorted(originals) if first <= key <= last]
    if not found:
        raise UsageError(
            f"This conversation has no message {first if first == last else f'{first}-{last}'}.",
            fix="The first line of a summary names the messages that it stands for.",
        )
    return found


def expand_text(
    store: Store, session_id: str, which: int | str = "", limit: int = MOST_CHARACTERS
) -> str:
    """The same as text of at most `limit` characters; what is too long is cut, and says so."""
    rows = expand(store, session_id, which)
    each = max(limit // len(rows) - 1, min(_LEAST_EACH, limit))
    lines = [truncate(_line(row), each) for row in rows]
    spare = limit - sum(len(line) + 1 for line in lines)
    if spare > 0:  # short ones leave room for the long ones
        long = [i for i, row in enumerate(rows) if len(_line(row)) > each]
        for i in long:
            lines[i] = truncate(_line(rows[i]), each + spare // len(long))
    shown: list[str] = []
    for position, line in enumerate(lines):
        note = f"… and {len(lines) - position} more; ask for {number(rows[position])} and up."
        if sum(map(len, shown)) + len(shown) + len(line) + len(note) + 1 > limit and shown:
            return "\n".join([*shown, note])[:limit]
        shown.append(line)
    return "\n".join(shown)[:limit]


def _line(row: Mapping[str, Any]) -> str:
    who = f"{row['role']} {row.get('tool_name') or ''}".rstrip()
    return f"[{number(row)}] {who}: {words_of(row)}"


def _members(store: Store, session_id: str) -> list[str]:
    """The sessions of the conversation up to this one, oldest first."""
    members = store.get_compression_lineage(session_id)
    if not members:
        raise SessionNotFoundError(f"There is no session {session_id!r}.")
    return members[: members.index(session_id) + 1] if session_id in members else members


def _wanted(store: Store, members: Sequence[str], which: str) -> tuple[int, int]:
    asked = _RANGE.fullmatch(which) if which.strip() else None
    if asked is None and which.strip():
        raise UsageError(
            f"{which!r} names no messages.", fix="Give a number or a range, as in 12 or 12-34."
        )
    if asked is not None and asked[2]:
        first, last = sorted((int(asked[1]), int(asked[2])))
        return first, last
    for row in _summaries(store, members):
        span = span_of(row)
        if span is not None and (asked is None or int(asked[1]) == row["id"]):
            return span
    if asked is None:
        raise UsageError(
            "This conversation has not been summed up.", fix="Name the messages, as in 12-34."
        )
    return int(asked[1]), int(asked[1])


def _summaries(store: Store, members: Sequence[str]) -> Iterator[Row]:
    """The summaries of a conversation, the latest first."""
    for member in reversed(members):
        for row in reversed(store.get_messages(member)):
            if row["kind"] == "summary":
                yield row


def _originals(store: Store, members: Sequence[str]) -> dict[int, Row]:
    """What was really said, by number: copies only stand in for what is not here itself.

    What a branch was made from is part of it, up to where it was made.
    """
    found: dict[int, Row] = {}
    beginning = store.get_messages(members[0])
    root = store.get_session(members[0])
    if root is not None and root["relation"] == "branch":
        until = max((number(row) for row in beginning if row["origin_id"] is not None), default=0)
        above = _originals(store, _members(store, root["parent_session_id"]))
        found = {key: row for key, row in above.items() if key <= until}
    for rows in (beginning, *map(store.get_messages, members[1:])):
        for row in rows:
            if row["kind"] != "summary" and (row["origin_id"] is None or number(row) not in found):
                found[number(row)] = row
    return found
