"""ModelInput: the text that the model gets for a message: sender, quote, words and files."""

from typing import Any

from gateway import attachments
from gateway.platforms.base import MessageEvent
from gateway.session import SessionStore
from gateway.source import SessionSource
from hermes_core.text import one_line, truncate
from hermes_state.ledger import outbox
from hermes_state.store import Store

_MAX_QUOTE = 2000
_MAX_NAME = 80
_BRACKETS = str.maketrans("[]", "()")


class ModelInput:
    """Writes messages for the model. May be used from several threads."""

    def __init__(self, store: Store, sessions: SessionStore) -> None:
        self._store = store
        self._sessions = sessions

    def of(self, event: MessageEvent, text: str, session_id: str) -> str | list[dict[str, Any]]:
        """Return the content of a message with this text, for its conversation."""
        if event.source is not None:
            text = self.spoken(event.source, text)
        full_text = "\n\n".join(filter(None, (self._quote(event, session_id), text)))
        return attachments.as_content(full_text, event.attachments)

    def spoken(self, source: SessionSource, text: str) -> str:
        """Return a text with the name of its sender, where a conversation has several people."""
        if not self._sessions.is_shared(source):
            return text
        return f"[{_name(source)}] {text}".rstrip()

    def _quote(self, event: MessageEvent, session_id: str) -> str:
        """Return the quote of a message, unless it is all of a message that the model wrote."""
        if not event.reply_to_text:
            return ""
        if not event.quotes_part and self._is_seen(event, session_id):
            return ""
        lines = event.reply_to_text[:_MAX_QUOTE].splitlines()
        return "\n".join(f"> {line}" for line in lines)

    def _is_seen(self, event: MessageEvent, session_id: str) -> bool:
        source, replied = event.source, event.reply_to_message_id
        if not event.reply_to_is_own_message or source is None or replied is None:
            return False
        return self._store.read(outbox.is_in_context, session_id, source.chat_id, replied)


def _name(source: SessionSource) -> str:
    """Return the name of a person, without the brackets that would end it early."""
    name = one_line(source.user_name or source.user_id or "somebody").translate(_BRACKETS)
    return truncate(name, _MAX_NAME)
