"""The door: who may ask. Who has no token may not, nor a page that gave this address another name."""

import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway import hosts
from gateway.platforms.api_server.manifest import ApiSettings
from gateway.platforms.refusal import RefusedRequest

_OPEN = "/health"


def pages(settings: ApiSettings) -> set[str]:
    """The pages that may ask, as browsers call them."""
    return {origin.rstrip("/").lower() for origin in settings.origins}


class Door:
    """Lets a request through to the application behind it, or answers it."""

    def __init__(self, app: ASGIApp, settings: ApiSettings) -> None:
        self._app = app
        self._hosts = {"localhost", *(name.lower() for name in settings.hosts)}
        self._origins = pages(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(Headers(scope=scope))
        except RefusedRequest as error:
            await error.answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check(self, headers: Headers) -> None:
        if not self._is_ours(headers.get("host", "")):
            raise _forbidden("Host", "Ask by address or as localhost, or add the name to `hosts`.")
        origin = headers.get("origin")
        if origin is not None and not self._is_near(origin.lower()):
            raise _forbidden("Origin", "This page may not ask; add it to `origins` if it should.")

    def _is_ours(self, host: str) -> bool:
        name = hosts.name_of(f"//{host}")
        return name in self._hosts or hosts.is_address(name)

    def _is_near(self, origin: str) -> bool:
        return origin in self._origins or hosts.is_here(hosts.name_of(origin))


class Lock:
    """Opens to the token. It is behind what pages are told, so that they can read a refusal too."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A browser asks beforehand, without the token, whether a page may ask.
        is_open = scope["path"] == _OPEN or scope["method"] == "OPTIONS"
        if is_open or self._opens(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        refused = RefusedRequest(
            401,
            "The token is missing or wrong: send `Authorization: Bearer TOKEN`.",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        await refused.answer(scope, receive, send)

    def _opens(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        is_known = hmac.compare_digest(token.encode(), self._token)
        return scheme.lower() == "bearer" and is_known


def _forbidden(header: str, fix: str) -> RefusedRequest:
    return RefusedRequest(
        403,
        f"The {header} of this request is not known here. {fix}",
        code="forbidden",
        param=header,
    )
