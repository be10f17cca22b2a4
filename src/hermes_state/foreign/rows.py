"""How a row of hermes-agent becomes one of ours; what has no column here is kept beside it.

Its tables take any type in any column, ours do not, so every value is brought to its type first.
"""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from hermes_core.text import without_surrogates
from hermes_state.export_format import LARGEST_AMOUNT, STEERING
from hermes_state.ledger import sessions
from hermes_state.ledger.records import decode, encode
from hermes_state.values import NewMessage, Row, Spent

_ENCODED = "\x00json:"
"""How hermes-agent marks content that is not text."""

_TEXTS = (
    "source", "user_id", "session_key", "chat_id", "chat_type", "thread_id", "display_name", "model",
    "profile_name",
)  # fmt: skip
_TOKENS = (
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens",
)  # fmt: skip
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
    *_TOKENS,
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
    """A session on its way in: its columns, its sums, and what is kept beside them."""

    columns: Row
    totals: Row
    extra: Row
    filled: bool
    """Whether half an end was made a whole one."""


class Spending(NamedTuple):
    """What was spent on one model, for one task."""

    spent: Spent
    task: str
    at: float


def session(row: Row, active_at: object) -> Session:
    """A session's row; `active_at` is when its last message was written."""
    columns: Row = {name: text(row.get(name)) for name in _TEXTS}
    columns["source"] = columns["source"] or "unknown"
    extra: Row = {name: value for name, value in row.items() if name not in _ELSEWHERE}
    config = text(row.get("model_config"))
    if config is None or (known := fields(config)) is None:
        columns["model_config"], extra["model_config"] = None, config
    else:
        # What only Python's JSON can read is written as everybody's.
        config = config if _is_json(config) else encode(known)
        columns["model_config"] = sessions.without_instructions(config)
    extra = {name: value for name, value in extra.items() if value not in _EMPTY}
    began = number(row.get("started_at")) or number(active_at) or 0.0
    ended, reason = number(row.get("ended_at")), text(row.get("end_reason"))
    filled = (ended is None) != (reason is None)
    if filled:
        ended = number(active_at) or began if ended is None else ended
        reason = reason or "unknown"
    columns |= {
        "started_at": began,
        "ended_at": ended,
        "end_reason": reason,
        "rewind_count": whole(row.get("rewind_count")),
    }
    return Session(columns, _totals(row), extra, filled)


_EMPTY = (None, 0, "")


def _totals(row: Row) -> Row:
    return {
        "api_call_count": whole(row.get("api_call_count")),
        **{name: whole(row.get(name)) for name in _TOKENS},
        "cost_usd": cost(row, zero_is_known=True),
    }


def cost(row: Row, *, zero_is_known: bool) -> float:
    """What was really paid, else what was thought to be."""
    actual, estimated = number(row.get("actual_cost_usd")), number(row.get("estimated_cost_usd"))
    if actual is None or (not actual and not zero_is_known):
        return estimated or 0.0
    return actual


def spendings(usage: Iterable[Row], found: Session) -> list[Spending]:
    """What the model calls of a session cost; older schemas only know the sum."""
    began, model = found.columns["started_at"], found.columns["model"]
    known = [
        Spending(
            Spent(
                text(row.get("model")) or "unknown",
                text(row.get("billing_provider")) or "",
                **{name: whole(row.get(name)) for name in _TOKENS},
                # In this table a cost nobody knows is a zero, not an empty field.
                cost_usd=cost(row, zero_is_known=False),
            ),
            text(row.get("task")) or "",
            number(row.get("last_seen")) or number(row.get("first_seen")) or began,
        )
        for row in usage
    ]
    totals = found.totals
    if known or not any(totals.values()):
        return known
    sums = {name: totals[name] for name in (*_TOKENS, "cost_usd")}
    provider = text(found.extra.get("billing_provider")) or ""
    return [Spending(Spent(model or "unknown", provider, **sums), "", began)]


def usage_beside(usage: Iterable[Row]) -> list[Row]:
    """The columns of usage rows that have no place in ours."""
    dropped = {"session_id", *_TOKENS}
    return [
        {name: v for name, v in row.items() if name not in dropped and v not in _EMPTY}
        for row in usage
    ]


def message(row: Row) -> NewMessage:
    """A message's row."""
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
    """Tell whether a summary stands for a message in the model's view."""
    return bool(whole(row.get("compacted"))) and not is_active(row)


_SUMMARY = "[CONTEXT COMPACTION"
"""How the message that stands for compacted ones begins."""
_TELLING = 40
"""Characters from which on two messages with the same words are the same message."""


_MOMENT_S = 0.1
"""The most between the times of messages that one compaction wrote."""


