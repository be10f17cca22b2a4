"""Tool calls: one line each, with live output while they run, diffs, and the whole result on request."""

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget

from hermes_core.text import fit, one_line, width
from hermes_tui.entries import Call
from hermes_tui.host import app_of
from hermes_tui.widgets import diff
from hermes_tui.widgets.fold import Fold
from hermes_tui.widgets.plain import Plain

_TAIL = 6
_DIFF_LINES = 16
_BODY = 40_000
_AROUND = 8
"""Columns of the title for the marks, the blanks between its parts and beside it."""
_MARGIN = 4
_MIN_WIDTH = 12

_MARKS = {
    "running": ("● ", "$text-warning"),
    "done": ("✓ ", "$text-success"),
    "failed": ("✗ ", "$text-error"),
    "denied": ("⊘ ", "$text-warning"),
}
_ITEMS = {
    "x": ("✓ ", "$text-success", "dim"),
    "~": ("◐ ", "$text-warning", "bold"),
    " ": ("○ ", "dim", ""),
}
"""The mark of an item of a checklist with its style, and the style of its text."""


class ToolCall(Fold):
    """A call: what is done to what, whether it worked, how long it took."""

    DEFAULT_CSS = """
    ToolCall {
        .diff, .checklist {
            height: auto;
            margin: 0 0 1 3;
            padding: 0 1;
            border-left: outer $panel;
        }
        .reason {
            height: 1;
            margin: 0 0 0 3;
            padding: 0 1;
            color: $text-error;
            border-left: outer $error 60%;
            text-wrap: nowrap;
            text-overflow: ellipsis;
        }
        &.denied .reason {
            color: $text-warning;
            border-left: outer $warning 60%;
        }
    }
    """

    def __init__(self, entry: Call) -> None:
        super().__init__(classes="tool")
        self.entry = entry

    def title(self) -> Content:
        entry = self.entry
        mark, style = _MARKS[entry.state]
        outcome = self._outcome()
        room = self._columns() - _AROUND - width(entry.name) - width(outcome)
        what = _progress(entry) if entry.checklist else one_line(entry.context)
        what = fit(what, max(room, _MIN_WIDTH)).rstrip()
        return Content.assemble(
            (mark, style),
            (entry.name, "bold"),
            (f"  {what}" if what else "", "$text-muted"),
            (outcome, style if entry.state == "denied" else "dim"),
        )

    def _columns(self) -> int:
        """Return the width of the title, or an estimate before it is seen first."""
        return self.size.width or app_of(self).size.width - _MARGIN

    def on_resize(self) -> None:
        self.retitle()

    def _outcome(self) -> str:
        entry = self.entry
        details = [one_line(entry.summary)] if entry.summary else []
        if entry.diff:
            added, removed = diff.counted(entry.diff)
            details.append(f"+{added} -{removed}")
        if entry.seconds is not None:
            details.append(f"{entry.seconds:.1f}s")
        return "".join(f"  {part}" for part in details)

    def always(self) -> ComposeResult:
        yield Plain(classes="glimpse")
        yield Plain(classes="reason")
        yield Plain(classes="checklist")
        yield diff.DiffView(limit=_DIFF_LINES)

    def body(self) -> Widget:
        entry = self.entry
        details = entry.context if entry.diff else entry.arguments or entry.context
        parts = (details, entry.result or entry.output)
        text = "\n\n".join(part.strip("\n")[:_BODY] for part in parts if part.strip())
        whole: list[Widget] = [Plain(text)] if text else []
        if entry.diff:
            whole.append(diff.DiffView(entry.diff))
        return VerticalScroll(*(whole or [Plain("(nothing)", classes="empty")]))

    def on_mount(self) -> None:
        self._show()

    async def follow(self) -> None:
        """Show the call as it is now."""
        self.retitle()
        self._show()
        if self.is_open and self.entry.state != "running":
            await self.renew()

    def _show(self) -> None:
        entry = self.entry
        self.set_class(entry.state == "failed", "failed")
        self.set_class(entry.state == "denied", "denied")
        is_live = entry.state == "running" and bool(entry.output.strip())
        self._put(".glimpse", _tail(entry.output) if is_live else "")
        self._put(".reason", "" if self.is_open else entry.reason)
        self._put(".checklist", "" if self.is_open else Content("\n").join(checklist_lines(entry)))
        view = self.query_one(".diff", diff.DiffView)
        view.display = bool(entry.diff) and not self.is_open
        if view.display:
            view.show(entry.diff)

    def _put(self, where: str, what: Content | str) -> None:
        plain = self.query_one(where, Plain)
        plain.display = bool(what)
        if what:
            plain.show(what)

    async def watch_is_open(self) -> None:
        await super().watch_is_open()
        self._show()


def _progress(entry: Call) -> str:
    marks = [mark for mark, _ in entry.checklist]
    return f"{marks.count('x')} of {len(marks)} done"


def checklist_lines(entry: Call) -> list[Content]:
    """Draw the items of a checklist."""
    lines: list[Content] = []
    for mark, text in entry.checklist:
        sign, sign_style, style = _ITEMS[mark]
        lines.append(Content.assemble((sign, sign_style), (text, style)))
    return lines


def _tail(output: str) -> str:
    return "\n".join(output.rstrip("\n").split("\n")[-_TAIL:])
