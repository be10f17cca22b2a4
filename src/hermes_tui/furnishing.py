"""Making the chat and what it stands on; all of it is loaded with this module, after the first frame."""

from collections.abc import Awaitable, Callable

from msgspec import structs

from hermes_core.errors import ConfigError
from hermes_core.paths import Home
from hermes_tui import keymap
from hermes_tui import preferences as files
from hermes_tui.client import Client, Connect
from hermes_tui.ear import Ear
from hermes_tui.history import InputHistory
from hermes_tui.opening import Opening
from hermes_tui.preferences import Preferences
from hermes_tui.screens.chat import ChatScreen
from hermes_tui.session import Session


def furnish(
    connect: Connect,
    home: Home,
    opening: Opening,
    run_local: Callable[[str, str], Awaitable[None]],
) -> tuple[Session, ChatScreen]:
    """The session and the screen that shows it, wired to each other."""
    ear = Ear()
    session = Session(Client(connect, ear), opening)
    ear.chat = ChatScreen(session, InputHistory(home.history), run_local)
    return session, ear.chat


def preferences(home: Home) -> tuple[Preferences, ConfigError | None]:
    """What the person likes, and what is wrong with how it is written."""
    try:
        wanted = files.load(home)
    except ConfigError as error:
        return Preferences(), error
    unknown = sorted(set(wanted.keys) - set(keymap.names()))
    if not unknown:
        return wanted, None
    complaint = ConfigError(
        f"{files.path(home)}: there are no keys for {', '.join(unknown)}.",
        fix=f"Use some of: {', '.join(keymap.names())}.",
    )
    return structs.replace(wanted, keys={}), complaint


def keep_theme(home: Home, liked: Preferences, theme: str) -> Preferences:
    """Remember a theme for later starts."""
    if theme == liked.theme:
        return liked
    liked = structs.replace(liked, theme=theme)
    files.save(home, liked)
    return liked
