"""The panel beside the conversation on wide screens: what is open, queued, to do, and what it costs."""

from collections.abc import Sequence

from textual import events
from textual.content import Content
from textual.widgets import Static

from hermes_core.text import fit, one_line
from hermes_tui.entries import Call
from hermes_tui.tabs import Tab, Tabs
from hermes_tui.widgets.status import share_of, short_count
from hermes_tui.widgets.tab_bar import BADGES, TabBar
from hermes_tui.widgets.tool import checklist_lines

_BAR = 16
_MAX_LINES = 12
"""Of a section; the rest is counted."""


class SidePanel(Static):
    """Hidden where the screen is narrow, or when the person does not want it."""

    ALLOW_SELECT = False

    def __init__(self, tabs: Tabs) -> None:
        super().__init__(id="side-panel", markup=False)
        self._tabs = tabs

    def on_resize(self) -> None:
        self.tell()

    def tell(self) -> None:
        """Show how things are now."""
        columns = self.content_size.width
        if not columns:
            return
        tab = self._tabs.current
        sections = [
            ("Conversations", [_conversation(other, columns) for other in self._tabs.all]),
            ("Queue", [Content(fit(one_line(text), columns)) for text in tab.conversation.waiting]),
            ("To do", [line.truncate(columns, ellipsis=True) for line in _todo(tab)]),
            ("Usage", _usage(tab)),
        ]
        lines: list[Content] = []
        for title, members in sections:
            if members:
                lines += [Content.styled(title, "bold $text-accent"), *_cut(members), Content("")]
        self.update(Content("\n").join(lines))

    def on_click(self, event: events.Click) -> None:
        event.stop()
        place = event.y - self.gutter.top - 1
        if 0 <= place < min(len(self._tabs.all), _MAX_LINES):
            self.post_message(TabBar.Selected(self._tabs.all[place]))


def _cut(lines: Sequence[Content]) -> list[Content]:
    if len(lines) <= _MAX_LINES:
        return list(lines)
    rest = Content.styled(f"… {len(lines) - _MAX_LINES + 1} more", "dim")
    return [*lines[: _MAX_LINES - 1], rest]


def _conversation(tab: Tab, columns: int) -> Content:
    style = "bold" if tab.is_shown else "dim"
    return Content.assemble(BADGES[tab.badge], (f" {fit(tab.title, columns - 2)}", style))


def _todo(tab: Tab) -> list[Content]:
    """The items of the list as the last call of `todo` has left it."""
    calls = (entry for entry in reversed(tab.transcript.entries) if isinstance(entry, Call))
    last = next((call for call in calls if call.checklist), None)
    return checklist_lines(last) if last is not None else []


def _usage(tab: Tab) -> list[Content]:
    usage = tab.conversation.info.usage
    lines: list[Content] = []
    if tab.conversation.info.model:
        lines.append(Content(one_line(tab.conversation.info.model)))
    if (share := share_of(tab.conversation)) is not None:
        filled = min(_BAR, round(_BAR * share / 100))
        bar = Content.assemble(("━" * filled, "$text-accent"), ("━" * (_BAR - filled), "dim"))
        lines.append(bar + Content(f" {share:.0f}% of {short_count(usage.context_max)}"))
    if usage.cost_usd:
        lines.append(Content(f"${usage.cost_usd:.4f}"))
    return lines
