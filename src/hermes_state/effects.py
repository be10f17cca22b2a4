"""The ledger of tool calls: after a crash each is known as done, as not begun, or as unknown.

intended → started → done | unknown        intended → cancelled
A read-only call may be started again after a crash (started → started); any other may not.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import apsw

from hermes_core import clock
from hermes_core.errors import StoreError
from hermes_core.secrets import redact
from hermes_state import leases
from hermes_state.database import Database
from hermes_state.leases import Lease
from hermes_state.records import Row, insert_message, message_from, rows


class Call(NamedTuple):
    """One tool call that a step of the model asks for."""

    tool_call_id: str
    tool_name: str
    arguments: str
    read_only: bool


class Settled(NamedTuple):
    """How a call ended, and the message that tells the model."""

    effect_id: int
    state: Literal["done", "unknown", "cancelled"]
    result: Mapping[str, Any]


def intend(conn: apsw.Connection, turn_id: str, step_message_id: int, call: Call) -> int:
    """Note a call that is going to be made."""
    conn.execute(
        "INSERT INTO effects (turn_id, step_message_id, tool_call_id, tool_name, arguments,"
        " read_only, intended_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (turn_id, step_message_id, *call._replace(arguments=redact(call.arguments)), clock.now()),
    )
    return conn.last_insert_rowid()


def start(conn: apsw.Connection, effect_id: int, lease: Lease | None = None) -> None:
    """Note that a call is being made; from here on a crash leaves it unknown."""
    leases.check(conn, lease)
    _fetch(conn, effect_id)
    conn.execute(
        "UPDATE effects SET state = 'started', started_at = ? WHERE id = ?",
        (clock.now(), effect_id),
    )


def settle(
    conn: apsw.Connection,
    effect_id: int,
    state: str,
    result: Mapping[str, Any] | None,
    lease: Lease | None = None,
) -> int | None:
    """End a call as done, unknown or cancelled, together with the message that tells the model."""
    leases.check(conn, lease)
    effect = _fetch(conn, effect_id)
    message_id = None
    if result is not None:
        session_id, answers = conn.execute(
            "SELECT session_id, user_message_id FROM turns WHERE id = ?", (effect["turn_id"],)
        ).get
        message = message_from(result)._replace(answers=answers)
        message_id = insert_message(conn, session_id, message)
    conn.execute(
        "UPDATE effects SET state = ?, result_message_id = ?, ended_at = ? WHERE id = ?",
        (state, message_id, clock.now(), effect_id),
    )
    return message_id


def close_open(conn: apsw.Connection, turn_id: str) -> None:
    """What a turn leaves open when it ends: not begun is cancelled, begun is unknown."""
    conn.execute(
        "UPDATE effects SET ended_at = ?,"
        " state = CASE state WHEN 'intended' THEN 'cancelled' ELSE 'unknown' END"
        " WHERE turn_id = ? AND state IN ('intended', 'started')",
        (clock.now(), turn_id),
    )


def of_turn(conn: apsw.Connection, turn_id: str) -> list[Row]:
    """The calls of a turn in the order they were intended."""
    return rows(conn.execute("SELECT * FROM effects WHERE turn_id = ? ORDER BY id", (turn_id,)))


def _fetch(conn: apsw.Connection, effect_id: int) -> Row:
    found = rows(conn.execute("SELECT * FROM effects WHERE id = ?", (effect_id,)))
    if not found:
        raise StoreError(f"There is no effect {effect_id}.")
    return found[0]


class Effects:
    """The store's tool-call ledger, one transaction a call."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def start(self, effect_id: int, lease: Lease | None = None) -> None:
        self._db.write(lambda c: start(c, effect_id, lease))

    def done(self, effect_id: int, result: Mapping[str, Any], lease: Lease | None = None) -> int:
        message_id = self._db.write(lambda c: settle(c, effect_id, "done", result, lease))
        assert message_id is not None
        return message_id

    def unknown(
        self, effect_id: int, result: Mapping[str, Any] | None = None, lease: Lease | None = None
    ) -> int | None:
        return self._db.write(lambda c: settle(c, effect_id, "unknown", result, lease))

    def cancel(
        self, effect_id: int, result: Mapping[str, Any] | None = None, lease: Lease | None = None
    ) -> int | None:
        return self._db.write(lambda c: settle(c, effect_id, "cancelled", result, lease))

    def of_turn(self, turn_id: str) -> list[Row]:
        return self._db.ask(lambda c: of_turn(c, turn_id))
