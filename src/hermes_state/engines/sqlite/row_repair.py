"""Make the rows of a store consistent after some were lost.

A message whose session row is lost gets a new one; a conversation has one chain of sessions with one
tip; rows that refer to lost rows are deleted and reported.
"""

from itertools import groupby

import apsw

from hermes_core import clock
from hermes_state.engines.sqlite.tx import SqliteTx, rows_of
from hermes_state.ledger import sessions
from hermes_state.values import Row

REPAIRED_AT = "repaired_at"
"""The key in `meta` of the time at which rows may have been lost."""
_JSON = (
    ("messages", "tool_calls"),
    ("messages", "parts"),
    ("messages", "extra"),
    ("sessions", "model_config"),
    ("sessions", "extra"),
)


def restore_consistency(conn: apsw.Connection) -> list[str]:
    """Make the rows of a store consistent; describe what was lost."""
    lost = _drop_broken_json(conn) + _insert_lost_sessions(conn)
    chains = _Chains(conn)
    chains.cut_circles()
    chains.join()
    chains.order()
    chains.store()
    lost += _drop_dangling(conn) + _settle_turns(conn)
    for (session_id,) in conn.execute("SELECT id FROM sessions").fetchall():
        sessions.recount(SqliteTx(conn), session_id)
    noted = (REPAIRED_AT, str(clock.now()))
    conn.execute("REPLACE INTO meta (key, value) VALUES (?, ?)", noted)
    return lost


def _drop_broken_json(conn: apsw.Connection) -> list[str]:
    lost: list[str] = []
    for table, column in _JSON:
        conn.execute(
            f"UPDATE {table} SET {column} = NULL WHERE {column} IS NOT NULL AND NOT json_valid({column})"
        )
        lost += _describe(conn, f"the {column} of {{}} of {table}")
    return lost


def _insert_lost_sessions(conn: apsw.Connection) -> list[str]:
    """Insert rows for lost sessions that messages or other sessions refer to."""
    now = clock.now()
    conn.execute(
        """
        INSERT INTO sessions (id, conversation_id, depth, is_tip, source, started_at, last_active_at,
            ended_at, end_reason)
        SELECT lost.id, coalesce(heir.conversation_id, lost.id), max(coalesce(heir.depth, 1) - 1, 0),
            0, 'recovered', coalesce(said.began, heir.started_at, ?1),
            coalesce(said.ended, heir.started_at, ?1), heir.started_at,
            CASE WHEN heir.id IS NOT NULL THEN 'compression' END
        FROM (SELECT session_id AS id FROM messages UNION
              SELECT parent_session_id FROM sessions WHERE parent_session_id IS NOT NULL UNION
              SELECT conversation_id FROM sessions) AS lost
        LEFT JOIN sessions AS heir ON heir.parent_session_id = lost.id
            AND heir.relation = 'continuation'
        LEFT JOIN (SELECT session_id, min(timestamp) AS began, max(timestamp) AS ended
                   FROM messages GROUP BY session_id) AS said ON said.session_id = lost.id
        WHERE lost.id NOT IN (SELECT id FROM sessions)
        """,
        (now,),
    )
    count = conn.changes()
    return [f"the rows of {count} sessions; their messages are kept"] if count else []


