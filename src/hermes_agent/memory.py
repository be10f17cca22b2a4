"""Memory providers of plugins: they learn from a conversation when it is closed."""

import logging
from collections.abc import Iterable
from typing import Any, Protocol

from hermes_cli.plugin_calls import is_user_interrupt

logger = logging.getLogger(__name__)


class MemoryProvider(Protocol):
    """A plugin that learns from conversations."""

    def on_session_end(self, messages: list[dict[str, Any]]) -> None: ...


def learn(providers: Iterable[MemoryProvider], transcript: list[dict[str, Any]]) -> None:
    """Let each provider learn from a transcript; one that fails harms only itself."""
    for provider in providers:
        try:
            provider.on_session_end(transcript)
        except BaseException as error:
            if is_user_interrupt(error):
                raise
            logger.exception("Memory provider %s failed", type(provider).__name__)
