"""Replies: how the end of a turn becomes pieces for the chat it came from.

The pieces are put into the outbox in the commit that ends the turn, so that a reply can neither be lost
nor be there twice.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from gateway import (
    plugin_rewrites,
    questions,
    reply_attachments,
    reply_target,
    reply_text,
    turn_results,
)
from gateway.platforms.base import Abilities, Button
from gateway.reply_attachments import ReplyAttachments
from gateway.reply_target import ReplyTarget
from gateway.splitting import split
from hermes_agent.permissions import Permissions
from hermes_agent.turn.events import Notice, QuestionAsked
from hermes_agent.turn.values import Outcome
from hermes_cli import plugins
from hermes_cli.hook_answers import Answer
from hermes_state.ledger import budgets, outbox, sessions, turns
from hermes_state.store import Store
from hermes_state.values import OutboundPart, Row

REPEAT_MARK = "(This may be a repeat.)"
_UNKNOWN = Abilities(text_limit=2000)
"""Of a platform that is switched off: what is sent when it is back must fit any."""


_SLASH = "/"


class Extra(msgspec.Struct, frozen=True, omit_defaults=True):
    """What goes along with a piece."""

    reply_to: str | None = None
    subject: str = ""
    files: list[str] = []
    session_id: str = ""
    """Where a command was done that was answered on its request."""
    is_plain: bool = False
    """Whether the text is shown as it stands, as titles and ids are in it that are no Markdown."""


class Answered(NamedTuple):
    """What a command said on its request, and the session that its chat was in then."""

    text: str = ""
    session_id: str = ""


def encode(extra: Extra) -> str:
    return msgspec.json.encode(extra).decode()


def decode(text: str | None) -> Extra:
    """What goes along with a stored piece."""
    return msgspec.json.decode(text, type=Extra) if text else Extra()


class Replies:
    """Makes pieces for chats."""

    def __init__(
        self,
        store: Store,
        abilities_of: Callable[[str], Abilities | None],
        enclosures: ReplyAttachments,
        workspace: Path,
        commands: Collection[str] = (),
    ) -> None:
        """`commands` are the names that a slash stands before in what we say ourselves."""
        self._store = store
        self._abilities_of = abilities_of
        self._enclosures = enclosures
        self._workspace = workspace
        names = "|".join(map(re.escape, sorted(commands, key=len, reverse=True)))
        self._command = (
            re.compile(rf"(?<![\w/.]){_SLASH}(?=(?:{names})(?![\w/-]|\.\w))") if names else None
        )

    def abilities(self, platform: str) -> Abilities:
        return self._abilities_of(platform) or _UNKNOWN

    def deliver(
        self, turn_id: str, outcome: Outcome, target: ReplyTarget | None = None
    ) -> Sequence[OutboundPart]:
        """What must be sent when a turn ends so; where it came from is looked up if need be."""
        target = target or reply_target.of_turn(self._store, turn_id)
        if target is None or target.is_in_place:
            return ()
        # How often the model was asked makes a difference only where it has said nothing.
        calls = 1 if outcome.text.strip() else self._store.read(budgets.of_turn, turn_id)["steps"]
        text = reply_text.text_of(outcome, calls)
        if not text:
            return ()
        wishes = self._wishes(target, turn_id, text)
        said = plugin_rewrites.text_after(wishes, text)
        if said is None:
            return [_dropped(target, turn_id, text, plugin_rewrites.reason(wishes))]
        if not said.strip():
            return [_dropped(target, turn_id, text, "it left nothing of it")]
        return self._with_files(target, turn_id, said)

    def bring(self, row: Row) -> None:
        """Put down what is to be sent of a turn that somebody else ended, unless that was done."""
        if row["state"] in ("answered", "failed") and not self._store.read(
            outbox.of_turn, row["id"]
        ):
            pieces = self.deliver(row["id"], turn_results.outcome_of(self._store, row))
            self._store.write(outbox.put, pieces, turn_id=row["id"])

    def manner(self, platform: str, permissions: Permissions) -> str:
        """What the model is told of how it is heard on a platform."""
        is_told = self.abilities(platform).can_send_files and reply_attachments.may_send(
            permissions
        )
        return reply_attachments.MANNER if is_told else ""

    def _with_files(self, target: ReplyTarget, turn_id: str, text: str) -> list[OutboundPart]:
        """The pieces of a reply, and of the files that it names."""
        place, name = target.source, f"turn:{turn_id}"
        abilities = self.abilities(place.platform.value)
        if not abilities.can_send_files or reply_attachments.MARK not in text:
            return self.pieces(target, text, name=name)
        enclosed = self._enclosures.of(text, place, self._workspace_of(turn_id))
        made = self.pieces(target, enclosed.text, name=name)
        if not enclosed.files:
            return made
        if not abilities.can_edit:
            along = msgspec.structs.replace(decode(made[-1].extra), files=enclosed.files)
            return [*made[:-1], made[-1]._replace(extra=encode(along))]
        # A draft becomes the reply by an edit, which brings no file: here each goes by itself.
        for file in enclosed.files:
            along = encode(Extra(subject=target.subject, files=[file]))
            made.append(made[0]._replace(content="", key=f"{name}:{len(made)}", extra=along))
        return made

    def _workspace_of(self, turn_id: str) -> Path:
        turn = self._store.read(turns.find, turn_id)
        row = self._store.read(sessions.find, turn["session_id"]) if turn is not None else None
        return Path(row["cwd"]) if row is not None and row["cwd"] else self._workspace

    def _wishes(self, target: ReplyTarget, turn_id: str, text: str) -> Sequence[Answer]:
        """What plugins want of a reply; the conversation keeps the original."""
        if not plugins.has_hook("pre_send"):
            return ()
        place = target.source
        return plugins.invoke_hook(
            "pre_send",
            platform=place.platform.value,
            chat_id=place.chat_id,
            session_id=(self._store.read(turns.find, turn_id) or {}).get("session_id", ""),
            text=text,
        )

    def pieces(
        self, target: ReplyTarget, text: str, *, name: str, extra: Extra | None = None
    ) -> list[OutboundPart]:
        """A text for the chat that something came from, cut as its platform needs it."""
        if target.is_in_place or not text.strip():
            return []
        place = target.source
        platform = place.platform.value
        abilities = self.abilities(platform)
        along = extra or Extra(reply_to=target.message_id, subject=target.subject)
        parts = split(text, _room(abilities), abilities.measure)
        along_text = encode(along)
        return [
            OutboundPart(
                platform,
                place.chat_id,
                part,
                place.thread_id,
                f"{name}:{number}",
                along_text,
            )
            for number, part in enumerate(parts)
        ]

    def as_typed(self, target: ReplyTarget, text: str) -> str:
        """Words of our own in which commands are written as people write them on that platform."""
        prefix = self.abilities(target.source.platform.value).command_prefix
        if self._command is None or prefix == _SLASH:
            return text
        return self._command.sub(lambda _: prefix, text)

    def answer(
        self,
        target: ReplyTarget,
        text: str,
        *,
        name: str,
        session_id: str = "",
        is_plain: bool = True,
    ) -> list[OutboundPart]:
        """What a command says; what it says on the request itself is kept for who asks again.

        Our own commands speak plainly; a plugin's may use Markdown.
        """
        text = self.as_typed(target, text)
        if not target.is_in_place or not (text or session_id):
            subject, reply_to = target.subject, target.message_id
            along = Extra(reply_to=reply_to, subject=subject, is_plain=is_plain)
            return self.pieces(target, text, name=name, extra=along)
        platform, chat_id = target.source.platform.value, target.source.chat_id
        extra = encode(Extra(session_id=session_id))
        return [OutboundPart(platform, chat_id, text, key=f"{name}:0", extra=extra, is_said=True)]

    def answered(self, name: str) -> Answered:
        """What a command said; empty when that is not known."""
        row = self._store.read(outbox.find, f"{name}:0")
        return Answered(row["content"], decode(row["extra"]).session_id) if row else Answered()

    def notice(
        self, target: ReplyTarget, conversation_id: str, notice: Notice
    ) -> list[OutboundPart]:
        """Something that the person in the chat should know; nothing when they were told before."""
        name = notice_name(conversation_id, notice)
        if self._store.read(outbox.find, f"{name}:0") is not None:
            return []
        return self.pieces(target, f"ℹ️ {notice.text}", name=name)

    def question(
        self, target: ReplyTarget, asked: QuestionAsked, *, is_beside: bool = False
    ) -> list[OutboundPart]:
        """A question for the person in the chat, with buttons where there are such."""
        abilities = self.abilities(target.source.platform.value)
        is_approval = asked.kind == "approval"
        lines = questions.words(asked)
        buttons = _buttons(asked) if abilities.has_buttons else []
        if not buttons:
            how = questions.how_to_answer(asked)
            lines += [self.as_typed(target, one) for one in how] if is_approval else how
        if is_beside and not is_approval:
            lines.append("Reply to this message to answer it.")
        extra = Extra(reply_to=target.message_id)
        name = questions.name(asked.question_id)
        parts = self.pieces(target, "\n".join(lines), name=name, extra=extra)
        if parts and buttons:
            text = msgspec.json.encode(buttons).decode()
            parts[-1] = parts[-1]._replace(question_id=asked.question_id, buttons=text)
        return parts


def notice_name(conversation_id: str, notice: Notice) -> str:
    """The name of a notice: the same for the same words in the same conversation."""
    return f"notice:{conversation_id}:{hashlib.sha256(notice.text.encode()).hexdigest()[:16]}"


def _dropped(target: ReplyTarget, turn_id: str, text: str, why: str) -> OutboundPart:
    """The record of a reply that a plugin does not let out."""
    place = target.source
    return OutboundPart(
        place.platform.value,
        place.chat_id,
        text,
        place.thread_id,
        f"turn:{turn_id}:0",
        failure=f"A plugin dropped it: {why.rstrip('.')}.",
    )


def _room(abilities: Abilities) -> int:
    """The most that a piece may hold; where it may have to be marked, the mark must fit too."""
    mark = abilities.measure(f"{REPEAT_MARK}\n") if abilities.resend == "marked" else 0
    return abilities.text_limit - mark


def _buttons(asked: QuestionAsked) -> list[Button]:
    if asked.kind == "approval":
        return [
            Button("Allow once", "once"),
            Button("Allow in this conversation", "session"),
            Button("Deny", "deny"),
        ]
    return [Button(choice, choice) for choice in asked.choices]
