"""Estimate tokens from characters, corrected by what providers report.

No tokenizer is loaded. One match of a pattern is about one token: a short word or a piece of a long
one, two digits, two signs, an indented line break, one Han character. Each model's own way of counting
is learned as a ratio, kept in the store, so that the next process begins with it.
"""

import functools
import logging
import math
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from hermes_agent.models.base import Request, ToolSpec
from hermes_core.errors import StoreError
from hermes_state.ledger import meta
from hermes_state.store import Transactional

logger = logging.getLogger(__name__)

_COMMON = r"[A-Za-z]{1,6}|[0-9]{1,2}|[!-/:-@\[-`{-~]{1,2}|\n\s*|[ \t]{2,}"
_ASCII = re.compile(_COMMON)
_WIDE = re.compile(
    _COMMON + "|[\u00a1-\u036f]"  # accented letters break words up
    "|[\u0370-\u08ff\u10a0-\u1fff]{1,2}"  # Greek, Cyrillic, Hebrew, Arabic and the like
    "|[\u0900-\u109f]"  # the scripts of India and their neighbours
    "|[^\x00-\u1fff\\s]"  # Han, kana, hangul, symbols
)
_ENCODED = re.compile(
    r"[A-Za-z0-9+/]{40,}"
)  # base64 and its like come in smaller pieces than words
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")  # emoji are several tokens each
_SLICE = 65_536

_PER_REQUEST = 3
_PER_MESSAGE = 4
_PER_CALL = 8
_PER_TOOL = 12
IMAGE = 1_300
"""A picture, whatever its size: about what the large providers charge for one they scale down."""

_SENT_BACK = (
    "reasoning_content",
    "reasoning_details",
    "codex_reasoning_items",
    "codex_message_items",
)
"""What a provider sent beside a message and gets again with it."""

MIN_RATIO, MAX_RATIO = 0.5, 2.5
_WEIGHT = 0.2
_TOO_SMALL = 100
"""Below this the wrapping outweighs the text, and a report says nothing about the text."""
_WORTH_KEEPING = 0.02


_Key = tuple[int, int, int]


class _Counted(NamedTuple):
    """The beginning of the last request: how many messages, which, and their tokens."""

    length: int = 0
    which: int = hash(())
    tokens: int = 0


