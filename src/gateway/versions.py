"""Versions: a message that its sender edited, and what became of the version before."""

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
    """An earlier version of a message."""

    outcome: str | None
    turn_id: str | None
    target: ReplyTarget | None
    """None when it was ignored, as nothing of it was stored."""
    is_own: bool = True
    """Whether it is by the same person as the new one, or may be."""

    @property
    def reached_model(self) -> bool:
        """Return whether the model got its text, or will: as a turn, or as an answer."""
        is_answer = self.outcome == "command" and self.target is not None and not self.target.text
        return self.turn_id is not None or is_answer

    @property
    def target_text(self) -> str:
        """The text, when it was a command."""
        return self.target.text if self.target is not None else ""

    @property
    def attachments(self) -> list[Attachment]:
        return self.target.attachments if self.target is not None else []


def before(store: Store, event: MessageEvent) -> Version | None:
    """Return the last version of an edited message; None when there is none.

    A version of its sender goes before one of somebody else, as not every platform keeps others from
    editing it.
    """
    source = event.source
    if source is None or event.edits is None:
        return None
    message = InboundMessage(source.platform.value, source.chat_id, event.edits)
    found = [
        _version(row, source)
        for row in store.read(inbox.versions, message)
        if row["message_id"] != event.message_id
    ]
    own = [version for version in found if version.is_own]
    return next(reversed(own or found), None)


def _version(row: Row, source: SessionSource) -> Version:
    try:
        target = reply_target.decode(row["payload"])
    except msgspec.ValidationError:
        target = None
    is_own = target is None or target.source.person == source.person
    return Version(row["outcome"], row["turn_id"], target, is_own)


def complete(event: MessageEvent, previous: Version | None, store: Store) -> None:
    """Add to an edited message what it keeps of the previous version; repeating changes nothing.

    An edit of one picture of an album, or of one part of a text, keeps the others; some platforms
    deliver the text alone.
    """
    if previous is None or previous.target is None or not previous.is_own:
        return
    if previous.target.part_sizes and not event.part_sizes:
        _keep_other_parts(event, previous, previous.target, store)
    event.parts = previous.target.parts
    if event.parts or not event.attachments:
        event.attachments = [*previous.attachments, *new_files(event, previous)]


def _keep_other_parts(
    event: MessageEvent, previous: Version, target: ReplyTarget, store: Store
) -> None:
    """Put the new text of one part between the others of a text that a client cut."""
    words = store.read(turns.user_text, previous.turn_id) if previous.turn_id else None
    if words is None or event.edits not in target.parts or len(words) != sum(target.part_sizes):
        return  # the text was changed on its way, as by a plugin: the edit counts as it is
    number, sizes = target.parts.index(event.edits), list(target.part_sizes)
    begin = sum(sizes[:number])
    end = begin + sizes[number]
    gap = "\n" if words[begin:end].endswith("\n") else ""
    part = event.text + gap
    sizes[number] = len(part)
    event.text, event.part_sizes = words[:begin] + part + words[end:], sizes


def new_files(event: MessageEvent, previous: Version) -> list[Attachment]:
    """Return the files that the previous version did not have."""
    return [file for file in event.attachments if file not in previous.attachments]


def is_unchanged_text(event: MessageEvent, previous: Version, store: Store) -> bool:
    """Return whether an edit changes nothing: platforms also report previews of links as edits."""
    target = previous.target
    if target is None:
        return False
    if not target.digest:  # stored before there were digests
        words = store.read(turns.user_text, previous.turn_id) if previous.turn_id else target.text
        return words == event.text
    is_same = target.digest == reply_target.digest(event.text)
    return is_same and set(target.attachments) == set(event.attachments)
