"""Making the chat and what it stands on; all of it is loaded with this module, after the first frame."""

from msgspec import structs

from hermes_core.errors import ConfigError
from hermes_core.paths import Home
from hermes_tui import keymap
from hermes_tui import preferences as files
from hermes_tui.client import Client, Connect
from hermes_tui.ear import Ear
from hermes_tui.entries import Note
from hermes_tui.history import InputHistory
from hermes_tui.opening import Opening
from hermes_tui.preferences import Preferences
from hermes_tui.screens.chat import ChatScreen
from hermes_tui.session import Session
from hermes_tui.widgets.desk import RunLocal


def furnish(
    connect: Connect,
    home: Home,
    opening: Opening,
    run_local: RunLocal,
) -> tuple[Session, ChatScreen]:
    """The session and the screen that shows it, wired to each other."""
    ear = Ear()
    session = Session(Client(connect, ear, is_patient=opening.live is not None), opening)
    ear.chat = ChatScreen(session, InputHistory(home.history), run_local)
    return session, ear.chat


def preferences(home: Home) -> tuple[Preferences, list[Note]]:
    """What the person likes, and what is wrong with how it is written."""
    try:
        wanted = files.load(home)
    except ConfigError as error:
        return Preferences(), [Note(error.message, "error", error.fix)]
    unknown = ", ".join(sorted(set(wanted.keys) - set(keymap.names())))
    if not unknown:
        return wanted, []
    text = f"{files.path(home)}: there are no keys for {unknown}."
    fix = f"Use some of: {', '.join(keymap.names())}."
    return structs.replace(wanted, keys={}), [Note(text, "error", fix)]


def keep_theme(home: Home, liked: Preferences, theme: str) -> Preferences:
    """Remember a theme for later starts."""
    if theme == liked.theme:
        return liked
    liked = structs.replace(liked, theme=theme)
    files.save(home, liked)
    return liked
