"""The scope of a lasting yes: what else a person allows who allows a call for longer than once.

The gate remembers keys, and the question in the store has only the reasons. So the call is judged once
more; only when that gives the same reasons is it known what would be remembered.
"""

from collections.abc import Mapping
from typing import Any

from hermes_agent.agent import Agent
from hermes_core.secrets import redact
from hermes_core.text import truncate
from tui_gateway.runtime import LiveSession, Runtime

_MAX_CHARS = 200
_SPECIAL = {
    "terminal:unclear ": "this very command",
    "terminal:$": "the secret ${}",
    "terminal:": "{}",
    "read:": "reading {}",
    "write:": "changing {}",
}
"""Beginnings of keys, the longer ones first, and what a person is told of what follows."""


def of_yes(rt: Runtime, session: LiveSession, question: Mapping[str, Any]) -> str:
    """Return what "Always" would allow, in words; empty when that is not known."""
    agent = session.get("agent")
    tool = agent.toolbox.get(question["tool_name"]) if isinstance(agent, Agent) else None
    if not isinstance(agent, Agent) or tool is None or not tool.subject:
        return ""
    dangers = tool.dangers_of({tool.subject: question["detail"]}, agent.bench)
    reasons = "; ".join(dict.fromkeys(danger.reason for danger in dangers))
    if redact(reasons) != question["text"]:
        return ""
    words = dict.fromkeys(_words(danger.key) for danger in dangers)
    return truncate(redact(", ".join(words)), _MAX_CHARS)


def _words(key: str) -> str:
    for beginning, words in _SPECIAL.items():
        if key.startswith(beginning):
            return words.format(key.removeprefix(beginning))
    return key
