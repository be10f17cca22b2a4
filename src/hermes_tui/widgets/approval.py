"""The card that asks whether something dangerous may be done."""

from textual.content import Content

from hermes_tui.messages import ApprovalAsked
from hermes_tui.widgets.card import Card, Choice

_CHOICES = {
    "once": Choice("once", "Allow this once", "y"),
    "session": Choice("session", "Allow such calls in this conversation", "s"),
    "always": Choice("always", "Allow such calls always", "a"),
    "deny": Choice("deny", "Do not allow it, or type why", "n"),
}
_LASTING = "Such calls do the same, maybe to something else."
"""Where it is not known what the server remembers."""


class ApprovalCard(Card):
    """What is to be done, why it is dangerous, and who may say yes: the person in front of it."""

    def __init__(self, asked: ApprovalAsked) -> None:
        wanted = asked.choices or ["once", "session", "always", "deny"]
        if not asked.allow_permanent:
            wanted = [choice for choice in wanted if choice != "always"]
        choices = [
            _CHOICES.get(value, Choice(value, value.capitalize(), str(number)))
            for number, value in enumerate(wanted, 1)
        ]
        command = Content.styled(asked.command, "bold")
        reason = (asked.description or "").strip().removesuffix(".")
        notes = [f"{reason}." if reason else ""]
        if {"session", "always"} & set(wanted):
            known = f"Such calls: {asked.remembers}."
            notes.append(known if asked.remembers else _LASTING)
        note = " ".join(filter(None, notes))
        words = "A key and Enter, or what to do instead …"
        super().__init__(asked.request_id, "May this be done?", command, choices, note, words)
        self.add_class("approval")
        self._values = {"deny", *wanted, *_CHOICES}

    def say(self, words: str) -> None:
        """Words are a no, also those that the server knows as a yes."""
        self.answer(f'"{words}"' if words in self._values else words)

    def reply(self, answer: str) -> tuple[str, dict[str, str]]:
        return "approval.respond", {"choice": answer, "request_id": self.request_id}
