"""Names that plugins cannot register because Hermes has them.

The plugin host is below the packages that own these names, so it imports them lazily by path.
"""

import importlib
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any, Literal

from hermes_core.loading import loading

Kind = Literal["tool", "command", "model", "provider", "platform", "memory provider", "sub-command"]

OWNERS: Mapping[Kind, str] = {
    "tool": "hermes_agent.tools.registry:names",
    "command": "hermes_core.slash_commands:names",
    "model": "hermes_agent.models.registry:names",
    "provider": "hermes_agent.models.providers:names",
    "platform": "gateway.platforms.registry:names",
    "sub-command": "hermes_cli.commands.root:names",
}
"""The function that returns the names of a kind, as module:function."""


@cache
def reserved(kind: Kind) -> Collection[str]:
    """Return the names of a kind that plugins cannot register."""
    if kind not in OWNERS:
        return ()
    names: Collection[str] = _owner(OWNERS[kind])()
    return names


def provider_of(name: str, facts: Mapping[str, object]) -> object:
    """Build a provider from its facts. Raises PluginError."""
    return _owner("hermes_agent.models.providers:from_facts")(name, facts)


def _owner(path: str) -> Callable[..., Any]:
    module, _, function = path.partition(":")
    with loading:
        return getattr(importlib.import_module(module), function)
