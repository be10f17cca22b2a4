"""Loopback as a surface, once for each way of sending again; the plugin that brings all three."""

import dataclasses
from functools import partial
from pathlib import Path

from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import BasePlatformAdapter, Manifest, Resend
from gateway.platforms.testing.network import Proxy
from hermes_cli.plugin_context import PluginContext
from hermes_core.paths import Home
from tests.gateway.chaos.surface import Link, Seen, Surface
from tests.support.loopback.manifest import MANIFEST, LoopbackSettings
from tests.support.loopback.server import LoopbackServer

WAYS: tuple[Resend, ...] = ("same", "checked", "marked")
PLUGIN = "chaos"

_CODE = "from tests.gateway.chaos.loopback import register\n\n__all__ = ['register']\n"
_ABOUT = f'name = "{PLUGIN}"\nversion = "1"\ndescription = "Loopback in three kinds."\n'


class LoopbackSurface(Surface):
    """A loopback server that knows as much about repeats as the way needs."""

    def __init__(self, way: Resend) -> None:
        self.resend = way
        self.name = f"loopback_{way}"
        self._server = LoopbackServer(folds_keys=way == "same")

    def open(self) -> None:
        self._server.__enter__()
        self._proxy = Proxy("127.0.0.1", int(self._server.address.rpartition(":")[2]))
        self._proxy.__enter__()
        self.links = [Link(self._proxy, b'"send"')]

    def close(self) -> None:
        self._proxy.__exit__(None, None, None)
        self._server.__exit__(None, None, None)

    def begin(self, count: int) -> list[str]:
        return [f"chat{number}" for number in range(count)]

    def settings(self) -> str:
        return (
            f'[gateway.platforms.{self.name}]\naddress = "{self._proxy.address}"\n'
            f'resend = "{self.resend}"\ntimeout_s = 3.0\n'
        )

    def owners(self) -> list[str]:
        return ["u1"]

    def say(self, talk: str, text: str) -> str:
        return self._server.say(talk, text)

    def seen(self, talk: str) -> list[Seen]:
        return [
            Seen(message.text, message.in_reply_to or "") for message in self._server.shown(talk)
        ]

    def sends(self) -> int:
        return len(self._server.attempts)


def install(home: Home) -> None:
    """Put the plugin that brings these platforms into a home."""
    folder = home.plugins / PLUGIN
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plugin.toml").write_text(_ABOUT, "utf-8")
    (folder / "__init__.py").write_text(_CODE, "utf-8")


def register(ctx: PluginContext) -> None:
    """Add the platforms to the gateway that loads the plugin."""
    for way in WAYS:
        ctx.platform(f"loopback_{way}", partial(_manifest, f"loopback_{way}"))


def _manifest(name: str) -> Manifest:
    return dataclasses.replace(MANIFEST, name=name, make=partial(_make, name))


def _make(
    name: str, config: PlatformConfig, settings: LoopbackSettings, folder: Path
) -> BasePlatformAdapter:
    adapter = MANIFEST.make(config, settings, folder)
    adapter.platform = Platform.register(name)
    return adapter
