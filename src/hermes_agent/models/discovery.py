"""Find the models that can be asked from this machine, and choose one.

In this order: what the settings name; a key or an address in the environment; a local server on its
usual port; a model that runs in this process. Servers are asked only when nothing before them decided.
"""

import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from hermes_agent.models.providers import (
    LOCAL,
    OURS,
    PLUGIN,
    STORED_KEY,
    Credentials,
    Provider,
    Providers,
)
from hermes_core.errors import ModelError, ModelMissingError
from hermes_core.paths import Home
from hermes_core.settings import ModelSettings

if TYPE_CHECKING:
    from hermes_agent.models.servers import Server

PORTS: Mapping[int, str] = {11434: "Ollama", 8080: "llama.cpp", 1234: "LM Studio", 8000: "vLLM"}
"""Where local servers usually listen."""
PROBE_TIMEOUT_S = 0.3
"""For asking a local server what it has."""
_LIST_TIMEOUT_S = 1.0
"""For asking the server of the settings what it has, to choose from."""
_OWN_KEY = "model.api_key"


class Finding(msgspec.Struct, frozen=True):
    """A model that can be asked: where it is, and why it is considered."""

    provider: str
    """A name in the table of providers, or the host of another service."""
    model: str
    """Empty: there is a place, but no model can be used there; the reason says why."""
    reason: str
    base_url: str = ""
    key_name: str = ""
    """The variable or setting with the key; empty: none is needed."""
    others: list[str] = []
    """Further models at the same place."""

    @property
    def label(self) -> str:
        """The name under which it can be chosen."""
        return f"{self.provider}/{self.model}"


