"""The models that clients may ask for, and the one name that means whatever the agent has."""

import asyncio
from collections.abc import Sequence
from typing import Any

from gateway.platforms.api_server.form import DEFAULT_MODEL
from gateway.platforms.base import Ingress
from gateway.platforms.refusal import RefusedRequest

_FRESH_S = 60.0


class Models:
    """What the ingress offers, asked for at most once a minute: it may look at other machines for it."""

    def __init__(self, ingress: Ingress) -> None:
        self._ingress = ingress
        self._names: Sequence[str] = ()
        self._asked_at = -_FRESH_S

    async def names(self) -> list[str]:
        """All names, that of the agent's own choice first."""
        now = asyncio.get_running_loop().time()
        if now - self._asked_at >= _FRESH_S:
            self._names, self._asked_at = await self._ingress.models(), now
        return [DEFAULT_MODEL, *(name for name in self._names if name != DEFAULT_MODEL)]

    async def checked(self, name: str) -> str:
        """The model to ask for, empty for the agent's own; raises RefusedRequest."""
        if name in ("", DEFAULT_MODEL):
            return ""
        if name not in await self.names():
            raise RefusedRequest(
                404,
                f"There is no model {name[:100]!r}. Ask for {DEFAULT_MODEL!r}, which is the agent's "
                "own choice, or for one of GET /v1/models.",
                code="model_not_found",
                param="model",
            )
        return name


def described(name: str) -> dict[str, Any]:
    """A model as clients see it."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "hermes"}
