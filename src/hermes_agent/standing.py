"""Standing: what somebody who speaks to the agent may see, use, spend and allow.

The person at the machine has none and therefore no limits; whoever comes through a messenger has one.
"""

import msgspec

from hermes_state.people import Role
from hermes_state.scope import Scope


class Standing(msgspec.Struct, frozen=True):
    """What one person may do in one place."""

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
        """Whether the lasting notes of the home may be read and written: the owner's, in private."""
        return self.is_owner and self.is_private


def has_notes(standing: Standing | None) -> bool:
    """The same for anybody, also for the person at the machine."""
    return standing is None or standing.has_notes


def is_owner(standing: Standing | None) -> bool:
    """Whether somebody is an owner; the person at the machine is."""
    return standing is None or standing.is_owner
