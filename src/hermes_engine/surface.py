"""Surfaces: the kinds of places that inputs come from, and how they have their turns run.

The terminal, a messenger, HTTP, a schedule: each is a surface. The engine knows a surface by its names,
one of which is stored with every turn, and asks it how a turn is to run.
"""

import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

import msgspec

from hermes_agent.agent import Agent
from hermes_agent.permissions import Permissions
from hermes_agent.turn.events import Event
from hermes_agent.turn.stop import Stop
from hermes_agent.turn.values import Deliver, Outcome, deliver_nothing


class QueuedTurn(msgspec.Struct, frozen=True):
    """A turn that is on disk and open, as the dispatcher finds it."""

    id: str
    session_id: str
    conversation_id: str
    user_message_id: int
    surface: str
    permissions: Permissions | None
    is_resumed: bool
    """Whether it was begun before and cut off or suspended."""
    is_own: bool
    """Whether this worker accepted it."""


class TurnPlan(msgspec.Struct):
    """The way to run a turn: what its surface knows and the engine does not."""

    source: str
    """The name that hooks and the store are told."""
    workspace: Path
    """Where the tools work, unless the session has a folder of its own."""
    permissions: Permissions | None = None
    model_name: str = ""
    """The model that was chosen; empty: the one of the settings."""
    can_ask: bool = True
    """Whether somebody can be shown a question."""
    deliver: Deliver = deliver_nothing
    """What has to be sent when the turn ends; stored in the same transaction."""
    manner: str = ""
    """What the model is told about how it is heard there."""
    instructions: str = ""
    """What a program wants of the conversation from now on."""
    context: Callable[[], AbstractContextManager[object]] = nullcontext
    """Entered around the turn, in its thread."""
    is_workspace_fixed: bool = False
    """Whether the tools work in `workspace` also where the session has a folder of its own."""
    is_stopped: bool = False
    """Whether the turn does not run, and ends as one does that is stopped before it begins."""


class Running(msgspec.Struct, eq=False):
    """A turn that this process runs."""

    turn: QueuedTurn
    stop: Stop = msgspec.field(default_factory=Stop)
    """There from the moment the turn is chosen, so that a stop reaches it before it has begun."""
    agent: Agent | None = None
    """Who answers; None until it is made."""
    plan: TurnPlan | None = None
    """None until the surface has made it."""
    began: float = msgspec.field(default_factory=time.monotonic)
    stopped_by: str = ""
    """Who stopped it, in the words of a surface."""
    is_over: bool = False
    """Whether its subscribers were told an end; one that was suspended or is not ready stays open."""


class NotReadyError(Exception):
    """A surface cannot plan a turn yet; the conversation waits until `Engine.wake`."""


class TurnGoneError(Exception):
    """A turn is not to run here: it has ended, moved to another conversation, or is gone."""


class Surface(Protocol):
    """A kind of place that inputs come from. Its methods are called in the thread of the turn."""

    @property
    def names(self) -> Collection[str]:
        """The names that its inputs are accepted under."""
        ...

    def adopts(self, turn: QueuedTurn) -> bool:
        """Return whether an abandoned turn of another surface is to be completed here.

        It runs with the permissions that it came with, and nobody is asked.
        """
        ...

    def plan(self, running: Running) -> TurnPlan:
        """Say how a turn runs.

        Raises NotReadyError to have it wait, TurnGoneError when it is over after all, and any other
        HermesError to fail it with that reason.
        """
        ...

    def report(self, running: Running, event: Event) -> None:
        """Take note of what happens in a turn."""
        ...

    def turn_ended(self, running: Running, outcome: Outcome | None) -> None:
        """Follow up on a turn that has ended or was suspended.

        No outcome: it was ended by another process, or its conversation was deleted.
        """
        ...

    def turn_ended_elsewhere(self, turn_id: str) -> None:
        """Follow up on a turn that is over or gone and was not run here; in the dispatcher's thread."""
        ...
