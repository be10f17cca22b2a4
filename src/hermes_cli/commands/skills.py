"""`hermes skills`: list, show and create skills."""

from collections.abc import Iterator
from typing import NamedTuple

import click

from hermes_agent import skills
from hermes_agent.skills import SkillSet
from hermes_cli.commands import table
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_cli.commands.group import CommandGroup
from hermes_cli.commands.table import Column
from hermes_core import slash_commands
from hermes_core.errors import UsageError


class Row(NamedTuple):
    """One row of the list."""

    name: str
    state: str
    """`on`, or `shadowed` by a built-in command of the same name."""
    description: str
    path: str


@click.group("skills", cls=CommandGroup)
def command() -> None:
    """List, show and create skills: instructions that become slash commands."""


@command.command("list")
@table.full_option
@json_option
@pass_app
def show_all(app: App, full: bool) -> None:
    """List all skills, and say what is wrong with broken ones."""
    skill_set = skills.load_all(app.home)
    rows = list(_rows(skill_set))
    if app.as_json:
        broken = [{"message": error.message, "fix": error.fix} for error in skill_set.broken]
        app.emit({"skills": [row._asdict() for row in rows], "broken": broken})
        return
    if rows:
        cells = ((f"/{row.name}", row.state, row.description) for row in rows)
        table.show(app, ("SKILL", Column("STATE", rank=1), "DESCRIPTION"), cells, full=full)
    else:
        app.say("No skills yet. Create one with: hermes skills new NAME")
    for text in problems(skill_set):
        app.say(f"\n{text}")


@command.command("show")
@click.argument("name")
@json_option
@pass_app
def show(app: App, name: str) -> None:
    """Print a skill and the path of its file."""
    found = skills.load_all(app.home).skills
    skill = found.get(skills.slug(name))
    if skill is None:
        names = ", ".join(found) or "none"
        raise UsageError(
            f"Unknown skill {name}.",
            fix=f"Skills: {names}. hermes skills list names the broken ones.",
        )
    if app.as_json:
        app.emit({**skill._asdict(), "path": str(skill.path)})
    app.say(f"/{skill.name}: {skill.description}\n{skill.path}\n\n{skill.instructions}")


@command.command("new")
@click.argument("name")
@json_option
@pass_app
def new(app: App, name: str) -> None:
    """Create a skill from a template."""
    if (slug := skills.slug(name)) in slash_commands.names():
        raise UsageError(f"/{slug} is already a command.", fix="Choose another name.")
    path = skills.create(app.home.create(), name)
    if app.as_json:
        app.emit({"name": slug, "path": str(path)})
    app.say(f"Wrote {path}\n\n  describe it   edit that file\n  use it        /{slug} TEXT")


def problems(skill_set: SkillSet) -> Iterator[str]:
    """Describe problems with skills, and what to do."""
    yield from map(str, skill_set.broken)
    for row in _rows(skill_set):
        if row.state == "shadowed":
            yield (
                f"The skill {row.path} is shadowed by the built-in command /{row.name}."
                " Give it another `name:`."
            )


def _rows(skill_set: SkillSet) -> Iterator[Row]:
    built_in = slash_commands.names()
    for skill in skill_set.skills.values():
        state = "shadowed" if skill.name in built_in else "on"
        yield Row(skill.name, state, skill.description, str(skill.path))
