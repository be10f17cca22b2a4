"""`hermes model`: show, list and switch models."""

from collections.abc import Iterator
from typing import Any

import click
import msgspec

from hermes_agent.models import discovery
from hermes_agent.models.base import Facts
from hermes_agent.models.discovery import Finding
from hermes_agent.models.model_facts import ServerFacts
from hermes_agent.models.providers import PLUGIN, Providers
from hermes_agent.models.registry import Factory, Registry
from hermes_cli import plugins
from hermes_cli.commands import table
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_cli.commands.group import Entry, LazyGroup
from hermes_core import config, log
from hermes_core.errors import ModelMissingError, UsageError
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
    """Show, switch and download models."""
    if ctx.invoked_subcommand is None:
        _show(ctx.ensure_object(App))


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
    registry = registry_of(app)
    used, _ = _chosen(registry)
    labels = [used.label] if used is not None else []
    for finding in registry.discovery.found():
        labels += [f"{finding.provider}/{name}" for name in _names(finding)]
    labels = list(dict.fromkeys(labels))
    if app.as_json:
        app.emit([{"name": label, "used": _is(used, label)} for label in labels])
    for label in labels:
        app.say(f"{'*' if _is(used, label) else ' '} {label}")
    if not labels:
        app.say("No model found. Download one with: hermes model pull")


@command.command("use")
@click.argument("name")
@json_option
@pass_app
def use(app: App, name: str) -> None:
    """Switch to the model NAME: provider/model, a listed name, or auto.

    `auto` uses what Hermes finds.
    """
    written = _write(app, name="", base_url="") if name == _AUTO else _switch(app, name)
    app.settings = config.load(app.home, overrides=app.overrides)
    if app.settings.model.name != written:
        raise UsageError(
            f"Saved, but HERMES_MODEL or --set still selects {app.settings.model.name}.",
            fix="Unset HERMES_MODEL.",
        )
    _show(app)


def registry_of(app: App) -> Registry:
    """Return the model registry of this home, with models of plugins."""
    factories = _factories(app)  # loads plugins, which may add providers
    providers = Providers(record.provider for record in plugins.providers().values())
    return Registry(
        app.settings.model,
        providers.credentials(),
        app.home,
        plugins=factories,
        providers=providers,
        ports=discovery.PORTS,
        probe_timeout_s=discovery.PROBE_TIMEOUT_S,
    )


def _factories(app: App) -> dict[str, Factory]:
    if not app.settings.plugins.enabled:
        return {}
    log.set_up(app.home.logs, app.settings.log.level)
    plugins.load_enabled(app.home, app.settings)
    return {name: provider.factory for name, provider in plugins.models().items()}


def _switch(app: App, name: str) -> str:
    """Save a model under a name that will find it again; return that name."""
    base_url = app.settings.model.base_url
    registry = registry_of(app)
    if base_url and name in _names_at(registry, base_url):
        return _write(app, name=name, base_url=base_url)
    finding = _find(registry, name) or registry.discovery.named(name)
    is_plain = finding.provider == PLUGIN or finding.provider not in registry.discovery.providers
    return _write(app, name=finding.model if is_plain else finding.label, base_url="")


def _names_at(registry: Registry, base_url: str) -> list[str]:
    try:
        return _names(registry.discovery.named("", "", base_url))
    except ModelMissingError:  # the server is down
        return []


def _find(registry: Registry, name: str) -> Finding | None:
    """Find a model by its bare name."""
    for finding in registry.discovery.found():
        if name in _names(finding):
            return msgspec.structs.replace(finding, model=name)
    return None


def _write(app: App, *, name: str, base_url: str) -> str:
    for key, value in (("name", name), ("base_url", base_url), ("provider", "")):
        if value != getattr(app.settings.model, key) or key == "name":
            config.change(app.home, f"model.{key}", value or None)
    return name


def _show(app: App) -> None:
    registry = registry_of(app)
    used, problem = _chosen(registry)
    found = _with(used, registry.discovery.found())
    server_facts = registry.server_facts(used) if used is not None else ServerFacts()
    facts = registry.facts(used, server_facts) if used is not None and used.base_url else None
    if app.as_json:
        app.emit(_report(used, facts, found))
    elif used is not None:
        app.say(f"Using {used.label}: {used.reason}.")
        app.say("".join(f"  {line}\n" for line in _lines(app, facts, server_facts.note)))
    if found:
        app.say(
            table.render(("", "MODEL", "WHERE", "WHY"), [_row(registry, f, used) for f in found])
        )
    if used is not None and (advice := registry.provider(used).advice()):
        app.say(f"\n{advice}")
    if problem is not None:
        raise problem


def _with(used: Finding | None, found: list[Finding]) -> list[Finding]:
    """Return the models found, the one in use first."""
    if used is None:
        return found
    return [used, *(finding for finding in found if _place(finding) != _place(used))]


def _place(finding: Finding) -> tuple[str, str]:
    return finding.provider, finding.base_url or finding.model


def _chosen(registry: Registry) -> tuple[Finding | None, ModelMissingError | None]:
    """Return the model in use, or the error that says why there is none."""
    try:
        return registry.discovery.chosen(), None
    except ModelMissingError as error:
        return None, error


def _names(finding: Finding) -> list[str]:
    return [name for name in (finding.model, *finding.others) if name]


def _is(used: Finding | None, label: str) -> bool:
    return used is not None and used.label == label


def _row(registry: Registry, finding: Finding, used: Finding | None) -> tuple[str, str, str, str]:
    is_used = finding is used
    more = f" and {len(finding.others)} more" if finding.others else ""
    model = f"{finding.label}{more}" if finding.model else "none"
    here = "this process" if registry.provider(finding).is_in_process else ""
    where = without_passwords(finding.base_url) or here
    return "*" if is_used else "", model, where, finding.reason


def _lines(app: App, facts: Facts | None, note: str) -> Iterator[str]:
    if facts is not None:
        source = f" ({note})" if note else ""
        yield f"window {facts.window:,} tokens{source}, replies up to {facts.max_output:,}"
        if facts.input_price or facts.output_price:
            yield f"${facts.input_price:g} / ${facts.output_price:g} per million tokens (in / out)"
        if facts.is_small:
            yield "small: short prompt, few tools, constrained steps"
    if fallbacks := app.settings.model.fallbacks:
        yield f"fallbacks: {', '.join(fallbacks)}"


def _report(used: Finding | None, facts: Facts | None, found: list[Finding]) -> dict[str, Any]:
    plain = msgspec.to_builtins(facts) if facts is not None else None
    return {
        "used": None if used is None else {**_fields(used), "facts": plain},
        "found": [_fields(finding) for finding in found],
    }


def _fields(finding: Finding) -> dict[str, Any]:
    finding = msgspec.structs.replace(finding, base_url=without_passwords(finding.base_url))
    return {"name": finding.label if finding.model else "", **msgspec.to_builtins(finding)}
