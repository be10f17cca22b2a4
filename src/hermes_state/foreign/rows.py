"""Convert rows of hermes-agent; values without a column go to `extra`.

Its columns accept any type, so every value is converted to the type of ours first.
"""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from hermes_core.text import without_surrogates
from hermes_state.export_format import LARGEST_AMOUNT, STEERING
from hermes_state.ledger import sessions
from hermes_state.ledger.records import decode, encode
from hermes_state.ledger.sessions import FILLABLE
from hermes_state.values import TOKENS, NewMessage, Row, Spent

_ENCODED = "\x00json:"
"""The prefix of content that hermes-agent stores as JSON."""

_TEXTS = ("source", *(name for name in FILLABLE if name not in ("model_config", *STEERING)))
_ELSEWHERE = {
    "id",
    "parent_session_id",
    "title",
    "model_config",
    "started_at",
    "ended_at",
    "end_reason",
    "message_count",
    "tool_call_count",
    "api_call_count",
    "rewind_count",
    "archived",
    *_TEXTS,
    *TOKENS,
    *STEERING,
}
"""Columns of a session that have a place of their own here, follow from its messages, or are dropped."""

_MESSAGE_COLUMNS = {
    "id", "session_id", "role", "content", "tool_calls", "tool_call_id", "tool_name", "timestamp",
    "token_count", "finish_reason", "reasoning", "platform_message_id", "observed", "active",
    "compacted",
}  # fmt: skip
_MESSAGE_JSON = ("reasoning_details", "codex_reasoning_items", "codex_message_items")


class Session(NamedTuple):
    """A converted session: its columns, sums and extra data."""

    columns: Row
    totals: Row
    extra: Row
    completed: bool
    """Whether an incomplete end was completed."""


class Spending(NamedTuple):
    """The usage of one model for one task."""

    spent: Spent
    task: str
    at: float


def session(row: Row, active_at: object) -> Session:
    """Convert a session; `active_at` is the time of its last message."""
    columns: Row = {name: text(row.get(name)) for name in _TEXTS}
    columns["source"] = columns["source"] or "unknown"
    extra: Row = {name: value for name, value in row.items() if name not in _ELSEWHERE}
    config = text(row.get("model_config"))
    if config is None or (usages := fields(config)) is None:
        columns["model_config"], extra["model_config"] = None, config
    else:
        # JSON that only Python reads (NaN) is written as valid JSON.
        config = config if _is_json(config) else encode(usages)
        columns["model_config"] = sessions.without_instructions(config)
    extra = {name: value for name, value in extra.items() if value not in _EMPTY}
    began = number(row.get("started_at")) or number(active_at) or 0.0
    ended, reason = number(row.get("ended_at")), text(row.get("end_reason"))
    completed = (ended is None) != (reason is None)
    if completed:
        ended = number(active_at) or began if ended is None else ended
        reason = reason or "unknown"
    columns |= {
        "started_at": began,
        "ended_at": ended,
        "end_reason": reason,
        "rewind_count": whole(row.get("rewind_count")),
    }
    return Session(columns, _totals(row), extra, completed)


_EMPTY = (None, 0, "")


def _totals(row: Row) -> Row:
    return {
        "api_call_count": whole(row.get("api_call_count")),
        **{name: whole(row.get(name)) for name in TOKENS},
        "cost_usd": cost(row, zero_is_known=True),
    }


def cost(row: Row, *, zero_is_known: bool) -> float:
    """Return the actual cost, else the estimated one."""
    actual, estimated = number(row.get("actual_cost_usd")), number(row.get("estimated_cost_usd"))
    if actual is None or (not actual and not zero_is_known):
        return estimated or 0.0
    return actual


def spendings(usage: Iterable[Row], found: Session) -> list[Spending]:
    """Return the usage of a session; older schemas have only the sum."""
    began, model = found.columns["started_at"], found.columns["model"]
    usages = [
        Spending(
            Spent(
                text(row.get("model")) or "unknown",
                text(row.get("billing_provider")) or "",
                **{name: whole(row.get(name)) for name in TOKENS},
                # In this table an unknown cost is 0, not NULL.
                cost_usd=cost(row, zero_is_known=False),
            ),
            text(row.get("task")) or "",
            number(row.get("last_seen")) or number(row.get("first_seen")) or began,
        )
        for row in usage
    ]
    totals = found.totals
    if usages or not any(totals.values()):
        return usages
    sums = {name: totals[name] for name in (*TOKENS, "cost_usd")}
    provider = text(found.extra.get("billing_provider")) or ""
    return [Spending(Spent(model or "unknown", provider, **sums), "", began)]


