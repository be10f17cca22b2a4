"""Opening sessions and letting go of them: create, resume, activate, branch, close."""

from pathlib import Path
from typing import Annotated, Any, TypedDict

from hermes_core.errors import HermesError, NothingSaidError
from hermes_protocol.errors import BAD_ARGUMENT, ID_MISSING, NOT_STORED
from hermes_protocol.results import Created, Opened, Position
from hermes_state.ledger import lineage, sessions, titles
from tui_gateway import agents, folder, info, stored_session, surface, view
from tui_gateway.params import Cols, OpenId, Params, Session, says
from tui_gateway.projection import projected
from tui_gateway.protocol import Rid, RpcError
from tui_gateway.runtime import SOURCE, LiveSession, Runtime, SessionState, at_rest

_PAGE = (
    Annotated[
        int, says("Only the last so many messages; `session.history` has more.", ge=0, le=1000)
    ]
    | None
)
_AFTER = (
    Annotated[
        Position,
        says(
            "The last event the client saw: `log` and `seq`. What it missed is sent, if it is kept."
        ),
    ]
    | None
)
_MAX_SEEDS = 10_000


class SeedMessage(Params, frozen=True):
    """A message that a client brings along."""

    role: str
    content: str | list[Any] | None = None
    text: str | None = None


class Create(Params, frozen=True):
    """A new conversation."""

    cols: Cols = 80
    messages: Annotated[
        tuple[SeedMessage, ...], says("What was said before, elsewhere.", max_length=_MAX_SEEDS)
    ] = ()
    title: Annotated[str, says("Its title; set with the first message.")] = ""
    cwd: Annotated[str, says("The folder to work in; without one, the server's own.")] = ""
    source: Annotated[str, says("What the store calls the surface.")] = SOURCE
    model: Annotated[str, says("The model for this session alone: a name or provider/name.")] = ""
    provider: Annotated[str, says("Who serves the model.")] = ""
    parent_session_id: Annotated[str, says("The stored session that this is a branch of.")] = ""
    close_on_disconnect: Annotated[bool, says("End it when its last client goes away.")] = False
    render: Annotated[bool, says("Send replies also as text for a terminal (`rendered`).")] = False


def create(rt: Runtime, rid: Rid, params: Create) -> Created:
    """Open a new conversation. Nothing is stored before its first message or title."""
    del rid
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
    """A conversation that was there before."""

    session_id: Annotated[str, says("Its id, its title, or the beginning of its id.")] = ""
    cols: Cols = 80
    limit: _PAGE = None
    cwd: Annotated[str, says("Where to work when its own folder is gone.")] = ""
    close_on_disconnect: Annotated[bool, says("End it when its last client goes away.")] = False
    render: Annotated[bool, says("Send replies also as text for a terminal (`rendered`).")] = False
    after: _AFTER = None


def resume(rt: Runtime, rid: Rid, params: Resume) -> Opened:
    """Continue a stored conversation, where it is now; its open turns go on by themselves.

    With `after`, `events.replayed` says whether exactly the missed events follow the answer, which then
    has no messages. Otherwise the answer is a whole snapshot, and `events` is its position.
    """
    del rid
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


def activate(rt: Runtime, rid: Rid, params: Activate) -> Opened:
    """Watch a session that is open here, also one that another client opened."""
    del rid
    return view.snapshot(rt, params.session_id, params.limit, params.after)


class Branch(Session, frozen=True):
    """The copy of a conversation."""

    name: Annotated[
        str, says("Its title; without one, the next free one after the original's.")
    ] = ""


class Branched(TypedDict):
    """A session that is a copy."""

    session_id: str
    stored_session_id: str
    title: str
    parent: str


def branch(rt: Runtime, rid: Rid, params: Branch) -> Branched:
    """Copy what is over in the conversation into a new one and open that; the original stays open.

    The turn that runs and the prompts that wait go on in the original alone.
    """
    del rid
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


def close(rt: Runtime, rid: Rid, params: Close) -> Closed:
    """End a session: its turn is stopped, what is not stored is stored, the conversation is ended.

    Prompts that wait go on when it is resumed.
    """
    del rid
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
        raise RpcError(BAD_ARGUMENT, f"{message.role!r} cannot be brought along.")
    content = message.content if message.content is not None else message.text
    return {"role": message.role, "content": content or ""}
