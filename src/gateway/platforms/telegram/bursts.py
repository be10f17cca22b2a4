"""Bursts: messages that are one for their sender, as Telegram delivers albums and long texts in parts.

Clients cut a text at 4,096 characters, or at a better place in the second half of that.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from gateway.platforms.telegram.markdown import utf16
from gateway.platforms.telegram.wire import table

Raw = dict[str, Any]

MAX_PART = 4096
_MIN_CUT = MAX_PART // 2
_MAX_GAP_S = 3
"""Seconds between two parts of a text."""
_SAME = ("from", "sender_chat", "message_thread_id", "forward_origin")


def are_open(updates: Sequence[Raw]) -> bool:
    """Return whether more parts of an album or a text may follow."""
    if any(map(album, updates)):
        return True
    ends = {_sender(update): update for update in updates if _text(update)}
    return any(map(_may_be_cut, ends.values()))


def count_parts(updates: Sequence[Raw]) -> int:
    """Return how many updates belong to an album or to the text of a burst."""
    is_after = dict[str, Raw]()
    count = 0
    for update in updates:
        before = is_after.get(sender := _sender(update))
        follows = before is not None and _continues(before, update)
        count += bool(album(update)) or _may_be_cut(update) or follows
        is_after[sender] = update
    return count


def whole(queue: Sequence[Raw]) -> list[Raw]:
    """Return the next message of a chat with all its parts, even with others between them."""
    first = queue[0]
    if name := album(first):
        return [update for update in queue if album(update) == name]
    parts = [first]
    for update in islice(queue, 1, None):
        if _sender(update) == _sender(first):
            if not _continues(parts[-1], update):
                break
            parts.append(update)
    return parts


def album(raw: Raw) -> str:
    """Return the album that an update is a picture of; empty when there is none."""
    return _message(raw).get("media_group_id") or ""


def _continues(before: Raw, after: Raw) -> bool:
    """Return whether an update is the next part of the text of the one before."""
    if not (_may_be_cut(before) and _text(after)):
        return False
    first, second = _message(before), _message(after)
    is_soon = 0 <= _date(second) - _date(first) <= _MAX_GAP_S
    return is_soon and all(_identity(first.get(key)) == _identity(second.get(key)) for key in _SAME)


def _may_be_cut(raw: Raw) -> bool:
    return utf16(_text(raw)) > _MIN_CUT


def _text(raw: Raw) -> str:
    text = _message(raw).get("text")
    return text if isinstance(text, str) else ""


def _date(message: Raw) -> int:
    date = message.get("date")
    return date if isinstance(date, int) else 0


def _message(raw: Raw) -> Raw:
    """Return the new message of an update; empty for edits and others."""
    return table(raw.get("message") or raw.get("channel_post"))


def _sender(raw: Raw) -> str:
    message = _message(raw)
    ids = (table(message.get(key)).get("id", "") for key in ("chat", "from", "sender_chat"))
    return ":".join(map(str, ids))


def _identity(value: object) -> object:
    """Return what stays the same of a sender or an origin from one part to the next."""
    fields = table(value)
    same = {key: fields[key] for key in fields if key not in ("date", "message_id")}
    return same if fields else value
