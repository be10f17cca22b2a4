"""List, search and delete stored conversations and open sessions."""

from typing import Annotated, TypedDict

from hermes_agent import lease
from hermes_core.errors import HermesError
from hermes_core.text import one_line, truncate
from hermes_protocol import results
from hermes_protocol.errors import ID_MISSING, NOT_STORED, STILL_OPEN
from hermes_state import files
from hermes_state.ledger import lineage, listing, messages, turns
from hermes_state.ledger import sessions as session_ledger
from hermes_state.values import Filter, Row
from tui_gateway import info, view
from tui_gateway.params import AnyId, Limit, Nothing, Params, says
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import LiveSession, Runtime

_HIDDEN = ("tool",)
_PREVIEW = 120


class List(Params, frozen=True):
    """A page of conversations."""

    limit: Limit = 200
    offset: Annotated[int, says("Number of results to skip.", ge=0)] = 0
    query: Annotated[str, says("A part of the title, the first words or the id.")] = ""


def list_(rt: Runtime, params: List) -> results.Rows:
    """List stored conversations, one row each; `pending` counts unanswered prompts."""
    rows = rt.db().read(
        listing.select,
        Filter(exclude_sources=_HIDDEN, search_query=params.query or None),
        limit=params.limit,
        offset=params.offset,
    )
    pending = _pending(rt)
    return results.Rows([_row(row, pending.get(row["id"], 0)) for row in rows])


def _pending(rt: Runtime) -> dict[str, int]:
    found: dict[str, int] = {}
    lease.expire_dead_leases(rt.db())
    for turn in rt.db().read(turns.unfinished):
        found[turn["session_id"]] = found.get(turn["session_id"], 0) + 1
    return found


def _row(row: Row, pending: int) -> results.Row:
    return results.Row(
        id=row["id"],
        title=row["title"] or "",
        preview=row["preview"] or "",
        started_at=row["started_at"],
        last_active=row["last_active_at"],
        ended_at=row["ended_at"],
        message_count=row["message_count"],
        source=row["source"],
        model=row["model"] or "",
        cwd=row["cwd"] or "",
        cost_usd=row["cost_usd"],
        relation=row["relation"] or "",
        parent_session_id=row["parent_session_id"],
        compressions=row["depth"],
        pending=pending,
    )


class Recent(TypedDict):
    """The last active conversation; the id is null if there is none."""

    session_id: str | None
    title: str
    started_at: float | None
    source: str


def most_recent(rt: Runtime, params: Nothing) -> Recent:
    """Return the last active conversation; never an error."""
    del params
    try:
        rows = rt.db().read(listing.select, Filter(exclude_sources=_HIDDEN), limit=1)
    except HermesError:
        rows = []
    if not rows:
        return {"session_id": None, "title": "", "started_at": None, "source": ""}
    row = rows[0]
    return {
        "session_id": row["id"],
        "title": row["title"] or "",
        "started_at": row["started_at"],
        "source": row["source"],
    }


class ActiveList(Params, frozen=True):
    """The client that asks."""

    current_session_id: Annotated[str, says("The open session that the client shows.")] = ""


def active_list(rt: Runtime, params: ActiveList) -> results.OpenRows:
    """List the sessions that are open in this server."""
    found, current = list(rt.sessions.items()), params.current_session_id
    return results.OpenRows([_active(rt, sid, session, current) for sid, session in found])


def _active(rt: Runtime, sid: str, session: LiveSession, current: str) -> results.OpenRow:
    live, key = rt.live(session), info.key_of(session)
    row = rt.db().read(session_ledger.find, key) or {}
    return results.OpenRow(
        id=sid,
        session_key=key,
        title=row.get("title") or session.get("pending_title") or "",
        status=view.status_of(rt, session),
        preview=truncate(one_line(row.get("preview") or ""), _PREVIEW),
        message_count=row.get("message_count", 0),
        model=row.get("model") or "",
        last_active=live.last_active,
        started_at=row.get("started_at", live.created_at),
        current=sid == current,
    )


class Search(Params, frozen=True):
    """The words to look for."""

    query: Annotated[str, says("Words, as a person types them.")]
    limit: Limit = 20


def search(rt: Runtime, params: Search) -> results.Hits:
    """Search messages; one row per conversation, the latest match first."""
    hits = rt.db().search_messages(params.query, limit=params.limit, once_per_conversation=True)
    return results.Hits([_hit(rt, hit) for hit in hits])


def _hit(rt: Runtime, hit: Row) -> results.Hit:
    row = rt.db().read(session_ledger.find, rt.db().read(lineage.tip, hit["session_id"])) or {}
    return results.Hit(
        session_id=row.get("id", hit["session_id"]),
        role=hit["role"],
        message_id=_original(rt, hit),
        title=row.get("title") or "",
        snippet=hit["snippet"],
        timestamp=hit["timestamp"],
        message_count=row.get("message_count", 0),
    )


def _original(rt: Runtime, hit: Row) -> int | None:
    """Return the message in the conversation's history; None for a copy made by a compaction."""
    page = rt.db().read(messages.page, hit["session_id"], hit["id"] + 1, 1)
    return hit["id"] if page and page[0]["id"] == hit["id"] else None


class Tree(Params, frozen=True):
    """A conversation."""

    session_id: AnyId


def tree(rt: Runtime, params: Tree) -> results.TreeNodes:
    """List every session related to this one by branches and compactions."""
    rows = rt.db().read(lineage.tree, _key(rt, params.session_id))
    return results.TreeNodes([results.TreeNode(**row) for row in rows])


class Delete(Params, frozen=True):
    """A conversation to delete."""

    session_id: Annotated[str, says("Its id in the store.")] = ""


class Deleted(TypedDict):
    """The conversation that was deleted."""

    deleted: str


def delete(rt: Runtime, params: Delete) -> Deleted:
    """Delete a stored conversation with all its sessions; close it first if it is open."""
    if not params.session_id:
        raise RpcError(ID_MISSING, "Which conversation?", fix="Give session_id.")
    store = rt.db()
    if (
        store.read(session_ledger.find, params.session_id) is None
    ):  # no title or beginning of an id: it is for ever
        fix = "Send its whole id, as `session.list` returns it."
        raise RpcError(
            NOT_STORED, f"There is no conversation {params.session_id[:200]!r}.", fix=fix
        )
    key = view.stored(store, params.session_id)
    with view.opening_lock(store, key):
        if view.opened(rt, key) is not None:
            fix = "Open another one first, or start one with /new; then delete it."
            raise RpcError(STILL_OPEN, "The conversation is open.", fix=fix)
        root = store.read(lineage.root, key)
        if root in rt.presence.elsewhere() or lease.is_held_elsewhere(store, root):
            fix = "Close it there first; then delete it."
            raise RpcError(STILL_OPEN, "The conversation is open in another window.", fix=fix)
        doomed = store.read(session_ledger.with_delegates, [key])
        with files.going_with(store, rt.home, doomed):
            store.write(session_ledger.delete, [key])
    return {"deleted": key}


def _key(rt: Runtime, name: str) -> str:
    """Return the stored session of an open session, or by its own id or title."""
    session = rt.sessions.get(name)
    return info.key_of(session) if session is not None else view.stored(rt.db(), name)
