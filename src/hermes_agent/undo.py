"""Undo the last exchanges of a conversation, and on request what their turns changed in files."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

from hermes_agent import history, recovery
from hermes_agent.checkpoints import undo as files
from hermes_agent.compaction.transcript import original_id
from hermes_agent.conversation import Conversation
from hermes_core.errors import NothingSaidError, UsageError
from hermes_core.paths import Home
from hermes_core.settings import ToolSettings
from hermes_core.text import one_line, truncate
from hermes_state.ledger import checkpoints, messages
from hermes_state.values import Lease, Row

_HINT = "What its turns changed in files stays as it is; /undo --files restores it."
_OFF = "Checkpoints are off: set tools.checkpoints to true, so that later changes can be restored."


class FilesOf(NamedTuple):
    """Names the home of the checkpoints, and the settings they are taken with."""

    home: Home
    settings: ToolSettings
    shows_paths: bool = True
    """Whether the person may see where the workspace and the home are."""


Held = AbstractContextManager[Lease]
Hold = Callable[[], Held]
"""Holds the conversation, so that no other process runs it meanwhile."""


def check_answered(conversation: Conversation) -> None:
    """Raise UsageError when a message of the conversation has no answer yet."""
    if recovery.unfinished(conversation.store, conversation.conversation_id):
        raise UsageError(
            "A message of this conversation has no answer yet.", fix="Wait for it, or resume it."
        )


def undo(conversation: Conversation, number: int, hold: Hold) -> str:
    """Undo the last exchanges; return what the person reads. Files stay as they are."""
    request = _request(conversation, number)
    with hold():
        _rewind(conversation, request)
    rows = _rows(conversation, original_id(request))
    has_changed = any(row["before"] != row["after"] for row in rows)
    return "\n".join([_undone(request), _HINT]) if has_changed else _undone(request)


def undo_with_files(conversation: Conversation, number: int | None, hold: Hold, of: FilesOf) -> str:
    """Undo the last exchanges and restore the files; return what the person reads.

    Without a number, files that an earlier undo left as they were are restored, and nothing else.
    """
    request, since = _extent(conversation, number)
    with hold():
        text = _restored(conversation, since, of, apply=True)
        if request is None:
            return text
        _rewind(conversation, request)
    return f"{_undone(request)}\n{text}"


def preview(conversation: Conversation, number: int | None, hold: Hold, of: FilesOf) -> str:
    """Say what `undo_with_files` would do."""
    request, since = _extent(conversation, number)
    with hold():  # a turn that runs has no end to compare with
        text = _restored(conversation, since, of, apply=False)
    return text if request is None else f"Would undo from here on: {_quoted(request)}\n{text}"


def _extent(conversation: Conversation, number: int | None) -> tuple[Row | None, int]:
    """Return the request to undo, and the message from which on files are restored."""
    try:
        request = _request(conversation, number or 1)
    except NothingSaidError:
        if number is not None or not _rows(conversation, 0):
            raise
        return None, 0
    first = original_id(request)
    is_left_over = number is None and _rows(conversation, first + 1)
    return (None, first + 1) if is_left_over else (request, first)


def _request(conversation: Conversation, number: int) -> Row:
    return history.last_request(conversation.store, conversation.session_id, number)


def _rows(conversation: Conversation, message_id: int) -> list[Row]:
    return conversation.store.read(checkpoints.since, conversation.conversation_id, message_id)


def _rewind(conversation: Conversation, request: Row) -> None:
    conversation.store.write(messages.rewind, conversation.session_id, request["id"])


def _restored(conversation: Conversation, since: int, of: FilesOf, *, apply: bool) -> str:
    store, rows = conversation.store, _rows(conversation, since)
    if not rows and not of.settings.checkpoints:
        return _OFF
    plans = files.plans(store, of.home, of.settings, rows, apply=apply)
    effects = store.read(checkpoints.effects_since, conversation.conversation_id, since)
    return files.describe(plans, effects, done=apply, shows_paths=of.shows_paths)


def _undone(request: Row) -> str:
    return f"Undone from here on: {_quoted(request)}"


def _quoted(request: Row) -> str:
    content = request["content"]
    text = content if isinstance(content, str) else "[attachment]"
    return repr(truncate(one_line(text), 70))
