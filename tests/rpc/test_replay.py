"""Clients that lose their connection: each event reaches them once, in order, whenever it was cut."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from hermes_agent.testing.scripted import Quiet, Step, call, silence
from hermes_agent.testing.server import ScriptedServer
from hermes_engine import events
from tests.rpc.harness import TIMEOUT_S, Inside, Json
from tests.rpc.test_ws import Socket, address, service
from tests.support.faults import eventually
from tui_gateway import server

__all__ = ["address", "service"]

pytestmark = pytest.mark.promise("P12")


_OF_THE_MOMENT = ("usage", "queued")
"""Fields that say how things are when an event is sent, which may be later for one who was away."""


def numbered(client: Any) -> list[Json]:
    """The events of the log that a client was sent."""
    found = [frame["params"] for frame in list(client.frames) if "seq" in frame.get("params", {})]
    return [
        event | {"payload": {k: v for k, v in event["payload"].items() if k not in _OF_THE_MOMENT}}
        for event in found
    ]


def joined(received: list[Json]) -> list[Json]:
    """Join pieces of text that follow each other, as a server does for a client that is slow."""
    whole: list[Json] = []
    for event in received:
        last = whole[-1] if whole else {}
        if event["type"] in _PIECES and last.get("type") == event["type"]:
            text = last["payload"]["text"] + event["payload"]["text"]
            whole[-1] = event | {"payload": event["payload"] | {"text": text}}
        else:
            whole.append(event)
    return whole


_PIECES = ("message.delta", "reasoning.delta", "tool.progress")


class Unsteady:
    """A client whose connection is cut again and again; it names the last event that it saw."""

    def __init__(self, address: Json, key: str, seed: int) -> None:
        self.seen: list[Json] = []
        self._address = address
        self._key = key
        self._dice = random.Random(seed)
        self.replays = 0

    def connect_for_a_while(self) -> None:
        """Resume after the last event, hear of a few more, and lose the connection."""
        socket = Socket(self._address)
        after = {name: self.seen[-1][name] for name in ("log", "seq")} if self.seen else None
        answer = socket.call("session.resume", session_id=self._key, after=after)
        if after is not None:
            assert answer["events"] == {**after, "replayed": True}
            assert answer["messages"] == []
            self.replays += 1
        count = self._dice.randint(0, 12)
        eventually(lambda: socket.is_over or len(numbered(socket)) >= count or self._is_quiet())
        socket.close()
        self.seen += numbered(socket)

    def _is_quiet(self) -> bool:
        return not any(row["status"] == "working" for row in _active(server))


def _active(module: Any) -> list[Json]:
    answer = module.handle_request({"id": 1, "method": "session.active_list"})
    return answer["result"]["sessions"]


@pytest.fixture
def steady(address: Json) -> Iterator[Socket]:
    """A client whose connection is never cut."""
    socket = Socket(address)
    yield socket
    socket.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_client_that_is_cut_off_at_random_sees_every_event_once(
    address: Json, steady: Socket, model: ScriptedServer, seed: int
) -> None:
    opened = steady.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    model.add("Hello.")
    steady.say(sid, "hello")
    unsteady = Unsteady(address, key, seed)
    unsteady.seen = numbered(steady)[-1:]
    for number in range(4):
        tool = call("terminal", command="echo one; echo two")
        model.add(
            Step(calls=tool.calls, chunks=("Let ", "me ", "see."), reasoning="Hm."),
            Step(chunks=tuple(f"{word} " for word in range(30))),
        )
        steady.call("prompt.submit", session_id=sid, text=f"question {number}")
        for _ in range(5):
            unsteady.connect_for_a_while()
    for _ in range(4):
        steady.event("message.complete")
    unsteady.connect_for_a_while()
    last = numbered(steady)[-1]["seq"]
    eventually(lambda: numbered(steady)[-1]["seq"] == last)
    while unsteady.seen[-1]["seq"] < last:
        unsteady.connect_for_a_while()
    first = unsteady.seen[0]["seq"]
    uncut = [event for event in numbered(steady) if event["seq"] >= first]
    assert joined(uncut) == joined(unsteady.seen)
    texts = "".join(e["payload"]["text"] for e in unsteady.seen if e["type"] == "message.delta")
    assert texts.count("29 ") == 4
    assert unsteady.replays > 10


def test_who_names_no_position_or_one_of_another_log_gets_a_whole_snapshot(
    client: Inside, model: ScriptedServer
) -> None:
    model.add("Hello.")
    opened = client.call("session.create")
    client.say(opened["session_id"], "hello")
    client.event("session.info", running=False)
    position = {name: numbered(client)[-1][name] for name in ("log", "seq")}
    for after in (None, {"log": "another", "seq": 1}, {**position, "seq": 10_000}):
        snapshot = client.call("session.activate", session_id=opened["session_id"], after=after)
        assert [message["text"] for message in snapshot["messages"]] == ["hello", "Hello."]
        assert snapshot["events"] == {**position, "replayed": False}


def test_who_has_missed_more_than_is_kept_gets_a_whole_snapshot(
    client: Inside, model: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_KEPT_EVENTS", 8)
    monkeypatch.setattr(events.EventLog.__init__, "__defaults__", (8,))
    model.add(Step(chunks=tuple("abcdefghijkl")))
    opened = client.call("session.create")
    client.say(opened["session_id"], "hello")
    first = {name: numbered(client)[0][name] for name in ("log", "seq")}
    snapshot = client.call("session.activate", session_id=opened["session_id"], after=first)
    assert not snapshot["events"]["replayed"]
    assert snapshot["messages"][-1]["text"] == "abcdefghijkl"


def test_a_snapshot_in_the_middle_of_a_turn_is_continued_by_the_events_after_it(
    client: Inside, model: ScriptedServer
) -> None:
    quiet, other = Quiet(), Inside()
    model.add(
        Step(calls=call("todo").calls, chunks=("Let me see.",)),
        silence(quiet, after="The answer", then=" is 42."),
    )
    sid = client.open()
    client.call("prompt.submit", session_id=sid, text="hello")
    assert quiet.started.wait(TIMEOUT_S)
    client.wait_for_text("The answer")
    snapshot = other.call("session.activate", session_id=sid)
    seq = snapshot["events"]["seq"]
    assert snapshot["inflight"]["assistant"] == "The answer"
    texts = [message.get("text") for message in snapshot["inflight"]["messages"]]
    assert texts[0] == "Let me see."
    quiet.release()
    other.event("message.complete", text="The answer is 42.")
    assert [event["seq"] for event in numbered(other)] == [
        event["seq"] for event in numbered(client) if event["seq"] > seq
    ]
    assert "".join(delta["text"] for delta in other.events("message.delta")) == " is 42."
