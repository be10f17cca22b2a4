"""From settings to the model that answers: the one place where all surfaces get it from."""

import importlib
import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeVar, cast

import msgspec

from hermes_agent.events import Sink
from hermes_agent.models import windows
from hermes_agent.models.base import Facts, Model, Reply, Request
from hermes_agent.models.chain import Chain
from hermes_agent.models.discovery import PATIENCE_S, PORTS, Discovery, Finding, key_of, server_at
from hermes_agent.models.providers import ADAPTERS, EMBEDDED, OURS, Credentials, Provider, Providers
from hermes_agent.models.retry import Persistent
from hermes_agent.models.windows import Told
from hermes_agent.stop import Stop
from hermes_cli.plugin_calls import is_of_a_person
from hermes_core.errors import (
    BudgetSpent,
    HermesError,
    Interrupted,
    ModelError,
    ModelMissingError,
    in_words,
)
from hermes_core.loading import loading
from hermes_core.paths import Home
from hermes_core.settings import ModelSettings, Settings

logger = logging.getLogger(__name__)

_PATIENCE_S = 2.0
"""For what a server says about its model; without it a guess is used."""

Factory = Callable[..., object]
Given = TypeVar("Given")


def build(
    settings: Settings,
    credentials: Credentials,
    home: Home,
    *,
    plugins: Mapping[str, Factory] | None = None,
    providers: Providers = OURS,
    ports: Mapping[int, str] = PORTS,
) -> Model:
    """The model that the settings and the surroundings give, with retries and fallbacks.

    `plugins` are the models that plugins registered, each with a function that makes it. Raises
    ModelMissingError when there is nobody to ask.
    """
    registry = Registry(
        settings.model, credentials, home, plugins=plugins, providers=providers, ports=ports
    )
    return registry.build()


def names() -> frozenset[str]:
    """Return the names that plugins may not give their models."""
    return frozenset({EMBEDDED})