class Discovery:
    """Search once and keep the findings."""

    def __init__(
        self,
        settings: ModelSettings,
        credentials: Credentials,
        home: Home,
        *,
        plugins: Collection[str] = (),
        providers: Providers = OURS,
        ports: Mapping[int, str] = PORTS,
        probe_timeout_s: float = PROBE_TIMEOUT_S,
    ) -> None:
        """`plugins` are the names of the models that plugins have registered."""
        self._settings = settings
        self._credentials = credentials
        self._home = home
        self._plugins = plugins
        self.providers = providers
        self._ports = ports
        self._patience_s = probe_timeout_s

    def chosen(self) -> Finding:
        """Return the model to use; raises ModelMissingError when there is none."""
        settings = self._settings
        if settings.name or settings.provider or settings.base_url:
            return self.named(settings.name, settings.provider, settings.base_url)
        for look in self._searches():
            for finding in look():
                return finding
        raise ModelMissingError(
            "There is no model.",
            fix="Run `hermes setup`, or download the built-in model with `hermes model pull`."
            f" {self.providers.step_up()}",
        )

    @property
    def is_download_next(self) -> bool:
        """Tell whether a downloaded model would answer if there were one."""
        settings = self._settings
        in_process = {provider.name for provider in self.providers.in_process}
        if not in_process.isdisjoint((settings.name, settings.provider)):
            return True
        is_configured = settings.name or settings.provider or settings.base_url or settings.keys
        return not (is_configured or self._credentials)

    def found(self) -> list[Finding]:
        """Return all findings, in the order in which they would be used."""
        everything: list[Finding] = []
        for look in (self._at_own_address, *self._searches()):
            try:
                everything += look()
            except ModelMissingError as error:
                everything.append(Finding("", "", error.message))
        plugins = (Finding(PLUGIN, name, "a plugin offers it") for name in sorted(self._plugins))
        return [*everything, *plugins]

    def named(self, name: str, provider: str = "", base_url: str = "") -> Finding:
        """Return the model of that name (`provider/model` or `model`); raises ModelMissingError."""
        is_label = name.startswith("local/")
        provider, name = self._provider_of(name, provider, base_url)
        if provider == PLUGIN:
            return Finding(PLUGIN, name, "the settings name it")
        if self.providers.get(provider).is_in_process:
            return self._named_in_process(provider, name)
        if provider == LOCAL:
            return self._labelled(name, base_url) if is_label else self._named_local(name, base_url)
        return self._named_service(provider, name, base_url)

    def _searches(self) -> list[Callable[[], Iterable[Finding]]]:
        """Return the searches in order; each may take a moment."""
        hosted = [partial(self._with_key, provider) for provider in self.providers.hosted]
        return [
            *hosted,
            lambda: self.local,
            self._in_process,
        ]

    def _at_own_address(self) -> list[Finding]:
        """List the models at the address that the settings name: the one they name, and the others.

        A service that is well known has too many to list, and one that is down has what is named.
        """
        settings = self._settings
        provider = own_provider(settings, self.providers)
        if not provider or self.providers.get(provider).base_url:
            return []
        key_name = self._key_at(settings.base_url, provider)
        key = key_of(key_name, settings, self._credentials)
        names = _names_at(settings.base_url, key, _LIST_TIMEOUT_S)
        if own := self.providers.strip(provider, settings.name):
            names = [own, *(name for name in names if name != own)]
        reason = "model.base_url is set"
        return [
            Finding(provider, name, reason, settings.base_url, key_name, names[1:])
            for name in names[:1]
        ]

    def _with_key(self, provider: Provider) -> list[Finding]:
        for variable in (provider.address_variable, provider.key_variable):
            if variable in self._credentials:
                return [self._hosted(provider, "", f"{variable} is set")]
        if provider.name in self._settings.keys:
            return [self._hosted(provider, "", "hermes login stored a key")]
        return []

    @cached_property
    def local(self) -> list[Finding]:
        """The local servers that answer and have a model."""
        answers: dict[int, Finding] = {}

        def ask(port: int, kind: str) -> None:
            base_url = f"http://127.0.0.1:{port}/v1"
            if names := _names_at(base_url, "", self._patience_s):
                reason = f"{kind} answers on port {port}"
                answers[port] = Finding(LOCAL, names[0], reason, base_url, others=names[1:])

        threads = [
            threading.Thread(target=ask, args=item, daemon=True) for item in self._ports.items()
        ]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 3 * self._patience_s
        for thread in threads:  # one that answers byte by byte is not waited for
            thread.join(max(end - time.monotonic(), 0))
        return [answers[port] for port in self._ports if port in answers]

    def _in_process(self) -> list[Finding]:
        return [
            Finding(provider, names[0], "it is downloaded", others=names[1:])
            for provider, names in self._installed.items()
            if names
        ]

    @cached_property
    def _installed(self) -> Mapping[str, list[str]]:
        """The downloaded models of each provider whose models run in this process."""
        return {
            provider.name: provider.load_models().installed(self._home)
            for provider in self.providers.in_process
        }

    def _provider_of(self, name: str, provider: str, base_url: str) -> tuple[str, str]:
        """Return who serves a name, and what it is called there."""
        if provider:
            return provider, self.providers.strip(provider, name)
        if name in self._plugins:
            return PLUGIN, name
        for in_process, names in self._installed.items():
            if name == in_process or name in names:
                return in_process, "" if name == in_process else name
        head = name.partition("/")[0]
        if base_url and self.providers.get(head).adapter == "openai":
            host = self.providers.at(base_url)
            return host, self.providers.strip(host, name.removeprefix(f"{LOCAL}/"))
        if head in self.providers:
            if router := self._router_for(head):
                return router, name
            return head, self.providers.strip(head, name)
        if head == self._standard_host:
            return self.providers.standard.name, self.providers.strip(head, name)
        return self._guessed(name), name

    @property
    def _standard_host(self) -> str:
        """The provider whose address stands in the variable for any server; mostly empty."""
        address = self._credentials.get(self.providers.standard.address_variable, "")
        return self.providers.at(address) if address else ""

    def _router_for(self, name: str) -> str:
        """Return the router to ask for the models of a provider that has no key here; or nothing."""
        provider = self.providers.get(name)
        if not provider.base_url or provider.is_router or self._is_configured(provider):
            return ""
        return self._router

    @property
    def _router(self) -> str:
        """The router that there is a key for."""
        routers = (p.name for p in self.providers if p.is_router and self._is_configured(p))
        return next(routers, "")

    def _is_configured(self, provider: Provider) -> bool:
        return provider.name in self._settings.keys or not self._credentials.keys().isdisjoint(
            (provider.key_variable, provider.address_variable)
        )

    def _guessed(self, name: str) -> str:
        """Return who probably serves a name."""
        standard, has_address = self.providers.standard, bool(self._standard_host)
        for provider in self.providers.hosted:
            is_its = provider.model_pattern and re.match(
                provider.model_pattern, name, re.IGNORECASE
            )
            has_key = self._key_name(provider, provider.base_url)
            if is_its and (has_key or not has_address):
                return provider.name
        if has_address:
            return standard.name
        return (self._router if "/" in name else "") or LOCAL

    def _named_in_process(self, provider: str, name: str) -> Finding:
        installed = self._installed[provider]
        if not installed:
            raise ModelMissingError(
                f"The {provider} model is not downloaded yet.",
                fix=f"Download it with `hermes model pull`. {self.providers.step_up()}",
            )
        if name and name not in installed:
            raise ModelMissingError(
                f"There is no {provider} model {name}.",
                fix=f"Use one of: {', '.join(installed)}. `hermes model pull` fetches others.",
            )
        return Finding(provider, name or installed[0], "the settings name it")

    def _labelled(self, name: str, base_url: str) -> Finding:
        """List models as `local/name`: at a configured address, or on a usual port."""
        variable = self.providers.standard.address_variable
        addresses = {"model.base_url": base_url, variable: self._credentials.get(variable, "")}
        near = {
            url: why for why, url in addresses.items() if url and self.providers.at(url) == LOCAL
        }
        for url, why in near.items():
            key = key_of(self._key_at(url, LOCAL), self._settings, self._credentials)
            if name in _names_at(url, key, self._patience_s):
                return self._at(url, name, f"{why} is set", LOCAL)
        is_elsewhere = any(name in (found.model, *found.others) for found in self.local)
        return self._named_local(name, "" if is_elsewhere else base_url)

    def _named_local(self, name: str, base_url: str) -> Finding:
        if base_url:
            return self._at(base_url, name, "model.base_url is set", LOCAL)
        for finding in self.local:
            names = [finding.model, *finding.others]
            for served in (name or names[0], f"{name}:latest"):
                if served in names:
                    names.remove(served)
                    return msgspec.structs.replace(finding, model=served, others=names)
        there = ", ".join(m for f in self.local for m in (f.model, *f.others)) or "none"
        subject = f"the model {name}" if name else "a model"
        raise ModelMissingError(
            f"No local server has {subject}; models found: {there}.",
            fix="Start the server, set model.base_url, or write provider/model"
            f" ({', '.join(f'{provider.name}/…' for provider in self.providers.hosted)}).",
        )

    def _named_service(self, name: str, model: str, base_url: str) -> Finding:
        provider = self.providers.get(name)
        if not base_url and provider.base_url:
            return self._hosted(provider, model, "the settings name it")
        if not base_url:
            raise ModelMissingError(
                f"{name} is not a known provider.",
                fix=f"Use one of these, or set model.base_url: {', '.join(self._nameable())}.",
            )
        return self._at(base_url, model, "model.base_url is set", name)

    def _nameable(self) -> list[str]:
        return [provider.name for provider in self.providers if provider.name != PLUGIN]

    def _hosted(self, provider: Provider, model: str, reason: str) -> Finding:
        """A model of a well-known service, at the address that the environment may give."""
        address = self._credentials.get(provider.address_variable, "")
        key_name = self._key_name(provider, address or provider.base_url)
        if address and provider.is_standard:
            return self._at(address, model, reason)
        if not key_name and not address:
            raise ModelMissingError(
                f"There is no key for {provider.name}.",
                fix=f"Run `hermes login {provider.name}`, set {provider.key_variable or _OWN_KEY},"
                " or choose another model with `hermes model use`.",
            )
        base_url = address or provider.base_url
        if not model and not provider.default_model:
            return self._at(base_url, "", reason, provider.name)
        return Finding(provider.name, model or provider.default_model, reason, base_url, key_name)

    def _key_name(self, provider: Provider, base_url: str) -> str:
        """Return where the key of a service is; empty when there is none.

        A stored key was given for the provider's own address, so it goes to no other.
        """
        if self._settings.api_key and self._settings.provider == provider.name:
            return _OWN_KEY
        if provider.key_variable in self._credentials:
            return provider.key_variable
        is_stored = provider.name in self._settings.keys
        if is_stored and urlsplit(base_url).netloc == urlsplit(provider.base_url).netloc:
            return f"{STORED_KEY}{provider.name}"
        return ""

    def _key_at(self, base_url: str, name: str) -> str:
        """A key goes to the address it was given for, and to no other."""
        if self._settings.api_key and base_url == self._settings.base_url:
            return _OWN_KEY
        provider, standard = self.providers.get(name), self.providers.standard
        if provider.key_variable:
            return self._key_name(provider, base_url)
        is_given = base_url == self._credentials.get(standard.address_variable)
        is_there = standard.key_variable in self._credentials
        return standard.key_variable if is_given and is_there else ""

    def _at(self, base_url: str, model: str, reason: str, name: str = "") -> Finding:
        """A model at an address; without a name, the first that is listed there."""
        name = name or self.providers.at(base_url)
        key_name = self._key_at(base_url, name)
        model = model or self.providers.get(name).default_model
        if model:
            return Finding(name, model, reason, base_url, key_name)
        names = _names_at(base_url, key_of(key_name, self._settings, self._credentials), 3.0)
        if not names:
            raise ModelMissingError(
                f"{base_url} does not say which models it has.",
                fix="Start it, correct the address, or name the model: hermes model use NAME.",
            )
        return Finding(name, names[0], reason, base_url, key_name, names[1:])


