"""The history of a conversation: which exchanges can be undone, and the originals behind a summary.

Undo goes back to the last summary and no further: messages that a summary replaces cannot be undone one
by one, and messages before a summary cannot go without it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from hermes_agent.compaction.summary import span_of
from hermes_agent.compaction.transcript import full_text, original_id
from hermes_core.errors import NothingSaidError, SessionNotFoundError, UsageError
from hermes_core.text import counted, truncate
from hermes_state.ledger import lineage, sessions
from hermes_state.ledger import messages as message_ledger
from hermes_state.store import Store
from hermes_state.values import Row

# -- undo ------------------------------------------------------------------------------------------


def user_messages(messages: Sequence[Row]) -> list[Row]:
    """Return all messages of the person."""
    return [row for row in messages if row["role"] == "user" and row.get("kind") != "summary"]


def requests(messages: Sequence[Row]) -> list[Row]:
    """Return the messages that began an exchange: not those sent into a running turn."""
    return [row for row in user_messages(messages) if row.get("answers") is None]


def undoable(messages: Sequence[Row]) -> list[Row]:
    """Return the requests since the last summary, oldest first."""
    summaries = [i for i, row in enumerate(messages) if row.get("kind") == "summary"]
    return requests(messages[summaries[-1] + 1 :] if summaries else messages)


def last_request(store: Store, session_id: str, number: int = 1, purpose: str = "undo") -> Row:
    """Return the request that began the last `number` exchanges, or the oldest that there is.

    Raises NothingSaidError when there is none, or when that would reach behind a summary.
    """
    messages = store.read(message_ledger.as_conversation, session_id)
    found = undoable(messages)
    is_compacted = any(row.get("kind") == "summary" for row in messages)
    if found and (number <= len(found) or not is_compacted):
        return found[-min(number, len(found))]
    if not is_compacted:
        raise NothingSaidError(
            f"There is nothing to {purpose} in this conversation.", fix=undo_hint(store, session_id)
        )
    verb = "are" if len(found) > 1 else "is"
    rest = f"only {counted(len(found), 'exchange')}" if found else "nothing"
    raise NothingSaidError(
        f"Earlier messages were compacted: there {verb} {rest} to {purpose} since.",
        fix=undo_hint(store, session_id),
    )


def undo_hint(store: Store, session_id: str) -> str:
    """Say how to reach messages from before a compaction; empty when there was none."""
    row = store.read(sessions.find, session_id)
    if row is not None and row["relation"] == "continuation":
        return "/undo compress brings back the messages from before the compaction."
    if row is not None and row["relation"] == "branch":
        return f"This is a copy; /resume {row['parent_session_id']} opens the original."
    return ""


def original_content(store: Store, session_id: str, request: Row) -> Any:  # noqa: ANN401 -- text or parts
    """Return the content of a request as it was sent; a copy made by compaction may be cut."""
    if request.get("kind") != "copy":
        return request["content"]
    return expand(store, session_id, request["origin_id"])[0]["content"]


# -- originals -------------------------------------------------------------------------------------

MAX_CHARACTERS = 20_000
_MIN_CHARACTERS_EACH = 200
_RANGE = re.compile(r"\s*#?(\d+)\s*(?:(?:-|–|—|\.\.|to)\s*#?(\d+))?\s*", re.IGNORECASE)


def expand(store: Store, session_id: str, which: int | str = "") -> list[Row]:
    """Return the originals of a summary, of a range (`12-34`), or of one message.

    A number is the id of a message or of a summary; an empty text means the latest summary.
    """
    members = _members(store, session_id)
    first, last = _range(store, members, str(which))
    originals = _originals(store, members)
    found = [originals[key] for key in sorted(originals) if first <= key <= last]
    if not found:
        raise UsageError(
            f"This conversation has no message {first if first == last else f'{first}-{last}'}.",
            fix="The first line of a summary names the messages that it replaces.",
        )
    return found


def expand_text(
    store: Store, session_id: str, which: int | str = "", limit: int = MAX_CHARACTERS
) -> str:
    """Return the originals as text of at most `limit` characters, with long messages truncated."""
    rows = expand(store, session_id, which)
    each = max(limit // len(rows) - 1, min(_MIN_CHARACTERS_EACH, limit))
    lines = [truncate(_line(row), each) for row in rows]
    spare = limit - sum(len(line) + 1 for line in lines)
    if spare > 0:  # short lines leave room for long ones
        long = [i for i, row in enumerate(rows) if len(_line(row)) > each]
        for i in long:
            lines[i] = truncate(_line(rows[i]), each + spare // len(long))
    output: list[str] = []
    for position, line in enumerate(lines):
        note = f"… and {len(lines) - position} more; ask for {original_id(rows[position])} and up."
        if sum(map(len, output)) + len(output) + len(line) + len(note) + 1 > limit and output:
            return "\n".join([*output, note])[:limit]
        output.append(line)
    return "\n".join(output)[:limit]


def _line(row: Mapping[str, Any]) -> str:
    who = f"{row['role']} {row.get('tool_name') or ''}".rstrip()
    return f"[{original_id(row)}] {who}: {full_text(row)}"


def _members(store: Store, session_id: str) -> list[str]:
    """Return the sessions of the conversation up to this one, oldest first."""
    members = store.read(lineage.members, session_id)
    if not members:
        raise SessionNotFoundError(f"There is no session {session_id!r}.")
    return members[: members.index(session_id) + 1] if session_id in members else members


def _range(store: Store, members: Sequence[str], which: str) -> tuple[int, int]:
    """Return the ids of the first and the last message that `which` names."""
    match = _RANGE.fullmatch(which) if which.strip() else None
    if match is None and which.strip():
        raise UsageError(
            f"{which!r} names no messages.", fix="Give a number or a range, as in 12 or 12-34."
        )
    if match is not None and match[2]:
        first, last = sorted((int(match[1]), int(match[2])))
        return first, last
    for row in _summaries(store, members):
        span = span_of(row)
        if span is not None and (match is None or int(match[1]) == row["id"]):
            return span
    if match is None:
        raise UsageError(
            "This conversation has not been compacted.", fix="Name the messages, as in 12-34."
        )
    return int(match[1]), int(match[1])


def _summaries(store: Store, members: Sequence[str]) -> Iterator[Row]:
    """Yield the summaries of a conversation, latest first."""
    for member in reversed(members):
        for row in reversed(store.read(message_ledger.of_session, member)):
            if row["kind"] == "summary":
                yield row


def _originals(store: Store, members: Sequence[str]) -> dict[int, Row]:
    """Map ids to messages; a copy is used only where its original is not in the conversation.

    A branch includes the messages of its parent up to where it branched.
    """
    found: dict[int, Row] = {}
    beginning = store.read(message_ledger.of_session, members[0])
    root = store.read(sessions.find, members[0])
    if root is not None and root["relation"] == "branch":
        copied = (original_id(row) for row in beginning if row["origin_id"] is not None)
        until = max(copied, default=0)
        above = _originals(store, _members(store, root["parent_session_id"]))
        found = {key: row for key, row in above.items() if key <= until}
    for rows in (beginning, *map(partial(store.read, message_ledger.of_session), members[1:])):
        for row in rows:
            is_original = row["origin_id"] is None
            if row["kind"] != "summary" and (is_original or original_id(row) not in found):
                found[original_id(row)] = row
    return found