def usage_beside(usage: Iterable[Row]) -> list[Row]:
    """Return the columns of usage rows without a column here."""
    dropped = {"session_id", *TOKENS}
    return [
        {name: v for name, v in row.items() if name not in dropped and v not in _EMPTY}
        for row in usage
    ]


def message(row: Row) -> NewMessage:
    """Convert a message."""
    extra: Row = {
        name: value
        for name, value in row.items()
        if name not in _MESSAGE_COLUMNS and value is not None
    }
    for name in _MESSAGE_JSON:
        if name in extra:
            extra[name] = _or_as_it_was(extra[name])
    if "api_content" in extra:
        extra["api_content"] = content(extra["api_content"])
    calls: Any = loads(row.get("tool_calls"))
    if not isinstance(calls, list) and row.get("tool_calls"):
        calls, extra["tool_calls_text"] = None, text(row["tool_calls"])
    return NewMessage(
        role=text(row["role"]) or "user",
        content=content(row.get("content")),
        tool_calls=calls,
        tool_call_id=text(row.get("tool_call_id")),
        tool_name=text(row.get("tool_name")),
        timestamp=number(row.get("timestamp")) or 0.0,
        token_count=None if row.get("token_count") is None else whole(row["token_count"]),
        finish_reason=text(row.get("finish_reason")),
        reasoning=text(row.get("reasoning")),
        platform_message_id=text(row.get("platform_message_id")),
        extra=extra or None,
        observed=bool(whole(row.get("observed"))),
        active=is_active(row),
        compacted=is_compacted(row),
    )


def is_compacted(row: Row) -> bool:
    """Return whether a summary replaces a message for the model."""
    return bool(whole(row.get("compacted"))) and not is_active(row)


_SUMMARY = "[CONTEXT COMPACTION"
"""The beginning of a summary."""
_TELLING = 40
"""Minimum length from which equal texts are the same message."""


_MOMENT_S = 0.1
"""Maximum difference between the times of messages that one compaction wrote."""


