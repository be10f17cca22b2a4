"""The bar with the open conversations and their badges; shown when there are several."""

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from hermes_core.text import truncate
from hermes_tui.tabs import Badge, Tab, Tabs

BADGES: dict[Badge, tuple[str, str]] = {
    "": ("○", "dim"),
    "working": ("●", "$text-warning"),
    "finished": ("✓", "$text-success"),
    "waiting": ("▲", "$text-accent"),
    "lost": ("✗", "$text-error"),
}
"""The mark of each badge, with its style."""
_MIN_TITLE = 4
_MAX_TITLE = 30


class TabBar(Static):
    """One line at the top; a click shows a conversation."""

    ALLOW_SELECT = False

    class Selected(Message):
        """A conversation was clicked."""

        def __init__(self, tab: Tab) -> None:
            super().__init__()
            self.tab = tab

    def __init__(self, tabs: Tabs) -> None:
        super().__init__(id="tabs", markup=False)
        self._tabs = tabs
        self._cells: list[tuple[Tab, Content]] = []

    def on_mount(self) -> None:
        self.tell()

    def on_resize(self) -> None:
        self.tell()

    def tell(self) -> None:
        """Show the conversations as they are now."""
        self.display = len(self._tabs.all) > 1
        if self.display:
            self._cells = cells(self._tabs, self.content_size.width)
            self.update(Content("").join(cell for _, cell in self._cells))

    def on_click(self, event: events.Click) -> None:
        event.stop()
        end = self.gutter.left
        for tab, cell in self._cells:
            end += cell.cell_length
            if event.x < end:
                self.post_message(self.Selected(tab))
                return


def cells(tabs: Tabs, columns: int) -> list[tuple[Tab, Content]]:
    """Make the cells that fit; with many, only the shown conversation keeps its title.

    Those that are furthest from it are left out, but none that waits for an answer before the others.
    """
    room = min(_MAX_TITLE, columns // len(tabs.all) - len(f" {len(tabs.all)} ●  "))
    has_titles = room >= _MIN_TITLE
    here = tabs.all.index(tabs.current)
    places = sorted(
        range(len(tabs.all)),
        key=lambda place: (place != here, not tabs.all[place].questions, abs(place - here)),
    )
    fitting: dict[int, Content] = {}
    for place in places:
        tab = tabs.all[place]
        title = truncate(tab.title, room if has_titles else min(_MAX_TITLE, columns // 2))
        cell = _cell(tab, place + 1, title if has_titles or tab is tabs.current else "")
        if cell.cell_length + sum(other.cell_length for other in fitting.values()) > columns:
            break
        fitting[place] = cell
    return [(tabs.all[place], fitting[place]) for place in sorted(fitting)]


def _cell(tab: Tab, number: int, title: str) -> Content:
    style = "bold" if tab.is_shown else "dim"
    text = f" {title} " if title else " "
    cell = Content.assemble((f" {number} ", style), BADGES[tab.badge], (text, style))
    return cell.stylize("on $panel") if tab.is_shown else cell
