"""Inputs of every surface, to be answered by a turn."""

from collections.abc import Sequence
from typing import Any

import msgspec

from hermes_agent.permissions import Permissions
from hermes_state.values import InboundMessage, NewSession, TaintSource


class Input(msgspec.Struct, frozen=True):
    """A message to answer in a conversation, from any surface."""

    surface: str
    """The name of the surface that it comes from."""
    session_id: str
    """A session of the conversation, or the one that `opening` makes."""
    content: Any
    """Text, or parts where there is more than text."""
    permissions: Permissions | None = None
    """What the person may see, use and spend; None: the owner at this machine, without limits."""
    inbound: InboundMessage | None = None
    """The message as its platform names it: a second delivery finds the first turn."""
    idempotency_key: str | None = None
    """The same for surfaces without an inbox."""
    opening: NewSession | None = None
    """The session to make when it is not there yet."""
    platform_message_id: str | None = None
    reopens: bool = False
    """Whether a conversation that has ended is opened again by it."""
    closed_by: frozenset[str] = frozenset()
    """End reasons after which the input is refused with ConversationOverError."""
    replaces: int | None = None
    """The user message that is undone for it, with all after it."""

    brings: Sequence[TaintSource] = ()
    """The taint that comes with it, where that is not its person's alone."""
    only_if_idle: bool = False
    """Whether it is refused with ConversationBusyError while another process works on it."""
    is_followed: bool = False
    """Whether somebody is going to subscribe: its events are kept from the start."""

    @property
    def taint(self) -> Sequence[TaintSource]:
        """The taint that comes with it: what anybody but an owner writes is outside text."""
        if self.brings or self.permissions is None or self.permissions.is_owner:
            return self.brings
        return [TaintSource("outside", f"a message of {self.permissions.person}")]

    @property
    def message(self) -> dict[str, Any]:
        """The user message as the conversation stores it."""
        message = {"role": "user", "content": self.content}
        if self.platform_message_id is not None:
            message["platform_message_id"] = self.platform_message_id
        return message
