"""The protocol of a model: one request with a stop and a sink, one reply.

Messages are in the stored form: roles user, assistant and tool, an
assistant's `tool_calls`, a tool's `tool_call_id`, content as text or as OpenAI-shaped parts. An adapter
translates them to its wire format and raises nothing but ModelError and Interrupted.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, cast

import msgspec

from hermes_agent.turn.events import Sink
from hermes_agent.turn.stop import Stop
from hermes_core.paths import Home
from hermes_core.types import ToolCall

Finish = Literal["stop", "tool_calls", "length", "refusal"]

MAX_SMALL_TOOLS = 8
"""How many tools a small model is offered."""


class ToolSpec(NamedTuple):
    """A tool as a model sees it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of the arguments."""
    writes: bool = False
    """Whether it changes files."""
    advice: str = ""
    """Advice on its use, for a small model."""
    examples: str = ""
    """Example exchanges, for a small model."""


class Request(NamedTuple):
    """One question to a model. The order of the fields is the order of the prefix that caches keep."""

    system: str
    tools: Sequence[ToolSpec]
    messages: Sequence[Mapping[str, Any]]
    max_output_tokens: int = 0
    """Most tokens of the reply; 0 leaves it to the model."""
    json_schema: Mapping[str, Any] | None = None
    """When given, the reply's text is JSON of this shape, if the model can be held to one."""


def has_images(content: object) -> bool:
    """Return whether the content of a message has parts that are not text."""
    parts = cast("list[object]", content) if isinstance(content, list) else []
    return any(
        isinstance(part, dict) and cast("dict[str, object]", part).get("type") == "image_url"
        for part in parts
    )


class Usage(NamedTuple):
    """Tokens of one call as the provider counted them; `input_tokens` includes cached ones."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0


class Facts(msgspec.Struct, frozen=True):
    """Facts about a model before it is asked. Prices are in USD per million tokens."""

    name: str
    provider: str
    window: int
    """Tokens of request and reply together."""
    max_output: int = 4096
    input_price: float = 0.0
    output_price: float = 0.0
    cache_read_price: float = 0.0
    cache_write_price: float = 0.0
    is_free: bool = False
    """Known to cost nothing; otherwise a price of 0 is one that is not known."""
    is_small: bool = False
    """Weak at tools: gets the short prompt and few tools."""
    takes_images: bool = False
    is_window_guessed: bool = False
    """Nobody said how large the window is."""

    @property
    def window_advice(self) -> str:
        """Return what a person should know about a window that is a guess; else an empty text."""
        if not self.is_window_guessed:
            return ""
        return (
            f"The context window of {self.name} is not known; {self.window:,} tokens is a guess."
            " Set it: hermes config set model.context_window N"
        )

    def cost_usd(self, usage: Usage) -> float:
        """The price of a call."""
        fresh = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
        return (
            max(fresh, 0) * self.input_price
            + usage.cache_read_tokens * self.cache_read_price
            + usage.cache_write_tokens * self.cache_write_price
            + usage.output_tokens * self.output_price
        ) / 1_000_000


class Reply(msgspec.Struct, frozen=True):
    """The reply of a model."""

    text: str
    tool_calls: list[ToolCall] = []
    reasoning: str = ""
    finish: Finish = "stop"
    usage: Usage = Usage()
    extra: dict[str, Any] = {}
    """What the provider wants back word for word with this message, under keys of its own
    (`reasoning_details`, signed thinking); stored with the message and found again in it."""
    model: str = ""
    """The model that answered, when it may have been a fallback; empty: the one that was asked."""
    provider: str = ""
    cost_usd: float | None = None
    """Set when the model that answered has other prices than the one that was asked."""


class Model(Protocol):
    """Answers requests."""

    @property
    def facts(self) -> Facts: ...

    def ask(self, request: Request, stop: Stop, report: Sink) -> Reply:
        """Answer one request; streams to `report`. Raises ModelError; Interrupted soon after a stop."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class InProcess(Protocol):
    """A module whose models run in this process."""

    def installed(self, home: Home) -> list[str]:
        """Return the models that can be used now, the preferred one first."""
        ...

    def open_model(self, home: Home, name: str, window: int) -> Model:
        """Open a model; a window of 0 leaves its size to the model. Raises ModelMissingError."""
        ...

    def advice(self) -> str:
        """Return what its models are good for, and how to get a better one."""
        ...
