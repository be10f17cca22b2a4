"""Matrix: rooms on any homeserver, encrypted ones included; a plugin that comes with Hermes."""

from gateway.platforms.matrix.manifest import MANIFEST
from hermes_cli.plugin_context import PluginContext


def register(ctx: PluginContext) -> None:
    """Register the platform."""
    ctx.platform(MANIFEST.name, lambda: MANIFEST)
