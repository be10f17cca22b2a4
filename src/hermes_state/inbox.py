"""What platforms delivered, each message once, and what became of it.

received (no outcome) → turn | command | ignored, once.
"""

from typing import Literal, NamedTuple

import apsw

from hermes_core import clock
from hermes_state.database import Database
from hermes_state.records import Row, rows

Outcome = Literal["turn", "command", "ignored"]


class Delivery(NamedTuple):
    """One message as a platform names it."""

    platform: str
    chat_id: str
    message_id: str
    payload: str = "{}"

    @property
    def key(self) -> tuple[str, str, str]:
        return self.platform, self.chat_id, self.message_id


def receive(conn: apsw.Connection, delivery: Delivery) -> bool:
    """Note a delivery; False when it was noted before."""
    conn.execute(
        "INSERT OR IGNORE INTO inbox (platform, chat_id, message_id, payload, received_at)"
        " VALUES (?, ?, ?, ?, ?)",
        (*delivery, clock.now()),
    )
    return conn.changes() > 0


def settle(
    conn: apsw.Connection, delivery: Delivery, outcome: Outcome, turn_id: str | None = None
) -> None:
    """Say what became of a delivery; this can be said once."""
    conn.execute(
        "UPDATE inbox SET outcome = ?, turn_id = ?, settled_at = ?"
        " WHERE platform = ? AND chat_id = ? AND message_id = ?",
        (outcome, turn_id, clock.now(), *delivery.key),
    )


def make_turn(conn: apsw.Connection, delivery: Delivery, turn_id: str) -> None:
    """Note a delivery, if it was not noted before, as one that has become a turn."""
    now = clock.now()
    conn.execute(
        "INSERT INTO inbox (platform, chat_id, message_id, payload, outcome, turn_id, received_at,"
        " settled_at) VALUES (?1, ?2, ?3, ?4, 'turn', ?5, ?6, ?6) ON CONFLICT DO UPDATE SET"
        " outcome = excluded.outcome, turn_id = excluded.turn_id, settled_at = excluded.settled_at",
        (*delivery, turn_id, now),
    )


def find(conn: apsw.Connection, delivery: Delivery) -> Row | None:
    """What is known of a delivery."""
    found = rows(
        conn.execute(
            "SELECT * FROM inbox WHERE platform = ? AND chat_id = ? AND message_id = ?",
            delivery.key,
        )
    )
    return found[0] if found else None


def versions(conn: apsw.Connection, delivery: Delivery) -> list[Row]:
    """The message of this name, and what says of itself that it is a new version of it (`edits`) or has
    it as one of its `parts`; the oldest first.
    """
    return rows(
        conn.execute(
            "SELECT * FROM inbox WHERE platform = ?1 AND chat_id = ?2 AND (message_id = ?3"
            " OR instr(payload, json_quote(?3)) AND (payload ->> '$.edits' = ?3"
            " OR ?3 IN (SELECT value FROM json_each(payload, '$.parts')))) ORDER BY received_at",
            delivery.key,
        )
    )


def unsettled(conn: apsw.Connection) -> list[Row]:
    """Deliveries nobody has decided about yet, oldest first."""
    return rows(conn.execute("SELECT * FROM inbox WHERE outcome IS NULL ORDER BY received_at"))


def of_turn(conn: apsw.Connection, turn_id: str) -> Row | None:
    """The delivery that a turn answers, or None when it came from no platform."""
    found = rows(conn.execute("SELECT * FROM inbox WHERE turn_id = ?", (turn_id,)))
    return found[0] if found else None


class Inbox:
    """The store's inbox, one transaction a call."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def receive(self, delivery: Delivery) -> bool:
        return self._db.write(lambda c: receive(c, delivery))

    def settle(self, delivery: Delivery, outcome: Outcome, turn_id: str | None = None) -> None:
        self._db.write(lambda c: settle(c, delivery, outcome, turn_id))

    def get(self, delivery: Delivery) -> Row | None:
        return self._db.ask(lambda c: find(c, delivery))

    def versions(self, delivery: Delivery) -> list[Row]:
        return self._db.read(lambda c: versions(c, delivery))

    def unsettled(self) -> list[Row]:
        return self._db.read(unsettled)

    def of_turn(self, turn_id: str) -> Row | None:
        return self._db.ask(lambda c: of_turn(c, turn_id))
