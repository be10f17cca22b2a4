"""What knows the ends of a turn knows all of them, so that a new one is noticed everywhere."""

import inspect
from typing import get_args

from gateway.platforms.base import TurnResult
from hermes_agent.turn.values import Status
from hermes_cli import hookspecs
from hermes_state.transitions import TurnState
from hermes_state.values import End
from tui_gateway.translation import _STATUSES

ENDS = {str(state) for state in TurnState if not state.is_open}


def test_every_end_of_a_turn_can_be_stored_and_reported() -> None:
    assert set(get_args(End)) == ENDS
    assert set(get_args(Status)) == {*ENDS, "suspended"}


def test_every_end_of_a_turn_is_known_to_platforms_plugins_and_clients() -> None:
    assert set(get_args(TurnResult.__annotations__["status"])) == ENDS
    hook = inspect.signature(hookspecs.SPECS["on_turn_end"]).parameters["status"]
    assert set(get_args(hook.annotation)) == ENDS
    assert set(_STATUSES) == ENDS
