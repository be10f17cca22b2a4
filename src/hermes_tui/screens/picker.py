"""The conversation picker: search, preview, open, rename, delete."""

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from hermes_core import clock
from hermes_core.clock import ago
from hermes_core.errors import HermesError
from hermes_core.text import fit, one_line, split_matches, truncate
from hermes_protocol import results
from hermes_tui.catalog import Catalog
from hermes_tui.screens.dialog import Dialog
from hermes_tui.tabs import Tabs
from hermes_tui.widgets.plain import Plain
from hermes_tui.widgets.tab_bar import BADGES

_HINT = "Enter opens · F2 renames · Del deletes · Esc closes"
_PREVIEWED = 12
_BEFORE_FIND = 3


class PickerScreen(Dialog[str]):
    """Gives the id of the conversation that was picked."""

    BINDINGS = [  # noqa: RUF012 -- Textual's own
        Binding("down", "move(1)", show=False, priority=True),
        Binding("up", "move(-1)", show=False, priority=True),
        Binding("pagedown", "move(10)", show=False, priority=True),
        Binding("pageup", "move(-10)", show=False, priority=True),
        Binding("f2", "rename", "Rename", show=False, priority=True),
        Binding("delete", "delete", "Delete", show=False, priority=True),
    ]

    def __init__(self, tabs: Tabs, query: str = "") -> None:
        super().__init__()
        self._catalog = Catalog(tabs)
        self._query = query
        self._rows: list[results.Row] = []
        self._renamed: results.Row | None = None
        self._doomed = ""

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="picker") as frame:
            frame.border_title = "History"
            frame.border_subtitle = _HINT
            yield Input(self._query, placeholder="Search titles and messages …", id="search")
            with Horizontal():
                yield OptionList(id="rows", markup=False)
                with VerticalScroll(id="preview", can_focus=False):
                    yield Plain()

    def on_mount(self) -> None:
        self.query_one("#rows").can_focus = False
        self._load()

    @work(exclusive=True, group="rows")
    async def _load(self) -> None:
        query = self._query.strip()
        try:
            self._rows = await self._catalog.rows(query)
        except HermesError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self._list()

    def _list(self) -> None:
        rows = self.query_one("#rows", OptionList)
        before = self._picked()
        rows.clear_options()
        now, columns = clock.now(), rows.scrollable_content_region.width - 1
        rows.add_options(
            Option(_line(row, now, self._mark(row), columns), id=row.id) for row in self._rows
        )
        ids = [row.id for row in self._rows]
        place = ids.index(before.id) if before is not None and before.id in ids else 0
        rows.highlighted = place if ids else None
        if not ids:
            self._preview(None)

    def _mark(self, row: results.Row) -> tuple[str, str]:
        """The mark of an open conversation with its style."""
        if row.id == self._catalog.current_id:
            return "•", ""
        tab = self._catalog.tab(row.id)
        return BADGES[tab.badge] if tab is not None else (" ", "")

    def _picked(self) -> results.Row | None:
        place = self.query_one("#rows", OptionList).highlighted
        return self._rows[place] if place is not None and place < len(self._rows) else None

    # -- searching and looking ---------------------------------------------------------------

    @on(Input.Changed, "#search")
    def _searching(self, event: Input.Changed) -> None:
        if self._renamed is None and event.value != self._query:
            self._query = event.value
            self._load()

    def action_move(self, steps: int) -> None:
        self._spare()
        rows = self.query_one("#rows", OptionList)
        if self._rows:
            rows.highlighted = max(0, min(len(self._rows) - 1, (rows.highlighted or 0) + steps))

    @on(OptionList.OptionHighlighted)
    def _looking(self) -> None:
        self._spare()
        self._preview(self._picked())

    @work(exclusive=True, group="preview")
    async def _preview(self, row: results.Row | None) -> None:
        preview = self.query_one("#preview Plain", Plain)
        if row is None:
            preview.show("Nothing found." if self._query else "There are no conversations yet.")
            return
        hit = self._catalog.hit(row.id)
        preview.show(card_of(row, clock.now(), [], hit))
        place = hit.message_id if hit is not None else None
        if hit is not None and place is None:
            return
        count = _PREVIEWED if hit is None else _BEFORE_FIND
        try:
            messages = await self._catalog.peek(row.id, count, place)
        except HermesError:
            return  # the list's own words have to do
        preview.show(card_of(row, clock.now(), messages, hit))
        if hit is not None:
            self.query_one("#preview", VerticalScroll).scroll_end(animate=False)

    # -- doing something ---------------------------------------------------------------------

    @on(Input.Submitted, "#search")
    def _submitted(self, event: Input.Submitted) -> None:
        if self._renamed is not None:
            self._rename(self._renamed, event.value.strip())
        else:
            self._open()

    @on(OptionList.OptionSelected)
    def _open(self) -> None:
        row = self._picked()
        if row is not None:
            self.dismiss(row.id)

    def action_rename(self) -> None:
        row = self._picked()
        if row is None:
            return
        self._renamed = row
        search = self.query_one("#search", Input)
        search.value = row.title or ""
        search.cursor_position = len(search.value)
        self._tell("Type the new title and press Enter · Esc cancels")

    @work(group="change")
    async def _rename(self, row: results.Row, title: str) -> None:
        try:
            if title:
                await self._catalog.rename(row.id, title)
        except HermesError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self._search_again()

    def action_delete(self) -> None:
        row = self._picked()
        if row is None or self._renamed is not None:
            return
        if self._doomed != row.id:
            self._doomed = row.id
            self._tell("Press Del again to delete it · any other key cancels")
            return
        self._delete(row.id)

    @work(group="change")
    async def _delete(self, stored_id: str) -> None:
        try:
            await self._catalog.delete(stored_id)
        except HermesError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self._spare()
        self._load()

    def _search_again(self) -> None:
        self._renamed = None
        self.query_one("#search", Input).value = self._query
        self._tell(_HINT)
        self._load()

    def on_key(self, event: events.Key) -> None:
        if event.key != "delete":
            self._spare()

    def _spare(self) -> None:
        if self._doomed:
            self._doomed = ""
            self._tell(_HINT)

    def action_close(self) -> None:
        if self._renamed is not None:
            self._search_again()
        else:
            super().action_close()

    def _tell(self, hint: str) -> None:
        self.query_one("#picker").border_subtitle = hint