def own_provider(settings: ModelSettings, providers: Providers = OURS) -> str:
    """Return the provider at the address in the settings; empty when there is none."""
    return (settings.provider or providers.at(settings.base_url)) if settings.base_url else ""


def is_own(settings: ModelSettings, name: str, providers: Providers = OURS) -> bool:
    """Tell whether a name is that of the settings' own model, or its label."""
    provider = own_provider(settings, providers)
    return bool(provider) and providers.strip(provider, name) == providers.strip(
        provider, settings.name
    )


def key_of(key_name: str, settings: ModelSettings, credentials: Credentials) -> str:
    """Return the key of this name."""
    if not key_name:
        return ""
    if key_name.startswith(STORED_KEY):
        return settings.keys[key_name.removeprefix(STORED_KEY)]
    return settings.api_key if key_name == _OWN_KEY else credentials[key_name]


def server_at(base_url: str, key: str, probe_timeout_s: float) -> "Server":
    """Return a client for questions about models."""
    from hermes_agent.models.servers import Server  # noqa: PLC0415 -- brings the HTTP library

    return Server(base_url, key, probe_timeout_s=probe_timeout_s)


def _names_at(base_url: str, key: str, probe_timeout_s: float) -> list[str]:
    """Return the models that can chat at an address; none when there is no answer."""
    server = server_at(base_url, key, probe_timeout_s)
    try:
        return [served.name for served in server.models() if "embed" not in served.name.lower()]
    except ModelError:
        return []
    finally:
        server.close()
