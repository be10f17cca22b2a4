"""Slash commands that the interface deals with itself; all others are the server's."""

import re
from typing import NamedTuple

from hermes_tui.wire import Item, unmarked

_LINE = re.compile(r"/([a-zA-Z][\w-]*)(?:\s+(.*))?\s*", re.DOTALL)


class Parsed(NamedTuple):
    """A line that is a command."""

    name: str
    argument: str


class Local(NamedTuple):
    """A command of the interface."""

    help: str
    aliases: tuple[str, ...] = ()
    takes: str = ""
    """`no`: with an argument it is the server's; `may`: it is ours with one, `must`: only with one."""


LOCAL: dict[str, Local] = {
    "new": Local("Start a new conversation.", ("reset",)),
    "resume": Local("Open another conversation.", takes="may"),
    "sessions": Local("Find a conversation.", ("list",), takes="may"),
    "branch": Local("Go on in a copy of this conversation.", ("fork",), takes="may"),
    "tree": Local("Show branches and shortenings."),
    "model": Local("Choose the model.", takes="no"),
    "theme": Local("Change the colours.", takes="may"),
    "keys": Local("Show the keys."),
    "copy": Local("Copy the last code, or the last reply."),
    "stop": Local("Stop the turn that runs."),
    "queue": Local("Have this answered after what runs.", takes="must"),
    "steer": Local("Say this to the running turn.", takes="must"),
    "exit": Local("End the conversation and leave.", ("quit", "q")),
}

SAID = frozenset({"queue", "steer"})
"""Commands of the interface that are something to say, and what becomes of that while a turn runs."""

REWRITING = frozenset({"undo", "compress", "compact", "expand"})
"""Commands of the server after which the transcript is another one."""


def parse(line: str) -> Parsed | None:
    """The command that a line is, or None when it is something to say; a path is something to say."""
    found = _LINE.fullmatch(line)
    return Parsed(found[1].lower(), (found[2] or "").strip()) if found else None


def local(parsed: Parsed) -> str | None:
    """The name of our command that this is, or None when it is the server's."""
    for name, command in LOCAL.items():
        if parsed.name == name or parsed.name in command.aliases:
            is_theirs = command.takes == ("no" if parsed.argument else "must")
            return None if is_theirs else name
    return None


def shown(name: str, output: str) -> str:
    """What a command of the server says, as it is shown here."""
    match name:
        case "help" | "h":
            return helped(output)
        case "search":
            return unmarked(output)
        case _:
            return output


def helped(text: str) -> str:
    """The help of the server, with our commands that it does not know."""
    known = {line.split(" ")[0] for line in text.splitlines()}
    ours = [(f"/{name}", local.help) for name, local in LOCAL.items() if f"/{name}" not in known]
    column = max((len(name) for name, _ in ours), default=0) + 2
    lines = [f"{name:<{column}}{help}" for name, help in ours]
    return "\n".join([text, "", "Of this interface", *lines]) if ours else text


def completed(typed: str, items: list[Item]) -> list[Item]:
    """What the server offers, and our own commands that begin like what is typed."""
    if " " in typed:
        return items
    known = {item.text.strip() for item in items}
    ours = [
        Item(f"/{name}", f"/{name}", command.help)
        for name, command in LOCAL.items()
        if f"/{name}".startswith(typed) and f"/{name}" not in known
    ]
    return sorted([*items, *ours], key=lambda item: (item.text.strip() != typed, item.text))
