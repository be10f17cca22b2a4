"""Closing a conversation: the same parts in the same order, whoever closes it and whatever fails."""

import pytest

from hermes_agent.permissions import Permissions
from hermes_agent.testing.scripted import TIMEOUT_S, Quiet, silence
from hermes_engine.surface import TurnPlan
from hermes_state.ledger import leases, sessions
from hermes_state.values import Scope
from tests.engine.conftest import MakeWorld, World

pytestmark = pytest.mark.promise("P6")


def end_of(world: World, session_id: str = "s1") -> str | None:
    row = world.store.read(sessions.find, session_id)
    assert row is not None
    return row["end_reason"]


def session_hooks(world: World) -> list[str]:
    return [name for name in world.plugins.names() if name.startswith("on_session")]


@pytest.mark.parametrize("is_awake", [True, False])
def test_closing_does_the_same_whether_the_agent_is_awake_or_not(
    make_world: MakeWorld, is_awake: bool
) -> None:
    world = make_world(["Noted."])
    world.wait_for(world.accept("My cat is called Tom."))
    if not is_awake:
        world.engine.agents.close()
    world.engine.close_conversation("s1", "tui_close")
    world.engine.close_conversation("s1", "again")
    assert end_of(world) == "tui_close"
    assert session_hooks(world) == ["on_session_start", "on_session_end", "on_session_finalize"]
    assert world.plugins.of("on_session_end")[0]["model"] == "scripted"
    contents = [message["content"] for message in world.plugins.conversations[0]]
    assert (len(world.plugins.conversations), contents) == (1, ["My cat is called Tom.", "Noted."])


def test_memory_learns_nothing_of_a_sleeping_conversation_whose_person_has_no_notes(
    make_world: MakeWorld,
) -> None:
    world = make_world(["Noted."])
    guest = Permissions("bob", "guest", Scope("schedule", "bob"), is_private=True)
    world.wait_for(world.accept("I am Bob.", permissions=guest))
    world.engine.agents.close()
    world.engine.close_conversation("s1", "tui_close")
    assert world.plugins.conversations == []


def test_closing_stops_the_running_turn_and_keeps_what_it_streamed(make_world: MakeWorld) -> None:
    quiet = Quiet()
    world = make_world([silence(quiet, after="I was say")])
    accepted = world.accept("go on")
    assert quiet.started.wait(TIMEOUT_S)
    world.engine.close_conversation("s1", "tui_close")
    assert world.wait_for(accepted) == ["interrupted"]
    assert world.transcript()[-1] == "I was say"
    assert end_of(world) == "tui_close"


def test_a_conversation_that_another_process_runs_stays_open(make_world: MakeWorld) -> None:
    world = make_world(["one"])
    world.wait_for(world.accept("hello"))
    world.store.write(leases.acquire, "s1", "another-machine:1:1:1")
    world.engine.close_conversation("s1", "tui_close")
    assert end_of(world) is None
    assert session_hooks(world) == ["on_session_start"]


def test_a_conversation_of_a_chat_is_ended_by_its_gateway_alone(make_world: MakeWorld) -> None:
    world = make_world(["one"])
    world.wait_for(world.accept("hello"))
    world.store.write(sessions.change, "s1", session_key="agent:main:telegram:dm:42")
    world.engine.close_conversation("s1", "cli_close")
    assert end_of(world) is None
    assert world.plugins.names()[-1] == "on_session_finalize"


def test_closing_a_conversation_that_is_not_stored_leaves_nothing(make_world: MakeWorld) -> None:
    world = make_world([])
    world.engine.agent("s1", TurnPlan("schedule", world.surface.workspace))
    world.engine.close_conversation("s1", "tui_close")
    assert world.store.session_count() == 0
    assert session_hooks(world) == []
    assert len(world.engine.agents) == 0
