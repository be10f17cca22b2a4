"""What webhooks are called and can be told, before anything of them is loaded."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from gateway.config import PlatformConfig
from gateway.platforms.base import BasePlatformAdapter, Manifest


def _says(text: str, **limits: Any) -> Any:  # noqa: ANN401 -- msgspec's own
    return msgspec.Meta(description=text, **limits)


Style = Literal["hermes", "github"]


class HookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[gateway.platforms.webhook.hooks.NAME]`."""

    secret: Annotated[str, _says("What its requests are signed with; empty: the general one.")] = ""
    style: Annotated[
        Style, _says("How they are signed: with our headers, or with X-Hub-Signature-256.")
    ] = "hermes"
    prompt: Annotated[
        str, _says("What the agent is told, with {field.path} from the JSON; empty: the JSON.")
    ] = ""
    conversation: Annotated[
        str, _says("What belongs together, as {field.path}; empty: each delivery is by itself.")
    ] = ""
    deliver: Annotated[str, _says("Where the reply is posted to: an address, or none.")] = "none"


class WebhookSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[gateway.platforms.webhook]`."""

    secret: Annotated[str, _says("The secret of hooks that have none of their own.")] = ""
    host: Annotated[str, _says("Address to listen on.", min_length=1)] = "127.0.0.1"
    port: Annotated[int, _says("Port to listen on; 0: any that is free.", ge=0, le=65535)] = 8644
    window_s: Annotated[float, _says("How old a signed request may be.", gt=0)] = 300.0
    body_limit_mb: Annotated[int, _says("Largest request.", ge=1, le=1024)] = 5
    hooks: Annotated[
        dict[str, HookSettings], _says("One table a hook; its name is the end of its address.")
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
    guarantee=(
        "A reply that may have arrived is posted again under the same X-Hermes-Delivery, by which its "
        "receiver tells it from a new one."
    ),
)
