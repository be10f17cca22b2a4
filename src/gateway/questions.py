"""Questions in a chat: of the turn that runs there, and of background jobs."""

from collections.abc import Iterator
from typing import Protocol

from gateway.platforms.base import MessageEvent
from gateway.reply_target import ReplyTarget
from gateway.source import SessionSource
from hermes_agent.approval import display
from hermes_agent.turn.events import QuestionAsked
from hermes_core import markdown
from hermes_engine.surface import Running
from hermes_state.ledger import outbox, questions
from hermes_state.store import Store
from hermes_state.values import Row

_ANSWERS = ("approve", "deny")
_LASTING = ("session", "always")


def lines_of(question: QuestionAsked) -> list[str]:
    """Return the lines of a question as a person reads it."""
    lasting = ""
    if question.kind == "approval":
        text, lasting = display.lasting_of(question.text)
        gap = "\n" if "\n" in text else " "  # several reasons are a list
        lines = [f"🔐 Allow this command?{gap}{text}"]
    else:
        lines = [f"❓ {question.text}"]
    if question.detail:
        # What would run may be somebody else's words, and must not pass for ours.
        lines.append(markdown.fenced(question.detail))
    return [*lines, *filter(None, [lasting])]


def how_to_answer(question: QuestionAsked) -> list[str]:
    """Return the lines that explain how to answer without buttons."""
    if question.kind == "approval":
        others = [f"/approve {each}" for each in _LASTING if each in question.choices]
        more = f" (or {', '.join(others)})" if others else ""
        return [f"Answer /approve{more} or /deny."]
    if not question.choices:
        return []
    choices = [f"{number}. {choice}" for number, choice in enumerate(question.choices, 1)]
    return [*choices, "Answer with a number or in your own words."]


class AskedTurns(Protocol):
    """The part of `ChatTurns` that questions need."""

    def running_for(self, session_key: str) -> list[Running]: ...
    def has_question(self, running: Running) -> bool: ...
    def is_background(self, running: Running) -> bool: ...
    def target_of(self, turn_id: str) -> ReplyTarget | None: ...


def may_be_answered(event: MessageEvent, key: str, turns: AskedTurns) -> bool:
    """Return whether plain words may be the answer to what was asked in a chat."""
    return bool(_turns_asking(event, key, turns))


def answered_by(event: MessageEvent, key: str, turns: AskedTurns, store: Store) -> Row | None:
    """Return the question that plain text answers: the one it replies to, else that of the running turn.

    The question of a background job needs a reply to it, since the person may be writing about other
    things meanwhile.
    """
    by_turn = {running.turn.id: running for running in _turns_asking(event, key, turns)}
    pending = [
        row
        for row in store.read(questions.pending)
        if row["kind"] == "clarify" and row["turn_id"] in by_turn
    ]
    for question in pending if event.reply_to_message_id else ():
        names = {row["platform_message_id"] for row in pieces(store, question["id"])}
        if event.reply_to_message_id in names:
            return question
    return next((row for row in pending if not turns.is_background(by_turn[row["turn_id"]])), None)


def asker(question: Row, key: str, turns: AskedTurns) -> SessionSource | None:
    """Return the person whose turn has a question; None when it does not run here."""
    if all(running.turn.id != question["turn_id"] for running in turns.running_for(key)):
        return None
    target = turns.target_of(question["turn_id"])
    return target.source if target is not None else None


def is_answer(event: MessageEvent, key: str, turns: AskedTurns, store: Store) -> bool:
    """Return whether a message answers a question to its sender.

    It is addressed to us then, also in a group and without our name. Only a command answers an approval.
    """
    source = event.source
    candidates = [
        each for each in _turns_asking(event, key, turns) if not turns.is_background(each)
    ]
    target = turns.target_of(candidates[0].turn.id) if candidates else None
    if source is None or target is None:
        return False
    if target.source.person != source.person or event.files or event.edits is not None:
        return False
    command = event.get_command()
    kind = "clarify" if command is None else "approval" if command in _ANSWERS else None
    turn_id = candidates[0].turn.id
    pending = [row for row in store.read(questions.pending) if row["turn_id"] == turn_id]
    return any(row["kind"] == kind for row in pending)


def pieces(store: Store, question_id: str) -> Iterator[Row]:
    """Yield the outbound parts of a question."""
    name, number = questions.part_name(question_id), 0
    while (row := store.read(outbox.find, f"{name}:{number}")) is not None:
        yield row
        number += 1


def _turns_asking(event: MessageEvent, key: str, turns: AskedTurns) -> list[Running]:
    """Return the turns whose question a message may answer: a job's only when it is a reply."""
    with_questions = [running for running in turns.running_for(key) if turns.has_question(running)]
    if event.reply_to_message_id:
        return with_questions
    return [running for running in with_questions if not turns.is_background(running)]
