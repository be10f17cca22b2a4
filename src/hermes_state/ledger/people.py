"""Store people with their roles, and the pairing codes of strangers.

A stranger gets a code, and a person with the right to admit people enters it; only its salted hash is
stored. Each rule is checked in the transaction that acts on it, so that two processes cannot bypass it
together.
"""

import os

from hermes_state.store import Tx, one_statement
from hermes_state.values import Person, Redeemed, Role, Row, Stranger

LIFETIME_S = 3600.0
"""How long a code is valid."""
MAX_PENDING = 3
"""Strangers per platform with a valid code at the same time."""
CODE_INTERVAL_S = 600.0
"""How long a stranger waits for another code."""
MAX_WRONG_CODES = 5
"""Wrong codes in a row before pairing on a platform is locked."""
LOCK_S = 3600.0


def save(tx: Tx, person: Person) -> None:
    """Admit a person, or replace their row."""
    tx.run(
        "INSERT INTO people (platform, user_id, role, name, chat_id, added_at, added_by)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (platform, user_id) DO UPDATE SET"
        " role = excluded.role, name = excluded.name, chat_id = excluded.chat_id,"
        " added_at = excluded.added_at, added_by = excluded.added_by",
        *person,
    )


def change_role(tx: Tx, platform: str, user_id: str, role: Role) -> Person | None:
    """Change the role of a person; return None when there is no such person."""
    tx.run("UPDATE people SET role = ? WHERE platform = ? AND user_id = ?", role, platform, user_id)
    return find(tx, platform, user_id)


@one_statement
def find(tx: Tx, platform: str, user_id: str) -> Person | None:
    """Return a person, or None."""
    found = tx.tuples("SELECT * FROM people WHERE platform = ? AND user_id = ?", platform, user_id)
    return Person(*found[0]) if found else None


def list_all(tx: Tx) -> list[Person]:
    """Return all people in the order in which they were admitted."""
    found = tx.tuples("SELECT * FROM people ORDER BY added_at, platform, user_id")
    return [Person(*row) for row in found]


def remove(tx: Tx, platform: str, user_id: str) -> bool:
    """Remove a person and their pairing code; return whether they were admitted."""
    delete_code(tx, platform, user_id)
    changed = tx.run("DELETE FROM people WHERE platform = ? AND user_id = ?", platform, user_id)
    return changed > 0


def add_stranger(tx: Tx, stranger: Stranger, code: str) -> bool:
    """Store a pairing code for a stranger; return False when they may not get one now."""
    now = tx.now
    tx.run("DELETE FROM pairings WHERE expires_at <= ?", now)
    platform, user_id, chat_id, name = stranger
    last_code_at = tx.value(
        "SELECT created_at FROM pairings WHERE platform = ? AND user_id = ?", platform, user_id
    )
    others = tx.value(
        "SELECT count(*) FROM pairings WHERE platform = ? AND user_id <> ?", platform, user_id
    )
    is_early = last_code_at is not None and now < last_code_at + CODE_INTERVAL_S
    if is_early or others >= MAX_PENDING or _locked_until(tx, platform) > now:
        return False
    salt = os.urandom(16).hex()
    tx.run(
        "INSERT INTO pairings (platform, user_id, name, chat_id, salt, code_hash, created_at,"
        " expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (platform, user_id) DO UPDATE SET"
        " name = excluded.name, chat_id = excluded.chat_id, salt = excluded.salt,"
        " code_hash = excluded.code_hash, created_at = excluded.created_at,"
        " expires_at = excluded.expires_at",
        platform,
        user_id,
        name,
        chat_id,
        salt,
        _hash(salt, code),
        now,
        now + LIFETIME_S,
    )
    return True


def delete_code(tx: Tx, platform: str, user_id: str) -> bool:
    """Delete the code of a stranger; return whether there was one."""
    changed = tx.run("DELETE FROM pairings WHERE platform = ? AND user_id = ?", platform, user_id)
    return changed > 0


def pending(tx: Tx, platform: str | None = None) -> list[Row]:
    """Return the strangers with a valid code, oldest first; the codes themselves are not stored."""
    return tx.rows(
        "SELECT platform, user_id, chat_id, name, created_at, expires_at FROM pairings"
        " WHERE expires_at > ?1 AND (?2 IS NULL OR platform = ?2) ORDER BY created_at, user_id",
        tx.now,
        platform,
    )


def redeem(
    tx: Tx,
    code: str,
    by: str,
    *,
    platform: str | None = None,
    role: Role | None = None,
) -> Redeemed:
    """Admit the stranger with this code, on one platform or on any.

    Without a role, the first person becomes owner and others become members. A wrong code counts for
    every platform that it could have been meant for.
    """
    now = tx.now
    open_rows = _open(tx, platform)
    platforms = {platform} if platform is not None else {row["platform"] for row in open_rows}
    locks = {candidate: _locked_until(tx, candidate) for candidate in platforms}
    candidates = [row for row in open_rows if locks[row["platform"]] <= now]
    matching = [row for row in candidates if _has_code(row, code)]  # compares all, in constant time
    if not matching:
        return Redeemed(None, _count_wrong(tx, locks, now))
    row = matching[0]
    chosen: Role = role or ("member" if has_owner(tx) else "owner")
    person = Person(row["platform"], row["user_id"], chosen, row["name"], row["chat_id"], now, by)
    save(tx, person)
    delete_code(tx, person.platform, person.user_id)
    tx.run("DELETE FROM pairing_failures WHERE platform = ?", person.platform)
    return Redeemed(person)


def has_owner(tx: Tx) -> bool:
    """Return whether there is an owner, on any platform."""
    return bool(tx.value("SELECT EXISTS (SELECT 1 FROM people WHERE role = 'owner')"))


def _open(tx: Tx, platform: str | None) -> list[Row]:
    return tx.rows(
        "SELECT * FROM pairings WHERE expires_at > ?1 AND (?2 IS NULL OR platform = ?2)",
        tx.now,
        platform,
    )


def _count_wrong(tx: Tx, locks: dict[str, float], now: float) -> float:
    """Count a wrong code on platforms that are not locked; return the end of the lock, or 0."""
    for platform in (candidate for candidate, until in locks.items() if until <= now):
        tx.run(
            "INSERT INTO pairing_failures (platform, failures) VALUES (?1, 1)"
            " ON CONFLICT (platform) DO UPDATE"
            " SET failures = CASE WHEN pairing_failures.locked_until > 0 THEN 1"
            " ELSE pairing_failures.failures + 1 END, locked_until = 0",
            platform,
        )
        tx.run(
            "UPDATE pairing_failures SET locked_until = ? WHERE platform = ? AND failures >= ?",
            now + LOCK_S,
            platform,
            MAX_WRONG_CODES,
        )
    after = [_locked_until(tx, platform) for platform in locks]
    return min(after) if after and min(after) > now else 0.0


def _locked_until(tx: Tx, platform: str) -> float:
    until = tx.value("SELECT locked_until FROM pairing_failures WHERE platform = ?", platform)
    return until or 0.0


def _hash(salt: str, code: str) -> str:
    import hashlib  # noqa: PLC0415 -- slow to load, and only pairing needs it

    return hashlib.sha256(f"{salt}:{code}".encode()).hexdigest()


def _has_code(row: Row, code: str) -> bool:
    import hmac  # noqa: PLC0415 -- as above

    return hmac.compare_digest(row["code_hash"], _hash(row["salt"], code))
