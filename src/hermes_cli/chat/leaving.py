"""The end of a chat: the conversation is finalized within a second, whatever hangs."""

import logging
import os
import sys
import threading
from collections.abc import Callable

from hermes_cli.chat.exchange import Exchange

logger = logging.getLogger(__name__)

_PATIENCE_S = 1.0
_LAST_PATIENCE_S = 0.2


def close(exchange: Exchange, status: int) -> None:
    """Close the conversation and all it used; a status above 128 says that it was interrupted.

    The process ends without what does not end in time.
    """

    def end() -> None:
        exchange.close_conversation(completed=status == 0, interrupted=status > 128)
        exchange.close()

    if not _within(end, _PATIENCE_S):
        logger.warning("something hangs; leaving without it")
        _within(exchange.kill_processes, _LAST_PATIENCE_S)
        _flush()
        os._exit(status)
    if not _flush():
        os._exit(status)  # the interpreter would fail over the same and say so with another status


def _flush() -> bool:
    """Write out what was printed; False when nobody is there to read it."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return False
    return True


def _within(work: Callable[[], None], seconds: float) -> bool:
    """Do something beside; tells whether it was done in time."""
    thread = threading.Thread(target=work, name="leaving", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()
