"""Assembly: what the conversations of one process share, and how an agent is put together from it.

Settings, store, plugins, tools and models are made once; a model is closed by its owner here, not by the
conversations that use it.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Protocol, cast

import msgspec

from hermes_agent.agent import Agent
from hermes_agent.hooks import Hooks
from hermes_agent.memory import MemoryProvider
from hermes_agent.models import discovery
from hermes_agent.models.base import Facts, Model, Reply, Request
from hermes_agent.models.providers import OURS, Provider, Providers
from hermes_agent.models.registry import Registry
from hermes_agent.permissions import Permissions, has_notes
from hermes_agent.tools.registry import PluginTool, Toolbox, default_tools, plugin_tools
from hermes_agent.turn.events import Sink
from hermes_agent.turn.stop import Stop
from hermes_agent.turn.values import Deliver, deliver_nothing
from hermes_core import config, secrets
from hermes_core.paths import Home
from hermes_core.settings import Settings
from hermes_state.store import Store

logger = logging.getLogger(__name__)


class Factory(Protocol):
    """A model or a memory provider as a plugin registers it."""

    @property
    def factory(self) -> Callable[..., object]: ...


class RegisteredProvider(Protocol):
    """A provider of models as a plugin registers it."""

    @property
    def provider(self) -> Provider: ...


class Plugins(Hooks, Protocol):
    """The plugin host as the agent needs it; the module `hermes_cli.plugins` fits."""

    def load_enabled(self, home: Home, settings: Settings) -> None: ...
    def tools(self) -> Mapping[str, PluginTool]: ...
    def models(self) -> Mapping[str, Factory]: ...
    def providers(self) -> Mapping[str, RegisteredProvider]: ...
    def memory_providers(self) -> Mapping[str, Factory]: ...


class SharedModel:
    """A model that conversations share; closing a conversation does not close it."""

    def __init__(self, model: Model) -> None:
        self.owned = model

    @property
    def facts(self) -> Facts:
        return self.owned.facts

    def ask(self, request: Request, stop: Stop, report: Sink) -> Reply:
        return self.owned.ask(request, stop, report)

    def close(self) -> None:
        """Its owner does that."""


class Assembly:
    """Everything that conversations of one process share. May be used from several threads."""

    def __init__(self, home: Home, settings: Settings, store: Store, plugins: Plugins) -> None:
        """From now on secrets are kept back, and the enabled plugins listen."""
        self.home = home
        self.settings = settings
        self.store = store
        self.plugins = plugins
        self._lock = threading.RLock()
        self._models: dict[str, SharedModel] = {}
        secrets.register(config.secrets(settings))
        plugins.load_enabled(home, settings)

    @cached_property
    def toolbox(self) -> Toolbox:
        tools = [*default_tools(self.settings), *plugin_tools(self.plugins.tools())]
        return Toolbox(tools, self.settings.tools.disabled)

    def registry(self, name: str = "") -> Registry:
        """Return the registry of models, with the model of this name chosen if one is given."""
        providers = Providers(row.provider for row in self.plugins.providers().values())
        settings = with_model(self.settings, name, providers) if name else self.settings
        return Registry(
            settings.model,
            providers.credentials(),
            self.home,
            plugins={name: model.factory for name, model in self.plugins.models().items()},
            providers=providers,
            ports=discovery.PORTS,
            probe_timeout_s=discovery.PROBE_TIMEOUT_S,
        )

    def model(self, name: str = "") -> SharedModel:
        """Return the model of this name, or that of the settings; raises ModelError."""
        with self._lock:
            if name not in self._models:
                self._models[name] = SharedModel(self.registry(name).build())
            return self._models[name]

    def agent(
        self,
        session_id: str | None,
        *,
        source: str,
        workspace: Path,
        sink: Sink,
        can_ask: bool = True,
        model_name: str = "",
        deliver: Deliver = deliver_nothing,
        permissions: Permissions | None = None,
    ) -> Agent:
        """Make the agent of a conversation, new or stored.

        `permissions` bound what the agent may see, do and spend for a person of a messenger.
        """
        with self._lock:
            model, toolbox = self.model(model_name), self.toolbox
        return Agent(
            model,
            toolbox,
            self.store,
            self.settings,
            self.home,
            hooks=self.plugins,
            session_id=session_id,
            source=source,
            workspace=workspace,
            can_ask=can_ask,
            sink=sink,
            deliver=deliver,
            memory=self.memory(permissions),
            permissions=permissions,
        )

    def memory(self, permissions: Permissions | None) -> list[MemoryProvider]:
        """Make the memory providers of a conversation; one that cannot be made harms only itself."""
        providers: list[MemoryProvider] = []
        if not has_notes(permissions):
            return providers
        for name, provider in self.plugins.memory_providers().items():
            try:
                providers.append(cast("MemoryProvider", provider.factory()))
            except Exception:
                logger.exception("Memory provider %s could not be made", name)
        return providers

    def renew(self, settings: Settings) -> None:
        """Make what follows with other settings; conversations that are open keep what they have."""
        with self._lock:
            if settings.model != self.settings.model:
                self._models = {}  # those in use live on with their conversations
            self.settings = settings
            vars(self).pop("toolbox", None)

    def close(self) -> None:
        """Release the models."""
        with self._lock:
            for model in self._models.values():
                model.owned.close()
            self._models = {}


def with_model(settings: Settings, name: str, providers: Providers = OURS) -> Settings:
    """The settings with another model; who serves it is found out anew, unless there is one server."""
    model, head = settings.model, name.partition("/")[0]
    if discovery.is_own(model, name, providers):
        return settings
    is_elsewhere = head in providers and head != discovery.own_provider(model, providers)
    base_url = "" if is_elsewhere else model.base_url
    chosen = msgspec.structs.replace(
        model, name=name, base_url=base_url, provider=model.provider if base_url else ""
    )
    return msgspec.structs.replace(settings, model=chosen)
