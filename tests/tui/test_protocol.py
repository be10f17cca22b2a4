"""The wire types: the server makes them, and the interface reads the same types."""

import pytest

from hermes_protocol import results
from hermes_protocol.events import EVENTS, ToolComplete, name_of
from hermes_protocol.results import Queue, Queued
from hermes_protocol.structs import WireStruct
from hermes_tui import messages, wire

RESULTS = [
    kind
    for kind in vars(results).values()
    if isinstance(kind, type) and issubclass(kind, WireStruct)
]


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_is_read_as_it_was_sent(name: str) -> None:
    event = EVENTS[name]()
    assert name_of(event) == name
    assert wire.read(event.to_wire(), EVENTS[name]) == event


@pytest.mark.parametrize("kind", RESULTS)
def test_a_result_is_read_as_it_was_sent(kind: type[WireStruct]) -> None:
    assert wire.read(kind().to_wire(), kind) == kind()


def test_a_row_sends_null_for_what_it_does_not_have() -> None:
    sent = results.Row("id", parent_session_id=None).to_wire()
    assert (sent["parent_session_id"], sent["ended_at"]) == (None, None)
    opened = results.CommandOutcome("exec", session=results.Opened("live")).to_wire()
    assert "message" not in opened
    assert opened["session"]["inflight"] is None
    assert "lazy" not in opened["session"]["info"]


def test_every_message_of_the_interface_is_an_event_of_the_protocol() -> None:
    assert set(messages._EVENTS) <= set(EVENTS)


def test_what_is_unknown_is_not_sent_and_what_is_empty_is() -> None:
    call = ToolComplete("id", "terminal", {"command": None}, exit_code=None, inline_diff="")
    sent = call.to_wire()
    assert "exit_code" not in sent
    assert (sent["inline_diff"], sent["args"]) == ("", {"command": None})


def test_objects_inside_an_object_are_sent_alike() -> None:
    sent = Queue([Queued("t", "hi"), Queued("u", "look", ["a.png"])]).to_wire()
    assert sent == {
        "queued": [
            {"turn_id": "t", "text": "hi"},
            {"turn_id": "u", "text": "look", "images": ["a.png"]},
        ]
    }
