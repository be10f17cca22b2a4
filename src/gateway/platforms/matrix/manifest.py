"""The manifest of Matrix: its settings, its account and its delivery guarantee."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from gateway.config import PlatformConfig
from gateway.platforms.base import Manifest, describe

if TYPE_CHECKING:
    from gateway.platforms.matrix.adapter import MatrixAdapter


class MatrixSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One account on a homeserver: with a password, or with an access token."""

    homeserver: Annotated[str, describe("Address of the server, for example https://matrix.org.")]
    user: Annotated[str, describe("The account, for example @hermes:matrix.org.")] = ""
    password: Annotated[str, describe("Its password; better kept in the environment variable.")] = (
        ""
    )
    access_token: Annotated[
        str, describe("A token of a device of its own, instead of user and password.")
    ] = ""
    device_name: Annotated[str, describe("Name of the device in people's clients.")] = "Hermes"
    auto_join: Annotated[bool, describe("Join rooms on invitation.")] = True
    command_prefix: Annotated[
        str, describe("Replaces the slash of a command; clients keep slashes for themselves.")
    ] = "!"
    ignore_unverified_devices: Annotated[
        bool, describe("Let every device of a room's members read what we send, verified or not.")
    ] = True
    verified_devices: Annotated[
        list[str],
        describe("Fingerprints (session keys) of the devices that may, when the former is false."),
    ] = []

    def __post_init__(self) -> None:
        if not self.homeserver.startswith(("https://", "http://")):
            raise ValueError("homeserver must be an address such as https://matrix.org")
        if not self.access_token and not (self.user and self.password):
            raise ValueError("set access_token, or user and password")


def _make(config: PlatformConfig, settings: MatrixSettings, folder: Path) -> "MatrixAdapter":
    from gateway.platforms.matrix.adapter import (  # noqa: PLC0415 -- loads nio and its cryptography
        MatrixAdapter,
    )

    return MatrixAdapter(config, settings, folder)


def _identity(settings: MatrixSettings) -> str:
    """Return the account; the hash of its token stands for an account without a name."""
    who = settings.user or hashlib.sha256(settings.access_token.encode()).hexdigest()[:16]
    return f"{who}|{settings.homeserver.rstrip('/')}"


MANIFEST = Manifest(
    name="matrix",
    title="Matrix",
    settings=MatrixSettings,
    make=_make,
    identity=_identity,
    variables={
        "MATRIX_HOMESERVER": "homeserver",
        "MATRIX_USER_ID": "user",
        "MATRIX_PASSWORD": "password",
        "MATRIX_ACCESS_TOKEN": "access_token",
    },
    guide=(
        "1. Register an account for Hermes in any Matrix client, such as https://app.element.io.",
        "2. Enter the address of its homeserver, then its name and password. They are tested at once.",
    ),
    extra="matrix",
    guarantee=(
        "A part that is sent again has the same transaction id, so the server drops the"
        " repeat: exactly once, also after a crash."
    ),
)
