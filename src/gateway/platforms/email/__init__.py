"""Email: a mailbox watched over IMAP and answered over SMTP; a plugin that comes with Hermes."""

from gateway.platforms.email.manifest import MANIFEST
from hermes_cli.plugin_context import PluginContext


def register(ctx: PluginContext) -> None:
    """Register the platform."""
    ctx.platform(MANIFEST.name, lambda: MANIFEST)
