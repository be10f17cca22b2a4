"""Refusals: every failure of a request, as the answer it gets; the boundary of each endpoint."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gateway.platforms.base import Ingress, PlatformError
from hermes_core.errors import (
    HermesError,
    SessionNotFoundError,
    StoreError,
    TurnNotFoundError,
    UsageError,
    is_exhausted,
)

logger = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]

FINAL = {"X-Should-Retry": "false"}
"""What was run is not run again by a client's own retries; the agent made its own."""

_encode = msgspec.json.Encoder().encode


class RefusedRequest(Exception):
    """A request that is not taken, with its answer in the shape that OpenAI's clients know."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        kind = "server_error" if status >= 500 else "invalid_request_error"
        self.body: dict[str, Any] = {
            "error": {"message": message, "type": kind, "param": param, "code": code}
        }

    @property
    def answer(self) -> Response:
        return json(self.body, self.status, self.headers)


_STOPPING = RefusedRequest(
    503,
    "Hermes stops now, and this was not finished. Send it again when it is back.",
    code="restarting",
    headers={"Retry-After": "5"},
)
_EXHAUSTED = RefusedRequest(
    503,
    "Hermes is short of memory or open files; nothing was run. Repeat the request later.",
    code="exhausted",
    headers={"Retry-After": "1"},
)
BROKEN = RefusedRequest(500, "Hermes has a fault; its log says more.", code="internal_error")


def refusal(error: RefusedRequest | HermesError) -> RefusedRequest:
    """What an error means for a request that was not taken in."""
    match error:
        case RefusedRequest():
            return error
        case SessionNotFoundError() | TurnNotFoundError():
            return RefusedRequest(404, str(error), code=error.code.replace(".", "_"))
        case StoreError():
            text = f"The message was not taken in: {error}"
            return RefusedRequest(503, text, code=error.code, headers={"Retry-After": "1"})
        case UsageError() | PlatformError():
            return RefusedRequest(400, str(error), code=error.code)
        case _:
            return RefusedRequest(500, str(error), code=error.code, headers=FINAL)


def answered(endpoint: Endpoint) -> Endpoint:
    """The boundary of a request: whatever fails in it has an answer, and the others go on."""

    async def run(request: Request) -> Response:
        try:
            return await endpoint(request)
        except (RefusedRequest, HermesError) as error:
            return refusal(error).answer
        except asyncio.CancelledError:  # its listener stops, and gives it no more time
            return _STOPPING.answer
        except Exception as error:
            if is_exhausted(error):
                return _EXHAUSTED.answer
            logger.exception("a request failed; the others go on")
            return BROKEN.answer

    return run


async def health(ingress: Ingress) -> Response:
    """Answer a probe. It has no token, so it hears the kind of a failure and no path."""
    try:
        await ingress.check_health()
    except StoreError as error:
        return json({"status": "unhealthy", "code": error.code}, 503, {"Retry-After": "5"})
    return json({"status": "ok"})


async def no_route(request: Request, error: Exception) -> Response:
    """The answer for a path or a method that is not there."""
    status = getattr(error, "status_code", 404)
    text = f"There is no {request.method} {request.url.path[:200]} here."
    headers = dict(getattr(error, "headers", None) or {})
    return RefusedRequest(status, text, code="unknown_url", headers=headers).answer


def json(said: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:  # noqa: ANN401 -- JSON
    """A body of JSON."""
    return Response(_encode(said), status, headers, "application/json")
