"""Build the model that answers from the settings; every surface gets it here."""

import contextlib
import importlib
import logging
from collections.abc import Callable, Generator, Mapping
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast

import msgspec

from hermes_agent.models import model_facts
from hermes_agent.models.base import Facts, Model, Reply, Request
from hermes_agent.models.discovery import (
    PORTS,
    PROBE_TIMEOUT_S,
    Discovery,
    Finding,
    key_of,
    server_at,
)
from hermes_agent.models.fallback import FallbackModel
from hermes_agent.models.model_facts import ServerFacts
from hermes_agent.models.providers import (
    ADAPTERS,
    BUILT_IN,
    OURS,
    Credentials,
    Provider,
    Providers,
)
from hermes_agent.models.retry import RetryingModel
from hermes_agent.turn.events import Sink
from hermes_agent.turn.stop import Stop
from hermes_cli.plugin_calls import is_user_interrupt
from hermes_core.errors import (
    BudgetSpent,
    HermesError,
    Interrupted,
    ModelError,
    ModelMissingError,
    describe_error,
)
from hermes_core.loading import loading
from hermes_core.paths import Home
from hermes_core.settings import ModelSettings

logger = logging.getLogger(__name__)

_FACTS_TIMEOUT_S = 2.0
"""For asking a server about its model; without an answer a guess is used."""

Factory = Callable[..., object]
Value = TypeVar("Value")


def names() -> frozenset[str]:
    """Return the names that plugins may not give their models."""
    return frozenset(provider.name for provider in BUILT_IN if provider.is_in_process)


class Registry:
    """Build models from what discovery finds."""

    def __init__(
        self,
        settings: ModelSettings,
        credentials: Credentials,
        home: Home,
        *,
        plugins: Mapping[str, Factory] | None = None,
        providers: Providers = OURS,
        ports: Mapping[int, str] = PORTS,
        probe_timeout_s: float = PROBE_TIMEOUT_S,
    ) -> None:
        """`probe_timeout_s` is for asking each local server what it has."""
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
            probe_timeout_s=probe_timeout_s,
        )

    def build(self) -> Model:
        """Build the first model and its fallbacks, which are built when they are needed."""
        first = self._first(self.discovery.chosen())
        return FallbackModel([first, *(self._lazy(name) for name in self._settings.fallbacks)])

    def _first(self, finding: Finding) -> Model:
        """Build the chosen model; if its plugin fails to, a fallback answers."""
        try:
            return self.make(finding)
        except ModelError as error:
            if self.provider(finding).adapter != "plugin" or not self._settings.fallbacks:
                raise
            return UnavailableModel(self.facts(finding, ServerFacts()), error)

    def make(self, finding: Finding) -> Model:
        """Build the model of a finding."""
        provider = self.provider(finding)
        if provider.adapter == "plugin":
            return RetryingModel(self._from_plugin(finding.model), retries=self._settings.retries)
        if provider.is_in_process:
            window = self._settings.context_window
            model = provider.load_models().open_model(self._home, finding.model, window)
        else:
            model = self._remote(finding, provider)
        return _small(model) if model.facts.is_small else model

    def provider(self, finding: Finding) -> Provider:
        """Return the provider of a finding."""
        return self.discovery.providers.get(finding.provider)

    def facts(self, finding: Finding, served: ServerFacts) -> Facts:
        """Return what is known about a model, given what its server says."""
        return model_facts.facts_for(finding.model, self.provider(finding), self._settings, served)

    def server_facts(self, finding: Finding) -> ServerFacts:
        """Ask the server about the model, where it knows better than the table."""
        if not self._is_asked(finding):
            return ServerFacts()
        key = key_of(finding.key_name, self._settings, self._credentials)
        server = server_at(finding.base_url, key, _FACTS_TIMEOUT_S)
        try:
            served = next((s for s in server.models() if s.name == finding.model), None)
            return server.facts(served) if served is not None else ServerFacts()
        except ModelError:
            return ServerFacts()  # the first request to the model will say what is wrong
        finally:
            server.close()

    def _is_asked(self, finding: Finding) -> bool:
        provider = self.provider(finding)
        if not provider.lists_facts:
            return False
        if self._settings.context_window and self._settings.small != "auto":
            return False
        return provider.is_local or model_facts.find_row(finding.model, provider) is None

    def _remote(self, finding: Finding, provider: Provider) -> Model:
        model = self._adapter(finding, provider, self.server_facts(finding))
        if advice := model.facts.window_advice:
            logger.info("%s", advice)
        return RetryingModel(model, retries=self._settings.retries)

    def _adapter(self, finding: Finding, provider: Provider, served: ServerFacts) -> "RemoteModel":
        module, _, name = ADAPTERS[provider.adapter].partition(":")
        with loading:
            adapter = getattr(importlib.import_module(module), name)
        return adapter(
            self.facts(finding, served),
            provider=provider,
            base_url=finding.base_url,
            api_key=key_of(finding.key_name, self._settings, self._credentials),
            key_name=finding.key_name,
            timeout_s=self._settings.timeout_s,
        )

    def model_names(self, finding: Finding) -> list[str]:
        """Ask the provider of a finding which models it has for chats, in its order.

        Returns none where it does not tell them. Raises ModelError when it cannot be reached.
        """
        provider = self.provider(finding)
        if provider.adapter not in ADAPTERS:
            return [finding.model, *finding.others]
        model = self._adapter(finding, provider, ServerFacts())
        try:
            return provider.for_chats(model.model_names())
        finally:
            model.close()

    def _from_plugin(self, name: str) -> Model:
        try:
            with _plugin_errors(name):
                model = self._plugins[name]()
                facts = getattr(model, "facts", None)
        except ModelError:
            raise
        except (HermesError, Interrupted, BudgetSpent) as error:
            if isinstance(error, HermesError) and not self._settings.fallbacks:
                raise  # it explains itself
            raise _plugin_error(name, error) from error
        if not isinstance(facts, Facts):
            raise ModelError(f"The model {name} of a plugin is not a valid model: it has no facts.")
        return PluginModel(name, cast("Model", model), _checked(name, "facts", facts, Facts))

    def _lazy(self, name: str) -> Model:
        return LazyModel(lambda: self.make(self._fallback(name)))

    def _fallback(self, name: str) -> Finding:
        try:
            return self.discovery.named(name)
        except ModelMissingError as error:
            error.message = f"model.fallbacks names {name}: {error.message}"
            raise


