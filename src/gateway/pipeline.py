"""Pipeline: decides what becomes of an inbound message.

In order: a repeat, a stranger, not addressed to us, a command, the answer to a question, or a turn. When
`accept` returns, the message is on disk with its outcome, and its platform may be acknowledged. Every
decision rests on the store or the settings, so a message that is delivered again after a crash takes the
same way.
"""

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace

from gateway import plugin_rewrites, questions, reply_target, versions
from gateway.access import may_answer
from gateway.command_runner import CommandRunner, reply_name
from gateway.commands import TABLE, canonical, takes_files
from gateway.parts import GatewayParts
from gateway.platforms.base import MessageEvent, Receipt
from gateway.reply_target import ReplyTarget
from gateway.session import OVER, SessionEntry
from gateway.source import SessionSource
from gateway.versions import Version
from hermes_agent import commands, skills
from hermes_agent.skills import Skill
from hermes_cli import plugins
from hermes_core.errors import (
    AlreadySettledError,
    ConversationOverError,
    SessionNotFoundError,
    StoreError,
)
from hermes_state.ledger import inbox
from hermes_state.ledger import questions as question_ledger
from hermes_state.ledger import turns as turn_ledger
from hermes_state.values import Accepted, InboundMessage, NewSession, OutboundPart

logger = logging.getLogger(__name__)

_DROPPED = "A plugin dropped this message."
"""Sent only where a request needs an answer; in a chat the message stays unanswered."""
_RUN_ONCE = frozenset({"new", "undo", "retry", "branch"})
"""Commands that an edit of their message must not run again."""
_NOT_AGAIN = "⚠️ Editing a message does not run /{} again. Send it as a new message."
_CORRECTED = "I corrected my message. It now says:\n"
_NOT_ACCEPTED = (
    "⚠️ Something went wrong inside Hermes, and your message was not accepted."
    " The log has the details; try again in other words."
)


@dataclass
class Inbound:
    """A message on its way in."""

    event: MessageEvent
    source: SessionSource
    target: ReplyTarget
    message: InboundMessage
    """The message as the inbox knows it."""
    previous: Version | None
    """The version that this one replaces, when its sender edited it."""

    @property
    def key(self) -> str:
        return self.target.session_key


