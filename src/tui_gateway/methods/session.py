"""Methods of an open session: title, interrupt, steer, undo, compress, history, usage, folder."""

from typing import Annotated, Any, TypedDict

from hermes_agent.turn.stop import Stop
from hermes_core.errors import Interrupted, TitleError
from hermes_protocol import events, results
from hermes_protocol.errors import (
    BAD_ARGUMENT,
    FOLDER_MISSING,
    NOTHING_RUNS,
    TITLE_EMPTY,
    TITLE_REFUSED,
)
from hermes_protocol.results import Info, Message, Usage
from hermes_protocol.structs import WireStruct
from hermes_state.ledger import messages as message_ledger
from hermes_state.ledger import partials, sessions, titles
from hermes_state.ledger import turns as turn_ledger
from tui_gateway import agents, attachment, folder, info, prompts, shell, stored_session, view
from tui_gateway import undo as undo_turns
from tui_gateway.params import AnyId, Cols, Params, Session, says
from tui_gateway.projection import projected
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import LiveSession, Runtime

_FEWEST = 4
"""The minimum number of messages to compact."""
STOPPED = "Stopped; nothing was compacted."


class Title(Params, frozen=True):
    """A new title, or a request for the current one."""

    session_id: AnyId
    title: Annotated[str | None, says("The new title; null returns the current one.")] = None


class Titled(TypedDict, total=False):
    """The title; `pending` if it will be stored with the first message."""

    title: str
    session_key: str
    pending: bool


def title(rt: Runtime, params: Title) -> Titled:
    """Show or set the title. A conversation without messages is stored with its title."""
    session = rt.sessions.get(params.session_id)
    if session is None:
        return _title_stored(rt, params)
    key = info.key_of(session)
    if params.title is None:
        if rt.db().read(sessions.find, key) is not None:
            stored_session.apply_title(rt, session)
        current = rt.db().read(titles.title_of, key) or session.get("pending_title") or ""
        return {"title": current, "session_key": key}
    cleaned = _clean(rt, params.title)
    _name(rt, session, key, cleaned)
    session["pending_title"] = None
    rt.emit(params.session_id, events.Title(key, cleaned))
    return {"pending": False, "title": cleaned, "session_key": key}


def _title_stored(rt: Runtime, params: Title) -> Titled:
    key = view.stored(rt.db(), params.session_id)
    if params.title is None:
        return {"title": rt.db().read(titles.title_of, key) or "", "session_key": key}
    cleaned = _clean(rt, params.title)
    _set(rt, key, cleaned)
    if (sid := view.opened(rt, key)) is not None:
        rt.emit(sid, events.Title(key, cleaned))
    return {"pending": False, "title": cleaned, "session_key": key}


def _clean(rt: Runtime, title: str) -> str:
    try:
        cleaned = titles.clean(title)
    except TitleError as error:
        raise RpcError(TITLE_REFUSED, error.message, fix=error.fix) from error
    if not cleaned:
        raise RpcError(TITLE_EMPTY, "The title is empty.")
    return cleaned


def _set(rt: Runtime, key: str, cleaned: str) -> None:
    try:
        rt.db().set_session_title(key, cleaned)
    except TitleError as error:
        raise RpcError(TITLE_REFUSED, error.message, fix=error.fix) from error


def _name(rt: Runtime, session: LiveSession, key: str, cleaned: str) -> None:
    """Title an open session, also one that is not stored yet; a refused title stores nothing."""
    live = rt.live(session)
    rt.presence.add(live.conversation_id)
    try:
        makes_session = rt.db().write(
            turn_ledger.set_title, key, cleaned, stored_session.opening_of(session, live)
        )
    except TitleError as error:
        raise RpcError(TITLE_REFUSED, error.message, fix=error.fix) from error
    if makes_session:
        live.seed = []
        stored_session.invoke_start_hook(rt, session)


class Stopped(TypedDict):
    """The outcome."""

    status: str


