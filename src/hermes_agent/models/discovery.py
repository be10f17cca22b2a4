"""Which models there are on this machine, which one is used, and why.

In this order: what the settings name; a key or an address in the environment; a local server on its
usual port; the embedded model. Servers are asked only when nothing before them decided.
"""

import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from hermes_agent.models import windows
from hermes_core.config import Credentials
from hermes_core.errors import ModelError, ModelMissingError
from hermes_core.paths import Home
from hermes_core.settings import ModelSettings

if TYPE_CHECKING:
    from hermes_agent.models.servers import Server

PORTS: Mapping[int, str] = {11434: "Ollama", 8080: "llama.cpp", 1234: "LM Studio", 8000: "vLLM"}
"""Where local servers usually listen."""
PATIENCE_S = 0.3
"""How long a local server may take to say what it has."""
_LISTING_S = 1.0
"""How long the server of the settings may take to say what it has, for who chooses among it."""
_ADDRESSES = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "openrouter": "https://openrouter.ai/api/v1",
}
PROVIDERS = (*_ADDRESSES, "local", "embedded")
"""What may stand before the slash in the name of a model."""
_KEYS = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
}
_OWN_KEY = "model.api_key"
_GPT = re.compile(r"(?:gpt-(?!oss)|o\d\b|chatgpt)", re.IGNORECASE)
_STEP_UP = (
    "Or set OPENAI_API_KEY, ANTHROPIC_API_KEY or OPENROUTER_API_KEY, or start a local server."
)


