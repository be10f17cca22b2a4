"""Open and close sessions: create, resume, activate, branch, close."""

from pathlib import Path
from typing import Annotated, Any, TypedDict

from hermes_core.errors import HermesError, NothingSaidError
from hermes_protocol.errors import BAD_ARGUMENT, ID_MISSING, NOT_STORED
from hermes_protocol.results import Created, Opened, Position
from hermes_state.ledger import lineage, sessions, titles
from tui_gateway import agents, folder, info, stored_session, surface, view
from tui_gateway.params import Cols, OpenId, Params, Session, says
from tui_gateway.projection import projected
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import SOURCE, LiveSession, Runtime, SessionState, at_rest

_PAGE = (
    Annotated[
        int,
        says(
            "Maximum number of messages, the latest ones; `session.history` has more.",
            ge=0,
            le=1000,
        ),
    ]
    | None
)
_AFTER = (
    Annotated[
        Position,
        says(
            "The last event that the client saw: `log` and `seq`. The server sends the"
            " missed events, if it still has them."
        ),
    ]
    | None
)
_MAX_SEEDS = 10_000


class SeedMessage(Params, frozen=True):
    """An earlier message that a client sends."""

    role: str
    content: str | list[Any] | None = None
    text: str | None = None


class Create(Params, frozen=True):
    """A new conversation."""

    cols: Cols = 80
    messages: Annotated[
        tuple[SeedMessage, ...],
        says("Messages of an earlier conversation elsewhere.", max_length=_MAX_SEEDS),
    ] = ()
    title: Annotated[str, says("Its title; set with the first message.")] = ""
    cwd: Annotated[str, says("The folder to work in; the default is that of the server.")] = ""
    source: Annotated[str, says("The surface, as the store names it.")] = SOURCE
    model: Annotated[str, says("The model for this session alone: a name or provider/name.")] = ""
    provider: Annotated[str, says("The provider of the model.")] = ""
    parent_session_id: Annotated[str, says("The stored session that this one branches from.")] = ""
    close_on_disconnect: Annotated[bool, says("End it when its last client goes away.")] = False
    render: Annotated[bool, says("Send replies also as text for a terminal (`rendered`).")] = False


def create(rt: Runtime, params: Create) -> Created:
    """Open a new conversation. Nothing is stored before its first message or title."""
    if params.parent_session_id and rt.db().read(sessions.find, params.parent_session_id) is None:
        raise RpcError(NOT_STORED, "There is no conversation with the id in parent_session_id.")
    live = SessionState(
        source=params.source,
        cwd=_folder(params.cwd),
        model_name="/".join(filter(None, (params.provider, params.model))) if params.model else "",
        parent_session_id=params.parent_session_id or None,
        closes_with_client=params.close_on_disconnect,
        is_rendered=params.render,
        seed=[_seed(message) for message in params.messages],
    )
    session = _new(sessions.new_id(), live, params.cols)
    live.conversation_id = session["session_key"]
    session["pending_title"] = params.title.strip() or None
    described = info.describe(rt, session)  # needs the settings: what fails opens nothing
    sid = _open(rt, session)
    rt.run_after_answer(lambda: agents.begin(rt, sid, session))
    seed = projected(live.seed)
    return Created(sid, session["session_key"], len(live.seed), seed, described)


class Resume(Params, frozen=True):
    """A stored conversation."""

    session_id: Annotated[str, says("Its id, its title, or the beginning of its id.")] = ""
    cols: Cols = 80
    limit: _PAGE = None
    cwd: Annotated[str, says("The folder to work in if its own is gone.")] = ""
    close_on_disconnect: Annotated[bool, says("End it when its last client goes away.")] = False
    render: Annotated[bool, says("Send replies also as text for a terminal (`rendered`).")] = False
    after: _AFTER = None


