"""The card that asks whether something dangerous may be done."""

from textual.content import Content

from hermes_tui.messages import ApprovalAsked
from hermes_tui.widgets.card import Card, Choice

_CHOICES = {
    "once": Choice("once", "Allow this once", "y", takes_enter=True),
    "session": Choice("session", "Allow it in this conversation", "s", takes_enter=True),
    "always": Choice("always", "Allow it always", "a", takes_enter=True),
    "deny": Choice("deny", "Do not allow it, or type why", "n"),
}


class ApprovalCard(Card):
    """What is to be done, why it is dangerous, and who may say yes: the person in front of it."""

    DEFAULT_CSS = """
    ApprovalCard Words {
        display: none;  /* until somebody types: the choices need the lines of a low screen */
    }
    """

    def __init__(self, asked: ApprovalAsked) -> None:
        wanted = asked.choices or ["once", "session", "always", "deny"]
        if not asked.allow_permanent:
            wanted = [choice for choice in wanted if choice != "always"]
        choices = [
            _CHOICES.get(value, Choice(value, value.capitalize(), str(number), takes_enter=True))
            for number, value in enumerate(wanted, 1)
        ]
        command = Content.styled(asked.command, "bold")
        note = (asked.description or "").strip()
        words = "What to do instead …"
        super().__init__(asked.request_id, "May this be done?", command, choices, note, words)
        self.add_class("approval")

    def reply(self, answer: str) -> tuple[str, dict[str, str]]:
        return "approval.respond", {"choice": answer, "request_id": self.request_id}