def interrupt(rt: Runtime, params: Session) -> Stopped:
    """Interrupt the running turn and the shell commands of the client at once.

    Queued prompts and open questions are canceled.
    """
    shell.interrupt(rt.transport)
    prompts.interrupt(rt, rt.session(params.session_id), cancels_queue=True)
    return {"status": "interrupted"}


class Steer(Session, frozen=True):
    """A text for the running turn."""

    text: Annotated[str, says("The text that the model reads after its next tool call.")] = ""


def steer(rt: Runtime, params: Steer) -> dict[str, Any] | None:
    """Send a message to the running turn; returns when it is on disk.

    Returns `{status, text, turn_id}`: `steered` if the turn accepted it; `queued` if the turn ended
    before, so this is the next prompt; `rejected` if the turn was interrupted before it read it.
    """
    if not params.text.strip():
        raise RpcError(BAD_ARGUMENT, "The message is empty.")
    session = rt.session(params.session_id)
    text = attachment.with_pasted(rt.home, params.text)
    if not prompts.steer(rt, session, text, rt.defer_answer()):
        raise RpcError(
            NOTHING_RUNS, "There is no running turn to steer.", fix="Send it as a prompt."
        )
    return None


class Undone(TypedDict):
    """The number of undone messages."""

    removed: int


def undo(rt: Runtime, params: Session) -> Undone:
    """Undo the last exchange; the store keeps it, outside of the conversation."""
    return {"removed": undo_turns.undo_last(rt, rt.session(params.session_id))}


class Compress(Session, frozen=True):
    """Options of a compaction."""

    focus_topic: Annotated[str, says("The topic that the summary should focus on.")] = ""


class Summary(WireStruct, frozen=True):
    """The outcome of a compaction for a person: a headline, and a note about a fallback."""

    noop: bool
    aborted: bool
    fallback_used: bool
    headline: str
    token_line: str
    note: str


class Compressed(WireStruct, frozen=True):
    """The outcome; the conversation continues in another stored session."""

    status: str
    removed: int
    before_messages: int
    after_messages: int
    before_tokens: int
    after_tokens: int
    summary: Summary
    usage: Usage
    info: Info
    messages: list[Message]


def compress(rt: Runtime, params: Compress) -> Compressed:
    """Compact the conversation now; the originals stay readable and it can be undone."""
    sid, session = params.session_id, rt.session(params.session_id)
    agents.wait(rt, sid, session)
    with prompts.compacting(rt, session) as stop:
        before = rt.db().read(message_ledger.count, info.key_of(session))
        outcome = _compact(session, params.focus_topic, before, stop)
    if outcome["compressed"]:
        info.notify_changed(rt, session, "compress")
    return _account(rt, session, outcome, before)


def _compact(session: LiveSession, focus: str, messages: int, stop: Stop) -> dict[str, Any]:
    agent, outcome = session.get("agent"), {"compressed": False}
    if agent is None or not messages:
        return outcome
    try:
        outcome = agent.compress(focus, stop) if messages >= _FEWEST else outcome
    except Interrupted:
        outcome = {"compressed": False, "aborted": True}
    if outcome["compressed"]:
        return outcome
    tokens = agent.context_tokens()
    return {**outcome, "tokens_before": tokens, "tokens_after": tokens}


def _account(rt: Runtime, session: LiveSession, outcome: dict[str, Any], before: int) -> Compressed:
    key = info.key_of(session)
    after = rt.db().read(message_ledger.count, key)
    tokens = outcome.get("tokens_before", 0), outcome.get("tokens_after", 0)
    is_done, is_stopped = bool(outcome["compressed"]), bool(outcome.get("aborted"))
    headline = f"{before} messages became {after}."
    if not is_done:
        headline = STOPPED if is_stopped else "Nothing to compact yet."
    return Compressed(
        status="compressed" if is_done else "aborted",
        removed=max(before - after, 0),
        before_messages=before,
        after_messages=after,
        before_tokens=tokens[0],
        after_tokens=tokens[1],
        summary=Summary(
            noop=not is_done,
            aborted=is_stopped,
            fallback_used=outcome.get("strategy") in ("digest", "cut"),
            headline=headline,
            token_line=f"{tokens[0]} → {tokens[1]} tokens" if is_done else "",
            note="/expand shows the originals, /undo compress undoes it." * is_done,
        ),
        usage=info.usage(rt, session),
        info=info.describe(rt, session),
        messages=projected(rt.db().read(message_ledger.as_conversation, key)),
    )


