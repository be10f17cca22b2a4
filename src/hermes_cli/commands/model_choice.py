"""The model as commands change it: keys and servers on trial, and the switch to a model."""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from hermes_agent.models import discovery, trial
from hermes_agent.models.base import Facts
from hermes_agent.models.discovery import Finding, server_at
from hermes_agent.models.providers import PLUGIN, STORED_KEY, Credentials, Provider, Providers
from hermes_agent.models.registry import Factory, Registry
from hermes_cli import plugins
from hermes_cli.commands.app import App
from hermes_core import config, log, secrets
from hermes_core.errors import ModelError, ModelMissingError, UsageError
from hermes_core.settings import ModelSettings

_LIST_TIMEOUT_S = 5.0
_KEY_STATUSES = (401, 403)
"""A provider refuses the key itself with these."""


def registry_of(
    app: App, settings: ModelSettings | None = None, credentials: Credentials | None = None
) -> Registry:
    """Return the model registry of this home, with models of plugins.

    `settings` and `credentials` replace those of the home and the environment.
    """
    factories = _factories(app)  # loads plugins, which may add providers
    providers = providers_of(app)
    return Registry(
        app.settings.model if settings is None else settings,
        providers.credentials() if credentials is None else credentials,
        app.home,
        plugins=factories,
        providers=providers,
        ports=discovery.PORTS,
        probe_timeout_s=discovery.PROBE_TIMEOUT_S,
    )


def providers_of(app: App) -> Providers:
    """Return the providers of models, with those of plugins."""
    _factories(app)
    return Providers(record.provider for record in plugins.providers().values())


def _factories(app: App) -> dict[str, Factory]:
    if not app.settings.plugins.enabled:
        return {}
    log.set_up(app.home.logs, app.settings.log.level)
    plugins.load_enabled(app.home, app.settings)
    return {name: provider.factory for name, provider in plugins.models().items()}


def provider_named(app: App, name: str) -> Provider:
    """Return the provider that has keys under this name. Raises UsageError."""
    by_name = {provider.name: provider for provider in providers_of(app).hosted}
    if name.lower() not in by_name:
        raise UsageError(
            f"{name} is not a known provider.",
            fix=f"Use one of: {', '.join(by_name)}. For another server: hermes setup --base-url URL.",
        )
    return by_name[name.lower()]


def try_out(registry: Registry, finding: Finding) -> str:
    """Ask a model one tiny question; return what happened. Raises ModelError."""
    model = registry.make(finding)
    try:
        seconds = trial.ask(model)
    finally:
        model.close()
    return f"{finding.model} answered in {seconds:.1f} s"


def refuses_key(error: ModelError) -> bool:
    """Return whether a server refused the key, and not the request."""
    return error.status in _KEY_STATUSES


@dataclass
class KeyTrial:
    """A key of a provider before it is stored."""

    app: App
    provider: Provider
    key: str

    def __post_init__(self) -> None:
        secrets.register({f"{STORED_KEY}{self.provider.name}": self.key})

    def check_form(self) -> None:
        """Raise UsageError if this cannot be a key."""
        if not self.key.isascii() or not self.key.isprintable() or " " in self.key:
            raise UsageError("This is not an API key.", fix="Copy the whole key, without spaces.")

    def check(self, model: str = "") -> str:
        """Ask the provider one tiny question with this key; return what happened. Raises ModelError."""
        self.check_form()
        keys = {self.provider.name: self.key}
        settings = msgspec.structs.replace(
            trial.for_trial(self.app.settings.model),
            name="",
            provider="",
            base_url="",
            api_key="",
            keys=keys,
        )
        registry = registry_of(self.app, settings, {})
        name = f"{self.provider.name}/{model}" if model else ""
        return try_out(registry, registry.discovery.named(name, self.provider.name))

    def store(self) -> None:
        """Write the key to config.toml, which only its owner may read."""
        name, key = self.provider.name, self.key
        config.update(self.app.home, "model.keys", lambda old: {**old, name: key})
        reload(self.app)


def reload(app: App) -> None:
    """Read the settings again after a change."""
    app.settings = config.load(app.home, overrides=app.overrides)


