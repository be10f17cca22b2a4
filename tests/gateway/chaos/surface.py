"""A surface: a platform on a running server, as people see it from outside while the gateway dies.

Subclass `Surface` to have your own platform in the run, and hand it to `main` of this package with those
that are there: `tests/gateway/chaos.py` does so.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NamedTuple

from gateway.platforms.base import Resend
from gateway.platforms.testing.network import Proxy


class Seen(NamedTuple):
    """A message of the gateway, as it reads now."""

    text: str
    answers: str = ""
    """The id of the message that it is a reply to, where the platform shows that."""


class Link(NamedTuple):
    """A way between the gateway and a server, which can be broken."""

    proxy: Proxy
    sends: bytes = b""
    """What is in a request that sends something."""


class Surface(ABC):
    """One platform with some conversations."""

    name: str
    """The platform's name in the settings."""
    resend: Resend
    command_prefix = "/"
    links: Sequence[Link] = ()

    def __enter__(self) -> "Surface":
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def open(self) -> None:
        """Start the server and what is between it and the gateway."""

    @abstractmethod
    def close(self) -> None:
        """Stop them."""

    @abstractmethod
    def begin(self, count: int) -> list[str]:
        """Make so many conversations; returns their names."""

    def is_ready(self) -> bool:
        """Whether people may begin to write; looked at while the gateway runs for the first time."""
        return True

    @abstractmethod
    def settings(self) -> str:
        """The table of the platform for config.toml, with `[gateway.platforms.NAME]`."""

    def owners(self) -> list[str]:
        """Who speaks here, as the settings name them."""
        return []

    def environment(self) -> Mapping[str, str]:
        """Variables that the gateway needs for this platform."""
        return {}

    @abstractmethod
    def say(self, talk: str, text: str) -> str:
        """Have a person write; returns the id by which replies name that message."""

    @abstractmethod
    def seen(self, talk: str) -> list[Seen]:
        """What the gateway wrote in a conversation, oldest first."""

    @abstractmethod
    def sends(self) -> int:
        """How many times something was sent here so far."""
