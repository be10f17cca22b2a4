"""Pairing: a stranger is shown a code, and who gives it back lets them in.

The code is shown once and then forgotten; what is kept is in `hermes_state.ledger.people`, with limits.
"""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast, get_args

from gateway.access import EVERYBODY
from gateway.source import SessionSource
from hermes_core.errors import UsageError
from hermes_core.settings import Settings
from hermes_state.ledger import outbox
from hermes_state.ledger import people as people_ledger
from hermes_state.store import Store
from hermes_state.values import OutboundPart, Person, Role, Row, Stranger

LENGTH = 8
ALPHABET = "ABCDEFGHJKMNPQRSTUVWXYZ34679"
"""One of each group of characters that look alike, or none."""
_TAKEN_FOR = str.maketrans("258", "ZSB")
"""What is typed instead of a character that looks like it."""

ROLES: tuple[Role, ...] = get_args(Role)
"""The one that may most comes first."""
TERMINAL = "terminal"


class Pairing:
    """Lets strangers in, and out again; may be used from several threads and processes."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._gateway = settings.gateway

    def request(self, source: SessionSource) -> str | None:
        """A code for a stranger in a direct chat; None: they are to hear nothing (now)."""
        person = source.person
        if self._gateway.strangers != "pair" or source.is_group or source.is_bot or not person:
            return None
        code = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
        stranger = Stranger(source.platform.value, person, source.chat_id, source.user_name)
        return code if self._store.write(people_ledger.ask, stranger, code) else None

    def withdraw(self, source: SessionSource) -> None:
        """Forget a code that could not be shown, so that the stranger may ask again."""
        if source.person:
            self._store.write(people_ledger.drop, source.platform.value, source.person)

    def approve(
        self,
        code: str,
        *,
        platform: str | None = None,
        role: Role | None = None,
        by: str = TERMINAL,
    ) -> Person:
        """Let in whoever was shown this code, and tell them; raises UsageError.

        Without a role they become owner when there is none yet on any platform, else member.
        """
        if role is None and any(self._gateway.owners.values()):
            role = "member"
        found = self._store.write(
            people_ledger.redeem, _readable(code), by, platform=platform, role=role
        )
        if found.locked_until:
            until = datetime.fromtimestamp(found.locked_until, UTC).astimezone()
            raise UsageError(
                f"Too many wrong codes: nobody can be let in until {until:%H:%M}.",
                fix="Have the stranger write again after that, and use the new code.",
            )
        if found.person is None:
            raise UsageError(
                "Nobody who waits was shown this code.",
                fix="A code is valid for one hour; `hermes gateway people` shows who waits.",
            )
        self._welcome(found.person)
        return found.person

    def _welcome(self, person: Person) -> None:
        """Tell somebody that they are in; the gateway sends it, also when it runs elsewhere."""
        if person.chat_id:
            text = f"You are in, as {person.role}. Write to me, or see /help."
            key = f"welcome:{person.platform}:{person.user_id}:{person.added_at}"
            self._store.write(
                outbox.put, [OutboundPart(person.platform, person.chat_id, text, key=key)]
            )

    def command(self, argument: str, role: Role, by: str) -> str:
        """What `/pair CODE [ROLE]` does for somebody of this role; raises UsageError."""
        if role != "owner":
            raise UsageError("Only an owner may let people in.")
        code, _, wanted = argument.strip().partition(" ")
        if not code:
            return self._waiting()
        person = self.approve(code, role=role_named(wanted.strip() or "member"), by=by)
        return f"{described(person)} is in now, as {person.role}."

    def _waiting(self) -> str:
        names = [f"{_name(row)} ({row['platform']})" for row in self.pending()]
        if not names:
            return "Nobody waits to be let in."
        return f"These wait: {', '.join(names)}. /pair CODE lets one in, with the code they were shown."

    def pending(self) -> list[Row]:
        """The strangers who have a code that can be used; what it is nobody but them knows."""
        return self._store.read(people_ledger.pending)

    def people(self) -> list[Person]:
        """Everybody who was let in; who is named in the settings is not among them."""
        return self._store.read(people_ledger.everybody)

    def has_owner(self) -> bool:
        """Whether anybody is an owner; without one, the next who is let in becomes it."""
        return any(self._gateway.owners.values()) or self._store.read(people_ledger.has_owner)

    def change_role(self, platform: str, user_id: str, role: Role) -> Person:
        """Have somebody who was let in be something else, from now on; raises UsageError."""
        self._check_settings(platform, user_id, role)
        person = self._store.write(people_ledger.change_role, platform, user_id, role)
        if person is not None:
            return person
        raise self._not_in(platform, user_id)

    def _check_settings(self, platform: str, user_id: str, role: Role) -> None:
        """Refuse a role that would not count, as the settings give a better one."""
        given: dict[Role, tuple[str, Sequence[str]]] = {
            "owner": ("owners", self._gateway.owners.get(platform, ())),
            "member": ("allow", self._gateway.allow.get(platform, ())),
        }
        for better, (name, ids) in given.items():
            is_named = user_id in ids or EVERYBODY in ids
            if is_named and ROLES.index(better) < ROLES.index(role):
                raise UsageError(
                    f"{user_id} on {platform} is {better} by config.toml, which counts more.",
                    fix=f"Change gateway.{name}.{platform} there.",
                )

    def revoke(self, platform: str, user_id: str) -> None:
        """Let somebody in no longer; raises UsageError when nobody of this name was let in."""
        was_in = self._store.write(people_ledger.remove, platform, user_id)
        if not was_in or self._is_named(platform, user_id):
            raise self._not_in(platform, user_id)

    def _is_named(self, platform: str, user_id: str) -> bool:
        """Whether the settings let somebody in by their name."""
        gateway = self._gateway
        return user_id in (*gateway.allow.get(platform, ()), *gateway.owners.get(platform, ()))

    def _not_in(self, platform: str, user_id: str) -> UsageError:
        if self._is_named(platform, user_id):
            return UsageError(
                f"{user_id} on {platform} is let in by config.toml.",
                fix=f"Change gateway.allow.{platform} and gateway.owners.{platform} there.",
            )
        return UsageError(
            f"Nobody called {user_id} was let in on {platform}.", fix="See: hermes gateway people"
        )


def role_named(text: str) -> Role:
    """A role as a person types it; raises UsageError."""
    if text.lower() not in ROLES:
        raise UsageError(f"{text!r} is no role.", fix=f"Roles are {', '.join(ROLES)}.")
    return cast("Role", text.lower())


def described(person: Person) -> str:
    """Somebody in words."""
    name = f"{person.name} ({person.user_id})" if person.name else person.user_id
    return f"{name} on {person.platform}"


def _name(row: Row) -> str:
    return row["name"] or row["user_id"]


def _readable(typed: str) -> str:
    """A code as it was shown, from what somebody typed; raises UsageError when it cannot be one."""
    code = "".join(typed.split()).replace("-", "").upper().translate(_TAKEN_FOR)
    if len(code) != LENGTH or not set(code) <= set(ALPHABET):
        raise UsageError(
            f"{typed!r} is no code.", fix=f"A code has {LENGTH} letters and digits, as in ABCD3467."
        )
    return code
