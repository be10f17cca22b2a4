"""The providers of models: every fact about each of them, in one table.

A further provider that speaks OpenAI's format is one row here, or one call in a plugin:

    ctx.provider("acme", base_url="https://api.acme.example/v1", key_variable="ACME_API_KEY")
"""

import importlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import msgspec

from hermes_core import config
from hermes_core.errors import PluginError
from hermes_core.loading import loading

if TYPE_CHECKING:
    from hermes_agent.models.base import InProcess

Credentials = Mapping[str, str]
"""The keys and addresses of providers, by the names of their variables."""

ADAPTERS: Mapping[str, str] = {
    "openai": "hermes_agent.models.openai_chat:OpenAIChat",
    "anthropic": "hermes_agent.models.anthropic:Anthropic",
}
"""The class for each wire format, as module:class; it is loaded when it is used."""

IN_PROCESS: Mapping[str, str] = {"embedded": "hermes_agent.models.embedded"}
"""The module for each adapter whose models run in this process; it is loaded when it is used."""


class KnownModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Facts about models with the same prefix. Prices are in USD per million tokens."""

    match: str
    """The prefix of the names."""
    window: int
    """Maximum tokens of request and reply together."""
    max_output: int
    """Maximum tokens of a reply."""
    input: float = 0.0
    """Price of input tokens."""
    output: float = 0.0
    """Price of output tokens."""
    cache_read: float = 0.0
    """Price of tokens read from the cache."""
    cache_write: float = 0.0
    """Price of tokens written to the cache."""
    images: bool = False
    """Whether they accept images."""
    hosted_only: bool = False
    """Only their makers run them: a server on this network that offers them is a proxy."""


class Provider(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A service, a local server or an engine that serves models."""

    name: str
    """The prefix in provider/model."""
    base_url: str = ""
    """The address; empty if it has no fixed one."""
    key_variable: str = ""
    """The environment variable with the key."""
    address_variable: str = ""
    """The environment variable that overrides the address."""
    adapter: Literal["openai", "anthropic", "embedded", "plugin"] = "openai"
    """The wire format, or the code that creates the model."""
    default_model: str = ""
    """The model to use if none is named; empty: the first that the server lists."""
    model_pattern: str = ""
    """A regular expression for the beginning of model names that only this provider serves."""
    models: list[KnownModel] = []
    """Facts about its models, which override the table for all providers."""
    output_limit: str = "max_tokens"
    """The field of a request that limits the reply."""
    lists_facts: bool = True
    """Its list of models has windows or prices."""
    is_local: bool = False
    """Runs on this machine or local network; its models cost nothing."""
    is_free: bool = False
    """Its models cost nothing."""
    is_router: bool = False
    """Serves the models of other providers, under provider/model."""
    is_standard: bool = False
    """Its variables also apply to any other server with its wire format."""
    title: str = ""
    """The name of the company or service, for people."""
    key_page: str = ""
    """The web page where a person gets a key."""

    @property
    def subject(self) -> str:
        """The provider as the subject of a sentence."""
        return "The local server" if self.name == LOCAL else self.name

    @property
    def is_in_process(self) -> bool:
        """Tell whether its models run in this process."""
        return self.adapter in IN_PROCESS

    def for_chats(self, names: Iterable[str]) -> list[str]:
        """Return those of its models that can chat, as far as their names tell."""
        chat = [name for name in names if not _OTHER_USE.search(name)]
        own = [name for name in chat if re.match(self.model_pattern, name, re.IGNORECASE)]
        return own or chat

    def load_models(self) -> "InProcess":
        """Load the module whose models run in this process."""
        with loading:
            models: Any = importlib.import_module(IN_PROCESS[self.adapter])
        return models

    def advice(self) -> str:
        """Return what its models are good for, if they run in this process."""
        return self.load_models().advice() if self.is_in_process else ""


_OTHER_USE = re.compile(
    r"embed|whisper|tts|audio|realtime|transcri|image|dall-e|moderation|rerank", re.IGNORECASE
)
"""Words in the names of models that do something else than chat."""

LOCAL, PLUGIN = "local", "plugin"

STORED_KEY = "model.keys."
"""The beginning of the name of a key that `hermes login` has stored; the provider follows."""