class _Chains:
    """Repairs conversations: chains of sessions, each continued by the next."""

    def __init__(self, conn: apsw.Connection) -> None:
        self._conn = conn
        found = rows_of(
            conn.execute(
                "SELECT id, conversation_id, parent_session_id, relation, depth, is_tip FROM sessions"
                " ORDER BY depth, id"
            )
        )
        self._sessions: dict[str, Row] = {row["id"]: row for row in found}
        self._before = {row["id"]: dict(row) for row in found}

    def cut_circles(self) -> None:
        """Detach sessions that are their own ancestors, as damaged ids may say."""
        for row in self._sessions.values():
            above = {row["id"]}
            parent = row["parent_session_id"]
            while parent is not None and parent not in above:
                above.add(parent)
                parent = self._sessions[parent]["parent_session_id"]
            if parent == row["id"]:
                row["parent_session_id"] = row["relation"] = None

    def join(self) -> None:
        """Link sessions to the chain of their conversation where a session between them was lost."""
        continued = self._heirs()
        for row in self._sessions.values():
            if row["depth"] == 0 or row["parent_session_id"] is not None:
                continue
            ends = [
                other
                for other in self._sessions.values()
                if other["conversation_id"] == row["conversation_id"]
                and other["depth"] < row["depth"]
                and other["relation"] != "undone"
                and other["id"] not in continued
            ]
            if ends:
                row["parent_session_id"], row["relation"] = ends[-1]["id"], "continuation"
                continued[ends[-1]["id"]] = row

    def order(self) -> None:
        """Set the conversation id of each chain to its first session and the tip to its last."""
        heirs = self._heirs()
        for first in self._sessions.values():
            if first["relation"] in ("continuation", "undone"):
                continue
            row: Row | None = first
            depth = 0
            while row is not None:
                heir = heirs.get(row["id"])
                row |= {
                    "conversation_id": first["id"],
                    "depth": depth,
                    "is_tip": int(heir is None),
                }
                row, depth = heir, depth + 1
        for row in self._sessions.values():
            if row["relation"] == "undone":
                parent = self._sessions[row["parent_session_id"]]
                row |= {"conversation_id": parent["conversation_id"], "is_tip": 0}

    def store(self) -> None:
        changed = [row for id_, row in self._sessions.items() if row != self._before[id_]]
        for row in changed:  # clear all tips first, so that no conversation has two
            self._conn.execute("UPDATE sessions SET is_tip = 0 WHERE id = ?", (row["id"],))
        for row in changed:
            self._conn.execute(
                "UPDATE sessions SET conversation_id = :conversation_id, relation = :relation,"
                " parent_session_id = :parent_session_id, depth = :depth, is_tip = :is_tip"
                " WHERE id = :id",
                row,
            )

    def _heirs(self) -> dict[str, Row]:
        """Return the continuation of each session."""
        return {
            row["parent_session_id"]: row
            for row in self._sessions.values()
            if row["relation"] == "continuation"
        }


def _drop_dangling(conn: apsw.Connection) -> list[str]:
    """Delete rows that refer to a lost row, or clear the reference where the schema says so."""
    lost: list[str] = []
    foreign_keys = conn.execute(_FOREIGN_KEYS).fetchall()
    for (table, _, parent, on_delete), columns in groupby(foreign_keys, key=lambda row: row[:4]):
        pairs = [(ours, theirs) for *_, ours, theirs in columns]
        match = " AND ".join(f"parent.{theirs} = child.{ours}" for ours, theirs in pairs)
        is_set = " AND ".join(f"child.{ours} IS NOT NULL" for ours, _ in pairs)
        is_dangling = f"{is_set} AND NOT EXISTS (SELECT 1 FROM {parent} AS parent WHERE {match})"
        if on_delete == "SET NULL":
            cleared = ", ".join(f"{ours} = NULL" for ours, _ in pairs)
            conn.execute(f"UPDATE {table} AS child SET {cleared} WHERE {is_dangling}")
        else:
            conn.execute(f"DELETE FROM {table} AS child WHERE {is_dangling}")
            lost += _describe(conn, f"{{}} of {table} that referred to lost rows")
    return lost


_FOREIGN_KEYS = """
    SELECT t.name, f.id, f."table", f.on_delete, f."from",
        coalesce(f."to", (SELECT name FROM pragma_table_info(f."table") WHERE pk = f.seq + 1))
    FROM sqlite_schema AS t, pragma_foreign_key_list(t.name) AS f
    WHERE t.type = 'table' ORDER BY t.rowid, f.id, f.seq
"""
"""The columns of every foreign key, beside those of the parent that they refer to."""


def _settle_turns(conn: apsw.Connection) -> list[str]:
    """End open turns whose user message is lost, and clear references to lost answers."""
    conn.execute(
        "UPDATE turns SET state = 'failed', reason = 'its user message was lost', ended_at = ?"
        " WHERE state IN ('accepted', 'running')"
        " AND user_message_id NOT IN (SELECT id FROM messages)",
        (clock.now(),),
    )
    lost = _describe(conn, "the user message of {} of turns, which will not be answered")
    conn.execute(
        "UPDATE turns SET final_message_id = NULL"
        " WHERE final_message_id NOT IN (SELECT id FROM messages)"
    )
    return lost


def _describe(conn: apsw.Connection, text: str) -> list[str]:
    count = conn.changes()
    return [text.format(f"{count} row{'s' * (count != 1)}")] if count else []