@dataclass
class ServerTrial:
    """A server by its address, before it is stored."""

    app: App
    base_url: str
    key: str = ""

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(
                f"{self.base_url!r} is not an address.", fix="Write it as http://host:port/v1."
            )
        self.base_url = self.base_url.rstrip("/")
        if self.key:
            secrets.register({"model.api_key": self.key})

    def names(self) -> list[str]:
        """List the models there; tries the address with /v1 too. Raises ModelError."""
        try:
            return self._names(self.base_url)
        except ModelError as error:
            if urlsplit(self.base_url).path or refuses_key(error):
                raise
        names = self._names(f"{self.base_url}/v1")
        self.base_url += "/v1"
        return names

    def _names(self, base_url: str) -> list[str]:
        server = server_at(base_url, self.key, _LIST_TIMEOUT_S)
        try:
            return Provider("").for_chats(served.name for served in server.models())
        finally:
            server.close()

    def check(self, model: str) -> str:
        """Ask a model there one tiny question; return what happened. Raises ModelError."""
        settings = msgspec.structs.replace(
            trial.for_trial(self.app.settings.model),
            name=model,
            provider="",
            base_url=self.base_url,
            api_key=self.key,
        )
        registry = registry_of(self.app, settings)
        return try_out(registry, registry.discovery.chosen())

    def store(self, model: str) -> None:
        """Use this server and model from now on."""
        values = {
            "model.base_url": self.base_url,
            "model.api_key": self.key or None,
            "model.provider": None,
            "model.name": model,
        }
        config.change_all(self.app.home, values)
        reload(self.app)


def chosen(registry: Registry) -> tuple[Finding | None, ModelMissingError | None]:
    """Return the model in use, or the error that says why there is none."""
    try:
        return registry.discovery.chosen(), None
    except ModelMissingError as error:
        return None, error


def with_used(used: Finding | None, found: list[Finding]) -> list[Finding]:
    """Return the models found, the one in use first."""
    if used is None:
        return found
    return [used, *(finding for finding in found if _place(finding) != _place(used))]


def _place(finding: Finding) -> tuple[str, str]:
    return finding.provider, finding.base_url or finding.model


def names_of(finding: Finding) -> list[str]:
    """Return the models at the place of a finding."""
    return [name for name in (finding.model, *finding.others) if name]


def use(app: App, name: str) -> None:
    """Switch to the model of this name. Raises ModelMissingError, and UsageError if it is overridden."""
    base_url = app.settings.model.base_url
    registry = registry_of(app)
    if base_url and name in _names_at(registry, base_url):
        _write(app, name=name, base_url=base_url)
        return
    use_finding(app, registry, _find(registry, name) or registry.discovery.named(name))


def use_finding(app: App, registry: Registry, finding: Finding) -> None:
    """Switch to a model, under a name that will find it again."""
    own = app.settings.model.base_url
    if own and finding.base_url == own:
        _write(app, name=finding.model, base_url=own)
        return
    is_plain = finding.provider == PLUGIN or finding.provider not in registry.discovery.providers
    _write(app, name=finding.model if is_plain else finding.label, base_url="")


def use_what_is_found(app: App) -> None:
    """Switch back to the model that Hermes finds by itself."""
    _write(app, name="", base_url="")


def _names_at(registry: Registry, base_url: str) -> list[str]:
    try:
        return names_of(registry.discovery.named("", "", base_url))
    except ModelMissingError:  # the server is down
        return []


def _find(registry: Registry, name: str) -> Finding | None:
    """Find a model by its bare name."""
    for finding in registry.discovery.found():
        if name in names_of(finding):
            return msgspec.structs.replace(finding, model=name)
    return None


def _write(app: App, *, name: str, base_url: str) -> None:
    values = {"model.name": name, "model.base_url": base_url, "model.provider": ""}
    config.change_all(app.home, {key: value or None for key, value in values.items()})
    reload(app)
    if app.settings.model.name != name:
        raise UsageError(
            f"Saved, but HERMES_MODEL or --set still selects {app.settings.model.name}.",
            fix="Unset HERMES_MODEL.",
        )


def describe(app: App) -> Iterator[str]:
    """Describe the model in use in a few lines. Raises ModelMissingError."""
    registry = registry_of(app)
    used = registry.discovery.chosen()
    yield f"Using {used.label}: {used.reason}."
    served = registry.server_facts(used)
    facts = registry.facts(used, served) if used.base_url else None
    yield from lines(app, facts, served.note)


def lines(app: App, facts: Facts | None, note: str) -> Iterator[str]:
    """Describe what is known about a model."""
    if facts is not None:
        if facts.is_window_guessed:
            note = "a guess: nobody says how large it is"
        source = f" ({note})" if note else ""
        yield f"window {facts.window:,} tokens{source}, replies up to {facts.max_output:,}"
        if facts.input_price or facts.output_price:
            yield f"${facts.input_price:g} / ${facts.output_price:g} per million tokens (in / out)"
        if facts.is_window_guessed:
            yield "set the real window: hermes config set model.context_window N"
        if facts.is_small:
            yield "small: short prompt, few tools, constrained steps"
    if fallbacks := app.settings.model.fallbacks:
        yield f"fallbacks: {', '.join(fallbacks)}"
