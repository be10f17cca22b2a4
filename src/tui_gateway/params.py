"""The parameters of methods: one structure per method, checked before the method is called.

docs/reference/rpc.md shows the description of each field.
"""

from typing import Annotated, Any

import msgspec


def says(text: str, **limits: Any) -> Any:  # noqa: ANN401 -- msgspec's own
    """Describe a parameter, and limit it."""
    return msgspec.Meta(description=text, **limits)


Cols = Annotated[int, says("Width of the client's terminal.", ge=1, le=10_000)]
OpenId = Annotated[str, says("The open session.")]
AnyId = Annotated[
    str,
    says(
        "An open session; or a stored conversation: its id, its title, or the beginning of its id."
    ),
]
Limit = Annotated[int, says("Maximum number of results.", ge=0, le=1000)]


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a method; unknown ones are ignored."""


class Nothing(Params, frozen=True):
    """No parameters."""


class Session(Params, frozen=True):
    """An open session."""

    session_id: OpenId
