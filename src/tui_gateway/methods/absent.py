"""Methods that clients poll for features that Hermes does not have; an error would be shown."""

from typing import Any, TypedDict

from tui_gateway.params import Params
from tui_gateway.runtime import Runtime


class Poll(Params, frozen=True):
    """Parameters that are ignored."""


class Pet(TypedDict):
    """There is no pet."""

    enabled: bool


def pet(rt: Runtime, params: Poll) -> Pet:
    """Report that there is no pet to draw."""
    del rt, params
    return {"enabled": False}


class Delegation(TypedDict):
    """Sub-agents that can be paused: none."""

    active: list[Any]
    paused: bool


def delegation(rt: Runtime, params: Poll) -> Delegation:
    """Report that no sub-agent can be paused."""
    del rt, params
    return {"active": [], "paused": False}
