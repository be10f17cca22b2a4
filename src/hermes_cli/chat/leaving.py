"""The end of a chat: the conversation is finalized within a second, whatever hangs."""

import logging
import os
import sys
import threading
from collections.abc import Callable

from hermes_agent import lease
from hermes_agent.agent import Agent
from hermes_cli.chat.parts import Parts
from hermes_engine import closing

logger = logging.getLogger(__name__)

END_REASON = "cli_close"
_PATIENCE_S = 1.0
_LAST_PATIENCE_S = 0.2


def let_go(agent: Agent, parts: Parts, status: int) -> None:
    """End the conversation and close what it used; a status above 128 says that it was cut off.

    What has not ended in time is left behind, and the process ends without it.
    """

    def end() -> None:
        if lease.is_held_elsewhere(agent.store, agent.conversation_id):
            agent.close()
        else:
            closing.close_agent(agent, END_REASON, completed=status == 0, interrupted=status > 128)
        parts.close()

    if not _within(end, _PATIENCE_S):
        logger.warning("something hangs; leaving without it")
        _within(agent.bench.processes.close, _LAST_PATIENCE_S)
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
