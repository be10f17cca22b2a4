"""The webhook platform: a listener that accepts deliveries, and replies that are posted."""

import logging
import re
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import (
    Abilities,
    BasePlatformAdapter,
    PlatformError,
    SendMetadata,
    SendResult,
)
from gateway.platforms.listener import Listener, read_body
from gateway.platforms.refusal import RefusedRequest, answered, health, json, no_route
from gateway.platforms.webhook import signature, translate
from gateway.platforms.webhook.manifest import HookSettings, WebhookSettings
from gateway.platforms.webhook.poster import Poster
from hermes_core import secrets

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_MIN_SECRET_LENGTH = 8


class WebhookAdapter(BasePlatformAdapter):
    """Accepts signed deliveries, and posts replies to the address of the hook."""

    abilities = Abilities(text_limit=1_000_000, resend="same")

    def __init__(self, config: PlatformConfig, settings: WebhookSettings) -> None:
        super().__init__(config, Platform.WEBHOOK)
        self._settings = settings
        self._hooks = {name: _checked(name, settings) for name in settings.hooks}
        if not self._hooks:
            raise _unusable("There is no such hook.", "Add [gateway.platforms.webhook.hooks.NAME].")
        secrets.register({f"webhook.{name}": hook.secret for name, hook in self._hooks.items()})
        self._listener: Listener | None = None
        self._poster = Poster()

    @property
    def url(self) -> str:
        """Its address for senders; empty until it is connected."""
        return f"{self._listener.url}/hooks" if self._listener else ""

    def address(self) -> str:
        return "Deliveries are posted to " + ", ".join(f"{self.url}/{name}" for name in self._hooks)

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        await self.disconnect()
        app = Starlette(
            routes=[
                Route("/hooks/{name}", answered(self._receive), methods=["POST"]),
                Route("/health", answered(self._health), methods=["GET"]),
            ],
            exception_handlers={HTTPException: no_route},
        )
        listener = Listener(app, self._settings.host, self._settings.port)
        await listener.start()
        self._listener = listener
        logger.info("webhooks listen on %s", self.url)
        return True

    async def disconnect(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.stop()
        await self._poster.close()

    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: SendMetadata | None = None,
    ) -> SendResult:
        hook = self._hooks.get(translate.hook_of(chat_id))
        if hook is None:
            return SendResult(
                success=False, error="The hook no longer exists.", error_kind="refused"
            )
        key = (metadata or {}).get("key") or f"{chat_id}/{reply_to}"
        if hook.deliver == "none":
            return SendResult(success=True, message_id=key)
        payload = {"conversation": chat_id, "reply_to": reply_to, "text": content}
        return await self._poster.post(hook, key, msgspec.json.encode(payload))

    async def _health(self, _request: Request) -> Response:
        return await health(self.ingress)

    async def _receive(self, request: Request) -> Response:
        """Accept a delivery; answer only when it is on disk."""
        name = request.path_params["name"]
        hook = self._hooks.get(name)
        if hook is None:
            raise RefusedRequest(404, f"There is no hook {name[:64]!r}.", code="unknown_hook")
        body = await read_body(request, self._settings.body_limit_mb << 20)
        delivery = signature.checked(
            hook.style, hook.secret, self._settings.window_s, request.headers, body
        )
        payload = translate.payload(body)
        kind = request.headers.get("X-GitHub-Event", "") if hook.style == "github" else ""
        if kind == "ping":
            return json({"outcome": "pong"})
        receipt = await self.ingress.accept(translate.event(name, hook, delivery, payload, kind))
        outcome = {
            "outcome": receipt.outcome,
            "is_new": receipt.is_new,
            "turn_id": receipt.turn_id,
            "session_id": receipt.session_id,
        }
        return json(outcome, 202)


def _checked(name: str, settings: WebhookSettings) -> HookSettings:
    """Return a hook with its secret; raises PlatformError when it cannot be used."""
    hook = settings.hooks[name]
    if not _NAME.fullmatch(name):
        raise _unusable(f"{name!r} is not a valid hook name.", "Use a-z, 0-9, - and _.")
    secret = hook.secret or settings.secret
    if len(secret) < _MIN_SECRET_LENGTH:
        raise _unusable(
            f"The hook {name} has no secret of {_MIN_SECRET_LENGTH} characters or more.",
            "Give it `secret`, or set HERMES_WEBHOOK_SECRET for all hooks.",
        )
    if hook.deliver != "none" and not _is_address(hook.deliver):
        raise _unusable(
            f"The hook {name} delivers to something that is not an address.",
            "Set `deliver` to https://… or to none.",
        )
    return msgspec.structs.replace(hook, secret=secret)


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _unusable(message: str, fix: str) -> PlatformError:
    return PlatformError(message, fix=fix, is_fatal=True)
