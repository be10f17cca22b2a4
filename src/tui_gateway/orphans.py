"""Orphans: conversations that a process of ours left open when it died. They are closed as all others.

One with an unfinished turn is listed as pending, and goes on as soon as a client resumes it.
"""

from typing import TYPE_CHECKING

from hermes_agent import lease
from hermes_engine import closing
from hermes_state.ledger import leases, lineage, listing, sessions
from hermes_state.store import Store
from hermes_state.values import Filter
from tui_gateway.pool import run_logged
from tui_gateway.presence import Presence
from tui_gateway.runtime import SOURCE

if TYPE_CHECKING:
    from hermes_agent.assembly import Assembly

END_REASON = "tui_orphan"
_LOOKED_AT = 1000


def end_orphans(store: Store, presence: Presence) -> list[str]:
    """End what nobody has open; returns the sessions."""
    lease.expire_dead_leases(store)
    latest = store.read(listing.select, Filter(source=SOURCE), limit=_LOOKED_AT)
    open_rows = {row["id"] for row in latest if row["ended_at"] is None}
    with presence.orphaned() as abandoned:
        suspects = {store.read(lineage.tip, id_) for id_ in open_rows | abandoned}
        spared = presence.open_here | presence.elsewhere() | set(store.read(leases.held))
        return [id_ for id_ in sorted(suspects) if _end(store, id_, spared)]


def report(assembly: "Assembly", session_ids: list[str]) -> None:
    """Tell plugins and memory of sessions that were ended here, as of every one that is closed."""
    for session_id in session_ids:
        run_logged(lambda id_=session_id: _report(assembly, id_), "Closing an orphan")


def _report(assembly: "Assembly", session_id: str) -> None:
    row = assembly.store.read(sessions.find, session_id)
    if row is None or row["ended_at"] is None:
        return  # somebody has deleted it, or resumed it meanwhile
    platform = row["source"]
    assembly.plugins.invoke_hook("on_session_lost", session_id=session_id, platform=platform)
    closing.close(closing.stored_conversation(assembly, row))


def _end(store: Store, session_id: str, spared: set[str]) -> bool:
    row = store.read(sessions.find, session_id)
    if row is None or row["ended_at"] is not None or row["conversation_id"] in spared:
        return False
    if row["session_key"] is not None:  # a messenger's chat, which only its gateway ends
        return False
    for child in store.read(lineage.tree, session_id):
        if child["parent_session_id"] == session_id and child["relation"] == "delegate":
            store.write(sessions.end, child["id"], END_REASON)  # the first end wins
    store.write(sessions.end, session_id, END_REASON)
    return True
