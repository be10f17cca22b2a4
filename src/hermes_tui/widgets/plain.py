"""Plain text: shown as it was written, for what is neither the interface's own words nor a reply."""

from textual.content import Content
from textual.widgets import Static

TAB = 4
"""Columns from one stop to the next."""


class Plain(Static):
    """Nothing in it is markup, and its tabs are blanks: what is selected is what is seen."""

    def __init__(self, text: Content | str = "", *, classes: str = "") -> None:
        super().__init__(_spaced(text), markup=False, classes=classes)

    def show(self, text: Content | str) -> None:
        """Show another text."""
        self.update(_spaced(text))


def _spaced(text: Content | str) -> Content | str:
    return text.expandtabs(TAB) if isinstance(text, str) else text.expand_tabs(TAB)
