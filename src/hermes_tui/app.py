"""The application: draws the first frame, loads the chat, opens dialogs, leaves in good order.

The chat and all it is made of are loaded after the first frame.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual import events, on
from textual.app import App
from textual.binding import Binding
from textual.filter import LineFilter, NoColor
from textual.screen import Screen

from hermes_tui import themes
from hermes_tui.screens.first import FirstScreen
from hermes_tui.terminal import Driver

if TYPE_CHECKING:  # see the docstring
    from hermes_core.paths import Home
    from hermes_tui.client import Connect
    from hermes_tui.opening import Opening
    from hermes_tui.preferences import Preferences
    from hermes_tui.screens.chat import ChatScreen
    from hermes_tui.screens.palette import Choice, Group
    from hermes_tui.session import Session
    from hermes_tui.tabs import Tabs


_TERMINAL_CHECK_INTERVAL_S = 1.0
_CLOSE_TIMEOUT_S = 1.0
_EXIT_CLOSE_TIMEOUT_S = 0.3
"""The same when the process has to be gone soon; the server finishes by itself."""


class HermesApp(App[int], inherit_bindings=False):
    """Hermes on a terminal."""

    TITLE = "Hermes"
    CSS_PATH = Path(__file__).parent / "styles" / "chat.tcss"
    ENABLE_COMMAND_PALETTE = False  # our own has more in it
    BINDINGS = [Binding("ctrl+q,ctrl+c", "leave", "Quit", show=False)]  # noqa: RUF012 -- Textual's

    tabs: "Tabs"
    chat: "ChatScreen"
    _preferences: "Preferences"

    def __init__(self, connect: "Connect", home: "Home", opening: "Opening") -> None:
        super().__init__(driver_class=Driver)
        self._connect = connect
        self._home = home
        self._opening = opening
        self._first = FirstScreen()
        self.is_loaded = False
        self._is_leaving = False
        self._is_trying_theme = False
        for theme in themes.ALL:
            self.register_theme(theme)
        self.theme = themes.DEFAULT

    @property
    def session(self) -> "Session":
        """The conversation that is shown."""
        return self.tabs.current.session

    def get_default_screen(self) -> Screen[Any]:
        return self._first

    def on_mount(self) -> None:
        self.call_after_refresh(self._load)
        self.set_interval(_TERMINAL_CHECK_INTERVAL_S, self._check_terminal)

    def _check_terminal(self) -> None:
        """Exit when the terminal has gone and neither a signal nor a failed write reported it."""
        if isinstance(self._driver, Driver):
            self._driver.is_lost()

    @on(Driver.ExitRequested)
    def _exit_soon(self, event: Driver.ExitRequested) -> None:
        """Exit as if a person had asked for it: the draft is kept, the terminal restored."""
        self.run_worker(self.action_leave(event.status, _EXIT_CLOSE_TIMEOUT_S))

    async def _load(self) -> None:
        """Load the chat and start the server."""
        from hermes_tui import wiring  # noqa: PLC0415 -- after the first frame

        self.tabs, self.chat = wiring.build(
            self._connect, self._home, self._opening, self._run_local, self._write
        )
        await self.push_screen(self.chat)
        self.chat.composer.paste(self._first.typed)
        self.run_worker(self.tabs.client.run, exit_on_error=False)
        self._preferences, complaints = wiring.preferences(self._home, self.available_themes)
        self.tabs.current.notes += complaints
        self.chat.attention.notify = self._preferences.notify
        if self._preferences.theme in self.available_themes:
            self.theme = self._preferences.theme
        self.set_keymap(self._preferences.keys)
        self.is_loaded = True

    def _write(self, text: str) -> None:
        """Write a sequence to the terminal."""
        if isinstance(self._driver, Driver):
            self._driver.write(text)

    async def on_event(self, event: events.Event) -> None:
        """Tell the chat of what is typed before it is known who gets it."""
        is_new = isinstance(event, events.Key | events.Paste) and not event.is_forwarded
        if is_new and self.is_loaded and self.screen is self.chat:
            self.chat.prepare(event)
        await super().on_event(event)

    # -- dialogs -----------------------------------------------------------------------------

    async def _run_local(self, name: str, argument: str) -> None:
        """Carry out a slash command of the interface."""
        match name:
            case "exit":
                await self.action_leave()
            case "new":
                self.action_new()
            case "resume" if argument:
                self._switch(argument)
            case "resume" | "sessions":
                self.action_pick(argument)
            case "branch":
                self.chat.switch(self.tabs.branch(argument))
            case "next" | "previous":
                self.chat.action_move(1 if name == "next" else -1)
            case "theme":
                await self._choose_theme(argument)
            case "copy" | "stop" | "close":
                await self.chat.run_action(name)
            case "background":
                await self.chat.composer_area.run_in_background(argument)
            case _:
                {"model": self.action_models, "keys": self.action_help}.get(
                    name, self.action_tree
                )()

    def _switch(self, stored_id: str) -> None:
        """Show a stored conversation; those that are open stay open."""
        self.chat.switch(self.tabs.switch(stored_id, self.size.width))

    def action_new(self) -> None:
        self.tabs.new()

    def action_pick(self, query: str = "") -> None:
        from hermes_tui.screens.picker import PickerScreen  # noqa: PLC0415 -- when it is wanted

        self.push_screen(PickerScreen(self.tabs, query), self._picked)

    def action_tree(self) -> None:
        from hermes_tui.screens.tree import TreeScreen  # noqa: PLC0415 -- when it is wanted

        self.push_screen(TreeScreen(self.tabs), self._picked)

    def _picked(self, stored_id: str | None) -> None:
        if stored_id:
            self._switch(stored_id)

    def action_models(self) -> None:
        from hermes_tui.screens.models import ModelScreen  # noqa: PLC0415 -- when it is wanted

        self.push_screen(ModelScreen(self.tabs), self._model_chosen)

    async def _model_chosen(self, name: str | None) -> None:
        from hermes_tui.screens import models  # noqa: PLC0415 -- loaded by now

        if name == models.SETUP:
            await self.chat.run_setup()
        elif name == models.DOWNLOAD:
            self.chat.fetch.download()
        elif name:
            await self.chat.composer_area.choose_model(name)

    def action_palette(self, only: "Group | None" = None) -> None:
        from hermes_tui.screens.palette import PaletteScreen  # noqa: PLC0415 -- when it is wanted

        names = list(self.available_themes)
        self.push_screen(PaletteScreen(self.tabs, names, self._try_theme, only), self._chosen)

    async def _chosen(self, choice: "Choice | None") -> None:
        """Do what was chosen in the palette."""
        match choice and choice.group:
            case "Conversations" if choice:
                self._switch(choice.value)
            case "Models" if choice:
                await self.chat.composer_area.choose_model(choice.value)
            case "Themes" if choice:
                self._try_theme("")
                self.theme = choice.value
            case "Commands" | "Skills" if choice and choice.value.startswith("/"):
                self.chat.composer.recall(f"{choice.value} ")
            case "Commands" if choice:
                await self.chat.run_action(choice.value)
            case _:
                pass

    def action_help(self) -> None:
        from hermes_tui.screens.help import HelpScreen  # noqa: PLC0415 -- when it is wanted

        self.push_screen(HelpScreen(self._preferences.keys))

    # -- looks -------------------------------------------------------------------------------

    async def _choose_theme(self, name: str) -> None:
        if name and name not in self.available_themes:
            names = ", ".join(sorted(self.available_themes))
            await self.tabs.current.add_note(
                f"There is no theme {name}. There are {names}.", "warning"
            )
        elif name:
            self.theme = name
        else:
            self.action_palette("Themes")

    def get_line_filters(self) -> Sequence[LineFilter]:
        """With NO_COLOR every theme has the colours of the terminal; Textual itself makes greys."""
        return [NoColor()] if self.no_color else super().get_line_filters()

    def _try_theme(self, name: str) -> None:
        """Show a theme for a moment, or without a name the one that was chosen."""
        self._is_trying_theme = True
        own = self._preferences.theme
        self.theme = name or (own if own in self.available_themes else themes.DEFAULT)
        self._is_trying_theme = False

    def watch_theme(self, theme: str) -> None:
        """Keep the theme for later starts."""
        if self.is_loaded and not self._is_trying_theme:
            from hermes_tui import wiring  # noqa: PLC0415 -- loaded by now

            self._preferences = wiring.keep_theme(self._home, self._preferences, theme)

    # -- leaving -----------------------------------------------------------------------------

    async def action_leave(self, status: int = 0, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        """End the conversations through the server and leave; drafts stay in the history."""
        if self._is_leaving:
            return
        self._is_leaving = True
        if self.is_loaded:
            self.chat.composer_area.keep_drafts()
            await self.tabs.quit(timeout_s)
        self.exit(status)
