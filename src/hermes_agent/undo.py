"""What a person asked for in a conversation, and which of it can be taken back.

What a summary stands for is not there to be taken back message by message, and what stands before a
summary cannot go without it: nothing goes that nobody named. So only what follows the last summary can.
"""

from collections.abc import Sequence
from typing import Any

from hermes_agent.compaction import expand
from hermes_core.errors import NothingSaidError
from hermes_core.text import counted
from hermes_state.protocol import Store
from hermes_state.values import Row


def asked(messages: Sequence[Row]) -> list[Row]:
    """Return what the person asked for; what was said into a running turn belongs to its request."""
    return [message for message in said(messages) if message.get("answers") is None]


def said(messages: Sequence[Row]) -> list[Row]:
    """All that the person said."""
    return [one for one in messages if one["role"] == "user" and one.get("kind") != "summary"]


def since_summary(messages: Sequence[Row]) -> list[Row]:
    """The requests that can be taken back with all that followed them, the last one last."""
    summaries = [place for place, one in enumerate(messages) if one.get("kind") == "summary"]
    return asked(messages[summaries[-1] + 1 :] if summaries else messages)


def last(store: Store, session_id: str, number: int = 1, purpose: str = "take back") -> Row:
    """The request that so many exchanges began with, the last one included, or all that there are.

    Raises NothingSaidError when there is none, or when that would reach behind a summary.
    """
    messages = store.get_messages_as_conversation(session_id)
    found = since_summary(messages)
    is_summed_up = any(one.get("kind") == "summary" for one in messages)
    if found and (number <= len(found) or not is_summed_up):
        return found[-min(number, len(found))]
    if not is_summed_up:
        raise NothingSaidError(
            f"There is nothing to {purpose} in this conversation.", fix=way_back(store, session_id)
        )
    verb = "are" if len(found) > 1 else "is"
    left = f"only {counted(len(found), 'exchange')}" if found else "nothing"
    raise NothingSaidError(
        f"What was said before was summed up: there {verb} {left} to {purpose} since.",
        fix=way_back(store, session_id),
    )


def way_back(store: Store, session_id: str) -> str:
    """Return how a person reaches messages from before a compaction; empty when there was none."""
    row = store.get_session(session_id)
    if row is not None and row["relation"] == "continuation":
        return "/undo compress brings back what was said before it was shortened."
    if row is not None and row["relation"] == "branch":
        return f"This is a copy; /resume {row['parent_session_id']} opens what it was made from."
    return ""


def content_of(store: Store, session_id: str, request: Row) -> Any:  # noqa: ANN401 -- text or parts
    """What a request said when it was made; its copy in a shortened conversation may be abridged."""
    if request.get("kind") != "copy":
        return request["content"]
    return expand(store, session_id, request["origin_id"])[0]["content"]
