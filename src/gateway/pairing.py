"""Pairing: a stranger gets a code, and an owner who enters it lets them in.

Only a hash of the code is stored, in `hermes_state.ledger.people`, with limits.
"""

import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast, get_args

from gateway.access import EVERYBODY
from gateway.source import SessionSource
from hermes_core import clock, config
from hermes_core.errors import UsageError
from hermes_core.settings import Settings
from hermes_state.ledger import outbox
from hermes_state.ledger import people as people_ledger
from hermes_state.store import Store, Tx
from hermes_state.values import OutboundPart, Person, Role, Row, Stranger

LENGTH = 8
ALPHABET = "ABCDEFGHJKMNPQRSTUVWXYZ34679"
"""One of each group of characters that look alike, or none."""
_LOOKALIKES = str.maketrans("258", "ZSB")
"""Characters that are typed instead of similar ones."""

ROLES: tuple[Role, ...] = get_args(Role)
"""The most powerful one comes first."""
TERMINAL = "terminal"


class Pairing:
    """Lets strangers in and revokes access. May be used from several threads and processes."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._gateway = settings.gateway

    def request(self, source: SessionSource) -> str | None:
        """Return a code for a stranger in a direct chat; None when they get none (now)."""
        person = source.person
        if self._gateway.strangers != "pair" or source.is_group or source.is_bot or not person:
            return None
        code = new_code()
        stranger = Stranger(source.platform.value, person, source.chat_id, source.user_name)
        return code if self._store.write(people_ledger.add_stranger, stranger, code) else None

    def withdraw(self, source: SessionSource) -> None:
        """Delete a code that could not be sent, so that the stranger may ask again."""
        if source.person:
            self._store.write(people_ledger.delete_code, source.platform.value, source.person)

    def approve(
        self,
        code: str,
        *,
        platform: str | None = None,
        role: Role | None = None,
        by: str = TERMINAL,
    ) -> Person:
        """Let in the person who got this code, and tell them; raises UsageError.

        The default role is owner while there is none on any platform, else member.
        """
        config.refuse_in_command("let people in")
        if role is None and any(self._gateway.owners.values()):
            role = "member"
        found = self._store.write(
            people_ledger.redeem, _readable(code), by, platform=platform, role=role
        )
        if found.locked_until:
            until = datetime.fromtimestamp(found.locked_until, UTC).astimezone()
            raise UsageError(
                f"Too many wrong codes: nobody can be let in until {until:%H:%M}.",
                fix="Ask the stranger to write again after that, and use the new code.",
            )
        if found.person is None:
            raise UsageError(
                "This code is not valid.",
                fix="A code is valid for one hour; `hermes gateway people` shows who waits.",
            )
        self._send_welcome(found.person)
        return found.person

    def admit(self, source: SessionSource, role: Role) -> Person:
        """Let in the sender of a message, whom the person at the terminal knows; replaces their role."""
        config.refuse_in_command("let people in")
        platform, user_id = source.platform.value, source.person or ""
        person = Person(
            platform, user_id, role, source.user_name, source.chat_id, clock.now(), TERMINAL
        )
        self._store.write(_save, person)
        return person

    def _send_welcome(self, person: Person) -> None:
        """Tell a person that they are in; the gateway sends it, also when it is another process."""
        if person.chat_id:
            text = f"You have access now, as {person.role}. Send me a message, or see /help."
            key = f"welcome:{person.platform}:{person.user_id}:{person.added_at}"
            self._store.write(
                outbox.add, [OutboundPart(person.platform, person.chat_id, text, key=key)]
            )

    def command(self, argument: str, role: Role, by: str) -> str:
        """Run `/pair CODE [ROLE]` for a person of this role; raises UsageError."""
        if role != "owner":
            raise UsageError("Only an owner may let people in.")
        code, _, role_name = argument.strip().partition(" ")
        if not code:
            return self._waiting()
        person = self.approve(code, role=role_named(role_name.strip() or "member"), by=by)
        return f"{described(person)} has access now, as {person.role}."

    def _waiting(self) -> str:
        names = [f"{_name(row)} ({row['platform']})" for row in self.pending()]
        if not names:
            return "Nobody is waiting for access."
        return (
            f"Waiting for access: {', '.join(names)}. To let one in: /pair CODE, with their code."
        )

    def pending(self) -> list[Row]:
        """Return the strangers who have a valid code; only they know it."""
        return self._store.read(people_ledger.pending)

    def people(self) -> list[Person]:
        """Return the people who were let in; those named in the settings are not among them."""
        return self._store.read(people_ledger.list_all)

    def has_owner(self) -> bool:
        """Return whether there is an owner; without one, the next person who is let in becomes it."""
        return any(self._gateway.owners.values()) or self._store.read(people_ledger.has_owner)

    def change_role(self, platform: str, user_id: str, role: Role) -> Person:
        """Change the role of a person who was let in; raises UsageError."""
        config.refuse_in_command("change roles")
        self._check_settings(platform, user_id, role)
        person = self._store.write(people_ledger.change_role, platform, user_id, role)
        if person is not None:
            return person
        raise self._not_in(platform, user_id)

    def _check_settings(self, platform: str, user_id: str, role: Role) -> None:
        """Raise UsageError for a role that has no effect, as the settings give a higher one."""
        by_settings: dict[Role, tuple[str, Sequence[str]]] = {
            "owner": ("owners", self._gateway.owners.get(platform, ())),
            "member": ("allow", self._gateway.allow.get(platform, ())),
        }
        for better, (name, ids) in by_settings.items():
            is_named = user_id in ids or EVERYBODY in ids
            if is_named and ROLES.index(better) < ROLES.index(role):
                raise UsageError(
                    f"{user_id} on {platform} is {better} by config.toml, which has precedence.",
                    fix=f"Change gateway.{name}.{platform} there.",
                )

    def revoke(self, platform: str, user_id: str) -> None:
        """Revoke the access of a person; raises UsageError when they were not let in."""
        config.refuse_in_command("change who may come in")
        was_in = self._store.write(people_ledger.remove, platform, user_id)
        if not was_in or self._is_named(platform, user_id):
            raise self._not_in(platform, user_id)

    def _is_named(self, platform: str, user_id: str) -> bool:
        """Return whether the settings let a person in."""
        gateway = self._gateway
        return user_id in (*gateway.allow.get(platform, ()), *gateway.owners.get(platform, ()))

    def _not_in(self, platform: str, user_id: str) -> UsageError:
        if self._is_named(platform, user_id):
            return UsageError(
                f"{user_id} on {platform} is let in by config.toml.",
                fix=f"Change gateway.allow.{platform} and gateway.owners.{platform} there.",
            )
        return UsageError(
            f"There is no user {user_id} was let in on {platform}.",
            fix="See: hermes gateway people",
        )


def new_code() -> str:
    """Return a random code."""
    return "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))


def _save(tx: Tx, person: Person) -> None:
    people_ledger.save(tx, person)
    people_ledger.delete_code(tx, person.platform, person.user_id)


def role_named(text: str) -> Role:
    """Return the role that a person typed; raises UsageError."""
    if text.lower() not in ROLES:
        raise UsageError(f"{text!r} is not a role.", fix=f"Roles are {', '.join(ROLES)}.")
    return cast("Role", text.lower())


def described(person: Person) -> str:
    """Describe a person."""
    name = f"{person.name} ({person.user_id})" if person.name else person.user_id
    return f"{name} on {person.platform}"


def _name(row: Row) -> str:
    return row["name"] or row["user_id"]


def _readable(typed: str) -> str:
    """Return a code as it was sent, from what a person typed; raises UsageError."""
    code = "".join(typed.split()).replace("-", "").upper().translate(_LOOKALIKES)
    if len(code) != LENGTH or not set(code) <= set(ALPHABET):
        raise UsageError(
            f"{typed!r} is not a code.",
            fix=f"A code has {LENGTH} letters and digits, as in ABCD3467.",
        )
    return code
