"""The API as a platform: its token and its listener. Nothing is ever sent to it."""

import logging
import secrets
from pathlib import Path

from gateway.config import Platform, PlatformConfig
from gateway.platforms.api_server.app import Api, application
from gateway.platforms.api_server.manifest import ApiSettings
from gateway.platforms.base import (
    Abilities,
    BasePlatformAdapter,
    PlatformError,
    SendMetadata,
    SendResult,
)
from gateway.platforms.listener import Listener
from hermes_core import secrets as known_secrets
from hermes_core.paths import write_private

logger = logging.getLogger(__name__)

_MIN_TOKEN_LENGTH = 16


class ApiServerAdapter(BasePlatformAdapter):
    """Answers requests; replies go back on the request itself."""

    abilities = Abilities(text_limit=100_000_000, resend="same", answers_in_place=True)

    def __init__(self, config: PlatformConfig, settings: ApiSettings, folder: Path) -> None:
        super().__init__(config, Platform.API_SERVER)
        self._settings = settings
        self._token_file = folder / "token"
        self._api: Api | None = None
        self._listener: Listener | None = None

    @property
    def url(self) -> str:
        """Its address for clients; empty until it is connected."""
        return f"{self._listener.url}/v1" if self._listener else ""

    @property
    def _configured_token(self) -> str:
        """The token of the settings."""
        return self._settings.token or self.config.token or ""

    def address(self) -> str:
        where = "the settings" if self._configured_token else self._token_file
        return f"Clients connect to {self.url} with the token in {where}"

    def check(self) -> None:
        if self._configured_token:
            _checked(self._configured_token, "the setting `token` or HERMES_API_TOKEN")

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        await self.disconnect()
        self.check()
        token = self._configured_token or self._stored_token()
        known_secrets.register({"api_server.token": token})
        api = Api(self._settings, self.ingress)
        behind_door = application(api, self._settings, token)
        listener = Listener(behind_door, self._settings.host, self._settings.port)
        await listener.start()
        self._api, self._listener = api, listener
        logger.info("the API listens on %s", self.url)
        return True

    async def disconnect(self) -> None:
        api, self._api = self._api, None
        listener, self._listener = self._listener, None
        if api is not None and listener is not None:
            api.close()
            await listener.stop()

    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: SendMetadata | None = None,
    ) -> SendResult:
        del chat_id, content, reply_to, metadata
        return SendResult(
            success=False,
            error="Nothing can be sent to clients of the API.",
            error_kind="refused",
        )

    def _stored_token(self) -> str:
        """Return the token in our folder; create it when there is none."""
        try:
            if not self._token_file.exists():
                write_private(self._token_file, secrets.token_urlsafe(32) + "\n")
                logger.info("created a token for the API: %s", self._token_file)
            token = self._token_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise PlatformError(
                f"The token of the API cannot be stored in {self._token_file}: {error}.",
                fix="Set HERMES_API_TOKEN, or make the folder writable.",
                is_fatal=True,
            ) from error
        return _checked(token, str(self._token_file))


def _checked(token: str, where: str) -> str:
    """Check that a token is long enough and can be sent; raises PlatformError."""
    if len(token) >= _MIN_TOKEN_LENGTH and token.isascii() and token.isprintable():
        return token
    raise PlatformError(
        f"The token of the API in {where} cannot be used.",
        fix=f"Give it {_MIN_TOKEN_LENGTH} plain characters or more, or remove it to get a new one.",
        is_fatal=True,
    )
