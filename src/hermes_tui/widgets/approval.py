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
_LASTING = "A lasting permission is for exactly this call."
"""Where it is not known what the server remembers."""


class ApprovalCard(Card):
    """Shows the command, why it is dangerous, and the choices."""

    def __init__(self, request: Approval) -> None:
        values = request.choices or ["once", "session", "always", "deny"]
        if not request.allow_permanent:
            values = [choice for choice in values if choice != "always"]
        choices = [
            _CHOICES.get(value, Choice(value, value.capitalize(), str(number)))
            for number, value in enumerate(values, 1)
        ]
        command = Content.styled(request.command, "bold")
        reason = request.description.strip().removesuffix(".")
        notes = [f"{reason}." if reason else ""]
        if {"session", "always"} & set(values):
            scope = f'"Always" would allow: {request.remembers}.'
            notes.append(scope if request.remembers else _LASTING)
        note = " ".join(filter(None, notes))
        words = "Press a key and Enter, or type what to do instead …"
        super().__init__(request.request_id, "Allow this command?", command, choices, note, words)
        self.add_class("approval")
        self._values = {"deny", *values, *_CHOICES}

    def say(self, words: str) -> None:
        """Words are a no, also those that the server knows as a yes."""
        self.answer(f'"{words}"' if words in self._values else words)

    def reply(self, answer: str) -> tuple[str, dict[str, str]]:
        return "approval.respond", {"choice": answer, "request_id": self.request_id}
