"""Compaction: replace the middle of a conversation by a summary when it outgrows the model's window.

Every turn asks whether it is due (`plan`); the rest is imported when it is.
"""

import importlib
from typing import TYPE_CHECKING

from hermes_agent.compaction.plan import needed, reply_room

if TYPE_CHECKING:
    from hermes_agent.compaction.compactor import Job, Outcome, compact

__all__ = ["Job", "Outcome", "compact", "needed", "reply_room"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.compactor"), name)
