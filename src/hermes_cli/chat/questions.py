"""Questions to the person at the terminal: how they are shown, and what an answer means."""

from collections.abc import Callable, Sequence
from typing import Protocol

from hermes_agent.events import QuestionAsked
from hermes_cli.chat.keys import Keys
from hermes_cli.chat.signals import Signalled
from hermes_cli.chat.work import View
from hermes_core.text import shorten_middle, visible

_LONGEST = 6_000
_HOW = "y: yes, once; s: in this conversation; a: always; n, or other words: no"
_ANSWERS = {
    **dict.fromkeys(("y", "yes", "o", "once", "/approve"), "once"),
    **dict.fromkeys(("s", "session", "/approve session"), "session"),
    **dict.fromkeys(("a", "always", "/approve always"), "always"),
    **dict.fromkeys(("n", "no", "d", "deny", "/deny"), "deny"),
}


class Reader(Protocol):
    """Somebody who reads what a person types: the line editor, or plain lines."""

    def read(self, default: str = "") -> str: ...
    def ask(self, prompt: str, is_moot: Callable[[], bool]) -> str | None: ...
    def early_keys(self) -> str: ...
    def hear(self, signalled: Signalled) -> None: ...
    def wake(self) -> None: ...


class Questioner:
    """Asks one question after the other."""

    def __init__(self, view: View, reader: Reader, keys: Keys | None = None) -> None:
        self._view = view
        self._reader = reader
        self._keys = keys
        self._settled: set[str] = set()

    def ask(self, question: QuestionAsked) -> str | None:
        """Put a question until it is answered; None when it was settled elsewhere."""
        self._set_early_keys_aside()
        self._show(question)
        prompt = "allow? " if question.kind == "approval" else "answer: "
        while (typed := self._reader.ask(prompt, lambda: self._is_settled(question))) is not None:
            if typed.strip() == "/stop":
                raise KeyboardInterrupt
            if answer := understood(question, typed.strip()):
                return answer
        self._view.note("The question was settled elsewhere.")
        return None

    def settle(self, question_id: str) -> None:
        """The question needs no answer any more; called from any thread."""
        self._settled.add(question_id)
        self._reader.wake()

    def _is_settled(self, question: QuestionAsked) -> bool:
        return question.question_id in self._settled

    def _set_early_keys_aside(self) -> None:
        """What was typed before the question was seen is no answer to it."""
        if self._keys is not None:
            self._keys.keep(self._reader.early_keys())
            self._keys.drain()

    def _show(self, question: QuestionAsked) -> None:
        if question.kind == "approval":
            detail = shorten_middle(visible(question.detail), _LONGEST)
            self._view.note(f"{question.tool_name} needs your yes: {question.text}", "yellow bold")
            self._view.plain(detail, indent=4)
            self._view.note(_HOW)
            return
        self._view.note(question.text, "yellow bold")
        for number, choice in enumerate(question.choices, 1):
            self._view.plain(f"{number}. {choice}", indent=4)


def understood(question: QuestionAsked, typed: str) -> str:
    """The answer that was typed; nothing when it was none."""
    if question.kind == "approval":
        return understood_approval(typed)
    return understood_choice(typed, question.choices)


def understood_approval(typed: str) -> str:
    """What was typed as an answer to an approval; other words are a no with a remark."""
    if not typed:
        return ""
    if (answer := _ANSWERS.get(typed.lower())) is not None:
        return answer
    return f"deny: {typed.removeprefix('/deny').strip()}"


def understood_choice(typed: str, choices: Sequence[str]) -> str:
    """What was typed as an answer: a choice by its number, or words."""
    if typed.isdecimal() and 1 <= int(typed) <= len(choices):
        return choices[int(typed) - 1]
    return typed
