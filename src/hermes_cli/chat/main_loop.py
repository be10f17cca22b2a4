"""The main thread of a chat: shows events, asks questions and takes signals while a turn runs."""

import signal
from collections.abc import Callable
from typing import TypeVar

from hermes_agent.approval import display
from hermes_agent.turn.events import Event, QuestionAnswered, QuestionAsked, TurnEnded
from hermes_agent.turn.stop import Stop, in_thread
from hermes_cli.chat.terminal import (
    EXIT_INTERRUPTED,
    ExitRequested,
    SignalReceived,
    Terminal,
    WorkDone,
)
from hermes_cli.chat.view import View
from hermes_core.errors import UsageError

T = TypeVar("T")
Answer = Callable[[str, str], object]

_CHOICES = {
    "once": "y  Allow once",
    "session": "s  Allow for this conversation",
    "always": "a  Always allow",
    "deny": "n  Deny (other words: deny, and tell the model why)",
}
_ANSWERS = {
    **dict.fromkeys(("y", "yes", "o", "once", "/approve"), "once"),
    **dict.fromkeys(("s", "session", "/approve session"), "session"),
    **dict.fromkeys(("a", "always", "/approve always"), "always"),
    **dict.fromkeys(("n", "no", "d", "deny", "/deny"), "deny"),
}


class MainLoop:
    """Runs in the main thread while a turn runs in another."""

    def __init__(self, view: View, terminal: Terminal, *, can_ask: bool) -> None:
        self.view = view
        self.terminal = terminal
        self.can_ask = can_ask
        self.stop = Stop()
        """The stop of the last turn; set when the user interrupted it."""
        self.has_ended = False
        """Whether a turn has reported its end."""
        self._settled: set[str] = set()
        """Questions that were answered elsewhere or withdrawn."""

    def post(self, event: Event) -> None:
        """Queue an event; called from the threads that run turns."""
        if isinstance(event, QuestionAnswered):
            self._settled.add(event.question_id)
            self.terminal.wake()
        self.terminal.items.put(event)

    def run(self, answer: Answer, work: Callable[[Stop], T]) -> T:
        """Run `work` in a thread; Ctrl-C sets its stop, a second one raises ExitRequested.

        `answer` is called with the id of a question and the answer to it.
        """
        self.stop = stop = Stop()
        self.has_ended = False
        future = in_thread(lambda: work(stop), "turn")
        future.add_done_callback(lambda _: self.terminal.items.put(WorkDone()))
        while not isinstance(item := self.terminal.items.get(), WorkDone):
            if isinstance(item, SignalReceived):
                self._take_signals()
            elif isinstance(item, QuestionAsked):
                self._ask(item, answer)
            else:
                self.has_ended = self.has_ended or isinstance(item, TurnEnded)
                self.view.show(item)
        return future.result()

    def _take_signals(self) -> None:
        while (number := self.terminal.take_signal()) is not None:
            if number != signal.SIGINT:
                raise ExitRequested(128 + number)
            self._interrupt()

    def _interrupt(self) -> None:
        """Interrupt the turn; the second time, quit."""
        if self.stop.is_set:
            raise ExitRequested(EXIT_INTERRUPTED)
        self.stop.set()

    def _ask(self, question: QuestionAsked, give: Answer) -> None:
        if not self.can_ask or self.stop.is_set or question.question_id in self._settled:
            return
        try:
            answer = self._answer(question)
        except KeyboardInterrupt:
            self._interrupt()
            return
        except ExitRequested as leaving:
            raise ExitRequested(
                leaving.status or EXIT_INTERRUPTED
            ) from None  # in the middle of a turn
        if answer is not None:
            try:
                give(question.question_id, answer)
                return
            except UsageError:
                pass  # already answered elsewhere
        self.view.note("The question was answered elsewhere.")

    def _answer(self, question: QuestionAsked) -> str | None:
        """Ask until there is an answer; None when it was answered elsewhere."""
        self.view.pause()
        self.terminal.discard_input()
        prompt = self._show(question)
        while True:
            typed = self.terminal.ask(prompt, lambda: question.question_id in self._settled)
            if typed is None:
                return None
            if typed.strip() == "/stop":
                raise KeyboardInterrupt
            if answer := parse_answer(question, typed.strip()):
                return answer

    def _show(self, question: QuestionAsked) -> str:
        if question.kind != "approval":
            self.view.note(question.text)
            for number, choice in enumerate(question.choices, 1):
                self.view.write(f"{number}. {choice}", indent=4)
            return "answer: "
        text, lasting = display.lasting_of(question.text)
        gap = "\n" if "\n" in text else " "  # several reasons are a list
        self.view.note(f"Allow this call of {question.tool_name}?{gap}{text}")
        self.view.write(question.detail, indent=4)
        if lasting:
            self.view.note(lasting)
        self.view.write("\n".join(f"    {_CHOICES[choice]}" for choice in question.choices))
        return "allow? "


def parse_answer(question: QuestionAsked, typed: str) -> str:
    """Return the answer that was typed; empty when it is not valid.

    A choice may be given by its number. To an approval, any other text denies, with that reason.
    """
    if question.kind == "approval":
        denial = f"deny: {typed.removeprefix('/deny').strip()}"
        return typed and _ANSWERS.get(typed.lower(), denial)
    if typed.isdecimal() and 1 <= int(typed) <= len(question.choices):
        return question.choices[int(typed) - 1]
    return typed
