"""Webhooks: signed deliveries of other programs become messages; a plugin that comes with Hermes."""

from gateway.platforms.webhook.manifest import MANIFEST

register = MANIFEST.register
