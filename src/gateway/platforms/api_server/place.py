"""Where a request belongs: its conversation, and the name under which it is told from its repeats."""

import hashlib
import re
import uuid
from collections.abc import Mapping
from typing import NamedTuple

from gateway.platforms.refusal import RefusedRequest

CONVERSATION = "X-Hermes-Conversation"
SESSION = "X-Hermes-Session-Id"
KEY = "Idempotency-Key"

_NAME = re.compile(r"(?!.*\.\.)(?!session:|request:)[\w@+=~-][\w .@+:=/~-]{0,127}", re.ASCII)
_SESSION_ID = re.compile(r"[\w-]{1,128}", re.ASCII)
_LONGEST_KEY = 255


class Place(NamedTuple):
    """One request's conversation and name."""

    chat_id: str
    message_id: str
    session_id: str = ""
    """The session that was asked for by its id."""
    is_named: bool = False
    """Whether the client gave the conversation a name of its own."""
    has_key: bool = False
    """Whether the client may come back for the answer."""

    @property
    def is_lasting(self) -> bool:
        """Whether what was said before is with us; else it is what the client tells."""
        return self.is_named or bool(self.session_id)


def find(headers: Mapping[str, str], *, conversation: str = "", session_id: str = "") -> Place:
    """The place that the headers and the body name; raises RefusedRequest."""
    name = headers.get(CONVERSATION) or conversation
    session_id = headers.get(SESSION) or session_id
    key = headers.get(KEY, "")
    if conversation and name != conversation:
        raise _refused("The header names another conversation than the body does.", CONVERSATION)
    if name and session_id:
        raise _refused("Name the conversation or the session, not both.", CONVERSATION)
    if name and not _NAME.fullmatch(name):
        raise _refused(
            "A conversation's name is up to 128 letters, digits, blanks and ._@+:=/~- without `..`;"
            " it begins with a letter, a digit or one of _@+=~-, and not with session: or request:",
            CONVERSATION,
        )
    if session_id and not _SESSION_ID.fullmatch(session_id):
        raise _refused("That is no id of a session.", SESSION)
    if len(key) > _LONGEST_KEY:
        raise _refused(f"An idempotency key has at most {_LONGEST_KEY} characters.", KEY)
    message_id = key or uuid.uuid4().hex
    chat_id = name or (f"session:{session_id}" if session_id else f"request:{_hash(message_id)}")
    return Place(chat_id, message_id, session_id, is_named=bool(name), has_key=bool(key))


def _hash(key: str) -> str:
    """A conversation of its own for each key, and the same one for its repeat."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _refused(message: str, header: str) -> RefusedRequest:
    return RefusedRequest(400, message, code="invalid_header", param=header)
