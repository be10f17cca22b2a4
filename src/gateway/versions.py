"""Versions: a message that its sender changed, and what became of it before."""

from typing import NamedTuple

import msgspec

from gateway import reply_target
from gateway.platforms.base import Attachment, MessageEvent
from gateway.reply_target import ReplyTarget
from gateway.source import SessionSource
from hermes_state.ledger import inbox, turns
from hermes_state.store import Store
from hermes_state.values import InboundMessage, Row


class Version(NamedTuple):
    """A message as it was taken in last."""

    outcome: str | None
    turn_id: str | None
    target: ReplyTarget | None
    """None: it was ignored, and nothing of it was kept."""
    is_own: bool = True
    """Whether it is by the same person as the new one, or may be."""
    received_at: float = 0.0
    settled_at: float | None = None
    """None: what became of it is not known yet."""

    @property
    def was_heard(self) -> bool:
        """Whether the model has been told its words, or will be: as a turn, or as an answer."""
        is_answer = self.outcome == "command" and self.target is not None and not self.target.text
        return self.turn_id is not None or is_answer


def before(store: Store, event: MessageEvent) -> Version | None:
    """The last version of the message that this one is a new version of; None: it never came."""
    return next(reversed(all_before(store, event)), None)


def all_before(store: Store, event: MessageEvent) -> list[Version]:
    """Every version of it, the oldest first.

    What its sender wrote goes before what others did, who cannot change it: platforms do not all see to
    that themselves.
    """
    source = event.source
    if source is None or event.edits is None:
        return []
    named = InboundMessage(source.platform.value, source.chat_id, event.edits)
    rows = [
        row for row in store.read(inbox.versions, named) if row["message_id"] != event.message_id
    ]
    found = [_version(row, source) for row in rows]
    own = [one for one in found if one.is_own]
    return own or found


def _version(row: Row, source: SessionSource) -> Version:
    try:
        target = reply_target.decode(row["payload"])
    except msgspec.ValidationError:
        target = None
    is_own = target is None or target.source.person == source.person
    return Version(
        row["outcome"], row["turn_id"], target, is_own, row["received_at"], row["settled_at"]
    )


def complete(event: MessageEvent, last: Version | None) -> None:
    """Give a new version what it keeps of the last one; once more changes nothing.

    Who changes one picture of an album, or its words, changes nothing of the others; and some platforms
    tell the words alone.
    """
    if last is None or last.target is None or not last.is_own:
        return
    event.parts = last.target.parts
    if event.parts or not event.attachments:
        event.attachments = [*last.target.attachments, *new_files(event, last)]


def new_files(event: MessageEvent, last: Version) -> list[Attachment]:
    """The files that the version before did not have."""
    kept = last.target.attachments if last.target is not None else []
    return [one for one in event.attachments if one not in kept]


def says_the_same(event: MessageEvent, last: Version, store: Store) -> bool:
    """Whether nothing of a message is new: platforms also tell of links that got a preview."""
    target = last.target
    if target is None:
        return False
    if not target.digest:  # noted before versions were told apart by it
        words = store.read(turns.user_text, last.turn_id) if last.turn_id else target.text
        return words == event.text
    is_same = target.digest == reply_target.digest(event.text)
    return is_same and set(target.attachments) == set(event.attachments)
