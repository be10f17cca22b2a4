"""Shutdown of a chat: finalizes the conversation within a second, whatever hangs."""

import logging
import os
import sys
import threading
from collections.abc import Callable

from hermes_cli.chat.surface import ChatSurface

logger = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S = 1.0
_KILL_TIMEOUT_S = 0.2


def close(surface: ChatSurface, status: int) -> None:
    """Close the conversation and its resources; a status above 128 means that it was interrupted.

    The process exits even if something does not close in time.
    """

    def end() -> None:
        surface.close_conversation(completed=status == 0, interrupted=status > 128)
        surface.close()

    if not _finishes_within(end, _CLOSE_TIMEOUT_S):
        logger.warning("Closing the chat timed out after %s s; exiting", _CLOSE_TIMEOUT_S)
        _finishes_within(surface.kill_processes, _KILL_TIMEOUT_S)
        _flush()
        os._exit(status)
    if not _flush():
        os._exit(status)  # the interpreter would fail at the same flush, with another status


def _flush() -> bool:
    """Flush the output; False when nobody reads it."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return False
    return True


def _finishes_within(work: Callable[[], None], seconds: float) -> bool:
    """Run a function in a thread; return whether it finished in time."""
    thread = threading.Thread(target=work, name="leaving", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()
