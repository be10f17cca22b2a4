"""Translate a server's refusal: who must act, whether a retry is of use, and when."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import msgspec

from hermes_agent.models.providers import STORED_KEY
from hermes_core import clock, text
from hermes_core.errors import (
    ContextTooLongError,
    ModelError,
    ModelRefusedError,
    ModelUnreachableError,
)
from hermes_core.secrets import redact

_MAX_SENTENCE = 300


class ModelSource(NamedTuple):
    """Whom we asked, as error messages name it."""

    provider: str
    model: str
    key_name: str = ""
    """The variable or setting the key comes from; empty: there is none."""
    base_url: str = ""
    names: Callable[[], Sequence[str]] = tuple
    """Asks for the names of the models there are; may raise ModelError."""


# Made into patterns when a server refuses something: that takes longer than loading this module.
_TOO_LONG = (
    r"context_length_exceeded|exceed_context_size|request_too_large|model_max_prompt_tokens_exceeded"
    r"|maximum context length|maximum prompt length|available context size|context (?:window|limit)"
    r"|exceeds? (?:the |its )?(?:model's )?context|context length (?:exceeded|of only)"
    r"|prompt (?:is )?too long|input is too long|too long for (?:the )?requested model"
    r"|longer than the (?:maximum )?model(?:'s)? (?:maximum )?(?:context )?length"
    r"|exceeds the maximum number of tokens|greater than the context length"
    r"|(?:too large|too long) for model with \d+ maximum context|reduce the length of (?:the |your )"
    r"|exceeded max context length|number of input tokens|tokens to keep from the initial prompt"
)
_NO_QUOTA = (
    r"insufficient_quota|insufficient[ _](?:credits?|balance|funds)|billing_(?:error|not_active|hard)"
    r"|exceeded your current quota|credit balance is too low|out of credits|payment required"
)
_WRONG_KEY = (
    r"invalid[ _]api[ _]key|incorrect api key|authentication_error|invalid x-api-key|no auth cred"
    r"|api key (?:is )?(?:not valid|invalid|expired)"
)
_NO_MODEL = (
    r"model_not_found|not a valid model|(?:model|endpoints?)\b.{0,120}?\b(?:not found|does not exist)"
    r"|no (?:such model|endpoints found)|unknown model|not_found_error.{0,40}model"
)
_NO_TOOLS = r"(?:does|do) not support (?:tools|function|tool)|tool use is not"
_PROVIDER_STATUS = {
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "invalid_request_error": 400,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "overloaded_error": 529,
}

_TIMEOUT, _CONFLICT, _TOO_LARGE, _TOO_MANY, _SERVER_FAULT = 408, 409, 413, 429, 500
_SETTLED = (401, 402, 403, 404, _TOO_MANY)
"""Statuses that say what they mean, whatever words come with them."""


def error_from(
    status: int, headers: Mapping[str, str], body: bytes, source: ModelSource
) -> ModelError:
    """Return the error for an answer that is not a reply."""
    return _classified(status, _retry_after(headers), _refusal_of(body), source)


def error_in_stream(error: object, source: ModelSource) -> ModelError:
    """The error for one that was sent in the middle of a stream."""
    fields = cast("dict[str, Any]", error) if isinstance(error, dict) else {"message": str(error)}
    code = fields.get("code")
    if not (isinstance(code, int) and 400 <= code < 600):
        named = (fields.get("type"), code)
        code = next((_PROVIDER_STATUS[name] for name in named if name in _PROVIDER_STATUS), 500)
    return _classified(code, None, _Refusal(*_words(fields)), source)


def unreadable(data: bytes, source: ModelSource) -> ModelError:
    """The error for something where a reply should be."""
    return ModelUnreachableError(
        f"{source.provider} at {source.base_url} sent no reply that can be read: {_plain(data)}",
        fix="Check model.base_url; it usually ends in /v1. Try again if it worked before.",
        retryable=not data.lstrip().startswith(b"<"),
        provider=source.provider,
    )


class _Refusal(NamedTuple):
    message: str
    """For a person."""
    all: str
    """Everything that may tell what it is about."""

    def matches(self, pattern: str) -> bool:
        return re.search(pattern, self.all, re.IGNORECASE | re.DOTALL) is not None


def _classified(
    status: int, retry_after_s: float | None, refusal: _Refusal, source: ModelSource
) -> ModelError:
    make = partial(_make, status=status, provider=source.provider)
    if status == _TOO_LARGE or (status not in _SETTLED and refusal.matches(_TOO_LONG)):
        message = f"The conversation does not fit the window of {source.model}: {refusal.message}"
        fix = "Compact it with /compact, start a new conversation, or set model.context_window."
        return make(ContextTooLongError, message, fix)
    if (refused := _refused(status, refusal, source)) is not None:
        return make(ModelRefusedError, *refused)
    if status == _TOO_MANY:
        message = f"{source.provider} rate-limited the request: {refusal.message}"
        fix = "Wait a little, or set model.fallbacks."
        return make(ModelError, message, fix, retryable=True, retry_after_s=retry_after_s)
    if status in (_TIMEOUT, _CONFLICT) or status >= _SERVER_FAULT:
        message = f"{source.provider} has an internal error ({status}): {refusal.message}"
        fix = "Try again later, or set model.fallbacks."
        return make(
            ModelUnreachableError, message, fix, retryable=True, retry_after_s=retry_after_s
        )
    message = f"{source.provider} refused the request ({status}): {refusal.message}"
    fix = "Check the message; `hermes model` shows the model and its address."
    return make(ModelRefusedError, message, fix)


def _make(
    kind: type[ModelError],
    message: str,
    fix: str,
    *,
    status: int,
    provider: str,
    retryable: bool = False,
    retry_after_s: float | None = None,
) -> ModelError:
    return kind(
        message,
        fix=fix,
        retryable=retryable,
        retry_after_s=retry_after_s,
        status=status,
        provider=provider,
    )


def _refused(status: int, refusal: _Refusal, source: ModelSource) -> tuple[str, str] | None:
    """The message and the fix for what asking again cannot change."""
    if status == 402 or refusal.matches(_NO_QUOTA):
        fix = f"Add credit at {source.provider}, or choose another model with `hermes model use`."
        return f"The account at {source.provider} has no quota left: {refusal.message}", fix
    if status == 401 or (status in (400, 403) and refusal.matches(_WRONG_KEY)):
        if not source.key_name:
            fix = f"Set model.api_key to the key that {source.base_url} wants."
            return f"{source.provider} needs an API key, and none is set: {refusal.message}", fix
        fix = f"Set {source.key_name} to a valid key."
        if source.key_name.startswith(STORED_KEY):
            fix = f"Store a valid key: hermes login {source.key_name.removeprefix(STORED_KEY)}"
        return f"{source.provider} does not accept the key: {refusal.message}", fix
    if status == 404 or (status == 400 and refusal.matches(_NO_MODEL)):
        if status == 400 or refusal.matches(_NO_MODEL):
            return (
                f"{source.provider} has no model {source.model}: {refusal.message}",
                _other_models(source),
            )
        fix = "Check model.base_url; it usually ends in /v1."
        return f"Nothing answers at {source.base_url}: {refusal.message}", fix
    if refusal.matches(_NO_TOOLS):
        fix = 'Set model.small = "on": Hermes then describes tools in the prompt.'
        return f"{source.model} does not support tools: {refusal.message}", fix
    if status == 403:
        fix = "Check what the key may do, or choose another model with `hermes model use`."
        return f"{source.provider} does not allow this: {refusal.message}", fix
    return None


def _other_models(source: ModelSource) -> str:
    use = "Choose another with `hermes model use NAME`"
    try:
        close = text.similar(source.model, source.names(), 3, cutoff=0.5)
    except ModelError:
        close = []
    return (
        f"{use}, for example {', '.join(close)}." if close else f"{use}; see `hermes model list`."
    )


def names_in(page: bytes) -> list[str]:
    """The names in an answer of /models."""
    try:
        return [entry.id for entry in _decode_page(page).data]
    except msgspec.DecodeError:
        return []


class _Entry(msgspec.Struct):
    id: str


class _Page(msgspec.Struct):
    data: list[_Entry] = []


_decode_page = msgspec.json.Decoder(_Page).decode


def _refusal_of(body: bytes) -> _Refusal:
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return _Refusal(_plain(body), body.decode("utf-8", "replace"))
    return _Refusal(*_words(value))


def _words(value: object) -> tuple[str, str]:
    """The message in an error object, and all of its text."""
    everything = msgspec.json.encode(value).decode()
    while isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        value = fields.get("error") or fields.get("message") or fields.get("detail") or everything
    message = value if isinstance(value, str) else everything
    return _sentence(message), everything


def _plain(body: bytes) -> str:
    words = body.decode("utf-8", "replace").strip()
    if words.startswith("<"):
        return "it answered with a web page, not as a model's server does."
    return _sentence(words or "it sent no text.")


def _sentence(words: str) -> str:
    sentence = text.truncate(redact(text.one_line(text.visible(words))), _MAX_SENTENCE)
    return sentence if sentence.endswith((".", "!", "?", "…")) else f"{sentence}."


def _retry_after(headers: Mapping[str, str]) -> float | None:
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return max(milliseconds / 1000, 0.0)
    value = headers.get("retry-after")
    if (seconds := _number(value)) is not None:
        return max(seconds, 0.0)
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 -- slow to load, seldom needed

    try:
        moment = parsedate_to_datetime(value or "")
    except ValueError:
        return None
    return max(moment.timestamp() - clock.now(), 0.0)


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if number == number and number != float("inf") else None