def _line(row: results.Row, now: float, mark: tuple[str, str], columns: int) -> Content:
    title = one_line(row.title or row.preview or "(no title)")
    when = "unanswered" if row.pending else ago(row.last_active or row.started_at, now)
    room = columns - len(when) - 3
    return Content.assemble(mark, f" {fit(title, room)}", (f" {when}", "dim"))


def card_of(
    row: results.Row, now: float, messages: list[results.Message], hit: results.Hit | None
) -> Content:
    """Show a conversation in a preview: its facts, and its messages or the one that was found."""
    facts = [
        ago(row.last_active or row.started_at, now),
        f"{row.message_count} messages",
        row.source,
        "left unanswered" if row.pending else "",
    ]
    head = [
        Content.styled(one_line(row.title or "(no title)"), "bold"),
        Content.styled(" · ".join(fact for fact in facts if fact), "dim"),
    ]
    if not messages and hit is None:
        return Content("\n").join([*head, Content(row.preview or "")])
    texts = [
        (message.role, text)
        for message in messages
        if (text := truncate(one_line(message.text or ""), 300))
        and message.role in ("user", "assistant")
    ]
    lines = [
        Content.assemble("\n", (f"› {text}", "bold")) if role == "user" else Content(text)
        for role, text in texts
    ]
    return Content("\n").join([*head, *lines, *_found(hit)])


def _found(hit: results.Hit | None) -> list[Content]:
    """Show the found text as the last message up to it."""
    if hit is None:
        return []
    parts = [(part, "reverse" if number % 2 else "") for number, part in enumerate(_parts_of(hit))]
    mark = "› " if hit.role == "user" else ""
    return [Content.assemble("\n", (mark, "bold"), *parts)]


def _parts_of(hit: results.Hit) -> list[str]:
    return split_matches(" ".join((hit.snippet or "").split()))
