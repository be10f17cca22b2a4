"""Who may run a conversation: one holder at a time, told apart by a token that only grows.

States: free → held → (renewed)* → released or expired → held by somebody else with a higher token.
Every commit of a turn calls `check`, so a holder that slept through its expiry writes nothing.
"""

from hermes_core.errors import LeaseLostError
from hermes_state.ledger import workers
from hermes_state.store import Tx, one_statement
from hermes_state.values import DEFAULT_TTL_S, Lease


def acquire(
    tx: Tx, conversation_id: str, holder: str, ttl_s: float = DEFAULT_TTL_S
) -> Lease | None:
    """Take the lease when it is free, expired or already ours; None when somebody else has it."""
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
    """Take the lease from a holder that is known to be gone, before it expires."""
    tx.run(
        "UPDATE leases SET expires_at = 0 WHERE conversation_id = ? AND holder = ?",
        conversation_id,
        former,
    )
    return acquire(tx, conversation_id, holder, ttl_s)


def renew(tx: Tx, lease: Lease, ttl_s: float = DEFAULT_TTL_S) -> None:
    """Keep the lease for longer, unless it was given back; raises LeaseLostError when it has passed to
    somebody else.
    """
    check(tx, lease)
    tx.run(
        "UPDATE leases SET expires_at = ? WHERE conversation_id = ? AND expires_at > 0",
        tx.now + ttl_s,
        lease.conversation_id,
    )
    workers.refresh(tx, workers.of_holder(lease.holder))


def release(tx: Tx, lease: Lease) -> bool:
    """Give the lease back; False when somebody else has it. The row stays, for the next token."""
    released = tx.run(
        "UPDATE leases SET expires_at = 0 WHERE conversation_id = ? AND token = ?",
        lease.conversation_id,
        lease.token,
    )
    return released > 0


def give_back(tx: Tx, lease: Lease | None) -> None:
    """Release a lease with the last write under it; refuses as `check` does."""
    if lease is None:
        return
    released = release(tx, lease)
    if not released:
        raise _lost(lease)


def check(tx: Tx, lease: Lease | None) -> None:
    """Refuse to go on when somebody has taken the lease since; with no lease there is no check."""
    if lease is None:
        return
    token = tx.value("SELECT token FROM leases WHERE conversation_id = ?", lease.conversation_id)
    if token != lease.token:
        raise _lost(lease)


def _lost(lease: Lease) -> LeaseLostError:
    return LeaseLostError(
        f"The conversation {lease.conversation_id} is run by somebody else now.",
        fix="Nothing was written.",
    )


@one_statement
def holder_of(tx: Tx, conversation_id: str) -> str | None:
    """Who holds the lease now, if anybody does."""
    return tx.value(
        "SELECT holder FROM leases WHERE conversation_id = ? AND expires_at > ?",
        conversation_id,
        tx.now,
    )


def held(tx: Tx) -> dict[str, str]:
    """Every conversation that is held now, with its holder."""
    return dict(
        tx.tuples("SELECT conversation_id, holder FROM leases WHERE expires_at > ?", tx.now)
    )
