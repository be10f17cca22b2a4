"""The command palette: commands, skills, conversations, models and themes in one list."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, NamedTuple

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from hermes_core import clock, slash_commands
from hermes_core.errors import HermesError
from hermes_core.text import fit, one_line, width
from hermes_protocol import results
from hermes_tui import commands, keymap
from hermes_tui.catalog import Catalog
from hermes_tui.screens.dialog import Dialog
from hermes_tui.screens.picker import card_of
from hermes_tui.tabs import Tabs
from hermes_tui.widgets.plain import Plain

Group = Literal["Commands", "Skills", "Conversations", "Models", "Themes"]

GROUPS: tuple[Group, ...] = ("Commands", "Skills", "Conversations", "Models", "Themes")
_PREVIEWED = 12
_SWATCHES = ("primary", "secondary", "accent", "success", "warning", "error")


class Choice(NamedTuple):
    """Something to choose, and how the application names it."""

    group: Group
    value: str
    name: str
    detail: str = ""
    row: results.Row | None = None
    """The conversation that it is."""

    def matches(self, words: Sequence[str]) -> bool:
        text = f"{self.group} {self.name} {self.detail}".lower()
        return all(word in text for word in words)


class PaletteScreen(Dialog[Choice]):
    """Gives what was chosen. While a theme is highlighted, everything has its colors."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 -- Textual's own
    BINDINGS = [  # noqa: RUF012 -- Textual's own
        Binding("down", "move(1)", show=False, priority=True),
        Binding("up", "move(-1)", show=False, priority=True),
        Binding("pagedown", "move(10)", show=False, priority=True),
        Binding("pageup", "move(-10)", show=False, priority=True),
    ]

    def __init__(
        self,
        tabs: Tabs,
        themes: Sequence[str],
        try_theme: Callable[[str], None],
        only: Group | None = None,
    ) -> None:
        """`try_theme` shows a theme, or with an empty name the one that was chosen before."""
        super().__init__()
        self._catalog = Catalog(tabs)
        self._session = tabs.current.session
        self._try_theme = try_theme
        self._only = only
        self._choices = [*_actions(), *(Choice("Themes", name, name) for name in sorted(themes))]
        self._listed: list[Choice | None] = []
        """By place; a heading is None."""

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="palette") as frame:
            frame.border_title = self._only or "Command palette"
            frame.border_subtitle = "Enter selects · Esc closes"
            what = (self._only or "commands, skills, conversations, models, themes").lower()
            yield Input(placeholder=f"Search {what} …", id="search")
            with Horizontal():
                yield OptionList(id="rows", markup=False)
                with VerticalScroll(id="preview", can_focus=False):
                    yield Plain()

    def on_mount(self) -> None:
        self.query_one("#rows").can_focus = False
        self._list()
        for load in (self._load_commands, self._load_conversations, self._load_models):
            self.run_worker(self._load(load()), exclusive=False)

    async def _load(self, choices: Awaitable[list[Choice]]) -> None:
        """Add choices as they come; a part of the server that fails costs only its group."""
        try:
            self._choices += await choices
        except HermesError as error:
            self.notify(one_line(str(error)), severity="warning", markup=False)
        self._list()

    async def _load_commands(self) -> list[Choice]:
        answer = await self._session.ask(results.Items, "complete.slash", text="/")
        built_in = slash_commands.COMMANDS
        names = {name for command in built_in for name in (command.name, *command.aliases)}
        items = commands.completed("/", answer.items)
        return [
            Choice(
                "Commands" if item.text in names else "Skills",
                f"/{item.text}",
                f"/{item.text}",
                item.meta or "",
            )
            for item in items
            if not (item.meta or "").startswith("/")  # another name of one that is here too
        ]

    async def _load_conversations(self) -> list[Choice]:
        return [
            Choice(
                "Conversations",
                row.id,
                one_line(row.title or row.preview or "(no title)"),
                row=row,
            )
            for row in await self._catalog.rows("")
        ]

    async def _load_models(self) -> list[Choice]:
        return [
            Choice("Models", model.name, model.name, model.reason or model.provider)
            for model in (await self._catalog.models()).models
        ]

    # -- searching and looking ---------------------------------------------------------------

    @on(Input.Changed)
    def _list(self) -> None:
        words = self.query_one("#search", Input).value.lower().split()
        rows = self.query_one("#rows", OptionList)
        before = self._highlighted
        rows.clear_options()
        self._listed = []
        for group in GROUPS if self._only is None else (self._only,):
            found = [c for c in self._choices if c.group == group and c.matches(words)]
            found.sort(key=lambda choice: not choice.name.lower().startswith("".join(words[:1])))
            if found and self._only is None:
                self._listed.append(None)
                rows.add_option(Option(Content.styled(group, "bold $text-accent"), disabled=True))
            self._listed += found
            room = rows.scrollable_content_region.width - 1
            rows.add_options(Option(_line(choice, room)) for choice in found)
        places = [place for place, choice in enumerate(self._listed) if choice is not None]
        if places:
            at = self._listed.index(before) if not words and before in self._listed else places[0]
            rows.highlighted = at if before is not None else places[0]
        else:
            rows.highlighted = None
            self._look()

    @property
    def _highlighted(self) -> Choice | None:
        place = self.query_one("#rows", OptionList).highlighted
        return self._listed[place] if place is not None and place < len(self._listed) else None

    def action_move(self, steps: int) -> None:
        """Highlight another choice; headings are passed over."""
        rows = self.query_one("#rows", OptionList)
        places = [place for place, choice in enumerate(self._listed) if choice is not None]
        if places:
            at = places.index(rows.highlighted) if rows.highlighted in places else 0
            rows.highlighted = places[max(0, min(len(places) - 1, at + steps))]
            if rows.highlighted == places[0]:
                rows.scroll_home(animate=False)

    @on(OptionList.OptionHighlighted)
    def _look(self) -> None:
        choice = self._highlighted
        self._try_theme(choice.value if choice is not None and choice.group == "Themes" else "")
        self._preview(choice)

    @work(exclusive=True, group="preview")
    async def _preview(self, choice: Choice | None) -> None:
        preview = self.query_one("#preview Plain", Plain)
        if choice is None:
            preview.show("Nothing found.")
        elif choice.row is None:
            preview.show(_about(choice))
        else:
            preview.show(card_of(choice.row, clock.now(), [], None))
            try:
                messages = await self._catalog.peek(choice.value, _PREVIEWED)
            except HermesError:
                return  # the list's own words have to do
            preview.show(card_of(choice.row, clock.now(), messages, None))

    # -- choosing ----------------------------------------------------------------------------

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _choose(self) -> None:
        if (choice := self._highlighted) is not None:
            self.dismiss(choice)

    def on_unmount(self) -> None:
        self._try_theme("")


def _actions() -> list[Choice]:
    """List what keys do as commands."""
    return [
        Choice("Commands", key.action, key.does, keymap.format_keys(key.keys))
        for key in keymap.KEYS
        if key.name != "palette"
    ]


def _line(choice: Choice, columns: int) -> Content:
    if not choice.detail or choice.group == "Conversations":
        return Content(f"  {fit(choice.name, max(columns - 2, 1)).rstrip()}")
    room = max(columns - width(choice.detail) - 4, min(width(choice.name), columns // 2))
    name = fit(choice.name, room)
    detail = fit(choice.detail, max(columns - room - 4, 0)).rstrip()
    return Content.assemble(f"  {name}", (f"  {detail}", "dim"))


def _about(choice: Choice) -> Content:
    head = Content.styled(choice.name, "bold")
    lines = [head, Content.styled(choice.detail or choice.group, "dim")]
    if choice.group == "Themes":
        lines += [Content(""), *(Content.styled(f"■ {name}", f"${name}") for name in _SWATCHES)]
    elif choice.value.startswith("/"):
        lines += [Content(""), Content("Enter puts it into the text field.")]
    return Content("\n").join(lines)
