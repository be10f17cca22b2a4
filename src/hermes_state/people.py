"""Who was let in and as what, and the codes that strangers were shown.

A stranger is shown a code, which somebody who may let people in gives back; only its salted hash is
kept. Each rule is checked in the transaction that acts on it, so that two processes cannot get around
it together.
"""

import os
from typing import Literal, NamedTuple

import apsw

from hermes_core import clock
from hermes_state.database import Database
from hermes_state.records import Row, rows

Role = Literal["owner", "member", "guest"]

LIFETIME_S = 3600.0
"""How long a code can be used."""
MOST_PENDING = 3
"""Strangers of a platform who have a code at the same time."""
PATIENCE_S = 600.0
"""How long after a code nobody is shown another."""
MOST_WRONG = 5
"""Wrong codes in a row before a platform is locked."""
LOCK_S = 3600.0


class Person(NamedTuple):
    """Somebody who was let in."""

    platform: str
    user_id: str
    role: Role
    name: str | None
    chat_id: str | None
    added_at: float
    added_by: str


class Stranger(NamedTuple):
    """Somebody who asks to be let in."""

    platform: str
    user_id: str
    chat_id: str
    name: str | None = None


class Redeemed(NamedTuple):
    """What came of a code: a person, or none, and then whether and until when nobody may try again."""

    person: Person | None
    locked_until: float = 0.0


def save(conn: apsw.Connection, person: Person) -> None:
    """Let somebody in, or change as what."""
    conn.execute("INSERT OR REPLACE INTO people VALUES (?, ?, ?, ?, ?, ?, ?)", person)


def change_role(conn: apsw.Connection, platform: str, user_id: str, role: Role) -> Person | None:
    """Have somebody who was let in be something else; None when nobody was."""
    conn.execute(
        "UPDATE people SET role = ? WHERE platform = ? AND user_id = ?", (role, platform, user_id)
    )
    return find(conn, platform, user_id)


def find(conn: apsw.Connection, platform: str, user_id: str) -> Person | None:
    """Somebody who was let in, or None."""
    found = conn.execute(
        "SELECT * FROM people WHERE platform = ? AND user_id = ?", (platform, user_id)
    ).fetchall()
    return Person(*found[0]) if found else None


def everybody(conn: apsw.Connection) -> list[Person]:
    """Who was let in, the first one first."""
    found = conn.execute("SELECT * FROM people ORDER BY added_at, platform, user_id")
    return [Person(*row) for row in found]


def remove(conn: apsw.Connection, platform: str, user_id: str) -> bool:
    """Let somebody in no longer, and forget their code; tells whether they were in."""
    drop(conn, platform, user_id)
    conn.execute("DELETE FROM people WHERE platform = ? AND user_id = ?", (platform, user_id))
    return conn.changes() > 0


def ask(conn: apsw.Connection, stranger: Stranger, code: str) -> bool:
    """Note the code that a stranger is shown; False when they are not to be shown one now."""
    now = clock.now()
    conn.execute("DELETE FROM pairings WHERE expires_at <= ?", (now,))
    platform, user_id, chat_id, name = stranger
    asked_before = conn.execute(
        "SELECT created_at FROM pairings WHERE platform = ? AND user_id = ?", (platform, user_id)
    ).get
    others = conn.execute(
        "SELECT count(*) FROM pairings WHERE platform = ? AND user_id <> ?", (platform, user_id)
    ).get
    is_early = asked_before is not None and now < asked_before + PATIENCE_S
    if is_early or others >= MOST_PENDING or _locked_until(conn, platform) > now:
        return False
    salt = os.urandom(16).hex()
    conn.execute(
        "INSERT OR REPLACE INTO pairings VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (platform, user_id, name, chat_id, salt, _hash(salt, code), now, now + LIFETIME_S),
    )
    return True


def drop(conn: apsw.Connection, platform: str, user_id: str) -> bool:
    """Forget the code of a stranger; tells whether there was one."""
    conn.execute("DELETE FROM pairings WHERE platform = ? AND user_id = ?", (platform, user_id))
    return conn.changes() > 0


def pending(conn: apsw.Connection, platform: str | None = None) -> list[Row]:
    """Strangers whose code can be used, the first one first; codes are not known to the store."""
    return rows(
        conn.execute(
            "SELECT platform, user_id, chat_id, name, created_at, expires_at FROM pairings"
            " WHERE expires_at > ?1 AND (?2 IS NULL OR platform = ?2) ORDER BY created_at, user_id",
            (clock.now(), platform),
        )
    )


