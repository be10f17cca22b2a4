"""The skills that clients may use as slash commands."""

from collections.abc import Mapping

from hermes_agent import skills
from hermes_agent.skills import Skill
from hermes_cli import plugins
from hermes_core import slash_commands
from hermes_core.paths import Home

CATEGORY = "Skills"
"""Skills have no categories here; clients show them under one."""
_NAMES = slash_commands.names_on("rpc")


def find(home: Home, name: str) -> Skill | None:
    """Return the skill that a name stands for; a command of the server or of a plugin wins."""
    return skills.find(name, skills.load(home), _reserved())


def usable(found: Mapping[str, Skill]) -> list[Skill]:
    """Return those that no command of the server or of a plugin hides."""
    return skills.usable(found, _reserved())


def _reserved() -> set[str]:
    return {*plugins.commands("rpc"), *_NAMES}


def by_category(home: Home) -> dict[str, list[str]]:
    """Return the names of the usable skills of a home by category."""
    names = [skill.name for skill in usable(skills.load(home))]
    return {CATEGORY: names} if names else {}
