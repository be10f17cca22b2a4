"""Leases: one holder at a time may run a conversation, identified by a growing fencing token.

States: free → held → (renewed)* → released or expired → held by another process with a higher token.
Every commit of a turn calls `check`, so a holder whose lease has passed to another writes nothing.
"""

from hermes_core.errors import LeaseLostError
from hermes_state.ledger import workers
from hermes_state.store import Tx, one_statement
from hermes_state.values import DEFAULT_TTL_S, Lease


def acquire(
    tx: Tx, conversation_id: str, holder: str, ttl_s: float = DEFAULT_TTL_S
) -> Lease | None:
    """Acquire a lease that is free, expired or ours; return None when another process holds it."""
    now = tx.now
    token = tx.value(
        "INSERT INTO leases (conversation_id, holder, token, expires_at) VALUES (?1, ?2, 1, ?3)"
        " ON CONFLICT (conversation_id) DO UPDATE SET holder = ?2,"
        " token = leases.token + 1, expires_at = ?3"
        " WHERE leases.expires_at <= ?4 OR leases.holder = ?2 RETURNING token",
        conversation_id,
        holder,
        now + ttl_s,
        now,
    )
    return None if token is None else Lease(conversation_id, holder, token)


def take_over(
    tx: Tx,
    conversation_id: str,
    former: str,
    holder: str,
    ttl_s: float = DEFAULT_TTL_S,
) -> Lease | None:
    """Acquire the lease of a holder that is known to be dead, before it expires."""
    tx.run(
        "UPDATE leases SET expires_at = 0 WHERE conversation_id = ? AND holder = ?",
        conversation_id,
        former,
    )
    return acquire(tx, conversation_id, holder, ttl_s)


def renew(tx: Tx, lease: Lease, ttl_s: float = DEFAULT_TTL_S) -> None:
    """Extend the lease unless it was released; raise LeaseLostError when another process holds it."""
    check(tx, lease)
    tx.run(
        "UPDATE leases SET expires_at = ? WHERE conversation_id = ? AND expires_at > 0",
        tx.now + ttl_s,
        lease.conversation_id,
    )
    workers.refresh(tx, workers.of_holder(lease.holder))


def release(tx: Tx, lease: Lease) -> bool:
    """Release the lease, keeping its token; return False when another process holds it."""
    released = tx.run(
        "UPDATE leases SET expires_at = 0 WHERE conversation_id = ? AND token = ?",
        lease.conversation_id,
        lease.token,
    )
    return released > 0


def give_back(tx: Tx, lease: Lease | None) -> None:
    """Release the lease in the last write under it; raise LeaseLostError as `check` does."""
    if lease is None:
        return
    released = release(tx, lease)
    if not released:
        raise _lost(lease)


def check(tx: Tx, lease: Lease | None) -> None:
    """Raise LeaseLostError when another process has acquired the lease; without a lease, do nothing."""
    if lease is None:
        return
    token = tx.value("SELECT token FROM leases WHERE conversation_id = ?", lease.conversation_id)
    if token != lease.token:
        raise _lost(lease)


def _lost(lease: Lease) -> LeaseLostError:
    return LeaseLostError(
        f"The conversation {lease.conversation_id} now runs in another process.",
        fix="Nothing was written.",
    )


@one_statement
def holder_of(tx: Tx, conversation_id: str) -> str | None:
    """Return the current holder of a lease, or None."""
    return tx.value(
        "SELECT holder FROM leases WHERE conversation_id = ? AND expires_at > ?",
        conversation_id,
        tx.now,
    )


def held(tx: Tx) -> dict[str, str]:
    """Return the holder of every lease that has not expired, by conversation."""
    return dict(
        tx.tuples("SELECT conversation_id, holder FROM leases WHERE expires_at > ?", tx.now)
    )
