"""The way of a message in: known? allowed? meant for us? a command, an answer, or something to say?

When `accept` returns, the message is on disk with what became of it, and its platform may be told. All
that decides is in the store or the settings, so a message that comes again after a crash takes the same
way, and one that was decided about is not decided about twice.
"""

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Protocol

from gateway import plugin_rewrites, questions, reply_target, versions
from gateway.access import Access, may_answer
from gateway.chat_turns import ChatTurns
from gateway.commands import TABLE, canonical, takes_files
from gateway.config import BusyMode
from gateway.model_input import ModelInput
from gateway.pairing import Pairing
from gateway.platforms.base import MessageEvent, Receipt
from gateway.recovery import name_of
from gateway.replies import Replies
from gateway.reply_target import ReplyTarget
from gateway.session import OVER, SessionEntry, SessionStore
from gateway.source import SessionSource
from gateway.versions import Version
from hermes_agent import commands, skills
from hermes_agent.skills import Skill
from hermes_cli import plugins
from hermes_core.errors import (
    AlreadySettledError,
    ConversationOverError,
    HermesError,
    SessionNotFoundError,
    StoreError,
)
from hermes_core.paths import Home
from hermes_state.ledger import inbox, lineage, outbox, scope, sessions
from hermes_state.ledger import questions as question_ledger
from hermes_state.ledger import turns as turn_ledger
from hermes_state.store import Store
from hermes_state.values import Accepted, InboundMessage, NewSession, OutboundPart

logger = logging.getLogger(__name__)

_RESET_NOTES = {
    "idle": "A new conversation: the last one was idle for long.",
    "daily": "A new conversation: the last one ended with the day.",
    "suspended": "A new conversation: the last one was suspended.",
}


_DROPPED = "A plugin dropped this message."
"""Told only where a request has to be answered; in a chat it is left unanswered."""
_DONE_ONCE = frozenset({"undo", "retry", "branch"})
"""Commands that a new version of their message must not do again."""
_NOT_AGAIN = (
    "⚠️ Changing a message does not do /{} again. Send it as a new message, if you want that."
)
_OTHER_OPEN = (
    "⚠️ It is too late for that: the conversation that this began is not the one that is open here."
    " /title gives the open one a title; /resume goes back to another."
)
_CORRECTED = "I corrected my message. It now says:\n"
_NOT_TAKEN = (
    "⚠️ Something went wrong inside Hermes, and your message was not taken in."
    " Its log says more; please say it in other words."
)


class Busy(Protocol):
    """What a message does in a conversation that is at work."""

    def steer(self, accepted: Accepted, target: ReplyTarget, text: str) -> str: ...
    def make_way(self, accepted: Accepted, target: ReplyTarget) -> None: ...
    def held_up(self, accepted: Accepted, target: ReplyTarget) -> str: ...


class RunCommand(Protocol):
    """Runs a command that is on record, and sees to its reply."""

    def __call__(
        self, event: MessageEvent, delivery: InboundMessage, target: ReplyTarget
    ) -> str: ...


