"""Telegram, through its Bot API; a plugin that comes with Hermes."""

from gateway.platforms.telegram.manifest import MANIFEST

register = MANIFEST.register
