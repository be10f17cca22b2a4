"""ModelInput: the text that the model gets for a message: sender, quote, words and files."""

from typing import Any

from gateway import attachments
from gateway.platforms.base import MessageEvent
from gateway.session import SessionStore
from gateway.source import SessionSource
from hermes_core.text import one_line, truncate
from hermes_state.ledger import outbox
from hermes_state.store import Store

_LONGEST_QUOTE = 2000
_LONGEST_NAME = 80
_BRACKETS = str.maketrans("[]", "()")


class ModelInput:
    """Puts messages into words for the model. May be used from several threads."""

    def __init__(self, store: Store, sessions: SessionStore) -> None:
        self._store = store
        self._sessions = sessions

    def of(self, event: MessageEvent, text: str, session_id: str) -> str | list[dict[str, Any]]:
        """A message whose words are these, for the conversation that it is said in."""
        if event.source is not None:
            text = self.spoken(event.source, text)
        words = "\n\n".join(one for one in (self._quote(event, session_id), text) if one)
        return attachments.as_content(words, event.attachments)

    def spoken(self, source: SessionSource, text: str) -> str:
        """Words with the name of who says them, where several people speak."""
        if not self._sessions.is_shared(source):
            return text
        return f"[{_name(source)}] {text}".rstrip()

    def _quote(self, event: MessageEvent, session_id: str) -> str:
        """What a message replies to, unless the model sees the whole of that as its own words."""
        if not event.reply_to_text:
            return ""
        if not event.quotes_part and self._is_seen(event, session_id):
            return ""
        lines = event.reply_to_text[:_LONGEST_QUOTE].splitlines()
        return "\n".join(f"> {line}" for line in lines)

    def _is_seen(self, event: MessageEvent, session_id: str) -> bool:
        source, replied = event.source, event.reply_to_message_id
        if not event.reply_to_is_own_message or source is None or replied is None:
            return False
        return self._store.read(outbox.is_seen, session_id, source.chat_id, replied)


def _name(source: SessionSource) -> str:
    """Who speaks, in a form that nobody can end early to speak as another."""
    name = one_line(source.user_name or source.user_id or "somebody").translate(_BRACKETS)
    return truncate(name, _LONGEST_NAME)
