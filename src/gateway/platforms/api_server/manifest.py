"""The manifest of the HTTP API: its settings and its guarantee."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from gateway.config import PlatformConfig
from gateway.platforms.base import BasePlatformAdapter, Manifest, describe


class ApiSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[gateway.platforms.api_server]`."""

    token: Annotated[
        str, describe("The API key of clients; empty: created and stored in a file.")
    ] = ""
    user: Annotated[str, describe("The person who uses it, as in `allow` and `owners`.")] = "owner"
    host: Annotated[str, describe("Address to listen on.", min_length=1)] = "127.0.0.1"
    port: Annotated[int, describe("Port to listen on; 0: any free port.", ge=0, le=65535)] = 8642
    hosts: Annotated[
        list[str], describe("Host names to accept besides localhost and addresses.")
    ] = []
    origins: Annotated[
        list[str], describe("Web pages that may send requests, as https://example.org.")
    ] = []
    client_tools: Annotated[
        Literal["refuse", "ignore"],
        describe("How to treat requests with tools; the agent has its own."),
    ] = "refuse"
    body_limit_mb: Annotated[int, describe("Largest request.", ge=1, le=1024)] = 32


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
        "The response has the reply. If the connection breaks, a repeat with the same"
        " Idempotency-Key gets the reply of the first request, and nothing runs twice."
    ),
)
