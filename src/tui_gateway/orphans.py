"""Orphans: conversations that a process of ours left open when it died. They are ended, not forgotten.

One with an unfinished turn is listed as pending, and goes on as soon as a client resumes it.
"""

from hermes_agent import lease
from hermes_state.ledger import leases, lineage, listing, sessions
from hermes_state.store import Store
from hermes_state.values import Filter
from tui_gateway.presence import Presence
from tui_gateway.runtime import SOURCE

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
