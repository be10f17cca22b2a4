"""The model picker: who can answer here, by provider."""

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from hermes_core.errors import HermesError
from hermes_protocol import results
from hermes_tui.catalog import Catalog
from hermes_tui.screens.dialog import Dialog
from hermes_tui.tabs import Tabs

SETUP, DOWNLOAD = "hermes setup", "hermes model pull"
"""Choices that lead to further models; commands that do the same in a shell."""


class ModelScreen(Dialog[str]):
    """Gives the name of the model that was picked; one that is not listed can be typed."""

    def __init__(self, tabs: Tabs) -> None:
        super().__init__()
        self._catalog = Catalog(tabs)
        self._tabs = tabs
        self._choices: list[results.ModelChoice] = []
        self._matches: list[results.ModelChoice] = []

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="models") as frame:
            frame.border_title = "Switch model"
            frame.border_subtitle = "Enter selects · Esc closes"
            yield Input(placeholder="Search, or type provider/model …", id="search")
            yield Static("", id="problem", markup=False)
            yield OptionList(id="rows", markup=False)

    def on_mount(self) -> None:
        self.query_one("#rows").can_focus = False
        self._load()

    @work(exclusive=True)
    async def _load(self) -> None:
        try:
            options = await self._catalog.models()
        except HermesError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self._choices = [*options.models, *self._ways()]
        problem = self.query_one("#problem", Static)
        text = (options.error or "") if options.models else self._missing
        problem.update(text)
        problem.display = bool(text)
        self._list("")

    @property
    def _missing(self) -> str:
        where = "" if self._tabs.is_ours else " Run `hermes setup` where the server runs."
        return f"No model can answer yet.{where}"

    def _ways(self) -> list[results.ModelChoice]:
        """Return the ways to further models."""
        ways: list[results.ModelChoice] = []
        if self._tabs.is_ours:
            ways.append(results.ModelChoice(SETUP, "", "enter an API key, or choose a server"))
        if self._tabs.current.conversation.info.offer.name:
            ways.append(results.ModelChoice(DOWNLOAD, "", "download the built-in model"))
        return ways

    def _list(self, typed: str) -> None:
        words = typed.strip().lower()
        self._matches = [c for c in self._choices if words in f"{c.name} {c.provider}".lower()]
        rows = self.query_one("#rows", OptionList)
        rows.clear_options()
        rows.add_options(Option(_line(choice)) for choice in self._matches)
        current = [number for number, choice in enumerate(self._matches) if choice.used]
        rows.highlighted = (current or [0])[0] if self._matches else None

    @on(Input.Changed)
    def _searching(self, event: Input.Changed) -> None:
        self._list(event.value)

    def key_down(self) -> None:
        self.query_one("#rows", OptionList).action_cursor_down()

    def key_up(self) -> None:
        self.query_one("#rows", OptionList).action_cursor_up()

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _take(self, event: Input.Submitted | OptionList.OptionSelected) -> None:
        place = self.query_one("#rows", OptionList).highlighted
        if self._matches and place is not None:
            self.dismiss(self._matches[place].name)
        elif isinstance(event, Input.Submitted) and event.value.strip():
            self.dismiss(event.value.strip())


def _line(choice: results.ModelChoice) -> Content:
    mark = "● " if choice.used else "  "
    return Content.assemble(mark, choice.name, (f"  {choice.reason or choice.provider}", "dim"))
