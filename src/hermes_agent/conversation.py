"""A conversation as it is stored: what can be read and changed of it whether or not a model answers."""

from typing import Protocol

import msgspec

from hermes_agent.hooks import Hooks
from hermes_state.ledger import lineage
from hermes_state.store import Store


class Conversation(Protocol):
    """A conversation that is open somewhere. An agent is one."""

    session_id: str

    @property
    def store(self) -> Store: ...
    @property
    def conversation_id(self) -> str: ...
    @property
    def platform(self) -> str: ...
    @property
    def hooks(self) -> Hooks: ...

    def interrupt(self) -> None:
        """Stop what runs in it here."""
        ...


class StoredConversation(msgspec.Struct):
    """A conversation whose agent is not awake; to look at it need not wake one."""

    store: Store
    session_id: str
    platform: str
    hooks: Hooks

    @property
    def conversation_id(self) -> str:
        return self.store.read(lineage.root, self.session_id)

    def interrupt(self) -> None:
        """Nothing runs in it."""
