"""Faults of the scripted server: refusals in real words, cuts, silence, noise."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import format_datetime
from typing import Any, Literal

from hermes_agent.testing.scripted import Quiet

Wording = Literal["openai", "anthropic", "llama.cpp", "vllm", "ollama", "openrouter"]


@dataclass(frozen=True)
class Refuse:
    """An error answer in the form of the wire format that was asked in."""

    status: int
    message: str
    kind: str = ""
    """The error's `type`; empty: the one that goes with the status."""
    code: str | int | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    more: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of the error object."""


@dataclass(frozen=True)
class Answer:
    """An answer sent as it stands, whatever it is."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Events:
    """A stream of exactly these `data:` payloads."""

    payloads: tuple[bytes, ...]
    quiet: Quiet | None = None
    """Silence after the last one."""


@dataclass(frozen=True)
class Hold:
    """Not even headers until released."""

    quiet: Quiet


@dataclass(frozen=True)
class Cut:
    """Some of the reply, then the connection is gone."""

    after: str = ""


@dataclass(frozen=True)
class Break:
    """Some of the reply, then an error in the stream."""

    message: str
    kind: str = "server_error"
    after: str = ""


@dataclass(frozen=True)
class Flood:
    """Bytes that a hostile server sends as they stand: some once, then others again and again.

    It ends when the client closes the connection, or after so many bytes that no client took.
    """

    first: bytes
    again: Callable[[int], bytes]
    """The bytes of each number from 0."""
    pause_s: float = 0.0
    """Before each."""
    most: int = 1_000_000_000
    """Bytes in all."""


Fault = Refuse | Answer | Events | Hold | Cut | Break | Flood


def rate_limited(retry_after: float | datetime | None = None) -> Refuse:
    """Too many requests; when to come back in seconds or as a date, or not said."""
    headers: dict[str, str] = {}
    if isinstance(retry_after, datetime):
        headers["Retry-After"] = format_datetime(retry_after, usegmt=True)
    elif retry_after is not None:
        headers["Retry-After"] = f"{retry_after:g}"
    return Refuse(
        429, "Rate limit reached for requests.", code="rate_limit_exceeded", headers=headers
    )


def wrong_key() -> Refuse:
    """A key that nobody knows."""
    return Refuse(401, "Incorrect API key provided: sk-wrong.", code="invalid_api_key")


def no_quota() -> Refuse:
    """A key without money, in OpenAI's way: the status of a rate limit with another code."""
    message = "You exceeded your current quota, please check your plan and billing details."
    return Refuse(429, message, kind="insufficient_quota", code="insufficient_quota")


def no_credits() -> Refuse:
    """A key without money, in OpenRouter's way."""
    return Refuse(402, "Insufficient credits. Add more using the settings page.", code=402)


def unknown_model(name: str) -> Refuse:
    """A model that is not there."""
    message = f"The model `{name}` does not exist or you do not have access to it."
    return Refuse(404, message, code="model_not_found")


def overloaded() -> Refuse:
    """Anthropic's own status for too much to do."""
    return Refuse(529, "Overloaded", kind="overloaded_error")


def context_too_long(wording: Wording = "openai", tokens: int = 9000, window: int = 8192) -> Refuse:
    """A request that does not fit, in the words of one of the servers."""
    limit = f"maximum context length is {window} tokens. However, you"
    reduce = "Please reduce the length of the messages"
    if wording == "anthropic":
        return Refuse(400, f"prompt is too long: {tokens} tokens > {window} maximum")
    if wording == "llama.cpp":
        message = (
            f"request ({tokens} tokens) exceeds the available context size ({window} tokens),"
            " try increasing it"
        )
        more = {"n_prompt_tokens": tokens, "n_ctx": window}
        return Refuse(400, message, kind="exceed_context_size_error", code=400, more=more)
    if wording == "vllm":
        message = f"This model's {limit} requested {tokens} tokens. {reduce} or completion."
        return Refuse(400, message, kind="BadRequestError", code=400)
    if wording == "ollama":
        return Refuse(400, "the input length exceeds the context length", kind="api_error")
    if wording == "openrouter":
        message = f"This endpoint's {limit} requested about {tokens} tokens. {reduce}."
        return Refuse(400, message, code=400)
    message = f"This model's {limit}r messages resulted in {tokens} tokens. {reduce}."
    return Refuse(400, message, code="context_length_exceeded")


def garbage(after: bytes = b"") -> Answer:
    """A page of a proxy where a reply should be."""
    page = b"<!DOCTYPE html><html><body>502 Bad Gateway</body></html>"
    return Answer(after + page, content_type="text/html")
