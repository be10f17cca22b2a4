"""The card that asks a person something, to be answered by a choice or in own words."""

from textual import events, on
from textual.app import ComposeResult
from textual.widgets import Input

from hermes_tui.messages import QuestionAsked
from hermes_tui.widgets.card import Card, Choice


class Answer(Input):
    """A line for an answer in own words."""

    DEFAULT_CSS = """
    Answer, Answer:focus {
        border: none;
        border-left: outer $primary;
        height: 1;
        padding: 0 1;
        background: $panel;
    }
    """


class QuestionCard(Card):
    """What the model wants to know; an answer in own words is always possible."""

    DEFAULT_CSS = """
    QuestionCard {
        border: round $primary 60%;
        border-title-color: $text-primary;
        &:focus, &:focus-within {
            border: round $primary;
        }
    }
    """

    def __init__(self, asked: QuestionAsked) -> None:
        choices = [
            Choice(text, text, str(number)) for number, text in enumerate(asked.choices or [], 1)
        ]
        super().__init__(asked.request_id, "A question for you", asked.question, choices)
        self.add_class("question")

    def answers(self) -> ComposeResult:
        yield from super().answers()
        other = "Or answer in your own words …" if self._choices else "Your answer …"
        yield Answer(placeholder=other)

    def on_focus(self) -> None:
        if not self._choices:
            self.query_one(Input).focus()

    def on_key(self, event: events.Key) -> None:
        written = self.query_one(Input)
        if self.has_focus and event.key == "down" and self._place == len(self._choices) - 1:
            target = written
        elif written.has_focus and event.key == "up" and self._choices:
            target = self
        else:
            return
        event.stop()
        event.prevent_default()
        target.focus()

    @on(Input.Submitted)
    def _written(self, event: Input.Submitted) -> None:
        event.stop()
        if self.is_armed and event.value.strip():
            self.answer(event.value.strip())

    def reply(self, answer: str) -> tuple[str, dict[str, str]]:
        return "clarify.respond", {"request_id": self.request_id, "answer": answer}
