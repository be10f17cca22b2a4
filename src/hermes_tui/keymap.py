"""Every key of the chat: one table that the bindings and the help are made of."""

from collections.abc import Mapping
from typing import NamedTuple

from textual.binding import Binding
from textual.keys import Keys


class Key(NamedTuple):
    """Something a key does; `name` is how a person's own keys refer to it."""

    name: str
    keys: str
    action: str
    does: str
    group: str


KEYS: tuple[Key, ...] = (
    Key("stop", "ctrl+c", "stop_or_leave", "Stop the turn; twice: leave", "Conversation"),
    Key("new", "ctrl+n", "app.new", "Start a new conversation", "Conversation"),
    Key("open", "f3,ctrl+o", "app.pick", "Open another conversation", "Conversation"),
    Key("next", "ctrl+pagedown,alt+right", "move(1)", "Show the next one", "Conversation"),
    Key("previous", "ctrl+pageup,alt+left", "move(-1)", "Show the previous one", "Conversation"),
    Key("close", "alt+w", "close", "Close the conversation", "Conversation"),
    Key("tree", "f5", "app.tree", "Show branches and shortenings", "Conversation"),
    Key("model", "f4", "app.models", "Choose the model", "Conversation"),
    Key("answer", "f2", "answer", "Go to what waits for an answer", "Conversation"),
    Key("take_back", "alt+up", "take_back", "Take the last waiting prompt back", "Conversation"),
    Key("leave", "ctrl+q", "app.leave", "Leave", "Conversation"),
    Key("up", "pageup", "page_up", "Scroll back", "Reading"),
    Key("down", "pagedown", "page_down", "Scroll forward", "Reading"),
    Key("first", "ctrl+home", "first", "Far back; again: further", "Reading"),
    Key("last", "ctrl+end", "last", "To the end", "Reading"),
    Key("details", "ctrl+t", "details", "Open or close all details", "Reading"),
    Key("copy", "ctrl+y", "copy", "Copy the last code, or the last reply", "Reading"),
    Key("redraw", "ctrl+l", "redraw", "Draw the screen anew", "Reading"),
    Key("help", "f1", "app.help", "Show this help", "Reading"),
)

FIXED: tuple[tuple[str, str, str], ...] = (
    ("Writing", "enter", "Send"),
    ("Writing", "shift+enter, ctrl+j", "New line (or \\ and Enter)"),
    ("Writing", "up, down", "What was typed before"),
    ("Writing", "tab", "Complete / and @"),
    ("Writing", "escape", "Close the list; back to writing"),
    ("Writing", "shift+tab", "To the transcript (Enter opens, copies)"),
    ("Writing", "?", "This help, when nothing is typed"),
    ("Conversation", "ctrl+d", "Leave, when nothing is typed"),
    ("Conversation", "ctrl+p", "Everything else, themes too"),
)
"""Keys that widgets deal with; they cannot be changed."""


_KNOWN = {key.value.rpartition("+")[2] for key in Keys}
_NAMES = {"pageup": "PgUp", "pagedown": "PgDn", "escape": "Esc"}


def bindings() -> list[Binding]:
    """The bindings of the chat; they win over those of the text field."""
    return [
        Binding(key.keys, key.action, key.does, show=False, priority=True, id=key.name)
        for key in KEYS
    ]


def names() -> list[str]:
    """What own keys may refer to."""
    return [key.name for key in KEYS]


def problems(own: Mapping[str, str]) -> list[str]:
    """What is wrong with a person's own keys, in sentences."""
    told: list[str] = []
    if unknown := ", ".join(sorted(set(own) - set(names()))):
        told.append(f"there is nothing called {unknown}; there are {', '.join(names())}.")
    used = {one.strip(): does for _, keys, does in FIXED for one in keys.split(",")}
    for key in KEYS:
        for pressed in own.get(key.name, key.keys).replace(" ", "").split(","):
            if not _exists(pressed):
                told.append(f"{pressed!r} of {key.name} is no key.")
            elif pressed in used:
                told.append(f"{pressed} cannot be both {key.name} and {used[pressed]!r}.")
            used[pressed] = key.name
    return told


def _exists(key: str) -> bool:
    *modifiers, last = key.split("+")
    is_modified = set(modifiers) <= {"ctrl", "shift", "alt", "super"}
    return is_modified and (len(last) == 1 or last in _KNOWN)


def keys_of(name: str) -> str:
    """The keys of something, as people write them."""
    return shown(next(key.keys for key in KEYS if key.name == name))


def shown(keys: str) -> str:
    """Keys as people write them: Ctrl+C, F1."""
    return ", ".join("+".join(map(_named, key.split("+"))) for key in keys.split(","))


def _named(key: str) -> str:
    return _NAMES.get(key.strip(), key.strip().capitalize())
