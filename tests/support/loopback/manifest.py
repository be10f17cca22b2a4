"""Loopback before anything of it is loaded."""

from pathlib import Path
from typing import Annotated

import msgspec

from gateway.config import PlatformConfig
from gateway.platforms.base import BasePlatformAdapter, Manifest, Resend


class LoopbackSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[gateway.platforms.loopback]`."""

    address: Annotated[str, msgspec.Meta(description="Where the server listens: host:port.")]
    resend: Annotated[
        Resend, msgspec.Meta(description="What the server knows about messages sent twice.")
    ] = "same"
    timeout_s: Annotated[
        float, msgspec.Meta(gt=0, description="How long an answer of the server is waited for.")
    ] = 10.0
    retry_s: Annotated[
        float, msgspec.Meta(gt=0, description="Pause before a message is handed in again.")
    ] = 0.2


def _make(config: PlatformConfig, settings: LoopbackSettings, folder: Path) -> BasePlatformAdapter:
    from tests.support.loopback import adapter  # noqa: PLC0415 -- loaded when used

    del folder  # the server remembers everything
    return adapter.KINDS[settings.resend](config, settings)


MANIFEST = Manifest(
    name="loopback",
    title="Loopback",
    settings=LoopbackSettings,
    make=_make,
    identity=lambda settings: settings.address,
    guarantee="A reply is shown once: the server folds messages with the same key.",
)
