"""Conversations: finds the conversation that a message belongs to, and begins the one that it needs."""

from typing import Any

from gateway.access import Access
from gateway.delivery import Delivery
from gateway.platforms.base import MessageEvent
from gateway.replies import Replies
from gateway.reply_target import ReplyTarget
from gateway.session import SessionEntry, SessionStore
from gateway.source import SessionSource
from hermes_core.errors import HermesError, SessionNotFoundError
from hermes_state.ledger import lineage, scope, sessions
from hermes_state.store import Store
from hermes_state.values import NewSession

_RESET_NOTES = {
    "idle": "New conversation: the last one was idle for a long time.",
    "daily": "New conversation: this chat is reset daily.",
    "suspended": "New conversation: the last one was suspended.",
}


class Conversations:
    """The conversations that messages belong to. May be used from several threads."""

    def __init__(
        self,
        store: Store,
        sessions: SessionStore,
        access: Access,
        replies: Replies,
        delivery: Delivery,
    ) -> None:
        self._store = store
        self._delivery = delivery
        self._sessions = sessions
        self._access = access
        self._replies = replies

    def source_of(self, event: MessageEvent) -> SessionSource:
        """Return the chat and person of a message.

        A program that names a session is in the chat of its conversation, whichever session of that
        conversation it names.
        """
        source = event.source
        if source is None or not event.message_id:
            raise HermesError("A platform delivered a message without a source or an id.")
        if named := event.options.get("session_id"):
            root = self._store.read(lineage.root, named)
            source = event.source = source.of_session(root)
        return source

    def entry_of(
        self, event: MessageEvent, source: SessionSource, *, is_command: bool = False
    ) -> SessionEntry:
        """Return the route of a message; a program may name a session, or want one for itself.

        Commands change routes, so their routes are stored. Raises SessionNotFoundError.
        """
        self.check_visible(event, source)
        if named := event.options.get("session_id"):
            return self._sessions.in_session(source, named)
        if event.options.get("is_single"):
            key = self._sessions.key_of(source)
            return self._sessions.entry_for(key, sessions.new_id(), source)
        return self._sessions.get_or_create_session(source, saves=is_command)

    def check_visible(self, event: MessageEvent, source: SessionSource) -> None:
        """Raise SessionNotFoundError for a session that a program names and may not see."""
        named = event.options.get("session_id")
        if named and not self._store.read(
            scope.is_visible, named, self._access.permissions_of(source).scope
        ):
            raise SessionNotFoundError(f"There is no session {named}.")

    def check_owner(self, event: MessageEvent, source: SessionSource, key: str) -> None:
        """Raise SessionNotFoundError when a program uses the conversation name of another user."""
        is_in_place = self._replies.abilities(source.platform.value).answers_in_place
        if not is_in_place or event.options.get("is_single"):
            return
        person = self._sessions.person_in(key)
        if person is not None and person != source.person:
            raise SessionNotFoundError(
                f"The conversation {source.chat_id!r} belongs to another user.",
                fix="Choose another name for yours.",
            )

    def opening_of(
        self, entry: SessionEntry, event: MessageEvent, source: SessionSource
    ) -> NewSession:
        """Return the session that a first message creates: its owner, and the history it brings."""
        opening = self._sessions.opening(entry)
        fields = {**opening.fields, **self._access.fields_of(source)}
        history = event.options.get("history") or ()
        route = None
        if not event.options.get("is_single"):
            route = self._sessions.unsaved_route(entry.session_key)
        return opening._replace(fields=fields, messages=history, route=route)

    def fields_of(self, target: ReplyTarget, session_key: str) -> dict[str, Any]:
        """Return the fields of a session that a command creates: its owner and its chat."""
        return {**self._access.fields_of(target.source), "session_key": session_key}

    def notify_reset(self, entry: SessionEntry, target: ReplyTarget) -> None:
        """Tell a chat, once, that its conversation was reset, if there was something in it."""
        if not entry.was_auto_reset:
            return
        policy = self._sessions.config.get_reset_policy(entry.platform, entry.chat_type)
        note = _RESET_NOTES.get(entry.auto_reset_reason or "")
        if note and policy.notify and entry.reset_had_activity:
            name = f"reset:{entry.session_id}"
            self._delivery.enqueue(self._replies.pieces(target, f"ℹ️ {note}", name=name))
        entry.was_auto_reset = False
