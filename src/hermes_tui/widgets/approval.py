"""The card that asks whether to allow a dangerous call."""

from textual.content import Content

from hermes_protocol.events import Approval
from hermes_tui.widgets.card import Card, Choice

_CHOICES = {
    "once": Choice("once", "Allow once", "y"),
    "session": Choice("session", "Allow for this conversation", "s"),
    "always": Choice("always", "Always allow", "a"),
    "deny": Choice("deny", "Deny (or type a reason)", "n"),
}


class ApprovalCard(Card):
    """Shows why a call is dangerous, all of the command or diff, what a yes covers, and the choices."""

    DEFAULT_CSS = """
    ApprovalCard .card-note {
        max-height: 100%;
    }
    """

    def __init__(self, request: Approval) -> None:
        values = request.choices or ["once", "session", "always", "deny"]
        if not request.allow_permanent:
            values = [choice for choice in values if choice != "always"]
        choices = [
            _CHOICES.get(value, Choice(value, value.capitalize(), str(number)))
            for number, value in enumerate(values, 1)
        ]
        reasons = request.description.strip()
        text = Content.assemble(f"{reasons}\n" if reasons else "", (request.command, "bold"))
        words = "Press a key and Enter, or type what to do instead …"
        super().__init__(
            request.request_id, "Allow this command?", text, choices, request.remembers, words
        )
        self.add_class("approval")
        self._values = {"deny", *values, *_CHOICES}

    def say(self, words: str) -> None:
        """Words are a no, also those that the server knows as a yes."""
        self.answer(f'"{words}"' if words in self._values else words)

    def reply(self, answer: str) -> tuple[str, dict[str, str]]:
        return "approval.respond", {"choice": answer, "request_id": self.request_id}