class Finding(msgspec.Struct, frozen=True):
    """A model that can be asked: where it is, and why it is considered."""

    provider: str
    """openai, anthropic, openrouter, local, embedded, plugin, or the host of another service."""
    model: str
    """Empty: there is a place, but no model can be used there; the reason says why."""
    reason: str
    base_url: str = ""
    key_name: str = ""
    """The variable or setting with the key; empty: none is needed."""
    others: list[str] = []
    """Further models at the same place."""

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine or in this house, and costs nothing."""
        return self.provider in ("local", "embedded")

    @property
    def label(self) -> str:
        """The name under which it can be chosen."""
        return f"{self.provider}/{self.model}"


class Discovery:
    """Looks around once; what was found is kept."""

    def __init__(
        self,
        settings: ModelSettings,
        credentials: Credentials,
        home: Home,
        *,
        plugins: Collection[str] = (),
        ports: Mapping[int, str] = PORTS,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`plugins` are the names of the models that plugins have registered."""
        self._settings = settings
        self._credentials = credentials
        self._home = home
        self._plugins = plugins
        self._ports = ports
        self._patience_s = patience_s

    def chosen(self) -> Finding:
        """The model that is used; raises ModelMissingError when there is none."""
        wanted = self._settings
        if wanted.name or wanted.provider or wanted.base_url:
            return self.named(wanted.name, wanted.provider, wanted.base_url)
        for look in self._places():
            for finding in look():
                return finding
        raise ModelMissingError(
            "There is no model to ask.",
            fix=f"Fetch the small one that runs here with `hermes model pull`. {_STEP_UP}",
        )

    def found(self) -> list[Finding]:
        """Everything there is, in the order in which it would be used."""
        everything: list[Finding] = []
        for look in (self._at_own_address, *self._places()):
            try:
                everything += look()
            except ModelMissingError as error:
                everything.append(Finding("", "", error.message))
        plugins = (Finding("plugin", name, "a plugin offers it") for name in sorted(self._plugins))
        return [*everything, *plugins]

    def named(self, name: str, provider: str = "", base_url: str = "") -> Finding:
        """The model of that name (`provider/model` or `model`); raises ModelMissingError."""
        is_label = name.startswith("local/")
        provider, name = self._sorted_out(name, provider, base_url)
        if provider == "plugin":
            return Finding("plugin", name, "the settings name it")
        if provider == "embedded":
            return self._named_embedded(name)
        if provider == "local":
            return self._labelled(name, base_url) if is_label else self._named_local(name, base_url)
        return self._named_service(provider, name, base_url)

    def _places(self) -> list[Callable[[], Iterable[Finding]]]:
        """Where to look, in order; each is a question that may take a moment."""
        return [
            lambda: self._in_environment("openai"),
            lambda: self._in_environment("anthropic"),
            lambda: self._in_environment("openrouter"),
            lambda: self.local,
            lambda: [
                Finding("embedded", name, "it was pulled", others=self._embedded[1:])
                for name in self._embedded[:1]
            ],
        ]

    def _at_own_address(self) -> list[Finding]:
        """What there is at the address that the settings name: the model they name, and the others.

        A service that is well known has too many to list, and one that is down has what is named.
        """
        wanted = self._settings
        provider = own_provider(wanted)
        if not provider or provider in _ADDRESSES:
            return []
        key_name = self._key_at(wanted.base_url, provider)
        key = key_of(key_name, wanted, self._credentials)
        names = _names_at(wanted.base_url, key, _LISTING_S)
        if own := _without(provider, wanted.name):
            names = [own, *(name for name in names if name != own)]
        reason = "model.base_url is set"
        return [
            Finding(provider, name, reason, wanted.base_url, key_name, names[1:])
            for name in names[:1]
        ]

    def _in_environment(self, provider: str) -> list[Finding]:
        for variable in (f"{provider}_base_url", f"{provider}_api_key"):
            if getattr(self._credentials, variable, ""):
                return [self._hosted(provider, "", f"{variable.upper()} is set")]
        return []

    @cached_property
    def local(self) -> list[Finding]:
        """The local servers that answer and have a model."""
        answers: dict[int, Finding] = {}

        def ask(port: int, kind: str) -> None:
            base_url = f"http://127.0.0.1:{port}/v1"
            if names := _names_at(base_url, "", self._patience_s):
                reason = f"{kind} answers on port {port}"
                answers[port] = Finding("local", names[0], reason, base_url, others=names[1:])

        threads = [
            threading.Thread(target=ask, args=item, daemon=True) for item in self._ports.items()
        ]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 3 * self._patience_s
        for thread in threads:  # one that answers byte by byte is not waited for
            thread.join(max(end - time.monotonic(), 0))
        return [answers[port] for port in self._ports if port in answers]

    @cached_property
    def _embedded(self) -> list[str]:
        if not self._home.models.is_dir():
            return []
        from hermes_agent.models.embedded import shelf  # noqa: PLC0415 -- hashing and more, rarely needed

        return shelf.installed(self._home)

    def _sorted_out(self, name: str, provider: str, base_url: str) -> tuple[str, str]:
        """Who serves a name, and what it is called there."""
        if provider:
            return provider, _without(provider, name)
        if name in self._plugins:
            return "plugin", name
        if name == "embedded" or name in self._embedded:
            return "embedded", "" if name == "embedded" else name
        head = name.partition("/")[0]
        if base_url and head not in ("anthropic", "embedded"):
            host = _host_of(base_url)
            return host, _without(host, _without("local", name))
        if head in PROVIDERS:
            if head in ("openai", "anthropic") and self._only_router_has(head):
                return "openrouter", name
            return head, _without(head, name)
        given = self._credentials.openai_base_url
        if given and head == _host_of(given):
            return "openai", _without(head, name)
        return self._guessed(name), name

    def _only_router_has(self, provider: str) -> bool:
        known = self._credentials
        is_reachable = known.openai_api_key or known.openai_base_url
        if provider == "anthropic":
            is_reachable = known.anthropic_api_key or known.anthropic_base_url
        return bool(known.openrouter_api_key) and not is_reachable

    def _guessed(self, name: str) -> str:
        known = self._credentials
        is_claude = name.lower().startswith("claude")
        if is_claude and (known.anthropic_api_key or not known.openai_base_url):
            return "anthropic"
        if known.openai_base_url or _GPT.match(name):
            return "openai"
        return "openrouter" if "/" in name and known.openrouter_api_key else "local"

    def _named_embedded(self, name: str) -> Finding:
        if not self._embedded:
            raise ModelMissingError(
                "The embedded model is not here yet.",
                fix=f"Fetch it with `hermes model pull`. {_STEP_UP}",
            )
        if name and name not in self._embedded:
            raise ModelMissingError(
                f"There is no embedded model {name}.",
                fix=f"Use one of: {', '.join(self._embedded)}. `hermes model pull` fetches others.",
            )
        return Finding("embedded", name or self._embedded[0], "the settings name it")

    def _labelled(self, name: str, base_url: str) -> Finding:
        """What is listed as `local/name`: at an address that was given, or on a usual port."""
        given = {"model.base_url": base_url, "OPENAI_BASE_URL": self._credentials.openai_base_url}
        near = {url: why for why, url in given.items() if url and _host_of(url) == "local"}
        for url, why in near.items():
            key = key_of(self._key_at(url, "local"), self._settings, self._credentials)
            if name in _names_at(url, key, self._patience_s):
                return self._at(url, name, f"{why} is set", "local")
        is_elsewhere = any(name in (found.model, *found.others) for found in self.local)
        return self._named_local(name, "" if is_elsewhere else base_url)

    def _named_local(self, name: str, base_url: str) -> Finding:
        if base_url:
            return self._at(base_url, name, "model.base_url is set", "local")
        for finding in self.local:
            names = [finding.model, *finding.others]
            for served in (name or names[0], f"{name}:latest"):
                if served in names:
                    names.remove(served)
                    return msgspec.structs.replace(finding, model=served, others=names)
        there = ", ".join(m for f in self.local for m in (f.model, *f.others)) or "none"
        asked = f"the model {name}" if name else "a model"
        raise ModelMissingError(
            f"No local server has {asked}; models found: {there}.",
            fix="Start the server, set model.base_url, or write provider/model"
            " (openai/…, anthropic/…, openrouter/…).",
        )

    def _named_service(self, provider: str, name: str, base_url: str) -> Finding:
        if provider in _ADDRESSES and not base_url:
            return self._hosted(provider, name, "the settings name it")
        return self._at(base_url, name, "model.base_url is set", provider)

    def _hosted(self, provider: str, name: str, reason: str) -> Finding:
        """A model of a well-known service, at the address the environment may give."""
        base_url = _ADDRESSES[provider]
        own: str = getattr(self._credentials, f"{provider}_base_url", "")
        key_name = self._key_name(provider)
        if own and provider == "openai":
            return self._at(own, name, reason)
        if not key_name and not own:
            raise ModelMissingError(
                f"{provider} is to be asked and there is no key for it.",
                fix=f"Set {_KEYS[provider]}, or choose another model with `hermes model use`.",
            )
        model = name or windows.default_model(provider)
        return Finding(provider, model, reason, own or base_url, key_name)

    def _key_name(self, provider: str) -> str:
        """Where a service's key is; empty when there is none."""
        if self._settings.api_key and self._settings.provider == provider:
            return _OWN_KEY
        is_there = getattr(self._credentials, f"{provider}_api_key", "")
        return _KEYS[provider] if is_there else ""

    def _key_at(self, base_url: str, provider: str) -> str:
        """A key goes to the address it was given for, and to no other."""
        if self._settings.api_key and base_url == self._settings.base_url:
            return _OWN_KEY
        if provider in _KEYS:
            return self._key_name(provider)
        is_given = base_url == self._credentials.openai_base_url
        return _KEYS["openai"] if is_given and self._credentials.openai_api_key else ""

    def _at(self, base_url: str, name: str, reason: str, provider: str = "") -> Finding:
        """A model at an address; without a name, the first that is listed there."""
        provider = provider or _host_of(base_url)
        key_name = self._key_at(base_url, provider)
        if name or provider in _ADDRESSES:
            name = name or windows.default_model(provider)
            return Finding(provider, name, reason, base_url, key_name)
        names = _names_at(base_url, key_of(key_name, self._settings, self._credentials), 3.0)
        if not names:
            raise ModelMissingError(
                f"{base_url} does not say which models it has.",
                fix="Start it, correct the address, or name the model: hermes model use NAME.",
            )
        return Finding(provider, names[0], reason, base_url, key_name, names[1:])