class History(Params, frozen=True):
    """A page of messages."""

    session_id: AnyId
    limit: (
        Annotated[int, says("Maximum number of messages, the latest ones.", ge=0, le=1000)] | None
    ) = None
    before: Annotated[int | None, says("Only messages before the one with this `id`.")] = None


def history(rt: Runtime, params: History) -> results.History:
    """List messages: all, or page by page from the end; also of a conversation that is not open."""
    store = rt.db()
    session = rt.sessions.get(params.session_id)
    key = info.key_of(session) if session is not None else view.stored(store, params.session_id)
    found = view.transcript(store, key, params.limit, params.before)
    unheld = (
        store.read(partials.of_session, key) if session is None else []
    )  # nobody goes on with it yet
    if params.before is None:
        found = [*found, *unheld]
        if not found and session is not None:
            found = rt.live(session).seed
    count = store.read(message_ledger.count, key) + len(unheld) or len(found)
    return results.History(count, projected(found))


def usage(rt: Runtime, params: Session) -> Usage:
    """Report tokens, calls and cost of the conversation, and the use of the window."""
    return info.usage(rt, rt.session(params.session_id))


class Breakdown(TypedDict):
    """The use of the window: estimated per part, and from the last model call, if there was one."""

    categories: list[dict[str, Any]]
    context_max: int
    context_percent: float
    context_used: int
    estimated_total: int
    model: str


def context_breakdown(rt: Runtime, params: Session) -> Breakdown:
    """Estimate how much of the window the system prompt, the tools and the messages take."""
    session = rt.session(params.session_id)
    agents.wait(rt, params.session_id, session)
    agent = session.get("agent")
    parts: dict[str, int] = agent.context_parts() if agent is not None else {}
    window, total = info.window_share(rt, session), sum(parts.values())
    most = window.context_max or (agent.model.facts.window if agent is not None else 0)
    used = window.context_used or total
    return {
        "categories": [{"name": name, "tokens": tokens} for name, tokens in parts.items()],
        "context_max": most,
        "context_percent": round(100 * used / most, 1) if most else 0.0,
        "context_used": used,
        "estimated_total": total,
        "model": info.model_name(agent),
    }


class SetCwd(Session, frozen=True):
    """A folder to work in."""

    cwd: Annotated[str, says("The folder.")] = ""


def set_cwd(rt: Runtime, params: SetCwd) -> Info:
    """Change the working folder; the result is the `session.info` that all clients get."""
    session = rt.session(params.session_id)
    if not params.cwd:
        raise RpcError(FOLDER_MISSING, "Which folder?", fix="Give cwd.")
    path = folder.resolve(params.cwd)
    prompts.check_idle(rt, session)
    rt.live(session).cwd = path
    if (agent := session.get("agent")) is not None:
        agent.tool_context.workspace = agent.tool_context.cwd = path
    if rt.db().read(sessions.find, info.key_of(session)) is not None:
        rt.db().write(sessions.change, info.key_of(session), cwd=str(path))
    rt.run_after_answer(lambda: info.send(rt, params.session_id, session))
    return info.describe(rt, session)


class Resize(Session, frozen=True):
    """The client's terminal."""

    cols: Cols = 80


class Resized(TypedDict):
    """The width in use."""

    cols: int


def resize(rt: Runtime, params: Resize) -> Resized:
    """Set the width of the client's terminal."""
    rt.session(params.session_id)["cols"] = params.cols
    return {"cols": params.cols}