def redeem(
    conn: apsw.Connection,
    code: str,
    by: str,
    *,
    platform: str | None = None,
    role: Role | None = None,
) -> Redeemed:
    """Let in whoever was shown this code, on one platform or on any.

    Without a role: as owner when there is none yet, else as member. A wrong code counts for every
    platform that it could have been meant for.
    """
    now = clock.now()
    open_rows = _open(conn, platform)
    meant = {platform} if platform is not None else {row["platform"] for row in open_rows}
    locks = {one: _locked_until(conn, one) for one in meant}
    candidates = [row for row in open_rows if locks[row["platform"]] <= now]
    fits = [row for row in candidates if _is_same(row, code)]  # all are looked at, always
    if not fits:
        return Redeemed(None, _count_wrong(conn, locks, now))
    row = fits[0]
    chosen: Role = role or ("member" if has_owner(conn) else "owner")
    person = Person(row["platform"], row["user_id"], chosen, row["name"], row["chat_id"], now, by)
    save(conn, person)
    drop(conn, person.platform, person.user_id)
    conn.execute("DELETE FROM pairing_failures WHERE platform = ?", (person.platform,))
    return Redeemed(person)


def has_owner(conn: apsw.Connection) -> bool:
    """Whether an owner was let in, on whichever platform."""
    return bool(conn.execute("SELECT EXISTS (SELECT 1 FROM people WHERE role = 'owner')").get)


def _open(conn: apsw.Connection, platform: str | None) -> list[Row]:
    return rows(
        conn.execute(
            "SELECT * FROM pairings WHERE expires_at > ?1 AND (?2 IS NULL OR platform = ?2)",
            (clock.now(), platform),
        )
    )


def _count_wrong(conn: apsw.Connection, locks: dict[str, float], now: float) -> float:
    """Count a wrong code where nobody is locked out; returns until when nobody may try, if so."""
    for platform in (one for one, until in locks.items() if until <= now):
        conn.execute(
            "INSERT INTO pairing_failures (platform, failures) VALUES (?1, 1) ON CONFLICT DO UPDATE"
            " SET failures = iif(locked_until > 0, 1, failures + 1), locked_until = 0",
            (platform,),
        )
        conn.execute(
            "UPDATE pairing_failures SET locked_until = ? WHERE platform = ? AND failures >= ?",
            (now + LOCK_S, platform, MOST_WRONG),
        )
    after = [_locked_until(conn, platform) for platform in locks]
    return min(after) if after and min(after) > now else 0.0


def _locked_until(conn: apsw.Connection, platform: str) -> float:
    until = conn.execute(
        "SELECT locked_until FROM pairing_failures WHERE platform = ?", (platform,)
    ).get
    return until or 0.0


def _hash(salt: str, code: str) -> str:
    import hashlib  # noqa: PLC0415 -- slow to load, and only pairing needs it

    return hashlib.sha256(f"{salt}:{code}".encode()).hexdigest()


def _is_same(row: Row, code: str) -> bool:
    import hmac  # noqa: PLC0415 -- as above

    return hmac.compare_digest(row["code_hash"], _hash(row["salt"], code))


class People:
    """The store's people and pairings, one transaction a call."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def save(self, person: Person) -> None:
        self._db.write(lambda c: save(c, person))

    def change_role(self, platform: str, user_id: str, role: Role) -> Person | None:
        return self._db.write(lambda c: change_role(c, platform, user_id, role))

    def get(self, platform: str, user_id: str) -> Person | None:
        return self._db.ask(lambda c: find(c, platform, user_id))

    def everybody(self) -> list[Person]:
        return self._db.read(everybody)

    def has_owner(self) -> bool:
        return self._db.read(has_owner)

    def remove(self, platform: str, user_id: str) -> bool:
        return self._db.write(lambda c: remove(c, platform, user_id))

    def ask(self, stranger: Stranger, code: str) -> bool:
        return self._db.write(lambda c: ask(c, stranger, code))

    def drop(self, platform: str, user_id: str) -> bool:
        return self._db.write(lambda c: drop(c, platform, user_id))

    def pending(self, platform: str | None = None) -> list[Row]:
        return self._db.read(lambda c: pending(c, platform))

    def redeem(
        self, code: str, by: str, *, platform: str | None = None, role: Role | None = None
    ) -> Redeemed:
        return self._db.write(lambda c: redeem(c, code, by, platform=platform, role=role))
