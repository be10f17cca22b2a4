"""The built-in slash commands: name, help, aliases and surfaces of each.

Help, completion, native menus and the names reserved from plugins derive from this table. Each surface
binds the functions that run its commands.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

Surface = Literal["line", "rpc", "tui", "chat"]
"""Line mode; clients of the JSON-RPC server; the terminal UI; messengers and the HTTP API."""

SURFACES: frozenset[Surface] = frozenset({"line", "rpc", "tui", "chat"})
_SHARED: frozenset[Surface] = frozenset({"line", "rpc", "chat"})
"""Surfaces of shared commands; the terminal UI lets its server run them."""
_TERMINALS: frozenset[Surface] = frozenset({"line", "rpc", "tui"})
_TUI: frozenset[Surface] = frozenset({"tui"})
_CHAT: frozenset[Surface] = frozenset({"chat"})
_NEVER: frozenset[Surface] = frozenset()


class SlashCommand(NamedTuple):
    """One command."""

    name: str
    help: str
    aliases: Sequence[str] = ()
    """Other names; on each surface the first command with a name keeps it."""
    argument: str = ""
    """Placeholder for the argument in the help."""
    surfaces: frozenset[Surface] = _SHARED
    while_running: frozenset[Surface] = _NEVER
    """Surfaces on which it works during a turn."""
    owner_only: bool = False
    takes_files: bool = False
    """Whether attachments may go with it."""
    rewrites: bool = False
    """Whether it changes the transcript."""


COMMANDS: Sequence[SlashCommand] = (
    SlashCommand(
        "help", "Show the commands.", ("h", "commands"), while_running=_SHARED
    ),
    SlashCommand(
        "new", "Start a new conversation.", ("reset",), "[TITLE]", SURFACES, while_running=_CHAT
    ),
    SlashCommand(
        "title", "Show or set the title.", argument="[TEXT]", while_running=_SHARED
    ),
    SlashCommand(
        "sessions", "List conversations.", ("list",), "[TEXT]", SURFACES, while_running=_SHARED
    ),
    SlashCommand(
        "resume", "Open another conversation.", (), "[ID|TITLE]", SURFACES, while_running=_CHAT
    ),
    SlashCommand("next", "Show the next open conversation.", surfaces=_TUI),
    SlashCommand("previous", "Show the previous open conversation.", ("prev",), surfaces=_TUI),
    SlashCommand("close", "Close this conversation.", surfaces=_TUI),
    SlashCommand("tree", "Show branches and compactions.", surfaces=_TUI),
    SlashCommand("search", "Search all conversations.", (), "WORDS", while_running=_SHARED),
    SlashCommand(
        "undo",
        "Undo exchanges, with --files their files, or a compaction.",
        argument="[N] [--files]|compress",
        rewrites=True,
    ),
    SlashCommand("retry", "Retry the last message."),
    SlashCommand(
        "branch",
        "Continue in a copy of this conversation (fork).",
        ("fork",),
        "[TITLE]",
        SURFACES,
    ),
    SlashCommand(
        "compress", "Compact the conversation now.", ("compact",), "[FOCUS]", rewrites=True
    ),
    SlashCommand(
        "expand", "Show messages that were compacted away.", argument="[N|A-B]", rewrites=True
    ),
    SlashCommand("usage", "Show tokens and cost.", ("cost",), while_running=_SHARED),
    SlashCommand("status", "Show the status of this conversation.", while_running=_SHARED),
    SlashCommand("model", "Show or switch the model.", (), "[NAME]", SURFACES),
    SlashCommand(
        "stop",
        "Stop the running turn.",
        surfaces=_TERMINALS,
        while_running=_TERMINALS,
    ),
    SlashCommand(
        "stop",
        "Stop the running turn; all: the queue too.",
        (),
        "[all]",
        _CHAT,
        while_running=_CHAT
    ),
    SlashCommand(
        "approve", "Allow the pending call.", (), "[session|always]", while_running=_SHARED
    ),
    SlashCommand("deny", "Deny the pending call.", (), "[REMARK]", while_running=_SHARED),
    SlashCommand("exit", "End the conversation and quit.", ("quit", "q"), surfaces=_TERMINALS),
    SlashCommand(
        "queue",
        "Queue this for after the current turn.",
        ("q",),
        "TEXT",
        frozenset({"rpc", "tui", "chat"}),
        while_running=SURFACES,
        takes_files=True,
    ),
    SlashCommand(
        "steer",
        "Send this to the running turn.",
        (),
        "TEXT",
        frozenset({"rpc", "tui", "chat"}),
        while_running=SURFACES,
        takes_files=True,
    ),
    SlashCommand(
        "background",
        "Run this in the background.",
        ("bg", "btw"),
        "TEXT",
        frozenset({"tui", "chat"}),
        while_running=_CHAT,
        takes_files=True,
    ),
    SlashCommand("theme", "Change the colors.", argument="[NAME]", surfaces=_TUI),
    SlashCommand("keys", "Show the keyboard shortcuts.", surfaces=_TUI),
    SlashCommand("copy", "Copy the last code block, or the last reply.", surfaces=_TUI),
    SlashCommand(
        "whoami", "Show who you are here.", surfaces=_CHAT, while_running=_CHAT
    ),
    SlashCommand(
        "pair", "Let a person in by their pairing code.", (), "CODE [ROLE]", _CHAT,
        while_running=_CHAT, owner_only=True,
    ),
    SlashCommand(
        "sethome", "Send notices to this chat.", ("set-home",), surfaces=_CHAT,
        while_running=_CHAT, owner_only=True,
    ),
    SlashCommand(
        "restart", "Restart the gateway.", surfaces=_CHAT, while_running=_CHAT, owner_only=True
    ),
    SlashCommand(
        "start", "Show a greeting.", surfaces=_CHAT, while_running=_CHAT
    ),
)  # fmt: skip


def of(surface: Surface) -> list[SlashCommand]:
    """Return the commands of a surface, with the aliases they have there."""
    here = [command for command in COMMANDS if surface in command.surfaces]
    names = {command.name for command in here}
    found: list[SlashCommand] = []
    for command in here:
        aliases = tuple(alias for alias in command.aliases if alias not in names)
        names.update(aliases)
        found.append(command._replace(aliases=aliases))
    return found


def names_on(surface: Surface) -> set[str]:
    """Return every name and alias that a surface has a command for."""
    return {name for command in of(surface) for name in (command.name, *command.aliases)}


def names() -> frozenset[str]:
    """Return every name and alias on any surface."""
    return frozenset(name for command in COMMANDS for name in (command.name, *command.aliases))
