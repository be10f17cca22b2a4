"""Compaction of conversations: when it is due, how it is done, and the way back to the originals.

Whether it is due is asked in every turn; how it is done is loaded when it is.
"""

import importlib
from typing import TYPE_CHECKING

from hermes_agent.compaction.plan import needed, reply_room

if TYPE_CHECKING:
    from hermes_agent.compaction.compactor import Job, Outcome, compact
    from hermes_agent.compaction.expansion import expand, expand_text

__all__ = ["Job", "Outcome", "compact", "expand", "expand_text", "needed", "reply_room"]

_LATER = {
    "Job": "compactor",
    "Outcome": "compactor",
    "compact": "compactor",
    "expand": "expansion",
    "expand_text": "expansion",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
