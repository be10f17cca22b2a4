"""The HTTP API: the agent behind the requests of OpenAI's clients; a plugin that comes with Hermes."""

from gateway.platforms.api_server.manifest import MANIFEST

register = MANIFEST.register
