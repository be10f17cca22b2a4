"""`todo`: the checklist of a conversation; the last result of the tool is the list, and all there is."""

import re
from collections.abc import Mapping
from typing import Any

from hermes_agent.tools import schema
from hermes_agent.tools.base import Args, Call, Tool
from hermes_core.errors import ToolError
from hermes_core.text import one_line, truncate
from hermes_state.ledger import messages as message_ledger
from hermes_state.store import Store

_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)])?\s*(?:\[([ xX~\-/])\])?\s*(.*)")
_MARKS = {" ": " ", "x": "x", "X": "x", "~": "~", "-": "~", "/": "~"}
_MAX_ITEMS = 50
_MAX_TEXT = 300
_EMPTY = "The list is empty."


def current(store: Store, session_id: str) -> str:
    """The list as it stands: the last one in the transcript, also before a compaction."""
    messages = store.read(message_ledger.originals, session_id)
    return next((text for message in reversed(messages) if (text := _list_in(message))), "")


def _list_in(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if message.get("role") != "tool" or message.get("tool_name") != "todo":
        return ""
    text = content if isinstance(content, str) else ""
    return text if text.startswith("- [") or text == _EMPTY else ""


def _run(args: Args, call: Call) -> str:
    if "list" not in args:
        return current(call.bench.store, call.session_id) or _EMPTY
    items = [_item(line) for line in args["list"].splitlines() if line.strip()]
    if len(items) > _MAX_ITEMS:
        raise ToolError(f"{len(items)} items are too many.", fix=f"Keep at most {_MAX_ITEMS}.")
    return "\n".join(items) or _EMPTY


def _item(line: str) -> str:
    found = _ITEM.match(line)
    mark, text = (found[1], found[2]) if found else (None, line)
    return f"- [{_MARKS[mark or ' ']}] {truncate(one_line(text), _MAX_TEXT)}"


TOOL = Tool(
    name="todo",
    description="Keep a checklist for long tasks. Without list: show it.",
    parameters=schema.of(list="the whole list, a line each: - [ ] open, - [~] doing, - [x] done"),
    run=_run,
    read_only=True,
    timeout_s=15,
)
