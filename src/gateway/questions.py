"""Questions that are asked in a chat: by the turn that runs there, and by the jobs beside it."""

from collections.abc import Iterator
from typing import Protocol

from gateway.platforms.base import MessageEvent
from gateway.reply_target import ReplyTarget
from gateway.source import SessionSource
from hermes_agent.turn.events import QuestionAsked
from hermes_core import markdown
from hermes_core.text import one_line, shorten_middle, visible
from hermes_engine.surface import Running
from hermes_state.ledger import outbox, questions
from hermes_state.store import Store
from hermes_state.values import Row

_ANSWERS = ("approve", "deny")
_LONGEST_DETAIL = 12_000
"""What a person can be expected to read in a chat, in several messages."""


def words(asked: QuestionAsked) -> list[str]:
    """A question as a person reads it, line by line."""
    if asked.kind == "approval":
        lines = [f"🔐 May this run? {one_line(visible(asked.text))}"]
    else:
        lines = [f"❓ {asked.text}"]
    if asked.detail:
        # What would run may be somebody else's words, and must not pass for ours.
        lines.append(markdown.fenced(shorten_middle(visible(asked.detail), _LONGEST_DETAIL)))
    return lines


def how_to_answer(asked: QuestionAsked) -> list[str]:
    """What a person must know who has no buttons for it."""
    if asked.kind == "approval":
        return ["Answer /approve (or /approve session, /approve always) or /deny."]
    if not asked.choices:
        return []
    choices = [f"{number}. {choice}" for number, choice in enumerate(asked.choices, 1)]
    return [*choices, "Answer with a number or in your own words."]


class AskedTurns(Protocol):
    """What the questions of chats need to know of their turns."""

    def running_for(self, session_key: str) -> list[Running]: ...
    def has_asked(self, running: Running) -> bool: ...
    def is_background(self, running: Running) -> bool: ...
    def target_of(self, turn_id: str) -> ReplyTarget | None: ...


def may_be_answered(event: MessageEvent, key: str, turns: AskedTurns) -> bool:
    """Return whether plain words may be the answer to what was asked in a chat."""
    return bool(_asking(event, key, turns))


def answered_by(event: MessageEvent, key: str, turns: AskedTurns, store: Store) -> Row | None:
    """What plain words answer: the question that they reply to, else that of the turn that runs.

    A job's question is answered by a reply to it and by nothing else, since the person may be talking
    about other things meanwhile.
    """
    asking = {running.turn.id: running for running in _asking(event, key, turns)}
    asked = [
        one
        for one in store.read(questions.pending)
        if one["kind"] == "clarify" and one["turn_id"] in asking
    ]
    for question in asked if event.reply_to_message_id else ():
        names = {row["platform_message_id"] for row in pieces(store, question["id"])}
        if event.reply_to_message_id in names:
            return question
    return next((one for one in asked if not turns.is_background(asking[one["turn_id"]])), None)


def asker(question: Row, key: str, turns: AskedTurns) -> SessionSource | None:
    """Return who asked for the turn that puts a question; None when it does not run here."""
    if all(running.turn.id != question["turn_id"] for running in turns.running_for(key)):
        return None
    target = turns.target_of(question["turn_id"])
    return target.source if target is not None else None


def is_asked(event: MessageEvent, key: str, turns: AskedTurns, store: Store) -> bool:
    """Whether a message answers what its sender is asked in a conversation: it is meant for us then,
    also in a group and without our name. An approval is answered by a command alone.
    """
    source = event.source
    asking = [one for one in _asking(event, key, turns) if not turns.is_background(one)]
    target = turns.target_of(asking[0].turn.id) if asking else None
    if source is None or target is None:
        return False
    if target.source.person != source.person or event.files or event.edits is not None:
        return False
    command = event.get_command()
    kind = "clarify" if command is None else "approval" if command in _ANSWERS else None
    turn_id = asking[0].turn.id
    asked = [one for one in store.read(questions.pending) if one["turn_id"] == turn_id]
    return any(one["kind"] == kind for one in asked)


def pieces(store: Store, question_id: str) -> Iterator[Row]:
    """The messages that a question was put in."""
    number = 0
    while (row := store.read(outbox.find, f"{name(question_id)}:{number}")) is not None:
        yield row
        number += 1


def name(question_id: str) -> str:
    """The name of a question's pieces."""
    return f"question:{question_id}"


def _asking(event: MessageEvent, key: str, turns: AskedTurns) -> list[Running]:
    """Return the turns whose question a message may answer: a job's only when it is a reply."""
    asking = [running for running in turns.running_for(key) if turns.has_asked(running)]
    if event.reply_to_message_id:
        return asking
    return [running for running in asking if not turns.is_background(running)]