class Originals:
    """The compacted messages of a session, to tell the copies that were made beside a summary.

    hermes-agent compacts a session in place: it hides all rows, then adds copies of the first ones, a
    summary, and copies of the last ones.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        """`rows` are all messages of the session, in order."""
        self._copies = _copies(rows)
        self._ids: dict[str, list[tuple[float, int]]] = {}
        """By what they say: when, and the id of the row here."""
        self._ids_at: dict[int, int] = {}
        """The ids of the rows here, by position."""

    def add(self, position: int, row: Row, id_: int) -> None:
        """Remember a compacted message under the id it got here."""
        self._ids_at[position] = id_
        self._ids.setdefault(_words(row), []).append((number(row.get("timestamp")) or 0.0, id_))

    def marked(self, position: int, row: Row, found: NewMessage) -> NewMessage:
        """The same message, as a summary or a copy if it is one."""
        if is_summary(row):
            return found._replace(kind="summary")
        if (origin := self._ids_at.get(self._copies.get(position, -1))) is not None:
            return found._replace(kind="copy", origin_id=origin)
        said = _words(row)
        is_telling = len(text(row.get("content")) or "") >= _TELLING or row.get("tool_call_id")
        for at, id_ in reversed(self._ids.get(said, ())):
            if is_telling or row.get("tool_calls") or at == found.timestamp:
                return found._replace(kind="copy", origin_id=id_)
        return found


def _copies(rows: Sequence[Row]) -> dict[int, int]:
    """Return which rows are copies by their place around a summary: the position of each original.

    Words that are few may have been said again, so it is the place that tells: after a summary stands
    the end of what the model was shown before, and before it the beginning. How many are copies tells
    what is not hidden before a summary, or the time: copies that got a new one were written with it.
    """
    said = [_words(row) for row in rows]
    copies: dict[int, int] = {}
    view: list[int] = []
    for at, row in enumerate(rows):
        if is_summary(row) and (count := _copied_head(rows, said, view, at)) is not None:
            before = view[: len(view) - count]
            copies |= zip(range(at - count, at), before, strict=False)
            copies |= _copied_tail(rows, said, before, at + 1)
            view = list(range(at - count, at))
        if is_active(row) or is_compacted(row):  # not taken back
            view.append(at)
    for position, origin in copies.items():  # in order, so that an original is resolved before
        copies[position] = copies.get(origin, origin)
    return copies


def _copied_head(
    rows: Sequence[Row], said: Sequence[str], view: Sequence[int], end: int
) -> int | None:
    """Return how many rows before a summary are copies of the beginning of a view that they end.

    None: the summary stands for something else.
    """
    active = sum(not is_compacted(rows[position]) for position in view)
    guesses = [_written_with(rows, end, -1), *range(len(view) // 2, 1, -1)]
    for count in [active] if active else guesses:
        copied = view[len(view) - count :]
        if not count:
            continue
        if all(
            said[first] == said[copy] for first, copy in zip(view, copied, strict=False)
        ) and not (active and is_compacted(rows[copied[0]])):
            return count
    return None if active else 0


def _copied_tail(
    rows: Sequence[Row], said: Sequence[str], view: Sequence[int], begin: int
) -> dict[int, int]:
    """Return the rows from `begin` on that are copies of the end of a view, with their originals."""
    most = _written_with(rows, begin - 1, 1) or len(view)
    for first in range(max(0, len(view) - most), len(view)):
        kept = view[first:]
        if begin + len(kept) <= len(said) and all(
            said[position] == said[begin + n] for n, position in enumerate(kept)
        ):
            return {begin + n: position for n, position in enumerate(kept)}
    return {}


def _written_with(rows: Sequence[Row], at: int, step: int) -> int:
    """Return how many rows before (-1) or after (1) a row were written at its moment."""
    moment, count = number(rows[at].get("timestamp")) or 0.0, 0
    while 0 <= (position := at + step * (count + 1)) < len(rows):
        if abs((number(rows[position].get("timestamp")) or 0.0) - moment) > _MOMENT_S:
            break
        count += 1
    return count


def is_summary(row: Row) -> bool:
    """Tell whether a message stands for compacted ones."""
    return (text(row.get("content")) or "").startswith(_SUMMARY)


def _words(row: Row) -> str:
    return encode(
        [text(row.get(name)) for name in ("role", "content", "tool_calls", "tool_call_id")]
    )


def is_active(row: Row) -> bool:
    """Whether a message still belongs to what the model is shown; unsaid, it does."""
    return row.get("active") is None or bool(whole(row["active"]))


def content(stored: object) -> Any:  # noqa: ANN401 -- text or parts, as in a message
    """What was said: text, or the parts that the text stands for."""
    said = text(stored)
    if said is not None and said.startswith(_ENCODED):
        parts = loads(said[len(_ENCODED) :])
        return said if parts is None else parts
    return said


def _or_as_it_was(stored: object) -> object:
    value = loads(stored)
    return text(stored) if value is None else value


_DEEPEST = 200
"""How deep values may be nested. What reads them goes a call deeper each time, and calls are limited."""


def loads(stored: object) -> Any:  # noqa: ANN401 -- whatever the JSON says
    """What a JSON text says; None when it says nothing that can be read, or is nested beyond reason."""
    given = text(stored)
    if not given:
        return None
    try:
        value = decode(given)
    except RecursionError:
        return None
    except ValueError:
        value = _pythons(given)
    return value if _is_flat(given, value) else None


def _pythons(given: str) -> Any:  # noqa: ANN401 -- as above
    """The same by Python's own JSON, which lets NaN and half characters through; these not to us."""
    try:
        return json.loads(without_surrogates(json.dumps(json.loads(given), ensure_ascii=False)))
    except (ValueError, RecursionError):
        return None


def _is_json(given: str) -> bool:
    try:
        decode(given)
    except ValueError:
        return False
    return True


def _is_flat(given: str, value: object) -> bool:
    if given.count("[") + given.count("{") <= _DEEPEST:
        return True
    level = [value]
    for _ in range(_DEEPEST):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return True
    return False


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


def fields(stored: object) -> dict[str, Any] | None:
    """What a JSON object says; None when it is none."""
    said = loads(stored)
    return cast("dict[str, Any]", said) if isinstance(said, dict) else None


def text(value: object) -> str | None:
    """Any value as text."""
    if value is None or isinstance(value, str):
        return value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def whole(value: object) -> int:
    """Any value as a whole number; what is none, or is beyond all counting, counts nothing."""
    found = value if isinstance(value, int) else int(number(value) or 0)
    return found if abs(found) <= LARGEST_AMOUNT else 0


def number(value: object) -> float | None:
    """Any value as a number, such as seconds since the epoch; None when it is none."""
    try:
        found = float(value if isinstance(value, int | float) else text(value) or "")
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None
