"""The form of an answer: what every kind of answer is made of, and what a kind must be able to say."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from gateway.platforms.base import Finish
from gateway.platforms.refusal import RefusedRequest

encode = msgspec.json.Encoder().encode
DONE = b"data: [DONE]\n\n"
DEFAULT_MODEL = "hermes"
"""The name under which clients ask for whatever model the agent has."""


class Reply(NamedTuple):
    """What a client gets: the agent's reply, or what a command said."""

    text: str
    usage: Mapping[str, Any]
    model: str
    finish: Finish = "stop"
    session_id: str = ""
    """Where it was answered; empty: where it was taken in."""

    def spent(self, name: str) -> int:
        """A sum of tokens; 0 when nobody counted."""
        return int(self.usage.get(f"{name}_tokens") or 0)


class Form(Protocol):
    """One answer, whole or as a stream of events."""

    def whole(self, reply: Reply) -> dict[str, Any]: ...

    def begin(self) -> bytes: ...

    def think(self, text: str) -> bytes: ...

    def say(self, text: str) -> bytes: ...

    def end(self, reply: Reply) -> bytes:
        """The last events; `reply.text` is all that was said."""
        ...

    def fail(self, error: RefusedRequest) -> bytes: ...
