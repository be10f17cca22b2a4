"""Making the chat and what it stands on; all of it is loaded with this module, after the first frame."""

from collections.abc import Callable, Collection

from msgspec import structs

from hermes_core.errors import ConfigError
from hermes_core.paths import Home
from hermes_tui import keymap
from hermes_tui import preferences as files
from hermes_tui.attention import Attention
from hermes_tui.client import Client, Connect
from hermes_tui.entries import Note
from hermes_tui.event_bridge import EventBridge
from hermes_tui.history import InputHistory
from hermes_tui.opening import Opening
from hermes_tui.preferences import Preferences
from hermes_tui.screens.chat import ChatScreen
from hermes_tui.tabs import Tabs
from hermes_tui.widgets.composer_area import RunLocal


def build(
    connect: Connect,
    home: Home,
    opening: Opening,
    run_local: RunLocal,
    write: Callable[[str], None],
) -> tuple[Tabs, ChatScreen]:
    """The conversations and the screen that shows them, wired to each other."""
    bridge = EventBridge()
    tabs = Tabs(Client(connect, bridge, is_patient=opening.live is not None), opening)
    bridge.chat = ChatScreen(tabs, InputHistory(home.history), run_local, Attention(write))
    return tabs, bridge.chat


def preferences(home: Home, themes: Collection[str]) -> tuple[Preferences, list[Note]]:
    """Load the preferences, and describe problems of the file."""
    try:
        loaded = files.load(home)
    except ConfigError as error:
        return Preferences(), [Note(error.message, "error", error.fix)]
    notes: list[Note] = []
    if problems := keymap.problems(loaded.keys):
        text = f"{files.path(home)}: {' '.join(problems)}"
        notes.append(Note(text, "error", "The default keys are used until that is corrected."))
        loaded = structs.replace(loaded, keys={})
    if loaded.theme and loaded.theme not in themes:
        names = ", ".join(sorted(themes))
        notes.append(
            Note(
                f"{files.path(home)}: there is no theme {loaded.theme}.", "error", f"Use: {names}."
            )
        )
    return loaded, notes


def keep_theme(home: Home, liked: Preferences, theme: str) -> Preferences:
    """Remember a theme for later starts."""
    if theme == liked.theme:
        return liked
    liked = structs.replace(liked, theme=theme)
    try:
        stored = files.load(home)
    except ConfigError:  # told at the start; what a person wrote is not thrown away
        return liked
    files.save(home, structs.replace(stored, theme=theme))
    return liked
