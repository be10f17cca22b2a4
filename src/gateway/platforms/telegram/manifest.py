"""The manifest of Telegram: its settings and its delivery guarantee."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from gateway.config import PlatformConfig
from gateway.platforms.base import Manifest, describe

if TYPE_CHECKING:
    from gateway.platforms.telegram.adapter import TelegramAdapter


class TelegramSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bot on Telegram."""

    token: Annotated[str, describe("The bot's token from @BotFather.")] = ""
    mode: Annotated[
        Literal["polling", "webhook"],
        describe("How messages arrive: polled by us, or sent to webhook_url."),
    ] = "polling"
    poll_s: Annotated[int, describe("Seconds that Telegram holds a poll.", ge=0, le=50)] = 25
    webhook_url: Annotated[
        str, describe("The public https address that leads to webhook_port, with a path.")
    ] = ""
    webhook_host: Annotated[str, describe("Where the webhook listens.")] = "127.0.0.1"
    webhook_port: Annotated[int, describe("The port it listens on.", ge=0, le=65535)] = 8443
    api_url: Annotated[str, describe("The Bot API server.")] = "https://api.telegram.org"


def account(settings: TelegramSettings) -> str:
    """Return the id of the bot: the part of the token that is not secret."""
    return settings.token.partition(":")[0]


def _make(config: PlatformConfig, settings: TelegramSettings, folder: Path) -> "TelegramAdapter":
    from gateway.platforms.telegram.adapter import TelegramAdapter  # noqa: PLC0415 -- loads the library

    del folder
    return TelegramAdapter(config, settings)


MANIFEST = Manifest(
    name="telegram",
    title="Telegram",
    settings=TelegramSettings,
    make=_make,
    identity=account,
    variables={"TELEGRAM_BOT_TOKEN": "token"},
    guide=(
        "1. Open https://t.me/BotFather in Telegram and send /newbot.",
        "2. Choose a name, and a username that ends in bot.",
        "3. Copy the token that BotFather sends, such as 123456:ABC-DEF1234, and paste it here."
        " It is not shown.",
    ),
    extra="telegram",
    guarantee=(
        "Incoming messages are accepted once. After a crash during a send, the reply is"
        " sent again with a mark that it may be a repeat, because Telegram cannot say"
        " whether it arrived."
    ),
)
