"""The names that belong to Hermes: a plugin that registers one of them is not loaded.

They are written down here, for the host of plugins is below whatever has these names; a test compares.
"""

from collections.abc import Mapping
from typing import Literal

Kind = Literal["tool", "command", "model", "platform", "memory provider", "sub-command"]

OURS: Mapping[Kind, frozenset[str]] = {
    "tool": frozenset(
        {
            "call_tool",
            "clarify",
            "delegate",
            "execute_code",
            "memory",
            "more_tools",
            "patch",
            "process",
            "read_file",
            "search_files",
            "session_search",
            "terminal",
            "todo",
            "web_fetch",
            "web_search",
            "write_file",
        }
    ),
    "command": frozenset(
        {
            "approve",
            "background",
            "bg",
            "branch",
            "btw",
            "commands",
            "compact",
            "compress",
            "copy",
            "cost",
            "deny",
            "exit",
            "expand",
            "fork",
            "h",
            "help",
            "keys",
            "list",
            "model",
            "new",
            "pair",
            "q",
            "queue",
            "quit",
            "reset",
            "restart",
            "resume",
            "retry",
            "search",
            "sessions",
            "set-home",
            "sethome",
            "start",
            "status",
            "steer",
            "stop",
            "theme",
            "title",
            "tree",
            "undo",
            "usage",
            "whoami",
        }
    ),
    "model": frozenset({"embedded"}),
    "platform": frozenset(
        {"api_server", "cli", "email", "local", "matrix", "telegram", "tui", "webhook"}
    ),
    "sub-command": frozenset(
        {
            "attach",
            "chat",
            "completion",
            "config",
            "doctor",
            "gateway",
            "model",
            "plugins",
            "serve",
            "sessions",
            "skills",
            "tui",
        }
    ),
}
