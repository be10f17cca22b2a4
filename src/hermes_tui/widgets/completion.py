"""The list of what completes the word being typed; the keys for it come from the composer."""

from collections.abc import Sequence

from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from hermes_core.text import fit
from hermes_protocol.results import Item

_NAME_COLUMNS = 26


class CompletionList(OptionList, can_focus=False):
    """Above the composer, while there is something to choose."""

    class Chosen(Message):
        """Somebody clicked an item."""

    def __init__(self) -> None:
        super().__init__(id="completions", markup=False)
        self.items: list[Item] = []
        self.start = 0
        """From which character on an item replaces what is typed."""

    def on_mount(self) -> None:
        self.hide()

    @property
    def is_shown(self) -> bool:
        return bool(self.display)

    def show(self, items: Sequence[Item], start: int) -> None:
        """Offer these; none closes the list."""
        self.items, self.start = list(items), start
        self.display = bool(items)
        self.clear_options()
        self.add_options(Option(_line(item)) for item in items)
        self.highlighted = 0 if items else None

    def hide(self) -> None:
        """Offer nothing."""
        self.display = False
        self.items = []

    def move(self, steps: int) -> None:
        """Highlight another item; after the last one comes the first."""
        if self.items:
            self.highlighted = ((self.highlighted or 0) + steps) % len(self.items)

    @property
    def item(self) -> Item | None:
        """Return the highlighted item."""
        return self.items[self.highlighted or 0] if self.items else None

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.highlighted = event.option_index
        self.post_message(self.Chosen())


def _line(item: Item) -> Content:
    name = item.display or item.text
    if not item.meta:
        return Content(name)
    return Content.assemble((fit(name, max(_NAME_COLUMNS, len(name)))), (f"  {item.meta}", "dim"))
