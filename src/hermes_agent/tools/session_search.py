"""`session_search`: find what was said in earlier conversations, and read around it."""

from collections.abc import Iterable, Mapping
from typing import Any

from hermes_agent.approval import taint
from hermes_agent.tools import schema
from hermes_agent.tools.base import Args, Call, Tool
from hermes_core import clock
from hermes_core.errors import SessionNotFoundError, ToolError
from hermes_core.text import one_line, truncate
from hermes_state.ledger import messages, scope
from hermes_state.values import Scope, TaintSource

_MAX_HITS = 50
_WINDOW = 5
_MAX_SNIPPET = 1_500
_DAY_S = 86_400.0


def _run(args: Args, call: Call) -> str:
    if "around" in args:
        return _around(args, call)
    query = args.get("query", "").strip()
    if not query:
        raise ToolError("There is nothing to search for.", fix="Give query, or session and around.")
    filters: dict[str, Any] = {"role": args.get("role", ("user", "assistant"))}
    if "days" in args:
        filters["since"] = clock.now() - args["days"] * _DAY_S
    if "session" in args:
        filters["session_id"] = _seen(args["session"], call)
    limit = min(args.get("limit", 10), _MAX_HITS)
    hits = call.bench.store.search_messages(
        query, limit=limit, sort="relevance", scope=_scope(call), **filters
    )
    _inherit([hit["session_id"] for hit in hits], call)
    return "\n".join(map(_hit, hits)) or "Nothing was found."


def _scope(call: Call) -> Scope | None:
    permissions = call.bench.permissions
    return permissions.scope if permissions is not None else None


def _seen(session_id: str, call: Call) -> str:
    """The session, which must be one that the person may see."""
    if not call.bench.store.read(scope.is_visible, session_id, _scope(call)):
        raise ToolError(f"There is no session {session_id!r}.", fix="Take it from a hit.")
    return session_id


def _inherit(session_ids: Iterable[str], call: Call) -> None:
    """Record the outside text that conversations had read: they may repeat it."""
    for session_id in dict.fromkeys(session_ids):
        if sources := taint.of(call.bench.store, session_id).outside:
            source = f"an earlier conversation that had read {sources[-1]}"
            call.note_read(TaintSource("outside", source))


def _hit(hit: Mapping[str, Any]) -> str:
    title = f" “{hit['title']}”" if hit.get("title") else ""
    return (
        f"{_day(hit['timestamp'])}{title} session={hit['session_id']} around={hit['id']}"
        f" {hit['role']}: {hit['snippet']}"
    )


def _around(args: Args, call: Call) -> str:
    if "session" not in args:
        raise ToolError("around needs the session.", fix="Take both from a hit of a search.")
    session_id = _seen(args["session"], call)
    try:
        found = call.bench.store.read(messages.around, session_id, args["around"], _WINDOW)
    except SessionNotFoundError as error:
        raise ToolError(str(error), fix="Take session and around from a hit.") from error
    _inherit([session_id], call)
    lines = [_message(message) for message in found["window"]]
    before, after = found["messages_before"], found["messages_after"]
    return "\n".join([*lines, f"[{before} messages before, {after} after the one asked for]"])


def _message(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    text = content if isinstance(content, str) else "(more than text)" if content else ""
    calls = ", ".join(call["function"]["name"] for call in message.get("tool_calls") or ())
    called = f" [calls {calls}]" if calls else ""
    return f"{message['role']}: {truncate(one_line(text), _MAX_SNIPPET)}{called}"


def _day(timestamp: float) -> str:
    return clock.date(timestamp).strftime("%Y-%m-%d")


TOOL = Tool(
    name="session_search",
    description="Search earlier conversations; session and around of a hit show its neighbours.",
    parameters=schema.of(
        query="",
        session="",
        around={"type": "integer"},
        role={"type": "string", "enum": ["user", "assistant", "tool"]},
        days={"type": "number", "description": "only the last days"},
        limit={"type": "integer", "minimum": 1},
    ),
    run=_run,
    read_only=True,
    reads=lambda _args, _bench, _access: [TaintSource("private", "earlier conversations")],
    timeout_s=30,
    small=("query",),
    one_line="Search earlier conversations for words.",
)
