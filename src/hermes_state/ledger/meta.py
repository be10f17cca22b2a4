"""Read and write the store's own key-value notes."""

from hermes_state.store import Tx, one_statement


@one_statement
def get(tx: Tx, key: str) -> str | None:
    """Return a note, or None when there is none."""
    return tx.value("SELECT value FROM meta WHERE key = ?", key)


def put(tx: Tx, key: str, value: str) -> None:
    """Store a note, replacing an earlier one."""
    tx.run(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        key,
        value,
    )