class Pipeline:
    """Accepts messages. Its methods block; they are called in threads."""

    def __init__(
        self,
        parts: GatewayParts,
        runner: CommandRunner,
        send_now: Callable[[SessionSource, str], bool],
        quiet: Collection[str] = (),
    ) -> None:
        """`send_now` sends text that must not be stored; on `quiet` platforms strangers get nothing."""
        settings = parts.assembly.settings.gateway
        self._parts = parts
        self._store = parts.assembly.store
        self._home = parts.assembly.home
        self._runner = runner
        self._send_now = send_now
        self._quiet = quiet
        self._busy_mode = settings.busy
        self._groups_need_mention = settings.groups_need_mention

    def wants_files(self, event: MessageEvent) -> bool:
        """Return whether to fetch the files of a message.

        They are fetched for a new message that is allowed, addressed to us and answered by a turn.
        """
        source = self._parts.conversations.source_of(event)
        return (
            self._receipt_of(reply_target.inbound_message(event, source)) is None
            and self._parts.access.role_of(source) is not None
            and not self._is_for_others(event, source)
            and (not self._is_command(event) or takes_files(event.get_command() or ""))
        )

    def accept(self, event: MessageEvent) -> Receipt:
        """Store a message with what becomes of it. Raises StoreError when that is not possible."""
        parts = self._parts
        source = parts.conversations.source_of(event)
        role = parts.access.role_of(source)
        previous = versions.before(self._store, event) if role is not None else None
        versions.complete(event, previous, self._store)
        item = self._inbound(event, source, previous)
        if self._runner.is_running(item.message):
            return Receipt("command", is_new=False, is_over=False)
        parts.conversations.check_owner(event, source, item.key)
        if role is not None and self._is_plain(item):
            entry = parts.sessions.current_entry(item.key, source)
            with suppress(ConversationOverError, SessionNotFoundError):
                if entry is not None:
                    return self._accept(item, entry)
        receipt = self._receipt_of(item.message)
        if receipt is None and event.must_be_known:
            receipt = Receipt("ignored", is_new=False)
        if receipt is not None:
            return receipt
        if role is None:
            return self._ignore_stranger(item)
        if not self._is_for_us(item):
            return self._ignore(item.message)
        text = self._rewritten(event, source)
        if text is None:
            return self._drop(item)
        event.text = text
        return self._decide(item)

    def _inbound(
        self, event: MessageEvent, source: SessionSource, previous: Version | None
    ) -> Inbound:
        abilities = self._parts.replies.abilities(source.platform.value)
        target = reply_target.of_event(
            event,
            source,
            self._parts.sessions.key_of(source),
            is_turn=not self._is_command(event),
            is_in_place=abilities.answers_in_place,
        )
        message = reply_target.inbound_message(event, source, target)
        return Inbound(event, source, target, message, previous)

    def _decide(self, item: Inbound) -> Receipt:
        """Handle a message that is new and addressed to us: a command, an answer, or a turn."""
        event, previous = item.event, item.previous
        if event.answers is not None or self._is_command(event):
            return self._run(item) if previous is None else self._run_edited(item, previous)
        if (skill := self._skill(event)) is not None:
            _, *words = event.text.split(maxsplit=1)
            event.text = skills.prompt(skill, "".join(words))
        elif previous is None and (session_id := self._answer_question(item)):
            return Receipt("command", session_id=session_id)
        if previous is not None and previous.reached_model:
            return self._say_edited(item, previous)
        return self._say(item)

    def give_up(self, event: MessageEvent) -> Receipt:
        """Settle a message that cannot be accepted, and tell its chat."""
        source = self._parts.conversations.source_of(event)
        message = reply_target.inbound_message(event, source)
        if (receipt := self._receipt_of(message)) is not None:
            return receipt
        name = f"failed:{message.key}"
        part = OutboundPart(message.platform, source.chat_id, _NOT_ACCEPTED, source.thread_id, name)
        if not self._parts.replies.abilities(message.platform).answers_in_place:
            self._parts.delivery.enqueue([part])
        self._ignore(message)
        return Receipt("ignored", reply=_NOT_ACCEPTED)

    # -- classifying ------------------------------------------------------------------------------

    def _is_plain(self, item: Inbound) -> bool:
        """Return whether a message is plain text that needs no decision.

        Whether it is a repeat, or its conversation is over, shows when it is stored.
        """
        event = item.event
        return (
            event.get_command() is None
            and event.answers is None
            and event.edits is None
            and not event.must_be_known
            and not event.options
            and not self._is_for_others(event, item.source)
            and not plugins.has_hook("on_message_received")
            and not questions.may_be_answered(event, item.key, self._parts.turns)
        )

    def _receipt_of(self, message: InboundMessage) -> Receipt | None:
        """Return what became of a message that was delivered before; None when that is open."""
        row = self._store.read(inbox.find, message)
        if row is None or row["outcome"] is None:
            return None
        reply = self._parts.replies.answered(reply_name(message))
        if reply.text:
            outcome = "ignored" if row["outcome"] == "ignored" else "command"
            return Receipt(outcome, session_id=reply.session_id, is_new=False, reply=reply.text)
        turn = self._store.read(turn_ledger.find, row["turn_id"]) if row["turn_id"] else None
        session_id = turn["session_id"] if turn else reply.session_id
        return Receipt(row["outcome"], row["turn_id"], session_id, is_new=False)

    def _is_command(self, event: MessageEvent) -> bool:
        """Return whether a message is a command, known or not; paths and skills are text."""
        name = event.get_command()
        is_command = name is not None and commands.parse(f"/{name}") is not None
        return is_command and self._skill(event) is None

    def _skill(self, event: MessageEvent) -> Skill | None:
        """Return the skill that a message uses."""
        name = event.get_command()
        if name is None:
            return None
        reserved = commands.names(plugins.commands("chat"), table=TABLE)
        return skills.find(name, skills.load(self._home), reserved)

    def _is_for_us(self, item: Inbound) -> bool:
        """Return whether a message is addressed to us, and not an edit that changes nothing."""
        event, previous = item.event, item.previous
        if previous is None:
            return not self._is_for_others(event, item.source)
        if not previous.is_own:
            logger.info("Message %s edits what somebody else wrote", event.message_id)
            return False
        if not previous.reached_model and self._is_for_others(event, item.source):
            return False
        return not versions.is_unchanged_text(event, previous, self._store)

    def _is_for_others(self, event: MessageEvent, source: SessionSource) -> bool:
        """Return whether a message in a group is not addressed to us."""
        if not source.is_group:
            return False
        if event.names_nobody and not self._has_command(event):
            return True  # another bot may know it, and a person sees when none does
        if not self._groups_need_mention or event.is_mention:
            return False
        key = self._parts.sessions.key_of(source)
        return not questions.is_answer(event, key, self._parts.turns, self._store)

    def _has_command(self, event: MessageEvent) -> bool:
        """Return whether there is a command or a skill of the name that a message begins with."""
        name = event.get_command() or ""
        is_ours = commands.find(name, TABLE) is not None or name in plugins.commands("chat")
        return is_ours or self._skill(event) is not None

    def _rewritten(self, event: MessageEvent, source: SessionSource) -> str | None:
        """Return the text as plugins rewrite it; None when one of them dropped the message."""
        if not plugins.has_hook("on_message_received"):
            return event.text
        answers = plugins.invoke_hook(
            "on_message_received",
            platform=source.platform.value,
            chat_id=source.chat_id,
            user_id=source.user_id or "",
            message_id=event.message_id or "",
            text=event.text,
        )
        text = plugin_rewrites.text_after(answers, event.text)
        if text is None:
            reason = plugin_rewrites.drop_reason(answers)
            logger.info("A plugin dropped message %s: %s", event.message_id, reason)
        return text

    # -- ignoring ---------------------------------------------------------------------------------

    def _ignore(self, message: InboundMessage) -> Receipt:
        self._store.write(inbox.receive, InboundMessage(*message.key))
        self._store.write(inbox.settle, message, "ignored")
        return Receipt("ignored")

    def _drop(self, item: Inbound) -> Receipt:
        """Ignore a message that a plugin dropped; a request gets that as its answer."""
        if item.target.is_in_place:
            name = reply_name(item.message)
            self._parts.delivery.enqueue(
                self._parts.replies.answer(item.target, _DROPPED, name=name)
            )
        return self._ignore(item.message)._replace(reply=_DROPPED)

    def _ignore_stranger(self, item: Inbound) -> Receipt:
        """Ignore a stranger; in a direct chat, send them a code that the owner can approve.

        The code is sent at once and never stored; when that fails, they may ask again.
        """
        source = item.source
        is_quiet = source.platform.value in self._quiet
        code = None if is_quiet else self._parts.pairing.request(source)
        if code is not None:
            text = (
                f"Hello. I do not know you yet. Your pairing code is {code}, for one hour.\n"
                f"The owner of this machine lets you in with: hermes gateway pair {code}"
            )
            if self._send_now(source, text):
                self._parts.admin_chats.report_stranger(source)
            else:
                self._parts.pairing.withdraw(source)
        return self._ignore(item.message)

    # -- commands and answers -----------------------------------------------------------------------

    def _run(self, item: Inbound) -> Receipt:
        """Run a command once; one that a crash cut off is reported, not repeated."""
        self._parts.conversations.check_visible(item.event, item.source)
        if not self._store.write(inbox.receive, item.message):
            return Receipt("command", is_new=False, is_over=False)
        reply = self._runner.run(item.event, item.message, item.target)
        # It may have become a turn; an answer to a request names its conversation.
        needs_receipt = item.target.is_in_place or not reply
        receipt = self._receipt_of(item.message) if needs_receipt else None
        return receipt._replace(is_new=True) if receipt else Receipt("command", reply=reply)

    def _run_edited(self, item: Inbound, previous: Version) -> Receipt:
        """Run a command that was edited, or that was plain text before."""
        event = item.event
        name, earlier = _command(event.text), _command(previous.target_text)
        arguments = event.get_command_args()
        if name == "queue" and (arguments or event.attachments):
            words = replace(item, event=replace(event, text=arguments))
            if (receipt := self._replace_queued(words, previous, is_command=True)) is not None:
                return receipt
        if name in _RUN_ONCE and earlier in _RUN_ONCE:
            return self._reply(item, _NOT_AGAIN.format(name))
        if not self._cancel(previous):
            if earlier == "background":
                self._stop_job(item.key, previous)
            elif name in ("queue", "steer") and previous.reached_model and arguments:
                event.text = f"/{name} {_CORRECTED}{arguments}"
                event.attachments = versions.new_files(event, previous)
        return self._run(item)

    def _reply(self, item: Inbound, text: str) -> Receipt:
        """Reply to a command that is not run."""
        if not self._store.write(inbox.receive, item.message):
            return Receipt("command", is_new=False, is_over=False)
        parts = self._parts.replies.answer(item.target, text, name=reply_name(item.message))
        self._parts.delivery.enqueue(parts)
        self._store.write(inbox.settle, item.message, "command")
        return Receipt("command", reply=text if item.target.is_in_place else "")

    def _cancel(self, previous: Version) -> bool:
        """Cancel the turn of the previous version, if it has not begun."""
        turn_id = previous.turn_id
        return turn_id is not None and self._parts.turns.cancel(turn_id, "edited by its sender")

    def _stop_job(self, key: str, previous: Version) -> None:
        """Stop the background job of the previous version."""
        turns = self._parts.turns
        running = turns.engine.work.find(previous.turn_id or "")
        if running is not None and turns.is_background(running):
            turns.engine.interrupt(running.turn.conversation_id, key)

    def _answer_question(self, item: Inbound) -> str:
        """Answer the open question that plain text answers; return its session, else ""."""
        event, source, turns = item.event, item.source, self._parts.turns
        if event.attachments or not questions.may_be_answered(event, item.key, turns):
            return ""
        question = questions.answered_by(event, item.key, turns, self._store)
        if question is None:
            return ""
        asker = questions.asker(question, item.key, turns)
        turn = self._store.read(turn_ledger.find, question["turn_id"])
        if turn is None or asker is None or not self._may_answer(source, asker):
            return ""
        answer = _choice(event.text, question["choices"])
        if source.person != asker.person:
            answer = self._parts.model_input.spoken(source, answer)
        self._store.write(inbox.receive, item.message)
        self._store.write(question_ledger.answer, question["id"], answer, by=source.platform.value)
        session_id: str = turn["session_id"]
        parts = self._parts.replies.answer(
            item.target, "", name=reply_name(item.message), session_id=session_id
        )
        self._parts.delivery.enqueue(parts)
        self._store.write(inbox.settle, item.message, "command")
        return session_id

    def _may_answer(self, source: SessionSource, asker: SessionSource) -> bool:
        permissions_of = self._parts.access.permissions_of
        return may_answer(permissions_of(source), permissions_of(asker))

    # -- turns --------------------------------------------------------------------------------------

    def _say(self, item: Inbound) -> Receipt:
        conversations = self._parts.conversations
        while True:
            entry = conversations.entry_of(item.event, item.source)
            opening = conversations.opening_of(entry, item.event, item.source)
            with suppress(ConversationOverError):  # its chat has just left that conversation
                return self._accept(item, entry, opening)

    def _say_edited(self, item: Inbound, previous: Version) -> Receipt:
        """Replace the queued turn of the previous version, or follow the one that has begun."""
        if (receipt := self._replace_queued(item, previous)) is not None:
            return receipt
        if self._cancel(previous):  # it was queued as a background job
            return self._say(item)
        if _command(previous.target_text) == "background":
            self._stop_job(item.key, previous)  # the conversation itself has not seen it
            return self._say(item)
        event = item.event
        text = f"{_CORRECTED}{event.text}"
        files = versions.new_files(event, previous)
        return self._say(replace(item, event=replace(event, text=text, attachments=files)))

    def _replace_queued(
        self, item: Inbound, previous: Version, *, is_command: bool = False
    ) -> Receipt | None:
        """Replace the queued turn of the previous version; None when it is not queued any more.

        The text of /queue is not offered to the running turn, whatever happens to plain text.
        """
        turns = self._parts.turns
        rows = [row for row in turns.queued(item.key) if row["id"] == previous.turn_id]
        if not rows:
            return None
        content = self._parts.model_input.of(item.event, item.event.text, rows[0]["session_id"])
        accepted = turns.replace(rows[0]["id"], content, item.target, item.message)
        if accepted is None:
            return None
        if not is_command:
            self._offer_to_running(accepted, item.target, content)
        return Receipt("turn", accepted.turn_id, accepted.session_id)

    def _accept(
        self, item: Inbound, entry: SessionEntry, opening: NewSession | None = None
    ) -> Receipt:
        """Store a message as a turn; without an opening, only in a conversation that exists.

        Raises ConversationOverError when its chat has left the conversation; a program that names a
        session means that one.
        """
        parts, target = self._parts, item.target
        content = parts.model_input.of(item.event, item.event.text, entry.session_id)
        parts.conversations.notify_reset(entry, target)
        try:
            accepted = parts.turns.accept(
                entry.session_id,
                content,
                target,
                item.message,
                opening=opening,
                reopens=True,
                closed_by=frozenset() if item.event.options.get("session_id") else OVER,
            )
        except AlreadySettledError:
            return self._receipt_of(item.message) or Receipt("ignored", is_new=False)
        if accepted.makes_session and opening is not None and opening.route is not None:
            parts.sessions.saved(entry.session_key)
        if not accepted.is_new:
            return Receipt("turn", accepted.turn_id, accepted.session_id, is_new=False)
        entry.session_id = accepted.session_id
        if parts.turns.engine.work.is_at_work(accepted.conversation_id):
            self._handle_busy(accepted, target, content)
        return Receipt("turn", accepted.turn_id, accepted.session_id)

    def _handle_busy(self, accepted: Accepted, target: ReplyTarget, content: object) -> None:
        """Handle a new turn in a conversation at work, as the settings say."""
        if self._busy_mode == "interrupt":
            self._parts.turns.interrupt_for(accepted, target)
        else:
            self._offer_to_running(accepted, target, content)

    def _offer_to_running(self, accepted: Accepted, target: ReplyTarget, content: object) -> None:
        text = content if isinstance(content, str) else ""
        if self._busy_mode == "steer" and text:
            notice = self._parts.turns.steer(accepted, target, text)
        else:
            notice = self._parts.turns.queue_notice(accepted, target)
        if not notice:
            return
        try:
            name = f"waits:{accepted.turn_id}"
            self._parts.delivery.enqueue(self._parts.replies.pieces(target, notice, name=name))
        except StoreError as error:  # the message is accepted all the same
            logger.warning("Could not tell the chat that its message is queued: %s", error)


def _command(text: str) -> str:
    """Return the name of the command that a text is; empty for anything else."""
    return canonical(MessageEvent(text).get_command() or "")


def _choice(text: str, choices: list[str]) -> str:
    """Return the choice that a number stands for, else the text."""
    number = text.strip().rstrip(".")
    if number.isdecimal() and 0 < int(number) <= len(choices):
        return choices[int(number) - 1]
    return text
