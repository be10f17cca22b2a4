"""ASGI middleware that rejects requests without the token, and from web pages that are not listed."""

import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway import request_host
from gateway.platforms.api_server.manifest import ApiSettings
from gateway.platforms.refusal import RefusedRequest

OPEN_PATHS = frozenset({"/health", "/v1/health", "/openapi.json"})
"""Paths that need no token: probes and generators of clients have none."""


def allowed_origins(settings: ApiSettings) -> set[str]:
    """Return the web pages that may send requests, as browsers name them."""
    return {origin.rstrip("/").lower() for origin in settings.origins}


class HostCheck:
    """Rejects requests to host names that are not ours, and from origins that are not allowed."""

    def __init__(self, app: ASGIApp, settings: ApiSettings) -> None:
        self._app = app
        self._hosts = {"localhost", *(name.lower() for name in settings.hosts)}
        self._origins = allowed_origins(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(Headers(scope=scope))
        except RefusedRequest as error:
            await error.answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check(self, headers: Headers) -> None:
        if not self._is_own_host(headers.get("host", "")):
            fix = "Send requests to an address or to localhost, or add the name to `hosts`."
            raise _forbidden("Host", fix)
        origin = headers.get("origin")
        if origin is not None and not self._is_allowed(origin.lower()):
            raise _forbidden("Origin", "Add this page to `origins` to allow its requests.")

    def _is_own_host(self, host: str) -> bool:
        name = request_host.name_of(f"//{host}")
        return name in self._hosts or request_host.is_address(name)

    def _is_allowed(self, origin: str) -> bool:
        return origin in self._origins or request_host.is_loopback(request_host.name_of(origin))


class TokenCheck:
    """Rejects requests without the token. It is inside CORS, so that pages can read a rejection too."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The preflight request of a browser carries no token.
        is_open = scope["path"] in OPEN_PATHS or scope["method"] == "OPTIONS"
        if is_open or self._is_authorized(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        refused = RefusedRequest(
            401,
            "The token is missing or wrong: send `Authorization: Bearer TOKEN`.",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await refused.answer(scope, receive, send)

    def _is_authorized(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        is_equal = hmac.compare_digest(token.encode(), self._token)
        return scheme.lower() == "bearer" and is_equal


def _forbidden(header: str, fix: str) -> RefusedRequest:
    return RefusedRequest(
        403, f"The {header} of this request is not allowed. {fix}", code="forbidden", param=header
    )
