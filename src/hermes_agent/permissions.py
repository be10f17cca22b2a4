"""Permissions: what a person who talks to the agent may see, use, spend and allow.

The person at the machine has none and therefore no limits; one who comes through a messenger has some.
"""

import msgspec

from hermes_state.values import Role, Scope


class Permissions(msgspec.Struct, frozen=True):
    """The permissions of one person in one place."""

    person: str
    """Who it is, on every day the same: the platform and their id there."""
    role: Role
    scope: Scope
    """The conversations that they may see from there."""
    is_private: bool
    """Whether nobody else listens."""
    tools: frozenset[str] | None = None
    """The tools that they may use; None: all."""
    usd_per_day: float = 0.0
    """The most that their requests may cost a day; 0: no limit."""

    @property
    def is_owner(self) -> bool:
        return self.role == "owner"

    @property
    def has_notes(self) -> bool:
        """Return whether the person may read and write the notes of the home: the owner, in private."""
        return self.is_owner and self.is_private


def has_notes(permissions: Permissions | None) -> bool:
    """The same for anybody, also for the person at the machine."""
    return permissions is None or permissions.has_notes


def is_owner(permissions: Permissions | None) -> bool:
    """Return whether somebody is an owner; the person at the machine is."""
    return permissions is None or permissions.is_owner
