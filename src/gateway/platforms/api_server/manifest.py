"""What the HTTP API is called and can be told, before anything of it is loaded."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from gateway.config import PlatformConfig
from gateway.platforms.base import BasePlatformAdapter, Manifest


def _says(text: str, **limits: Any) -> Any:  # noqa: ANN401 -- msgspec's own
    return msgspec.Meta(description=text, **limits)


class ApiSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[gateway.platforms.api_server]`."""

    token: Annotated[
        str, _says("What clients send as API key; empty: made and kept in a file.")
    ] = ""
    user: Annotated[str, _says("Who speaks with it, as `allow` and `owners` name them.")] = "owner"
    host: Annotated[str, _says("Address to listen on.", min_length=1)] = "127.0.0.1"
    port: Annotated[int, _says("Port to listen on; 0: any that is free.", ge=0, le=65535)] = 8642
    hosts: Annotated[
        list[str], _says("Names besides localhost and addresses that requests may be made to.")
    ] = []
    origins: Annotated[
        list[str], _says("Web pages that may ask from a browser, as https://example.org.")
    ] = []
    client_tools: Annotated[
        Literal["refuse", "ignore"],
        _says("What becomes of requests that bring tools; the agent has its own."),
    ] = "refuse"
    body_limit_mb: Annotated[int, _says("Largest request.", ge=1, le=1024)] = 32


def _make(config: PlatformConfig, settings: ApiSettings, folder: Path) -> BasePlatformAdapter:
    from gateway.platforms.api_server.adapter import (  # noqa: PLC0415 -- loads the web server
        ApiServerAdapter,
    )

    return ApiServerAdapter(config, settings, folder)


MANIFEST = Manifest(
    name="api_server",
    title="HTTP API",
    settings=ApiSettings,
    make=_make,
    identity=lambda settings: f"{settings.host}:{settings.port}",
    variables={"HERMES_API_TOKEN": "token"},
    extra="api",
    needs_pairing=False,
    guarantee=(
        "The reply goes back on the request; when that breaks, the same request with the same "
        "Idempotency-Key gets the reply of the first one, and nothing runs twice."
    ),
)
