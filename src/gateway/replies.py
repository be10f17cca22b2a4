"""Replies: turns the end of a turn into outbound parts for its chat.

The commit that ends the turn also stores the parts in the outbox, so that a reply is neither lost nor
sent twice.
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
from gateway.reply_attachments import Allow, ReplyAttachments, only_own
from gateway.reply_target import ReplyTarget
from gateway.splitting import split
from hermes_agent.permissions import Permissions
from hermes_agent.turn.events import Notice, QuestionAsked
from hermes_agent.turn.values import Outcome
from hermes_cli import plugins
from hermes_cli.hook_answers import Answer
from hermes_state.ledger import budgets, effects, outbox, sessions, turns
from hermes_state.ledger import questions as question_ledger
from hermes_state.store import Store
from hermes_state.transitions import EffectState, TurnState
from hermes_state.values import OutboundPart, Row

REPEAT_MARK = "(This may be a repeat.)"
_UNKNOWN = Abilities(text_limit=2000)
"""The abilities of a platform that is switched off: what is sent when it is back must fit any."""


_SLASH = "/"
_LABELS = {
    "once": "Allow once",
    "session": "Allow for this conversation",
    "deny": "Deny",
}
"""The buttons of an approval."""
_MAX_QUESTION_PARTS = 5
"""A longer question has its detail in a file, where the platform can send one."""


class Extra(msgspec.Struct, frozen=True, omit_defaults=True):
    """The metadata of an outbound part."""

    reply_to: str | None = None
    subject: str = ""
    files: list[str] = []
    is_whole: bool = False
    """Whether the part fails without its files."""
    session_id: str = ""
    """The session of a command that was answered on its request."""
    is_plain: bool = False
    """Whether the text is plain text, as it contains titles and ids that are not Markdown."""


class _Written(msgspec.Struct):
    """The arguments of `write_file` that count here."""

    content: str = ""


class Answered(NamedTuple):
    """The reply to a command on its request, and the session of its chat then."""

    text: str = ""
    session_id: str = ""


def encode(extra: Extra) -> str:
    return msgspec.json.encode(extra).decode()


def decode(text: str | None) -> Extra:
    """Return the metadata of a stored part."""
    return msgspec.json.decode(text, type=Extra) if text else Extra()


class Replies:
    """Makes outbound parts. May be used from several threads."""

    def __init__(
        self,
        store: Store,
        abilities_of: Callable[[str], Abilities | None],
        attachments: ReplyAttachments,
        commands: Collection[str] = (),
    ) -> None:
        """`commands` are the names of commands in texts of the gateway."""
        self._store = store
        self._abilities_of = abilities_of
        self._attachments = attachments
        names = "|".join(map(re.escape, sorted(commands, key=len, reverse=True)))
        self._command = (
            re.compile(rf"(?<![\w/.]){_SLASH}(?=(?:{names})(?![\w/-]|\.\w))") if names else None
        )

    def abilities(self, platform: str) -> Abilities:
        return self._abilities_of(platform) or _UNKNOWN

    def deliver(
        self,
        turn_id: str,
        outcome: Outcome,
        target: ReplyTarget | None = None,
        allow: Allow = only_own,
    ) -> Sequence[OutboundPart]:
        """Return the parts of the reply of a turn with this outcome.

        `allow` says which files may be sent, except to an owner in private.
        """
        target = target or reply_target.of_turn(self._store, turn_id)
        if target is None or target.is_in_place:
            return ()
        # The number of model calls matters only where there is no text.
        calls = 1 if outcome.text.strip() else self._store.read(budgets.of_turn, turn_id)["steps"]
        text = reply_text.text_of(outcome, calls)
        if not text:
            return ()
        answers = self._rewrites(target, turn_id, text)
        final_text = plugin_rewrites.text_after(answers, text)
        if final_text is None:
            return [_dropped(target, turn_id, text, plugin_rewrites.drop_reason(answers))]
        if not final_text.strip():
            return [_dropped(target, turn_id, text, "it removed all text")]
        return self._with_files(target, turn_id, final_text, allow)

    def store_foreign_answer(self, row: Row) -> None:
        """Store the reply of a turn that another process ended, unless it is stored."""
        if row["state"] in (TurnState.ANSWERED, TurnState.FAILED) and not self._store.read(
            outbox.of_turn, row["id"]
        ):
            pieces = self.deliver(row["id"], turn_results.outcome_of(self._store, row))
            self._store.write(outbox.add, pieces, turn_id=row["id"])

    def manner(self, platform: str, permissions: Permissions) -> str:
        """Return the instructions for the model about a platform."""
        can_send = self.abilities(platform).can_send_files and reply_attachments.may_send(
            permissions
        )
        return reply_attachments.MANNER if can_send else ""

    def _with_files(
        self, target: ReplyTarget, turn_id: str, text: str, allow: Allow
    ) -> list[OutboundPart]:
        """Return the parts of a reply and of the files that it names."""
        source, name = target.source, f"turn:{turn_id}"
        abilities = self.abilities(source.platform.value)
        if not abilities.can_send_files or reply_attachments.MARK not in text:
            return self.pieces(target, text, name=name)
        reply = self._attachments.of(
            text,
            source,
            self._stored_folder(turn_id),
            lambda path, is_own: allow(path, is_own or self._is_written_in(turn_id, path)),
        )
        parts = self.pieces(target, reply.text, name=name)
        if not reply.files:
            return parts
        if not abilities.can_edit:
            metadata = msgspec.structs.replace(decode(parts[-1].extra), files=reply.files)
            return [*parts[:-1], parts[-1]._replace(extra=encode(metadata))]
        # A draft becomes the reply by an edit, which cannot add files: each is sent by itself.
        for file in reply.files:
            metadata = encode(Extra(subject=target.subject, files=[file]))
            parts.append(parts[0]._replace(content="", key=f"{name}:{len(parts)}", extra=metadata))
        return parts

    def _is_written_in(self, turn_id: str, path: str) -> bool:
        """Return whether a file has exactly what the model itself wrote to one in a turn."""
        content = Path(path).read_bytes()
        return any(
            effect["state"] == EffectState.DONE
            and effect["tool_name"] == "write_file"
            and msgspec.json.decode(effect["arguments"], type=_Written).content.encode() == content
            for effect in self._store.read(effects.of_turn, turn_id)
        )

    def _stored_folder(self, turn_id: str) -> str | None:
        """Return the folder of the conversation of a turn, if a terminal began it."""
        turn = self._store.read(turns.find, turn_id)
        row = self._store.read(sessions.find, turn["session_id"]) if turn is not None else None
        return row["cwd"] if row is not None else None

    def _rewrites(self, target: ReplyTarget, turn_id: str, text: str) -> Sequence[Answer]:
        """Return the answers of plugins to a reply; the conversation keeps the original."""
        if not plugins.has_hook("pre_send"):
            return ()
        source = target.source
        return plugins.invoke_hook(
            "pre_send",
            platform=source.platform.value,
            chat_id=source.chat_id,
            session_id=(self._store.read(turns.find, turn_id) or {}).get("session_id", ""),
            text=text,
        )

    def pieces(
        self, target: ReplyTarget, text: str, *, name: str, extra: Extra | None = None
    ) -> list[OutboundPart]:
        """Split a text into parts for a chat, as its platform needs them."""
        if target.is_in_place or not text.strip():
            return []
        source = target.source
        platform = source.platform.value
        abilities = self.abilities(platform)
        metadata = extra or Extra(reply_to=target.message_id, subject=target.subject)
        parts = split(text, _room(abilities), abilities.measure)
        stored_metadata = encode(metadata)
        return [
            OutboundPart(
                platform,
                source.chat_id,
                part,
                source.thread_id,
                f"{name}:{number}",
                stored_metadata,
            )
            for number, part in enumerate(parts)
        ]

    def as_typed(self, target: ReplyTarget, text: str) -> str:
        """Return a text of the gateway with the command prefix of the platform."""
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
        """Return the parts of the reply to a command; the reply to a request is stored for its repeats.

        Most of our own commands reply in plain text; those of plugins may use Markdown.
        """
        text = self.as_typed(target, text)
        if not target.is_in_place or not (text or session_id):
            subject, reply_to = target.subject, target.message_id
            metadata = Extra(reply_to=reply_to, subject=subject, is_plain=is_plain)
            return self.pieces(target, text, name=name, extra=metadata)
        platform, chat_id = target.source.platform.value, target.source.chat_id
        extra = encode(Extra(session_id=session_id))
        return [OutboundPart(platform, chat_id, text, key=f"{name}:0", extra=extra, is_sent=True)]

    def answered(self, name: str) -> Answered:
        """Return the reply to a command; empty when there is none."""
        row = self._store.read(outbox.find, f"{name}:0")
        return Answered(row["content"], decode(row["extra"]).session_id) if row else Answered()

    def notice(
        self, target: ReplyTarget, conversation_id: str, notice: Notice
    ) -> list[OutboundPart]:
        """Return the parts of a notice; none when the chat got it before."""
        name = notice_name(conversation_id, notice)
        if self._store.read(outbox.find, f"{name}:0") is not None:
            return []
        return self.pieces(target, f"ℹ️ {notice.text}", name=name)

    def question(
        self, target: ReplyTarget, question: QuestionAsked, *, is_beside: bool = False
    ) -> list[OutboundPart]:
        """Return the parts of a question, with buttons where the platform has them."""
        abilities = self.abilities(target.source.platform.value)
        is_approval = question.kind == "approval"
        buttons = _buttons(question) if abilities.has_buttons else []
        how = [] if buttons else questions.how_to_answer(question)
        if is_approval:
            how = [self.as_typed(target, line) for line in how]
        elif is_beside:
            how.append("Reply to this message to answer it.")
        name = question_ledger.part_name(question.question_id)
        extra = Extra(reply_to=target.message_id)
        lines = [*questions.lines_of(question), *how]
        parts = self.pieces(target, "\n".join(lines), name=name, extra=extra)
        if len(parts) > _MAX_QUESTION_PARTS and abilities.can_send_whole:
            parts = self._with_detail_as_file(target, question, how, extra)
        if parts and buttons:
            text = msgspec.json.encode(buttons).decode()
            parts[-1] = parts[-1]._replace(question_id=question.question_id, buttons=text)
        return parts

    def close_question(self, question_id: str) -> None:
        """Delete what was only there to show a question."""
        self._attachments.delete_detail(question_id)

    def _with_detail_as_file(
        self, target: ReplyTarget, question: QuestionAsked, how: Sequence[str], extra: Extra
    ) -> list[OutboundPart]:
        """Return the parts of a question whose detail is a file: the reasons, the file, the choices."""
        name = question_ledger.part_name(question.question_id)
        path = self._attachments.save_detail(question)
        about = msgspec.structs.replace(question, detail="")
        reasons, *lasting = questions.lines_of(about)
        text = f"{reasons}\nAll of it is in the file below."
        parts = self.pieces(target, text, name=name, extra=extra)
        file = encode(Extra(files=[str(path)], is_whole=True))
        parts.append(parts[0]._replace(content="", key=f"{name}:{len(parts)}", extra=file))
        text = "\n".join(["Read the file, then choose.", *lasting, *how])
        for part in self.pieces(target, text, name=name, extra=extra):
            parts.append(part._replace(key=f"{name}:{len(parts)}"))
        return parts


def notice_name(conversation_id: str, notice: Notice) -> str:
    """Return the name of a notice: the same for the same text in the same conversation."""
    return f"notice:{conversation_id}:{hashlib.sha256(notice.text.encode()).hexdigest()[:16]}"


def _dropped(target: ReplyTarget, turn_id: str, text: str, why: str) -> OutboundPart:
    """Return the record of a reply that a plugin dropped."""
    source = target.source
    return OutboundPart(
        source.platform.value,
        source.chat_id,
        text,
        source.thread_id,
        f"turn:{turn_id}:0",
        failure=f"A plugin dropped it: {why.rstrip('.')}.",
    )


def _room(abilities: Abilities) -> int:
    """Return the text limit of a part, with room for the mark of a repeat."""
    mark = abilities.measure(f"{REPEAT_MARK}\n") if abilities.resend == "marked" else 0
    return abilities.text_limit - mark


def _buttons(question: QuestionAsked) -> list[Button]:
    if question.kind == "approval":
        return [Button(_LABELS[choice], choice) for choice in _LABELS if choice in question.choices]
    return [Button(choice, choice) for choice in question.choices]
