"""The card that asks a person something, to be answered by a choice or in own words."""

from hermes_protocol.events import Clarification
from hermes_tui.widgets.card import Card, Choice


class QuestionCard(Card):
    """A question of the model; an answer in own words is always possible."""

    DEFAULT_CSS = """
    QuestionCard {
        border: round $primary 60%;
        border-title-color: $text-primary;
        &.-has-keys {
            border: round $primary;
        }
    }
    """

    def __init__(self, request: Clarification) -> None:
        choices = [
            Choice(text, text, str(number)) for number, text in enumerate(request.choices, 1)
        ]
        words = "Press a key and Enter, or type an answer …" if choices else "Your answer …"
        super().__init__(
            request.request_id, "A question for you", request.question, choices, words=words
        )
        self.add_class("question")

    def reply(self, answer: str) -> tuple[str, dict[str, str]]:
        return "clarify.respond", {"request_id": self.request_id, "answer": answer}
