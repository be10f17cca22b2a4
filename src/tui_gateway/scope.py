"""The scope of a lasting yes: what else a person allows who allows a call for longer than once.

The gate remembers keys, and the question in the store has only the reasons. So the call is judged once
more; only when that gives the same reasons is it known what would be remembered.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hermes_agent import danger
from hermes_agent.danger import Danger
from hermes_core.secrets import redact
from hermes_core.text import truncate
from tui_gateway.runtime import LiveSession, Runtime

_LONGEST = 200
_WRITING = {"write_file": True, "patch": True, "read_file": False, "search_files": False}
_SPECIAL = {
    "terminal:unclear ": "this very command",
    "terminal:$": "the secret ${}",
    "terminal:": "{}",
    "read:": "reading {}",
    "write:": "changing {}",
}
"""Beginnings of keys, the longer ones first, and what a person is told of what follows."""


def of_yes(rt: Runtime, session: LiveSession, question: Mapping[str, Any]) -> str:
    """What a lasting yes to an approval is for, in words; empty when that is not known."""
    bench, folder = getattr(session.get("agent"), "bench", None), rt.live(session).cwd
    cwd, workspace = (bench.cwd, bench.workspace) if bench else (folder, folder)
    dangers = _judged(question, cwd, workspace, rt.home.root)
    reasons = "; ".join(dict.fromkeys(one.reason for one in dangers))
    if redact(reasons) != question["text"]:
        return ""
    told = dict.fromkeys(_words(one.key) for one in dangers)
    return truncate(redact(", ".join(told)), _LONGEST)


def _judged(question: Mapping[str, Any], cwd: Path, workspace: Path, home: Path) -> list[Danger]:
    tool, subject = question["tool_name"], question["detail"]
    match tool:
        case "terminal":
            return danger.of_command(subject, cwd, workspace, home)
        case "execute_code":
            return danger.of_code(subject, cwd, workspace, home)
        case _ if tool in _WRITING:
            return danger.of_path(subject, cwd, workspace, home, writing=_WRITING[tool])
        case _:
            return []


def _words(key: str) -> str:
    for beginning, words in _SPECIAL.items():
        if key.startswith(beginning):
            return words.format(key.removeprefix(beginning))
    return key
