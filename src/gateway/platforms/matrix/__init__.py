"""Matrix: rooms on any homeserver, encrypted ones included; a plugin that comes with Hermes."""

from gateway.platforms.matrix.manifest import MANIFEST

register = MANIFEST.register