@dataclass
class Pipeline:
    """Takes messages in. `take` blocks; it is called in a thread."""

    home: Home
    store: Store
    sessions: SessionStore
    turns: ChatTurns
    replies: Replies
    model_input: ModelInput
    access: Access
    pairing: Pairing
    busy: Busy
    run_command: RunCommand
    send_now: Callable[[SessionSource, str], bool]
    """Send something that must not be written down; tells whether it arrived."""
    wake_delivery: Callable[[], None]
    tell_stranger: Callable[[SessionSource], None]
    """Tell owners of somebody who was shown a code."""
    busy_mode: BusyMode = "queue"
    groups_need_mention: bool = True
    quiet: Collection[str] = ()
    """Platforms on which strangers hear nothing."""
    _being_done: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])
    """The commands that somebody waits for now, by what they are told from others by."""

    def wants_files(self, event: MessageEvent) -> bool:
        """Whether files are to be kept: the message is new, allowed and meant for us, and something
        is to be answered that they may be about.
        """
        source = self.placed(event)
        return (
            self._known(reply_target.named(event, source)) is None
            and self.access.role_of(source) is not None
            and not self._is_overheard(event, source)
            and (not self._is_command(event) or takes_files(event.get_command() or ""))
        )

    def take(self, event: MessageEvent) -> Receipt:
        """Decide what becomes of a message; raises StoreError when that cannot be put on disk."""
        source = self.placed(event)
        key = self.sessions.key_of(source)
        is_in_place = self.replies.abilities(source.platform.value).answers_in_place
        is_turn = not self._is_command(event)
        role = self.access.role_of(source)
        last = versions.before(self.store, event) if role is not None else None
        versions.complete(event, last)
        delivery = reply_target.inbound_message(
            event, key, is_turn=is_turn, is_in_place=is_in_place
        )
        if delivery.key in self._being_done:  # whatever it says now
            return Receipt("command", is_new=False, is_over=False)
        self._check_own(event, source, key)
        if role is not None and self._is_everyday(event, source, key):
            entry = self.sessions.going_on(key, source)
            with suppress(ConversationOverError, SessionNotFoundError):
                if entry is not None:
                    return self._accept(event, entry, delivery)
        if (known := self._known(delivery) or _ignored_if_new(event)) is not None:
            return known
        if role is None:
            return self._turn_away(source, delivery)
        if last is not None and not last.is_own:
            logger.info("%s changes what somebody else wrote", event.message_id)
            return self._ignore(delivery)
        is_ours = last is not None and last.was_heard  # whether or not it still names us
        if not is_ours and self._is_overheard(event, source):
            return self._ignore(delivery)
        if last is not None and versions.says_the_same(event, last, self.store):
            return self._ignore(delivery)
        text = self._heard(event, source)
        if text is None:
            return self._drop(delivery)
        event.text = text
        return self._decide(event, source, key, delivery, last)

    def _decide(
        self,
        event: MessageEvent,
        source: SessionSource,
        key: str,
        delivery: InboundMessage,
        last: Version | None,
    ) -> Receipt:
        """A message that is new and meant for us: a command, an answer, or something to say."""
        if last is not None and self._is_command(event):
            return self._obey_anew(event, key, delivery, last)
        if event.answers is not None or self._is_command(event):
            return self._obey(event, delivery)
        if (skill := self._skill(event)) is not None:
            _use(skill, event)
        elif last is None and (session_id := self._answered(event, source, key, delivery)):
            return Receipt("command", session_id=session_id)
        if last is not None and last.was_heard:
            return self._say_anew(event, source, key, delivery, last)
        return self._say(event, source, delivery)

    def give_up(self, event: MessageEvent) -> Receipt:
        """Note a message that cannot be taken in, and tell its chat so."""
        source = self.placed(event)
        delivery = reply_target.named(event, source)
        if (known := self._known(delivery)) is not None:
            return known
        piece = OutboundPart(
            delivery.platform,
            source.chat_id,
            _NOT_TAKEN,
            source.thread_id,
            f"failed:{delivery.key}",
        )
        if not self.replies.abilities(delivery.platform).answers_in_place:
            self.store.write(outbox.put, [piece])
        self._ignore(delivery)
        self.wake_delivery()
        return Receipt("ignored", reply=_NOT_TAKEN)

    # -- what it is -----------------------------------------------------------------------------

    def _is_everyday(self, event: MessageEvent, source: SessionSource, key: str) -> bool:
        """Whether a message is plain words, of which nothing is to be decided.

        Where its conversation goes on, and whether it came before, is found out as it is stored.
        """
        return (
            event.get_command() is None
            and event.answers is None
            and event.edits is None
            and not event.must_be_known
            and not event.options
            and not self._is_overheard(event, source)
            and not plugins.has_hook("on_message_received")
            and not questions.may_be_answered(event, key, self.turns)
        )

    def _known(self, delivery: InboundMessage) -> Receipt | None:
        """What became of a message that was delivered before; None when that is still open."""
        row = self.store.read(inbox.find, delivery)
        if row is None or row["outcome"] is None:
            return None
        said = self.replies.answered(name_of(delivery))
        if said.text:
            outcome = "ignored" if row["outcome"] == "ignored" else "command"
            return Receipt(outcome, session_id=said.session_id, is_new=False, reply=said.text)
        turn = self.store.read(turn_ledger.find, row["turn_id"]) if row["turn_id"] else None
        session_id = turn["session_id"] if turn else said.session_id
        return Receipt(row["outcome"], row["turn_id"], session_id, is_new=False)

    def _is_command(self, event: MessageEvent) -> bool:
        """Whether a message is a command, known or not; a path is something to say, so is a skill."""
        name = event.get_command()
        is_one = name is not None and commands.parse(f"/{name}") is not None
        return is_one and self._skill(event) is None

    def _skill(self, event: MessageEvent) -> Skill | None:
        """The skill that a message uses."""
        name = event.get_command()
        if name is None:
            return None
        return commands.skill_of(name, skills.found(self.home), plugins.commands("chat"), TABLE)

    def _is_overheard(self, event: MessageEvent, source: SessionSource) -> bool:
        """Whether a message in a group was not meant for us."""
        if not source.is_group:
            return False
        if event.names_nobody and not self._has(event):
            return True  # another bot may know it, and a person sees when none does
        if not self.groups_need_mention or event.is_mention:
            return False
        return not questions.is_asked(event, self.sessions.key_of(source), self.turns, self.store)

    def _has(self, event: MessageEvent) -> bool:
        """Whether there is a command or a skill of the name that a message begins with."""
        name = event.get_command() or ""
        is_ours = commands.find(name, TABLE) is not None or name in plugins.commands("chat")
        return is_ours or self._skill(event) is not None

    def _heard(self, event: MessageEvent, source: SessionSource) -> str | None:
        """The words as plugins have them; None when one of them dropped the message."""
        if not plugins.has_hook("on_message_received"):
            return event.text
        wishes = plugins.invoke_hook(
            "on_message_received",
            platform=source.platform.value,
            chat_id=source.chat_id,
            user_id=source.user_id or "",
            message_id=event.message_id or "",
            text=event.text,
        )
        text = plugin_rewrites.text_after(wishes, event.text)
        if text is None:
            logger.info("a plugin dropped %s: %s", event.message_id, plugin_rewrites.reason(wishes))
        return text

    def _ignore(self, delivery: InboundMessage) -> Receipt:
        self.store.write(inbox.receive, InboundMessage(*delivery.key))
        self.store.write(inbox.settle, delivery, "ignored")
        return Receipt("ignored")

    def _drop(self, delivery: InboundMessage) -> Receipt:
        """Leave a message alone that a plugin dropped; on a request it is told so, again and again."""
        target = reply_target.decode(delivery.payload)
        if target.is_in_place:
            told = self.replies.answer(target, _DROPPED, name=name_of(delivery))
            self.store.write(outbox.put, told)
        return self._ignore(delivery)._replace(reply=_DROPPED)

    def _turn_away(self, source: SessionSource, delivery: InboundMessage) -> Receipt:
        """A stranger: in a direct chat, a code that somebody on the machine can approve.

        It is sent at once and written down nowhere; when that fails, they may ask again.
        """
        code = self.pairing.request(source) if source.platform.value not in self.quiet else None
        if code is not None:
            text = (
                f"Hello. I do not know you yet. Your code is {code}, for one hour.\n"
                f"The owner of this machine lets you in with: hermes gateway pair {code}"
            )
            if self.send_now(source, text):
                self.tell_stranger(source)
            else:
                self.pairing.withdraw(source)
        return self._ignore(delivery)

    # -- a command, or the answer to a question ---------------------------------------------------

    def _obey(self, event: MessageEvent, delivery: InboundMessage) -> Receipt:
        """Note a command and have it done, once: what a crash cut off is told, not repeated."""
        self._check_visible(event, _source(event))
        if not self.store.write(inbox.receive, delivery):
            return Receipt("command", is_new=False, is_over=False)
        target = reply_target.decode(delivery.payload)
        self._being_done.add(delivery.key)
        try:
            reply = self.run_command(event, delivery, target)
        finally:
            self._being_done.discard(delivery.key)
        # It may have become a turn; on the request itself its conversation is told.
        known = self._known(delivery) if target.is_in_place or not reply else None
        return known._replace(is_new=True) if known else Receipt("command", reply=reply)

    def _obey_anew(
        self, event: MessageEvent, key: str, delivery: InboundMessage, last: Version
    ) -> Receipt:
        """A command that its sender changed, or made of other words: these are not answered as well."""
        name, before = _command(event.text), _command(last.target.text if last.target else "")
        if name == "queue" and (done := self._replace_queued(event, key, delivery, last)):
            return done
        if name == before == "new":  # what was said since stays where it was said
            if not event.get_command_args():
                return self._ignore(delivery)
            if not self._is_in_what_it_began(event, key):
                return self._answer(delivery, _OTHER_OPEN)
            event.text = f"/title {event.get_command_args()}"
        elif name in _DONE_ONCE and before in _DONE_ONCE:
            return self._answer(delivery, _NOT_AGAIN.format(name))
        elif not self._cancel(last):
            says_something = bool(event.get_command_args() or event.attachments)
            if before == "background":
                self._stop_job(key, last)
            elif name in ("queue", "steer") and last.was_heard and says_something:
                event.text = f"/{name} {_CORRECTED}{event.get_command_args()}"
                event.attachments = versions.new_files(event, last)
        return self._obey(event, delivery)

    def _is_in_what_it_began(self, event: MessageEvent, key: str) -> bool:
        """Whether a chat is in the conversation that the first of the last versions began, all /new."""
        heard = [one for one in versions.all_before(self.store, event) if one.target]
        begun = list(takewhile(_is_new, reversed(heard)))
        entry = self.sessions.peek(key)
        if not begun or entry is None:
            return False
        first, began = begun[-1], entry.created_at.timestamp()
        return first.received_at <= began and (
            first.settled_at is None or began <= first.settled_at
        )

    def _answer(self, delivery: InboundMessage, text: str) -> Receipt:
        """Have a command answered that is not done."""
        if not self.store.write(inbox.receive, delivery):
            return Receipt("command", is_new=False, is_over=False)
        target = reply_target.decode(delivery.payload)
        self.store.write(outbox.put, self.replies.answer(target, text, name=name_of(delivery)))
        self.store.write(inbox.settle, delivery, "command")
        self.wake_delivery()
        return Receipt("command", reply=text if target.is_in_place else "")

    def _replace_queued(
        self, event: MessageEvent, key: str, delivery: InboundMessage, last: Version
    ) -> Receipt | None:
        """Put new words for the queue in the place of those that wait there; None: none do."""
        words = replace(event, text=event.get_command_args())
        if not words.text and not words.attachments:
            return None
        return self._replace(words, key, delivery, last, is_queued=True)

    def _cancel(self, last: Version) -> bool:
        """Cancel the turn of the version before, if it has not begun."""
        return last.turn_id is not None and self.turns.cancel(last.turn_id, "changed by its sender")

    def _stop_job(self, key: str, last: Version) -> None:
        """Stop the background job of the version before."""
        running = self.turns.engine.work.find(last.turn_id or "")
        if running is not None and self.turns.is_background(running):
            self.turns.engine.interrupt(running.turn.conversation_id, key)

    def _answered(
        self, event: MessageEvent, source: SessionSource, key: str, delivery: InboundMessage
    ) -> str:
        """Tell a turn what it wants to know, if plain words answer that; returns its session then."""
        if event.attachments or not questions.may_be_answered(event, key, self.turns):
            return ""
        question = questions.answered_by(event, key, self.turns, self.store)
        asker = questions.asker(question, key, self.turns) if question is not None else None
        turn = (
            self.store.read(turn_ledger.find, question["turn_id"]) if question is not None else None
        )
        if question is None or turn is None or asker is None:
            return ""
        if not self._may_answer(source, asker):
            return ""
        answer = _choice(event.text, question["choices"])
        if source.person != asker.person:
            answer = self.model_input.spoken(source, answer)
        self.store.write(inbox.receive, delivery)
        self.store.write(question_ledger.answer, question["id"], answer, by=source.platform.value)
        target, session_id = reply_target.decode(delivery.payload), turn["session_id"]
        told = self.replies.answer(target, "", name=name_of(delivery), session_id=session_id)
        self.store.write(outbox.put, told)
        self.store.write(inbox.settle, delivery, "command")
        return session_id

    def _may_answer(self, source: SessionSource, asker: SessionSource) -> bool:
        theirs = self.access.permissions_of(source)
        return may_answer(theirs, self.access.permissions_of(asker))

    # -- something to say -----------------------------------------------------------------------

    def _say(self, event: MessageEvent, source: SessionSource, delivery: InboundMessage) -> Receipt:
        while True:
            entry = self.entry_of(event, source)
            opening = self.opening_of(entry, event, source)
            with suppress(ConversationOverError):  # its chat has just left that conversation
                return self._accept(event, entry, delivery, opening)

    def _say_anew(
        self,
        event: MessageEvent,
        source: SessionSource,
        key: str,
        delivery: InboundMessage,
        last: Version,
    ) -> Receipt:
        """A new version of a message: it replaces one that waits, and follows one that was read."""
        if (done := self._replace(event, key, delivery, last)) is not None:
            return done
        if self._cancel(last):  # it was queued as a background job
            return self._say(event, source, delivery)
        if last.target is not None and _command(last.target.text) == "background":
            self._stop_job(key, last)  # the conversation itself has not heard it
            return self._say(event, source, delivery)
        text = f"{_CORRECTED}{event.text}"
        corrected = replace(event, text=text, attachments=versions.new_files(event, last))
        return self._say(corrected, source, delivery)

    def _replace(
        self,
        event: MessageEvent,
        key: str,
        delivery: InboundMessage,
        last: Version,
        *,
        is_queued: bool = False,
    ) -> Receipt | None:
        """Put a new version in the place of one that waits; None when that does not (any more).

        What is queued is not said to the turn that runs, whatever becomes of other words.
        """
        found = [row for row in self.turns.queued(key) if row["id"] == last.turn_id]
        if not found:
            return None
        old = found[0]
        content = self.model_input.of(event, event.text, old["session_id"])
        target = reply_target.decode(delivery.payload)
        accepted = self.turns.replace(old["id"], content, target, delivery)
        if accepted is None:
            return None
        if not is_queued:
            self._offer_to_running(accepted, target, content)
        return Receipt("turn", accepted.turn_id, accepted.session_id)

    def _accept(
        self,
        event: MessageEvent,
        entry: SessionEntry,
        delivery: InboundMessage,
        opening: NewSession | None = None,
    ) -> Receipt:
        """Store a message as a turn; without an opening, only in a conversation that is there.

        Raises ConversationOverError when its chat does not go on there. Who names a session means it.
        """
        content = self.model_input.of(event, event.text, entry.session_id)
        target = reply_target.decode(delivery.payload)
        self.tell_reset(entry, target)
        try:
            accepted = self.turns.accept(
                entry.session_id,
                content,
                target,
                delivery,
                opening=opening,
                reopens=True,
                closed_by=frozenset() if event.options.get("session_id") else OVER,
            )
        except AlreadySettledError:
            return self._known(delivery) or Receipt("ignored", is_new=False)
        if accepted.makes_session and opening is not None and opening.route is not None:
            self.sessions.saved(entry.session_key)
        if not accepted.is_new:
            return Receipt("turn", accepted.turn_id, accepted.session_id, is_new=False)
        entry.session_id = accepted.session_id
        self._enqueue(accepted, target, content)
        return Receipt("turn", accepted.turn_id, accepted.session_id)

    def placed(self, event: MessageEvent) -> SessionSource:
        """Where a message comes from. Who names a session is in the chat of its conversation, whichever
        of the sessions that this went through is named.
        """
        source = _source(event)
        if named := event.options.get("session_id"):
            root = self.store.read(lineage.root, named)
            source = event.source = source.of_session(root)
        return source

    def entry_of(
        self, event: MessageEvent, source: SessionSource, *, is_command: bool = False
    ) -> SessionEntry:
        """The conversation that a message is about, be it words or a command.

        A program may name one, or want one for itself. Commands change routes, so theirs are kept,
        where there are such.
        """
        self._check_visible(event, source)
        if named := event.options.get("session_id"):
            return self.sessions.in_session(source, named)
        if event.options.get("is_single"):
            key = self.sessions.key_of(source)
            return self.sessions.entry_for(key, sessions.new_id(), source)
        return self.sessions.get_or_create_session(source, saves=is_command)

    def _check_visible(self, event: MessageEvent, source: SessionSource) -> None:
        """Raise SessionNotFoundError for a session that a program names and may not see."""
        named = event.options.get("session_id")
        if named and not self.store.read(
            scope.is_visible, named, self.access.permissions_of(source).scope
        ):
            raise SessionNotFoundError(f"There is no session {named}.")

    def _check_own(self, event: MessageEvent, source: SessionSource, key: str) -> None:
        """Raise SessionNotFoundError for a conversation that a program calls by the name that another
        user gave it: names are not told apart by who gives them.
        """
        is_in_place = self.replies.abilities(source.platform.value).answers_in_place
        if not is_in_place or event.options.get("is_single"):
            return
        person = self.sessions.person_in(key)
        if person is not None and person != source.person:
            raise SessionNotFoundError(
                f"The conversation {source.chat_id!r} is that of another user.",
                fix="Choose another name for yours.",
            )

    def opening_of(
        self, entry: SessionEntry, event: MessageEvent, source: SessionSource
    ) -> NewSession:
        """The session that a first message makes: whose it is, and what a program brings along."""
        opening = self.sessions.opening(entry)
        fields = {**opening.fields, **self.access.fields_of(source)}
        history = event.options.get("history") or ()
        route = None
        if not event.options.get("is_single"):
            route = self.sessions.unsaved_route(entry.session_key)
        return opening._replace(fields=fields, messages=history, route=route)

    def _enqueue(self, accepted: Accepted, target: ReplyTarget, content: object) -> None:
        """See what a new turn does to what runs in its conversation."""
        if not self.turns.engine.work.is_at_work(accepted.conversation_id):
            return
        if self.busy_mode == "interrupt":
            self.busy.make_way(accepted, target)
        else:
            self._offer_to_running(accepted, target, content)

    def _offer_to_running(self, accepted: Accepted, target: ReplyTarget, content: object) -> None:
        text = content if isinstance(content, str) else ""
        if self.busy_mode == "steer" and text:
            notice = self.busy.steer(accepted, target, text)
        else:
            notice = self.busy.held_up(accepted, target)
        self._notify(accepted, target, notice)

    def _notify(self, accepted: Accepted, target: ReplyTarget, text: str) -> None:
        """Tell a chat about its queued message; the message is accepted also when that fails."""
        if not text:
            return
        try:
            parts = self.replies.pieces(target, text, name=f"waits:{accepted.turn_id}")
            self.store.write(outbox.put, parts)
        except StoreError as error:
            logger.warning("could not tell the chat that its message is queued: %s", error)
        self.wake_delivery()

    def tell_reset(self, entry: SessionEntry, target: ReplyTarget) -> None:
        """Say once that a new conversation began by itself, when there was something before it."""
        if not entry.was_auto_reset:
            return
        policy = self.sessions.config.get_reset_policy(entry.platform, entry.chat_type)
        note = _RESET_NOTES.get(entry.auto_reset_reason or "")
        if note and policy.notify and entry.reset_had_activity:
            name = f"reset:{entry.session_id}"
            self.store.write(outbox.put, self.replies.pieces(target, f"ℹ️ {note}", name=name))
            self.wake_delivery()
        entry.was_auto_reset = False


def _source(event: MessageEvent) -> SessionSource:
    if event.source is None or not event.message_id:
        raise HermesError("A platform handed in a message without a source or an id.")
    return event.source


def _use(skill: Skill, event: MessageEvent) -> None:
    """Have a message say what its skill says, with the words after its name."""
    _, *words = event.text.split(maxsplit=1)
    event.text = skills.prompt(skill, "".join(words))


def _command(text: str) -> str:
    """The name of the command that a text is; empty: it is none of ours."""
    return canonical(MessageEvent(text).get_command() or "")


def _is_new(version: Version) -> bool:
    return version.target is not None and _command(version.target.text) == "new"


def _choice(text: str, choices: list[str]) -> str:
    """The choice that a number stands for, else the words."""
    number = text.strip().rstrip(".")
    if number.isdecimal() and 0 < int(number) <= len(choices):
        return choices[int(number) - 1]
    return text


def _ignored_if_new(event: MessageEvent) -> Receipt | None:
    return Receipt("ignored", is_new=False) if event.must_be_known else None
