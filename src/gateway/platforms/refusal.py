"""Turns every failure of a request into a response; the boundary of each endpoint."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
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
"""Clients must not repeat a request that ran; the agent did its own retries."""

_encode = msgspec.json.Encoder().encode


class RefusedRequest(Exception):
    """A request that is refused, with a response in the format of OpenAI."""

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

    def as_http(self) -> bytes:
        """Return the whole response, for a connection that closes with it."""
        body = _encode(self.body)
        headers = {
            **self.headers,
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "close",
        }
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body

    @property
    def answer(self) -> Response:
        return json(self.body, self.status, self.headers)


_STOPPING = RefusedRequest(
    503,
    "Hermes is stopping and did not finish this request. Repeat it after the restart.",
    code="restarting",
    headers={"Retry-After": "5"},
)
_EXHAUSTED = RefusedRequest(
    503,
    "Hermes is short of memory or open files; nothing was run. Repeat the request later.",
    code="exhausted",
    headers={"Retry-After": "1"},
)
BROKEN = RefusedRequest(500, "Hermes has an internal error; see its log.", code="internal_error")


def refusal(error: RefusedRequest | HermesError) -> RefusedRequest:
    """Return the response for an error, when the message was not accepted."""
    match error:
        case RefusedRequest():
            return error
        case SessionNotFoundError() | TurnNotFoundError():
            return RefusedRequest(404, str(error), code=error.code.replace(".", "_"))
        case StoreError():
            text = f"The message was not accepted: {error}"
            return RefusedRequest(503, text, code=error.code, headers={"Retry-After": "1"})
        case UsageError() | PlatformError():
            return RefusedRequest(400, str(error), code=error.code)
        case _:
            return RefusedRequest(500, str(error), code=error.code, headers=FINAL)


def answered(endpoint: Endpoint) -> Endpoint:
    """Wrap an endpoint so that every failure becomes a response and others continue."""

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
            logger.exception("API request failed")
            return BROKEN.answer

    return run


async def health(ingress: Ingress) -> Response:
    """Answer a probe. It has no token, so it gets only the kind of a failure."""
    try:
        await ingress.check_health()
    except StoreError as error:
        return json({"status": "unhealthy", "code": error.code}, 503, {"Retry-After": "5"})
    return json({"status": "ok"})


async def no_route(request: Request, error: Exception) -> Response:
    """Return the response for an unknown path or method."""
    status = getattr(error, "status_code", 404)
    text = f"There is no {request.method} {request.url.path[:200]} here."
    headers = dict(getattr(error, "headers", None) or {})
    return RefusedRequest(status, text, code="unknown_url", headers=headers).answer


def json(payload: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:  # noqa: ANN401 -- JSON
    """Return a response with a JSON body."""
    return Response(_encode(payload), status, headers, "application/json")