def resume(rt: Runtime, params: Resume) -> Opened:
    """Continue a stored conversation at its tip; its open turns resume.

    With `after`, `events.replayed` says whether exactly the missed events follow the response, which
    then has no messages. Otherwise the response is a whole snapshot, and `events` is its position.
    """
    if not params.session_id:
        raise RpcError(ID_MISSING, "Which conversation?", fix="Give session_id.")
    live = SessionState(
        cwd=_folder(params.cwd),
        closes_with_client=params.close_on_disconnect,
        is_rendered=params.render,
    )
    key = view.stored(rt.db(), params.session_id)
    with view.opening_lock(rt.db(), key):
        sid = view.opened(rt, key)
        if sid is None:
            rt.check_room()
            stored_session.open_stored(rt, key, live)
            session = _new(key, live, params.cols)
            sid = _open(rt, session)
            rt.run_after_answer(lambda: agents.begin(rt, sid, session))
    session = rt.session(sid)
    surface.attach(rt, session)
    with surface.paused_until_answered(rt, session):
        return view.snapshot(rt, sid, params.limit, params.after)


class Activate(Session, frozen=True):
    """An open session to look at."""

    limit: _PAGE = None
    after: _AFTER = None


def activate(rt: Runtime, params: Activate) -> Opened:
    """Subscribe to a session that is open here, also one that another client opened."""
    return view.snapshot(rt, params.session_id, params.limit, params.after)


class Branch(Session, frozen=True):
    """The copy of a conversation."""

    name: Annotated[str, says("Its title; the default is that of the original with a number.")] = ""


class Branched(TypedDict):
    """A session that is a copy."""

    session_id: str
    stored_session_id: str
    title: str
    parent: str


def branch(rt: Runtime, params: Branch) -> Branched:
    """Copy the ended turns of a conversation into a new one and open it; the original stays open.

    The running turn and queued prompts continue in the original only.
    """
    session, store = rt.session(params.session_id), rt.db()
    rt.check_room()
    parent = store.read(lineage.tip, info.key_of(session))
    if store.read(sessions.find, parent) is None:
        raise NothingSaidError("There is nothing to branch from yet.")
    key = sessions.new_id()
    rt.presence.add(key)
    try:
        store.write(lineage.branch, parent, child_id=key, title=params.name)
    except HermesError:
        rt.presence.remove(key)
        raise
    origin = rt.live(session)
    live = SessionState(
        conversation_id=key, source=origin.source, cwd=origin.cwd, model_name=origin.model_name
    )
    child = _new(key, live, session.get("cols", 80))
    sid = _open(rt, child)
    stored_session.invoke_start_hook(rt, child)
    rt.run_after_answer(lambda: agents.begin(rt, sid, child))
    title = store.read(titles.title_of, key) or ""
    return {"session_id": sid, "stored_session_id": key, "title": title, "parent": parent}


class Closed(TypedDict):
    """The outcome: whether there was something to close."""

    closed: bool


class Close(Params, frozen=True):
    """A session to end."""

    session_id: OpenId = ""


def close(rt: Runtime, params: Close) -> Closed:
    """End a session: interrupt its turn, store everything, end the conversation.

    Queued prompts continue when it is resumed.
    """
    return {"closed": rt.close(params.session_id, "tui_close")}


# -- how sessions are made and told ------------------------------------------------------------------


def _new(key: str, live: SessionState, cols: int) -> LiveSession:
    return {
        **at_rest(key, live),
        "image_counter": 0,
        "cols": cols,
        "show_reasoning": True,
        "tool_progress_mode": "all",
    }


def _open(rt: Runtime, session: LiveSession) -> str:
    sid = rt.register(session)
    rt.watch(session)
    return sid


def _folder(name: str) -> Path:
    return folder.resolve(name) if name else folder.current()


def _seed(message: SeedMessage) -> dict[str, Any]:
    if message.role not in ("user", "assistant", "system"):
        raise RpcError(BAD_ARGUMENT, f"Messages of the role {message.role!r} are not supported.")
    content = message.content if message.content is not None else message.text
    return {"role": message.role, "content": content or ""}