class Registry:
    """Makes models of what discovery finds."""

    def __init__(
        self,
        settings: ModelSettings,
        credentials: Credentials,
        home: Home,
        *,
        plugins: Mapping[str, Factory] | None = None,
        providers: Providers = OURS,
        ports: Mapping[int, str] = PORTS,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`patience_s` is for each local server when it is asked what it has."""
        self._settings = settings
        self._credentials = credentials
        self._home = home
        self._plugins = plugins or {}
        self.discovery = Discovery(
            settings,
            credentials,
            home,
            plugins=self._plugins,
            providers=providers,
            ports=ports,
            patience_s=patience_s,
        )

    def build(self) -> Model:
        """The first model and its fallbacks, which are looked at when they are needed."""
        first = self._first(self.discovery.chosen())
        return Chain([first, *(self._later(name) for name in self._settings.fallbacks)])

    def _first(self, finding: Finding) -> Model:
        """The model that was chosen; one that its plugin cannot make leaves the answer to a fallback."""
        try:
            return self.make(finding)
        except ModelError as error:
            if self.provider(finding).adapter != "plugin" or not self._settings.fallbacks:
                raise
            return _Unmade(self.facts(finding, Told()), error)

    def make(self, finding: Finding) -> Model:
        """The model of a finding, ready to be asked."""
        provider = self.provider(finding)
        if provider.adapter == "plugin":
            return Persistent(self._from_plugin(finding.model), retries=self._settings.retries)
        if provider.adapter == "embedded":
            model = self._embedded(finding)
        else:
            model = self._remote(finding, provider)
        return _small(model) if model.facts.is_small else model

    def provider(self, finding: Finding) -> Provider:
        """The provider of a finding."""
        return self.discovery.providers.get(finding.provider)

    def facts(self, finding: Finding, told: Told) -> Facts:
        """What is known about a model, with what its server told."""
        return windows.facts_for(finding.model, self.provider(finding), self._settings, told)

    def told(self, finding: Finding) -> Told:
        """What the server says, where it knows better than the table."""
        if not self._is_asked(finding):
            return Told()
        key = key_of(finding.key_name, self._settings, self._credentials)
        server = server_at(finding.base_url, key, _PATIENCE_S)
        try:
            served = next((s for s in server.models() if s.name == finding.model), None)
            return server.told(served) if served is not None else Told()
        except ModelError:
            return Told()  # whoever asks the model will hear what is wrong
        finally:
            server.close()

    def _is_asked(self, finding: Finding) -> bool:
        provider = self.provider(finding)
        if not provider.lists_facts:
            return False
        if self._settings.context_window and self._settings.small != "auto":
            return False
        return provider.is_local or windows.known(finding.model, provider) is None

    def _remote(self, finding: Finding, provider: Provider) -> Model:
        module, _, name = ADAPTERS[provider.adapter].partition(":")
        with loading:
            adapter = getattr(importlib.import_module(module), name)
        model: Model = adapter(
            self.facts(finding, self.told(finding)),
            provider=provider,
            base_url=finding.base_url,
            api_key=key_of(finding.key_name, self._settings, self._credentials),
            key_name=finding.key_name,
            timeout_s=self._settings.timeout_s,
        )
        return Persistent(model, retries=self._settings.retries)

    def _embedded(self, finding: Finding) -> Model:
        from hermes_agent.models.embedded.model import open_model  # noqa: PLC0415 -- brings the engine

        return open_model(self._home, finding.model, self._settings.context_window)

    def _from_plugin(self, name: str) -> Model:
        try:
            made = self._plugins[name]()
            facts = getattr(made, "facts", None)
        except ModelError:
            raise
        except BaseException as error:
            is_told = isinstance(error, HermesError) and not self._settings.fallbacks
            if is_told or is_of_a_person(error):
                raise
            raise ModelError(f"The model {name} of a plugin failed. {in_words(error)}") from error
        if not isinstance(facts, Facts):
            raise ModelError(f"What a plugin gives as the model {name} is none: it has no facts.")
        return _OfPlugin(name, cast("Model", made), _checked(name, "facts", facts, Facts))

    def _later(self, name: str) -> Model:
        return _Later(lambda: self.make(self._fallback(name)))

    def _fallback(self, name: str) -> Finding:
        try:
            return self.discovery.named(name)
        except ModelMissingError as error:
            error.message = f"model.fallbacks names {name}: {error.message}"
            raise


def _small(model: Model) -> Model:
    from hermes_agent.models.small import SmallModel  # noqa: PLC0415 -- only weak models need it

    return SmallModel(model)


class _OfPlugin:
    """A model of a plugin: whatever it raises, this model has failed, and a fallback may answer."""

    def __init__(self, name: str, model: Model, facts: Facts) -> None:
        self._name = name
        self._model = model
        self.facts = facts

    def ask(self, request: Request, stop: Stop, report: Sink) -> Reply:
        return _checked(self._name, "reply", self._asked(request, stop, report), Reply)

    def _asked(self, request: Request, stop: Stop, report: Sink) -> object:
        try:
            return self._model.ask(request, stop, report)
        except (HermesError, Interrupted, BudgetSpent):
            raise
        except BaseException as error:
            if is_of_a_person(error):
                raise
            logger.exception("the model %s of a plugin failed", self._name)
            said = f"The model {self._name} of a plugin failed. {in_words(error)}"
            raise ModelError(said) from error

    def close(self) -> None:
        try:
            self._model.close()
        except BaseException as error:
            if is_of_a_person(error):
                raise
            logger.exception("the model %s of a plugin failed as it was closed", self._name)


def _checked(name: str, what: str, given: object, kind: type[Given]) -> Given:
    """What a model of a plugin gives, with fields that are as they have to be; raises ModelError."""
    try:
        if not isinstance(given, kind):
            raise TypeError(f"a {type(given).__name__} in place of a {kind.__name__}")
        return msgspec.convert(msgspec.to_builtins(given), kind)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        said = f"The {what} of the model {name} of a plugin cannot be used: {error}."
        raise ModelError(said) from error


class _Unmade:
    """A model that could not be made: whoever asks it hears why."""

    def __init__(self, facts: Facts, error: ModelError) -> None:
        self.facts = facts
        self._error = error

    def ask(self, request: Request, stop: Stop, report: Sink) -> Reply:
        del request, stop, report
        raise ModelError(self._error.message, fix=self._error.fix) from self._error

    def close(self) -> None: ...


class _Later:
    """A model that is made when it is first asked: most fallbacks never are."""

    def __init__(self, make: Callable[[], Model]) -> None:
        self._make = make

    @cached_property
    def _model(self) -> Model:
        return self._make()

    @property
    def facts(self) -> Facts:
        return self._model.facts

    def ask(self, request: Request, stop: Stop, report: Sink) -> Reply:
        return self._model.ask(request, stop, report)

    def close(self) -> None:
        made: dict[str, Any] = vars(self)
        if "_model" in made:
            self._model.close()
