"""The door: who may ask. Who has no token may not, nor a page that gave this address another name."""

import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway import hosts
from gateway.platforms.api_server.manifest import ApiSettings
from gateway.platforms.refusal import RefusedRequest

_OPEN = "/health"


class Door:
    """Lets a request through to the application behind it, or answers it."""

    def __init__(self, app: ASGIApp, settings: ApiSettings, token: str) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = {"localhost", *(name.lower() for name in settings.hosts)}
        self._origins = {origin.rstrip("/").lower() for origin in settings.origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(Headers(scope=scope), scope)
        except RefusedRequest as error:
            await error.answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check(self, headers: Headers, scope: Scope) -> None:
        if not self._is_ours(headers.get("host", "")):
            raise _forbidden("Host", "Ask by address or as localhost, or add the name to `hosts`.")
        origin = headers.get("origin")
        if origin is not None and not self._is_near(origin.lower()):
            raise _forbidden("Origin", "This page may not ask; add it to `origins` if it should.")
        # A browser asks beforehand, without the token, whether a page may ask.
        if scope["path"] == _OPEN or scope["method"] == "OPTIONS":
            return
        scheme, _, token = headers.get("authorization", "").partition(" ")
        is_known = hmac.compare_digest(token.encode(), self._token)
        if scheme.lower() != "bearer" or not is_known:
            raise RefusedRequest(
                401,
                "The token is missing or wrong: send `Authorization: Bearer TOKEN`.",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    def _is_ours(self, host: str) -> bool:
        name = hosts.name_of(f"//{host}")
        return name in self._hosts or hosts.is_address(name)

    def _is_near(self, origin: str) -> bool:
        return origin in self._origins or hosts.is_here(hosts.name_of(origin))


def _forbidden(header: str, fix: str) -> RefusedRequest:
    return RefusedRequest(
        403,
        f"The {header} of this request is not known here. {fix}",
        code="forbidden",
        param=header,
    )