def _small(model: Model) -> Model:
    from hermes_agent.models.small import SmallModel  # noqa: PLC0415 -- only weak models need it

    return SmallModel(model)


class RemoteModel(Model, Protocol):
    """A model behind an address, which can list the others there."""

    def model_names(self) -> list[str]: ...


class PluginModel:
    """A model of a plugin; whatever it raises becomes a ModelError, so a fallback may answer."""

    def __init__(self, name: str, model: Model, facts: Facts) -> None:
        self._name = name
        self._model = model
        self.facts = facts

    def ask(self, request: Request, stop: Stop, report: Sink) -> Reply:
        with _plugin_errors(self._name):
            reply = self._model.ask(request, stop, report)
        return _checked(self._name, "reply", reply, Reply)

    def close(self) -> None:
        with (
            contextlib.suppress(HermesError, Interrupted, BudgetSpent),
            _plugin_errors(self._name),
        ):
            self._model.close()


@contextlib.contextmanager
def _plugin_errors(name: str) -> Generator[None]:
    """Make a ModelError of whatever a model of a plugin raises, unless it is an error of ours."""
    try:
        yield
    except (HermesError, Interrupted, BudgetSpent):
        raise
    except BaseException as error:
        if is_user_interrupt(error):
            raise
        logger.exception("The model %s of a plugin failed", name)
        raise _plugin_error(name, error) from error


def _plugin_error(name: str, error: BaseException) -> ModelError:
    return ModelError(f"The model {name} of a plugin failed. {describe_error(error)}")


def _checked(name: str, what: str, value: object, kind: type[Value]) -> Value:
    """Check the types of what a model of a plugin returned; raises ModelError."""
    try:
        if not isinstance(value, kind):
            raise TypeError(f"a {type(value).__name__} in place of a {kind.__name__}")
        return msgspec.convert(msgspec.to_builtins(value), kind)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        message = f"The {what} of the model {name} of a plugin cannot be used: {error}."
        raise ModelError(message) from error


class UnavailableModel:
    """A model that could not be built; every request raises the reason."""

    def __init__(self, facts: Facts, error: ModelError) -> None:
        self.facts = facts
        self._error = error

    def ask(self, request: Request, stop: Stop, report: Sink) -> Reply:
        del request, stop, report
        raise ModelError(self._error.message, fix=self._error.fix) from self._error

    def close(self) -> None: ...


class LazyModel:
    """A model that is built on its first use; most fallbacks have none."""

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
        attributes: dict[str, Any] = vars(self)
        if "_model" in attributes:
            self._model.close()
