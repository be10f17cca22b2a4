"""The help: every key, by what it is for."""

from itertools import groupby

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from hermes_core.text import fit
from hermes_tui import keymap
from hermes_tui.screens.dialog import Dialog


class HelpScreen(Dialog[None]):
    """The keymap, with the keys that a person has chosen instead."""

    def __init__(self, own_keys: dict[str, str]) -> None:
        super().__init__()
        self._own = own_keys

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog", id="help") as frame:
            frame.border_title = "Keyboard shortcuts"
            frame.border_subtitle = "↑↓ scrolls · Esc closes"
            yield Static(self._table(), markup=False)

    def on_mount(self) -> None:
        self.query_one("#help").focus()

    def _table(self) -> Content:
        rows = [
            *((group, keys, does) for group, keys, does in keymap.FIXED),
            *((key.group, self._own.get(key.name, key.keys), key.does) for key in keymap.KEYS),
        ]
        rows.sort(key=lambda row: ("Writing", "Conversation", "Reading").index(row[0]))
        column = max(len(keymap.format_keys(keys)) for _, keys, _ in rows) + 2
        parts: list[Content] = []
        for group, members in groupby(rows, key=lambda row: row[0]):
            parts.append(Content.styled(f"{group}", "bold $text-accent"))
            parts += [
                Content.assemble((f"  {fit(keymap.format_keys(keys), column)}", "bold"), does)
                for _, keys, does in members
            ]
            parts.append(Content(""))
        hint = "Text that you select with the mouse is copied. /help lists the commands."
        return Content("\n").join([*parts, Content.styled(hint, "dim")])
