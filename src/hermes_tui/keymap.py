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
    Key(
        "stop",
        "ctrl+c",
        "stop_or_leave",
        "Clear the text; else interrupt the turn; press twice to quit",
        "Conversation",
    ),
    Key("new", "ctrl+n", "app.new", "Start a new conversation", "Conversation"),
    Key("open", "f3,ctrl+o", "app.pick", "History: open another conversation", "Conversation"),
    Key("next", "ctrl+pagedown,alt+right", "move(1)", "Show the next conversation", "Conversation"),
    Key(
        "previous",
        "ctrl+pageup,alt+left",
        "move(-1)",
        "Show the previous conversation",
        "Conversation",
    ),
    Key("close", "alt+w", "close", "Close the conversation", "Conversation"),
    Key("tree", "f5", "app.tree", "Show branches and compactions", "Conversation"),
    Key("model", "f4", "app.models", "Switch model", "Conversation"),
    Key(
        "answer",
        "f2",
        "answer",
        "Go to the question that is waiting for your answer",
        "Conversation",
    ),
    Key("take_back", "alt+up", "take_back", "Edit the last queued prompt", "Conversation"),
    Key("leave", "ctrl+q", "app.leave", "Quit", "Conversation"),
    Key("up", "pageup", "page_up", "Scroll up", "Reading"),
    Key("down", "pagedown", "page_down", "Scroll down", "Reading"),
    Key("first", "ctrl+home", "first", "Jump to the top; again: load more", "Reading"),
    Key("last", "ctrl+end", "last", "Jump to the end of the transcript", "Reading"),
    Key("details", "ctrl+t", "details", "Open or close all details", "Reading"),
    Key("copy", "ctrl+y", "copy", "Copy the last code block, or the last reply", "Reading"),
    Key("panel", "f6", "panel", "Show or hide the side panel", "Reading"),
    Key("redraw", "ctrl+l", "redraw", "Redraw the screen", "Reading"),
    Key(
        "palette",
        "ctrl+p",
        "app.palette",
        "Command palette: commands, skills, conversations, models, themes",
        "Reading",
    ),
    Key("help", "f1", "app.help", "Keyboard shortcuts", "Reading"),
)

FIXED: tuple[tuple[str, str, str], ...] = (
    ("Writing", "enter", "Send"),
    ("Writing", "shift+enter, alt+enter, ctrl+j", "New line (or \\ and Enter)"),
    ("Writing", "up, down", "Input history"),
    ("Writing", "tab", "Complete / and @"),
    ("Writing", "escape", "Close the list; back to the text field"),
    ("Conversation", "escape", "Interrupt the turn"),
    ("Writing", "shift+tab", "To the transcript (Enter opens, copies)"),
    ("Writing", "?", "Keyboard shortcuts, when nothing is typed"),
    ("Conversation", "ctrl+d", "Quit, when nothing is typed"),
)
"""Keys that widgets deal with; they cannot be changed."""


_KEY_NAMES = {key.value.rpartition("+")[2] for key in Keys}
_NAMES = {"pageup": "PgUp", "pagedown": "PgDn", "escape": "Esc"}


def bindings() -> list[Binding]:
    """The bindings of the chat; they win over those of the text field."""
    return [
        Binding(key.keys, key.action, key.does, show=False, priority=True, id=key.name)
        for key in KEYS
    ]


def names() -> list[str]:
    """List the names that custom keys may refer to."""
    return [key.name for key in KEYS]


def problems(own: Mapping[str, str]) -> list[str]:
    """Describe the problems of custom keys, in sentences."""
    problems_found: list[str] = []
    if unknown := ", ".join(sorted(set(own) - set(names()))):
        problems_found.append(f"unknown action {unknown}; use one of: {', '.join(names())}.")
    used = {key.strip(): does for _, keys, does in FIXED for key in keys.split(",")}
    for key in KEYS:
        for pressed in own.get(key.name, key.keys).replace(" ", "").split(","):
            if not _exists(pressed):
                problems_found.append(f"{pressed!r} of {key.name} is not a valid key.")
            elif pressed in used:
                problems_found.append(f"{pressed} cannot be both {key.name} and {used[pressed]!r}.")
            used[pressed] = key.name
    return problems_found


def _exists(key: str) -> bool:
    *modifiers, last = key.split("+")
    is_modified = set(modifiers) <= {"ctrl", "shift", "alt", "super"}
    return is_modified and (len(last) == 1 or last in _KEY_NAMES)


def keys_of(name: str) -> str:
    """The keys of something, as people write them."""
    return format_keys(next(key.keys for key in KEYS if key.name == name))


def format_keys(keys: str) -> str:
    """Keys as people write them: Ctrl+C, F1."""
    return ", ".join("+".join(map(_named, key.split("+"))) for key in keys.split(","))


def _named(key: str) -> str:
    return _NAMES.get(key.strip(), key.strip().capitalize())
