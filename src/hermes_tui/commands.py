"""Slash commands that the interface deals with itself; all others are the server's."""

import re
from typing import NamedTuple

from hermes_core import slash_commands
from hermes_protocol.results import Item

_LINE = re.compile(r"/([a-zA-Z][\w-]*)(?:\s+(.*))?\s*", re.DOTALL)


class Parsed(NamedTuple):
    """A line that is a command."""

    name: str
    argument: str


COMMANDS = slash_commands.of("tui")
"""The commands of the interface."""

MESSAGE_COMMANDS = frozenset({"queue", "steer"})
"""Those that are something to say, and what becomes of that while a turn runs."""

_WITHOUT_ARGUMENT = frozenset({"model"})
"""Those that the server carries out when an argument follows."""

REWRITING = frozenset(
    name
    for command in slash_commands.of("rpc")
    if command.rewrites
    for name in (command.name, *command.aliases)
)
"""Commands of the server after which the transcript is another one."""


def parse(line: str) -> Parsed | None:
    """The command that a line is, or None when it is something to say; a path is something to say."""
    found = _LINE.fullmatch(line)
    return Parsed(found[1].lower(), (found[2] or "").strip()) if found else None


def local(parsed: Parsed) -> str | None:
    """Return the name of the command of the interface, or None when the server carries it out."""
    for command in COMMANDS:
        if parsed.name in (command.name, *command.aliases):
            unfit = _WITHOUT_ARGUMENT if parsed.argument else MESSAGE_COMMANDS
            return None if command.name in unfit else command.name
    return None


def format_output(name: str, output: str) -> str:
    """Format the output of a command of the server for the terminal."""
    match name:
        case "help" | "h":
            return helped(output)
        case _:
            return output


def helped(text: str) -> str:
    """The help of the server, with our commands that it does not know."""
    names = {line.split(" ")[0] for line in text.splitlines()}
    ours = [
        (f"/{command.name}", command.help)
        for command in COMMANDS
        if f"/{command.name}" not in names
    ]
    column = max((len(name) for name, _ in ours), default=0) + 2
    lines = [f"{name:<{column}}{help}" for name, help in ours]
    return "\n".join([text, "", "Only in the terminal UI", *lines]) if ours else text


def completed(typed: str, items: list[Item]) -> list[Item]:
    """Add our own commands that begin like the typed text to those of the server."""
    if " " in typed:
        return items
    names = {item.text for item in items}
    ours = [
        Item(command.name, f"/{command.name}", command.help)
        for command in COMMANDS
        if f"/{command.name}".startswith(typed) and command.name not in names
    ]
    return sorted([*items, *ours], key=lambda item: (f"/{item.text}" != typed, item.text))
