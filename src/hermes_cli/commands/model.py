"""`hermes model`: show, list, choose and switch models."""

from typing import Any

import click
import msgspec

from hermes_agent.models.base import Facts
from hermes_agent.models.discovery import Finding
from hermes_agent.models.model_facts import ServerFacts
from hermes_agent.models.registry import Registry
from hermes_cli.commands import model_choice, model_dialogue, prompts, table
from hermes_cli.commands.app import App, is_interactive, json_option, pass_app
from hermes_cli.commands.group import Entry, LazyGroup
from hermes_cli.commands.table import Column
from hermes_core.secrets import without_passwords

_AUTO = "auto"


@click.group(
    "model",
    cls=LazyGroup,
    entries={"pull": Entry("model_pull", "Download the embedded model.")},
    invoke_without_command=True,
)
@json_option
@click.pass_context
def command(ctx: click.Context) -> None:
    """Choose the model that answers; without a terminal, show it."""
    app = ctx.ensure_object(App)
    if ctx.invoked_subcommand is not None:
        return
    if is_interactive() and not app.as_json:
        _choose(app)
    else:
        _show(app)


@command.command("show")
@json_option
@pass_app
def show(app: App) -> None:
    """Show the models found, the one in use, and why."""
    _show(app)


@command.command("list")
@json_option
@pass_app
def list_(app: App) -> None:
    """List all usable models, one per line."""
    registry = model_choice.registry_of(app)
    used, _ = model_choice.chosen(registry)
    labels = [used.label] if used is not None else []
    for finding in registry.discovery.found():
        labels += [f"{finding.provider}/{name}" for name in model_choice.names_of(finding)]
    labels = list(dict.fromkeys(labels))
    if app.as_json:
        app.emit([{"name": label, "used": _is(used, label)} for label in labels])
    for label in labels:
        app.say(f"{'*' if _is(used, label) else ' '} {label}")
    if not labels:
        app.say("No model found. Get one with: hermes setup, or hermes model pull")


@command.command("use")
@click.argument("name", required=False)
@json_option
@pass_app
def use(app: App, name: str | None) -> None:
    """Switch to the model NAME: provider/model, a listed name, or auto.

    `auto` uses what Hermes finds. Without NAME, choose from a list.
    """
    if name is None:
        prompts.require_terminal("Write: hermes model use NAME. `hermes model list` has the names.")
        _choose(app)
        return
    if name == _AUTO:
        model_choice.use_what_is_found(app)
    else:
        model_choice.use(app, name)
    _show(app)


def _choose(app: App) -> None:
    """Show the model in use, and let the person choose another."""
    used, problem = model_choice.chosen(model_choice.registry_of(app))
    if used is not None:
        app.say(f"Using {used.label}: {used.reason}.\n")
    elif problem is not None:
        app.say(f"{problem.message}\n")
    if model_dialogue.ask_for_model(app, keeps="Change nothing", lists_models=True):
        app.say("\n".join(model_choice.describe(app)))


def _show(app: App) -> None:
    registry = model_choice.registry_of(app)
    used, problem = model_choice.chosen(registry)
    found = model_choice.with_used(used, registry.discovery.found())
    server_facts = registry.server_facts(used) if used is not None else ServerFacts()
    facts = registry.facts(used, server_facts) if used is not None and used.base_url else None
    if app.as_json:
        app.emit(_report(used, facts, found))
    elif used is not None:
        app.say(f"Using {used.label}: {used.reason}.")
        app.say(
            "".join(f"  {line}\n" for line in model_choice.lines(app, facts, server_facts.note))
        )
    if found:
        columns = ("", Column("MODEL", wraps=True), Column("WHERE", wraps=True), "WHY")
        table.show(app, columns, [_row(registry, finding, used) for finding in found])
    if used is not None and (advice := registry.provider(used).advice()):
        app.say(f"\n{advice}")
    if problem is not None:
        raise problem


def _is(used: Finding | None, label: str) -> bool:
    return used is not None and used.label == label


def _row(registry: Registry, finding: Finding, used: Finding | None) -> tuple[str, str, str, str]:
    is_used = finding is used
    more = f" and {len(finding.others)} more" if finding.others else ""
    model = f"{finding.label}{more}" if finding.model else "none"
    here = "this process" if registry.provider(finding).is_in_process else ""
    where = without_passwords(finding.base_url) or here
    return "*" if is_used else "", model, where, finding.reason


def _report(used: Finding | None, facts: Facts | None, found: list[Finding]) -> dict[str, Any]:
    plain = msgspec.to_builtins(facts) if facts is not None else None
    return {
        "used": None if used is None else {**_fields(used), "facts": plain},
        "found": [_fields(finding) for finding in found],
    }


def _fields(finding: Finding) -> dict[str, Any]:
    finding = msgspec.structs.replace(finding, base_url=without_passwords(finding.base_url))
    return {"name": finding.label if finding.model else "", **msgspec.to_builtins(finding)}
