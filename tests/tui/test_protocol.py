"""The interface reads what the server sends: both sides of an event have the same fields."""

import dataclasses

import pytest

from hermes_protocol.events import EVENTS
from hermes_tui import messages

OWN = {"session_id", "is_taken"}
"""Fields that the interface adds itself."""


@pytest.mark.parametrize("kind", messages._EVENTS)
def test_an_event_is_read_by_the_fields_it_is_sent_with(kind: str) -> None:
    read = {field.name for field in dataclasses.fields(messages._EVENTS[kind])} - OWN
    assert read <= set(EVENTS[kind].__annotations__)
