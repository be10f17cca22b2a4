"""A platform as the conformance kit meets it: its people, its faults, and adapters for it.

Subclass `World` for your platform. What is abstract every platform has. The rest is skipped, with the
reason, until you say how it happens there: override it, and raise `unittest.SkipTest` with your own
words where your platform has no such thing.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NoReturn
from unittest import SkipTest

from gateway.platforms.base import BasePlatformAdapter


class World(ABC):
    """A running platform on which the gateway has one account and one chat with a person."""

    chat: str
    """The id of that chat, as the adapter tells it."""
    patience_s = 10.0
    """How long anything may take here."""

    @abstractmethod
    def make(self) -> BasePlatformAdapter:
        """A new adapter for the same account, with the same folder as those before."""

    # What the person does.

    @abstractmethod
    def write(self, text: str) -> str:
        """Write a message; returns a name by which this world knows it."""

    def edit(self, name: str, text: str) -> None:
        """Change a message that was written."""
        self._lacks("edits")

    def attach(self, content: bytes, name: str, text: str) -> None:
        """Write a message with a file."""
        self._lacks("files from people")

    def fetched(self) -> int:
        """Return how often a file of a person was fetched; 0 where files come with their messages."""
        return 0

    def press(self, label: str) -> None:
        """Press the button with this label under the newest message."""
        self._lacks("buttons")

    # What the platform does.

    def deliver_again(self, name: str) -> None:
        """Deliver a message again that may have been acknowledged."""
        self._lacks("second deliveries")

    def write_out_of_order(self, texts: Sequence[str]) -> None:
        """Write messages in this order, and deliver them in another one."""
        self._lacks("deliveries out of order")

    def write_odd(self) -> None:
        """Deliver things that no adapter expects."""
        self._lacks("odd content")

    # What the person sees.

    @abstractmethod
    def visible_texts(self) -> list[str]:
        """The texts of the gateway's messages in the chat, oldest first, as they read now."""

    def typed(self) -> int:
        """Return how often the typing indicator was shown."""
        self._lacks("signs of typing")

    def files(self) -> list[bytes]:
        """The files that the gateway sent to the chat."""
        self._lacks("files from the gateway")

    # What goes wrong.

    @abstractmethod
    def cut(self) -> None:
        """Break the adapter's connections, and refuse new ones until `heal`."""

    @abstractmethod
    def heal(self) -> None:
        """Let the adapter reach the platform again."""

    def restart(self) -> None:
        """Stop the platform's server and start it again."""
        self._lacks("servers that restart")

    def lose_next_answer(self) -> None:
        """Carry the next send out, and lose the answer to it."""
        self._lacks("lost answers")

    def limit_next_send(self) -> None:
        """Put the next send off, because there were too many."""
        self._lacks("rate limits")

    def closed_chat(self) -> str:
        """The id of a chat in which the gateway may not write."""
        self._lacks("closed chats")

    def _lacks(self, what: str) -> NoReturn:
        raise SkipTest(f"{type(self).__name__} knows no {what}.")