def text_tokens(text: str) -> int:
    """The uncorrected estimate of a text."""
    if not text:
        return 0
    ascii_only = text.isascii()
    pattern = _ASCII if ascii_only else _WIDE
    total = 0
    for start in range(0, len(text), _SLICE):  # so that a huge text makes no huge list
        end = start + _SLICE
        total += len(pattern.findall(text, start, end))
        total += sum(len(run) // 3 for run in _ENCODED.findall(text, start, end))
        if not ascii_only:
            total += 2 * len(_ASTRAL.findall(text, start, end))
    return total


def message_tokens(message: Mapping[str, Any]) -> int:
    """The uncorrected estimate of a message in the stored form."""
    total = _PER_MESSAGE + _content_tokens(message.get("content"))
    for call in message.get("tool_calls") or ():
        function = _function(call)
        total += _PER_CALL + text_tokens(str(function.get("name") or ""))
        total += text_tokens(_as_text(function.get("arguments")))
    if message.get("tool_call_id"):
        total += _PER_CALL
    beside: Mapping[str, Any] = message.get("extra") or message
    return total + sum(text_tokens(_as_text(beside[key])) for key in _SENT_BACK if beside.get(key))


def _function(call: Mapping[str, Any]) -> Mapping[str, Any]:
    return call.get("function") or {}


def _content_tokens(content: Any) -> int:  # noqa: ANN401 -- text or parts
    if isinstance(content, list):
        return sum(_part_tokens(part) for part in cast("list[Any]", content))
    return text_tokens(_as_text(content))


def _part_tokens(part: Any) -> int:  # noqa: ANN401 -- whatever a surface put there
    if not isinstance(part, Mapping):
        return text_tokens(_as_text(part))
    fields = cast("Mapping[str, Any]", part)
    text = fields.get("text")
    return text_tokens(text) if isinstance(text, str) else IMAGE


def _as_text(value: Any) -> str:  # noqa: ANN401 -- JSON
    if value is None or isinstance(value, str):
        return value or ""
    return msgspec.json.encode(value).decode()


def tool_tokens(tool: ToolSpec) -> int:
    """The uncorrected estimate of a tool as a model is shown it."""
    schema = msgspec.json.encode(tool.parameters).decode()
    return _PER_TOOL + text_tokens(tool.name) + text_tokens(tool.description) + text_tokens(schema)


@functools.lru_cache(maxsize=64)
def _prompt_tokens(system: str) -> int:
    return text_tokens(system)


class _Learned(msgspec.Struct):
    ratio: float = 1.0
    reports: int = 0


class Estimator:
    """Counts for one model and one conversation.

    Stored messages do not change, and a request begins as the one before it: only what is new is
    counted. Of the rest a sum is kept, since many conversations are awake at once.
    """

    def __init__(self, model_name: str, store: Transactional | None = None) -> None:
        self._key = f"tokens.{model_name}"
        self._store = store
        self._lock = threading.Lock()
        self._learned = self._read()
        self._stored_ratio = self._learned.ratio
        self._counted = _Counted()
        self._message_tokens: dict[_Key, int] = {}
        """Single messages since the last request, which a compaction asks for again and again."""
        self._tools: tuple[Sequence[ToolSpec], int] = ((), 0)

    @property
    def ratio(self) -> float:
        """Tokens of this model to one of the uncorrected estimate."""
        return self._learned.ratio

    def text(self, text: str) -> int:
        """The tokens of a text."""
        return self._corrected(text_tokens(text))

    def message(self, message: Mapping[str, Any]) -> int:
        """The tokens of a message in the stored form."""
        return self._corrected(self._raw(message))

    def count(
        self,
        what: Request | Sequence[Mapping[str, Any]],
        system: str = "",
        tools: Sequence[ToolSpec] = (),
    ) -> int:
        """The tokens of a request, or of messages with the prompt and the tools they go out with."""
        if isinstance(what, Request):
            raw = self._prefix_tokens(what.system, what.tools) + self._sum(what.messages)
            self._message_tokens.clear()
        else:
            raw = self._prefix_tokens(system, tools) + sum(self._raw(message) for message in what)
        return self._corrected(raw)

    def _sum(self, messages: Sequence[Mapping[str, Any]]) -> int:
        """The tokens of a request's messages, going on from those of the request before."""
        keys = [_key(message) for message in messages]
        stored = keys.index(None) if None in keys else len(keys)
        length, which, tokens = self._counted
        if length > stored or hash(tuple(keys[:length])) != which:
            length, tokens = 0, 0
        tokens += sum(self._raw(message) for message in messages[length:stored])
        self._counted = _Counted(stored, hash(tuple(keys[:stored])), tokens)
        return tokens + sum(self._raw(message) for message in messages[stored:])

    def learn(self, estimated: int, actual: int) -> None:
        """Take a provider's count of what was estimated before the call.

        The first report counts fully, later ones less and less; every one is bounded, so that an odd
        one does little harm and is forgotten soon.
        """
        if estimated < _TOO_SMALL or actual <= 0:
            return
        with self._lock:
            before = self._learned
            seen = _bounded(before.ratio * actual / estimated)
            weight = max(_WEIGHT, 1 / (before.reports + 1))
            ratio = _bounded(before.ratio + weight * (seen - before.ratio))
            self._learned = _Learned(ratio, before.reports + 1)
            if (
                before.reports
                and abs(ratio - self._stored_ratio) < _WORTH_KEEPING * self._stored_ratio
            ):
                return
            self._stored_ratio = ratio
            encoded = msgspec.json.encode(self._learned).decode()
        self._write(encoded)

    def _corrected(self, raw: int) -> int:
        return math.ceil(raw * self._learned.ratio)

    def _prefix_tokens(self, system: str, tools: Sequence[ToolSpec]) -> int:
        """Prompt and tools stay the same from call to call, so the last ones are remembered."""
        known_tools, of_tools = self._tools
        if tools != known_tools:
            of_tools = sum(tool_tokens(tool) for tool in tools)
            self._tools = tools, of_tools
        return _PER_REQUEST + _prompt_tokens(system) + of_tools

    def _raw(self, message: Mapping[str, Any]) -> int:
        if (key := _key(message)) is None:
            return message_tokens(message)
        if (tokens := self._message_tokens.get(key)) is not None:
            return tokens
        found = self._message_tokens[key] = message_tokens(message)
        return found

    def _read(self) -> _Learned:
        text = self._store.read(meta.get, self._key) if self._store is not None else None
        if text is None:
            return _Learned()
        try:
            found = msgspec.json.decode(text, type=_Learned)
        except msgspec.DecodeError:  # somebody wrote there by hand; learning starts anew
            return _Learned()
        return _Learned(_bounded(found.ratio), max(found.reports, 0))

    def _write(self, encoded: str) -> None:
        if self._store is None:
            return
        try:
            self._store.write(meta.put, self._key, encoded)
        except StoreError:  # an estimate is not worth a failed turn
            logger.warning("Could not store the token estimate", exc_info=True)


def _key(message: Mapping[str, Any]) -> _Key | None:
    """A stored message; an edited copy under the same id is another one, and is told by its lengths."""
    id_, content, calls = message.get("id"), message.get("content"), message.get("tool_calls")
    if not isinstance(id_, int):
        return None
    return id_, len(content) if content else 0, _length(calls) if calls else 0


def _length(calls: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(_function(call).get("arguments") or "") + 1 for call in calls)


def _bounded(ratio: float) -> float:
    return min(max(ratio, MIN_RATIO), MAX_RATIO)
