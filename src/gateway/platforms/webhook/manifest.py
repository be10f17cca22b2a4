"""The manifest of webhooks: their names and settings, before anything of them is loaded."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from gateway.config import PlatformConfig
from gateway.platforms.base import BasePlatformAdapter, Manifest, describe

Style = Literal["hermes", "github"]


class HookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[gateway.platforms.webhook.hooks.NAME]`."""

    secret: Annotated[
        str, describe("Secret that signs its requests; empty: the default secret.")
    ] = ""
    style: Annotated[
        Style, describe("How they are signed: with our headers, or with X-Hub-Signature-256.")
    ] = "hermes"
    prompt: Annotated[
        str,
        describe("The message for the agent, with {field.path} from the JSON; empty: the JSON."),
    ] = ""
    conversation: Annotated[
        str,
        describe("Groups deliveries into conversations, as {field.path}; empty: each is its own."),
    ] = ""
    deliver: Annotated[str, describe("The address to post the reply to, or none.")] = "none"


class WebhookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[gateway.platforms.webhook]`."""

    secret: Annotated[str, describe("Default secret of hooks.")] = ""
    host: Annotated[str, describe("Address to listen on.", min_length=1)] = "127.0.0.1"
    port: Annotated[int, describe("Port to listen on; 0: any free port.", ge=0, le=65535)] = 8644
    window_s: Annotated[float, describe("Maximum age of a signed request in seconds.", gt=0)] = (
        300.0
    )
    body_limit_mb: Annotated[int, describe("Largest request.", ge=1, le=1024)] = 5
    hooks: Annotated[
        dict[str, HookSettings],
        describe("One table per hook; its name is the end of its address."),
    ] = {}


def _make(config: PlatformConfig, settings: WebhookSettings, folder: Path) -> BasePlatformAdapter:
    from gateway.platforms.webhook.adapter import (  # noqa: PLC0415 -- loads the web server
        WebhookAdapter,
    )

    del folder
    return WebhookAdapter(config, settings)


MANIFEST = Manifest(
    name="webhook",
    title="Webhooks",
    settings=WebhookSettings,
    make=_make,
    identity=lambda settings: f"{settings.host}:{settings.port}",
    variables={"HERMES_WEBHOOK_SECRET": "secret"},
    tables=("hooks",),
    extra="api",
    carries_outside_text=True,
    guarantee=(
        "A reply that may have arrived is posted again with the same X-Hermes-Delivery, so"
        " that its receiver can drop repeats."
    ),
)