def own_provider(settings: ModelSettings) -> str:
    """How the address in the settings is called as a provider; empty when there is none."""
    return (settings.provider or _host_of(settings.base_url)) if settings.base_url else ""


def is_own(settings: ModelSettings, name: str) -> bool:
    """Whether a name is that of the model which the settings name with its address, or its label."""
    provider = own_provider(settings)
    return bool(provider) and _without(provider, name) == _without(provider, settings.name)


def is_embedded_next(settings: ModelSettings, credentials: Credentials) -> bool:
    """Whether the embedded model would answer if it were here."""
    if "embedded" in (settings.name, settings.provider):
        return True
    is_open = not (settings.name or settings.provider or settings.base_url)
    return is_open and credentials == Credentials()


def key_of(key_name: str, settings: ModelSettings, credentials: Credentials) -> str:
    """The key that has this name."""
    if not key_name:
        return ""
    return settings.api_key if key_name == _OWN_KEY else getattr(credentials, key_name.lower())


def server_at(base_url: str, key: str, patience_s: float) -> "Server":
    """Somebody to ask about models."""
    from hermes_agent.models.servers import Server  # noqa: PLC0415 -- brings the HTTP library

    return Server(base_url, key, patience_s=patience_s)


def _names_at(base_url: str, key: str, patience_s: float) -> list[str]:
    """The models that can chat at an address; none when nobody answers."""
    server = server_at(base_url, key, patience_s)
    try:
        return [served.name for served in server.models() if "embed" not in served.name.lower()]
    except ModelError:
        return []
    finally:
        server.close()


def _without(provider: str, name: str) -> str:
    """The name without its provider; `openrouter/auto` is a name of its own."""
    return name if name == "openrouter/auto" else name.removeprefix(f"{provider}/")


_HOUSE = re.compile(r"127\.|10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|169\.254\.")


def _host_of(base_url: str) -> str:
    """How an address is called as a provider: `local`, a known service, or its host."""
    host = (urlsplit(base_url).hostname or base_url).lower()
    is_near = host in ("localhost", "::1", "host.docker.internal") or "." not in host
    if is_near or host.endswith((".local", ".localhost", ".lan")) or _HOUSE.match(host):
        return "local"
    known = {urlsplit(address).hostname: name for name, address in _ADDRESSES.items()}
    return known.get(host, host)
