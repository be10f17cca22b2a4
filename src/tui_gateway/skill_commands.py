"""The skills that clients may use as slash commands."""

from collections.abc import Mapping

from hermes_agent import commands, skills
from hermes_agent.skills import Skill
from hermes_cli import plugins
from hermes_core import slash_commands
from hermes_core.paths import Home

CATEGORY = "Skills"
"""Skills have no categories here; clients show them under one."""
_COMMAND_NAMES = {command.name for command in slash_commands.of("rpc")}


def usable(found: Mapping[str, Skill]) -> list[Skill]:
    """Return those that no command of the server or of a plugin hides."""
    return commands.skills_of(found, {*plugins.commands("rpc"), *_COMMAND_NAMES})


def by_category(home: Home) -> dict[str, list[str]]:
    """Return the names of the usable skills of a home by category."""
    names = [skill.name for skill in usable(skills.load(home))]
    return {CATEGORY: names} if names else {}