BUILT_IN = (
    Provider(
        "openai",
        "https://api.openai.com/v1",
        key_variable="OPENAI_API_KEY",
        address_variable="OPENAI_BASE_URL",
        default_model="gpt-6.1-terra",
        model_pattern=r"gpt-(?!oss)|o\d\b|chatgpt",
        output_limit="max_completion_tokens",
        lists_facts=False,
        is_standard=True,
        title="OpenAI",
        key_page="https://platform.openai.com/api-keys",
    ),
    Provider(
        "anthropic",
        "https://api.anthropic.com",
        key_variable="ANTHROPIC_API_KEY",
        address_variable="ANTHROPIC_BASE_URL",
        adapter="anthropic",
        default_model="claude-sonnet-5-5",
        model_pattern="claude",
        lists_facts=False,
        title="Anthropic",
        key_page="https://console.anthropic.com/settings/keys",
    ),
    Provider(
        "openrouter",
        "https://openrouter.ai/api/v1",
        key_variable="OPENROUTER_API_KEY",
        default_model="openrouter/auto",
        is_router=True,
        title="OpenRouter, with models of many companies",
        key_page="https://openrouter.ai/keys",
    ),
    Provider(LOCAL, is_local=True),
    Provider("embedded", adapter="embedded", lists_facts=False, is_local=True),
    Provider(PLUGIN, adapter="plugin", lists_facts=False),
)
"""In the order in which their keys are looked for."""


class Providers:
    """The table of providers: ours, then those of plugins."""

    def __init__(self, of_plugins: Iterable[Provider] = ()) -> None:
        self._by_name = {provider.name: provider for provider in (*BUILT_IN, *of_plugins)}

    def __iter__(self) -> Iterator[Provider]:
        return iter(self._by_name.values())

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def get(self, name: str) -> Provider:
        """Return the provider of this name; any other is a server that speaks OpenAI's format."""
        return self._by_name.get(name) or Provider(name)

    @property
    def hosted(self) -> list[Provider]:
        """The providers with an address of their own."""
        return [provider for provider in self if provider.base_url]

    @property
    def in_process(self) -> list[Provider]:
        """The providers whose models run in this process."""
        return [provider for provider in self if provider.is_in_process]

    @property
    def standard(self) -> Provider:
        """The provider whose variables serve for any server."""
        return next(provider for provider in self if provider.is_standard)

    def at(self, base_url: str) -> str:
        """Return the name of who serves an address: a provider, `local`, or the host."""
        host = (urlsplit(base_url).hostname or base_url).lower()
        is_near = host in ("localhost", "::1", "host.docker.internal") or "." not in host
        if is_near or host.endswith((".local", ".localhost", ".lan")) or _HOUSE.match(host):
            return LOCAL
        hosts = {urlsplit(provider.base_url).hostname: provider.name for provider in self.hosted}
        return hosts.get(host, host)

    def strip(self, provider: str, name: str) -> str:
        """Strip a provider from the name of a model; the name of its default model stays as it is."""
        is_default = name == self.get(provider).default_model
        return name if is_default else name.removeprefix(f"{provider}/")

    def variables(self) -> list[str]:
        """Return the environment variables of all providers."""
        named = (name for p in self for name in (p.key_variable, p.address_variable) if name)
        return list(dict.fromkeys(named))

    def credentials(self, environment: Mapping[str, str] | None = None) -> Credentials:
        """Return the keys and addresses that are in the environment."""
        found = ((name, config.variable(name, environment)) for name in self.variables())
        return {name: value for name, value in found if value}

    def step_up(self) -> str:
        """Return the advice for somebody without a model, or with a small one."""
        keys = [provider.key_variable for provider in self.hosted if provider.key_variable]
        return f"Or set {', '.join(keys[:-1])} or {keys[-1]}, or start a local server."


OURS = Providers()
"""The table without the providers of plugins."""

_HOUSE = re.compile(r"127\.|10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|169\.254\.")


def from_facts(name: str, facts: Mapping[str, Any]) -> Provider:
    """Return the provider that a plugin describes; raises PluginError."""
    try:
        provider = msgspec.convert({"name": name, **facts}, Provider)
        re.compile(provider.model_pattern)
    except (msgspec.ValidationError, re.error) as error:
        raise PluginError(f"The provider {name!r} is not described correctly: {error}.") from error
    if provider.adapter not in ADAPTERS or urlsplit(provider.base_url).scheme not in (
        "http",
        "https",
    ):
        raise PluginError(
            f"The provider {name!r} has no usable base_url or adapter.",
            fix=f"Give an http or https address, and one of these adapters: {', '.join(ADAPTERS)}.",
        )
    return provider


def names() -> Collection[str]:
    """Return the names that plugins may not register."""
    return frozenset(provider.name for provider in BUILT_IN)
