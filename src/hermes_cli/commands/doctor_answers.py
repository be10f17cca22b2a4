"""Checks of `hermes doctor`: can a model answer, which keys are there, does the gateway work."""

from collections.abc import Iterator

from hermes_agent.models import trial
from hermes_agent.models.discovery import Finding as Found
from hermes_agent.models.registry import Registry
from hermes_cli import plugins
from hermes_cli.commands import model_choice
from hermes_cli.commands.app import App
from hermes_cli.commands.finding import Finding
from hermes_core.errors import HermesError, ModelError
from hermes_core.text import counted


def check_model(app: App, *, online: bool) -> Iterator[Finding]:
    """Check that a model can answer: `online` asks it one tiny question."""
    registry = model_choice.registry_of(app, trial.for_trial(app.settings.model))
    used, problem = model_choice.chosen(registry)
    if used is None:
        message = problem.message if problem is not None else ""
        yield Finding("model", "problem", f"nothing can answer: {message}", "Run: hermes setup")
        return
    try:
        detail = _tried(registry, used, online=online)
    except ModelError as error:
        yield Finding("model", "problem", f"{used.label}: {error.message}", error.fix)
    else:
        yield Finding("model", "ok", f"{used.label}: {used.reason}{detail}")
    if used.base_url:
        facts = registry.facts(used, registry.server_facts(used))
        if facts.is_window_guessed:
            detail = f"{facts.window:,} tokens for {used.label} is a guess"
            yield Finding("window", "warning", detail, "Set model.context_window to the real one.")
    yield from _fallbacks(app)


def _tried(registry: Registry, used: Found, *, online: bool) -> str:
    """Ask the model, or its server whether it is there. Raises ModelError."""
    provider = registry.provider(used)
    if online:
        return f"; {model_choice.try_out(registry, used)}"
    if provider.is_local and not provider.is_in_process:
        registry.model_names(used)
        return "; its server answers"
    return "" if provider.is_in_process else "; not asked, --online does"


def _fallbacks(app: App) -> Iterator[Finding]:
    registry = model_choice.registry_of(app)
    for name in app.settings.model.fallbacks:
        try:
            registry.discovery.named(name)
        except ModelError as error:
            yield Finding("fallback", "warning", f"{name}: {error.message}", error.fix)


def check_keys(app: App) -> Iterator[Finding]:
    """List the providers that have a key, and where it is from."""
    providers, stored = model_choice.providers_of(app), app.settings.model.keys
    credentials = providers.credentials()
    keys = [
        f"{provider.name} ({provider.key_variable})"
        for provider in providers.hosted
        if provider.key_variable in credentials
    ]
    keys += [f"{name} (stored)" for name in stored if name in providers]
    if app.settings.model.api_key:
        keys.append("model.api_key")
    yield Finding("keys", "ok", ", ".join(keys) or "none")
    for name in stored:
        if name not in providers:
            detail = f"a key is stored for {name}, which is not a known provider"
            yield Finding("keys", "warning", detail, f"Run: hermes logout {name}")


def check_gateway(app: App) -> Iterator[Finding]:
    """Check the platforms that are set up, and the gateway that runs them."""
    tables = app.settings.gateway.platforms
    on = {name: table for name, table in tables.items() if table.get("enabled", True)}
    if not on:
        yield Finding("gateway", "ok", "no platform is set up (hermes gateway setup)")
        return
    # slow to import: only for homes with platforms
    from gateway import status  # noqa: PLC0415
    from gateway.platforms import registry  # noqa: PLC0415

    plugins.load_enabled(app.home, app.settings)
    for name, table in on.items():
        try:
            registry.settings_of(registry.find(name), table)
        except HermesError as error:
            yield Finding("platform", "problem", f"{name}: {error.message}", error.fix)
    pid = status.get_running_pid()
    if pid is None:
        names = ", ".join(on)
        yield Finding("gateway", "warning", f"not running: {names}", "Run: hermes gateway start")
        return
    lost = status.not_connected()
    detail = f"runs as process {pid} with {counted(len(on), 'platform')}"
    yield Finding("gateway", "warning" if lost else "ok", detail, "Run: hermes gateway status")
    for name, reason in lost.items():
        yield Finding(
            "platform", "problem", f"{name}: {reason}", f"Run: hermes gateway setup {name}"
        )
