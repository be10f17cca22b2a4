"""The HTTP API: the agent behind the requests of OpenAI's clients; a plugin that comes with Hermes."""

from gateway.platforms.api_server.manifest import MANIFEST
from hermes_cli.plugin_context import PluginContext


def register(ctx: PluginContext) -> None:
    """Register the platform."""
    ctx.platform(MANIFEST.name, lambda: MANIFEST)