class Originals:
    """Recognizes copies of compacted messages in a session.

    hermes-agent compacts a session in place: it hides all rows, then adds copies of the first ones, a
    summary, and copies of the last ones.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        """`rows` are all messages of the session, in order."""
        self._copies = _copies(rows)
        self._ids: dict[str, list[tuple[float, int]]] = {}
        """The time and the id here, by text."""
        self._ids_at: dict[int, int] = {}
        """The ids here, by position."""

    def add(self, position: int, row: Row, id_: int) -> None:
        """Register a compacted message with its id here."""
        self._ids_at[position] = id_
        self._ids.setdefault(_words(row), []).append((number(row.get("timestamp")) or 0.0, id_))

    def marked(self, position: int, row: Row, found: NewMessage) -> NewMessage:
        """Return the message, marked as summary or copy if it is one."""
        if is_summary(row):
            return found._replace(kind="summary")
        if (origin := self._ids_at.get(self._copies.get(position, -1))) is not None:
            return found._replace(kind="copy", origin_id=origin)
        words = _words(row)
        is_telling = len(text(row.get("content")) or "") >= _TELLING or row.get("tool_call_id")
        for at, id_ in reversed(self._ids.get(words, ())):
            if is_telling or row.get("tool_calls") or at == found.timestamp:
                return found._replace(kind="copy", origin_id=id_)
        return found


def _copies(rows: Sequence[Row]) -> dict[int, int]:
    """Return which rows are copies by their place around a summary: the position of each original.

    Short texts may occur again, so the position decides: a summary is followed by the end of the earlier
    context and preceded by its beginning. The number of copies follows from the active rows before a
    summary, or from the time: copies with a new time were written together with the summary.
    """
    words = [_words(row) for row in rows]
    copies: dict[int, int] = {}
    view: list[int] = []
    for at, row in enumerate(rows):
        if is_summary(row) and (count := _copied_head(rows, words, view, at)) is not None:
            before = view[: len(view) - count]
            copies |= zip(range(at - count, at), before, strict=False)
            copies |= _copied_tail(rows, words, before, at + 1)
            view = list(range(at - count, at))
        if is_active(row) or is_compacted(row):  # not rewound
            view.append(at)
    for position, origin in copies.items():  # in order, so that an original is resolved before
        copies[position] = copies.get(origin, origin)
    return copies


def _copied_head(
    rows: Sequence[Row], words: Sequence[str], view: Sequence[int], end: int
) -> int | None:
    """Return how many rows before a summary are copies of the beginning of a view that they end.

    Returns None when the summary replaces something else.
    """
    active = sum(not is_compacted(rows[position]) for position in view)
    guesses = [_written_with(rows, end, -1), *range(len(view) // 2, 1, -1)]
    for count in [active] if active else guesses:
        copied = view[len(view) - count :]
        if not count:
            continue
        if all(
            words[first] == words[copy] for first, copy in zip(view, copied, strict=False)
        ) and not (active and is_compacted(rows[copied[0]])):
            return count
    return None if active else 0


def _copied_tail(
    rows: Sequence[Row], words: Sequence[str], view: Sequence[int], begin: int
) -> dict[int, int]:
    """Return the rows from `begin` on that are copies of the end of a view, with their originals."""
    most = _written_with(rows, begin - 1, 1) or len(view)
    for first in range(max(0, len(view) - most), len(view)):
        tail = view[first:]
        if begin + len(tail) <= len(words) and all(
            words[position] == words[begin + n] for n, position in enumerate(tail)
        ):
            return {begin + n: position for n, position in enumerate(tail)}
    return {}


def _written_with(rows: Sequence[Row], at: int, step: int) -> int:
    """Return how many rows before (-1) or after (1) a row have the same time."""
    moment, count = number(rows[at].get("timestamp")) or 0.0, 0
    while 0 <= (position := at + step * (count + 1)) < len(rows):
        if abs((number(rows[position].get("timestamp")) or 0.0) - moment) > _MOMENT_S:
            break
        count += 1
    return count


def is_summary(row: Row) -> bool:
    """Return whether a message is a summary."""
    return (text(row.get("content")) or "").startswith(_SUMMARY)


def _words(row: Row) -> str:
    return encode(
        [text(row.get(name)) for name in ("role", "content", "tool_calls", "tool_call_id")]
    )


def is_active(row: Row) -> bool:
    """Return whether a message is active; it is when the column is missing."""
    return row.get("active") is None or bool(whole(row["active"]))


def content(stored: object) -> Any:  # noqa: ANN401 -- text or parts, as in a message
    """Return the content: text, or the parts that it encodes."""
    words = text(stored)
    if words is not None and words.startswith(_ENCODED):
        parts = loads(words[len(_ENCODED) :])
        return words if parts is None else parts
    return words


def _or_as_it_was(stored: object) -> object:
    value = loads(stored)
    return text(stored) if value is None else value


_DEEPEST = 200
"""Maximum nesting of JSON values, as readers recurse."""


def loads(stored: object) -> Any:  # noqa: ANN401 -- whatever the JSON says
    """Parse JSON; return None when it is invalid or nested too deeply."""
    json_text = text(stored)
    if not json_text:
        return None
    try:
        value = decode(json_text)
    except RecursionError:
        return None
    except ValueError:
        value = _pythons(json_text)
    return value if _is_flat(json_text, value) else None


def _pythons(json_text: str) -> Any:  # noqa: ANN401 -- as above
    """Parse JSON with Python's parser, which accepts NaN; remove lone surrogates."""
    try:
        return json.loads(without_surrogates(json.dumps(json.loads(json_text), ensure_ascii=False)))
    except (ValueError, RecursionError):
        return None


def _is_json(json_text: str) -> bool:
    try:
        decode(json_text)
    except ValueError:
        return False
    return True


def _is_flat(json_text: str, value: object) -> bool:
    if json_text.count("[") + json_text.count("{") <= _DEEPEST:
        return True
    level = [value]
    for _ in range(_DEEPEST):
        level = [inner for inner_value in level for inner in _inside(inner_value)]
        if not level:
            return True
    return False


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


def fields(stored: object) -> dict[str, Any] | None:
    """Parse a JSON object; return None for anything else."""
    words = loads(stored)
    return cast("dict[str, Any]", words) if isinstance(words, dict) else None


def text(value: object) -> str | None:
    """Convert any value to text."""
    if value is None or isinstance(value, str):
        return value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def whole(value: object) -> int:
    """Convert any value to an integer; invalid and huge numbers become 0."""
    found = value if isinstance(value, int) else int(number(value) or 0)
    return found if abs(found) <= LARGEST_AMOUNT else 0


def number(value: object) -> float | None:
    """Convert any value to a finite float, or None."""
    try:
        found = float(value if isinstance(value, int | float) else text(value) or "")
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None
