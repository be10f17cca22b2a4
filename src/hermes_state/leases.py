"""Who may run a conversation: one holder at a time, told apart by a token that only grows.

States: free → held → (renewed)* → released or expired → held by somebody else with a higher token.
Every commit of a turn calls `check`, so a holder that slept through its expiry writes nothing.
"""

from typing import NamedTuple

import apsw

from hermes_core import clock
from hermes_core.errors import LeaseLostError
from hermes_state import workers
from hermes_state.database import Database

DEFAULT_TTL_S = 60.0


class Lease(NamedTuple):
    """The right to run a conversation, until it expires or somebody with a newer token has it."""

    conversation_id: str
    holder: str
    token: int


def acquire(
    conn: apsw.Connection, conversation_id: str, holder: str, ttl_s: float = DEFAULT_TTL_S
) -> Lease | None:
    """Take the lease when it is free, expired or already ours; None when somebody else has it."""
    now = clock.now()
    token = conn.execute(
        "INSERT INTO leases (conversation_id, holder, token, expires_at) VALUES (?1, ?2, 1, ?3)"
        " ON CONFLICT DO UPDATE SET holder = ?2, token = token + 1, expires_at = ?3"
        " WHERE expires_at <= ?4 OR holder = ?2 RETURNING token",
        (conversation_id, holder, now + ttl_s, now),
    ).get
    return None if token is None else Lease(conversation_id, holder, token)


def take_over(
    conn: apsw.Connection,
    conversation_id: str,
    former: str,
    holder: str,
    ttl_s: float = DEFAULT_TTL_S,
) -> Lease | None:
    """Take the lease from a holder that is known to be gone, before it expires."""
    conn.execute(
        "UPDATE leases SET expires_at = 0 WHERE conversation_id = ? AND holder = ?",
        (conversation_id, former),
    )
    return acquire(conn, conversation_id, holder, ttl_s)


def renew(conn: apsw.Connection, lease: Lease, ttl_s: float = DEFAULT_TTL_S) -> None:
    """Keep the lease for longer, unless it was given back; raises LeaseLostError when it has passed to
    somebody else.
    """
    check(conn, lease)
    conn.execute(
        "UPDATE leases SET expires_at = ? WHERE conversation_id = ? AND expires_at > 0",
        (clock.now() + ttl_s, lease.conversation_id),
    )
    workers.refresh(conn, workers.of_holder(lease.holder))


def release(conn: apsw.Connection, lease: Lease) -> None:
    """Give the lease back; the row stays, so that the next token is higher."""
    conn.execute(
        "UPDATE leases SET expires_at = 0 WHERE conversation_id = ? AND token = ?",
        (lease.conversation_id, lease.token),
    )


def give_back(conn: apsw.Connection, lease: Lease | None) -> None:
    """Release a lease with the last write under it; refuses as `check` does."""
    if lease is None:
        return
    release(conn, lease)
    if not conn.changes():
        raise _lost(lease)


def check(conn: apsw.Connection, lease: Lease | None) -> None:
    """Refuse to go on when somebody has taken the lease since; with no lease there is no check."""
    if lease is None:
        return
    token = conn.execute(
        "SELECT token FROM leases WHERE conversation_id = ?", (lease.conversation_id,)
    ).get
    if token != lease.token:
        raise _lost(lease)


def _lost(lease: Lease) -> LeaseLostError:
    return LeaseLostError(
        f"The conversation {lease.conversation_id} is run by somebody else now.",
        fix="Nothing was written.",
    )


def holder_of(conn: apsw.Connection, conversation_id: str) -> str | None:
    """Who holds the lease now, if anybody does."""
    return conn.execute(
        "SELECT holder FROM leases WHERE conversation_id = ? AND expires_at > ?",
        (conversation_id, clock.now()),
    ).get


def lapsed_holder(conn: apsw.Connection, conversation_id: str) -> str | None:
    """Return the holder that let its lease expire instead of releasing it, if the last one did."""
    return conn.execute(
        "SELECT holder FROM leases WHERE conversation_id = ? AND expires_at > 0 AND expires_at <= ?",
        (conversation_id, clock.now()),
    ).get


def held(conn: apsw.Connection) -> dict[str, str]:
    """Every conversation that is held now, with its holder."""
    return dict(
        conn.execute(
            "SELECT conversation_id, holder FROM leases WHERE expires_at > ?", (clock.now(),)
        ).fetchall()
    )


class Leases:
    """The store's leases, one transaction a call."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def acquire(
        self, conversation_id: str, holder: str, ttl_s: float = DEFAULT_TTL_S
    ) -> Lease | None:
        return self._db.write(lambda c: acquire(c, conversation_id, holder, ttl_s))

    def take_over(
        self, conversation_id: str, former: str, holder: str, ttl_s: float = DEFAULT_TTL_S
    ) -> Lease | None:
        return self._db.write(lambda c: take_over(c, conversation_id, former, holder, ttl_s))

    def renew(self, lease: Lease, ttl_s: float = DEFAULT_TTL_S) -> None:
        self._db.write(lambda c: renew(c, lease, ttl_s))

    def release(self, lease: Lease) -> None:
        self._db.write(lambda c: release(c, lease))

    def held(self) -> dict[str, str]:
        return self._db.read(held)

    def holder_of(self, conversation_id: str) -> str | None:
        return self._db.ask(lambda c: holder_of(c, conversation_id))

    def lapsed_holder(self, conversation_id: str) -> str | None:
        return self._db.ask(lambda c: lapsed_holder(c, conversation_id))
