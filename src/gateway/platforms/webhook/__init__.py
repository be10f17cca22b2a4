"""Webhooks: signed deliveries of other programs become messages; a plugin that comes with Hermes."""

from gateway.platforms.webhook.manifest import MANIFEST
from hermes_cli.plugin_context import PluginContext


def register(ctx: PluginContext) -> None:
    """Register the platform."""
    ctx.platform(MANIFEST.name, lambda: MANIFEST)
