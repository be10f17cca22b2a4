"""Stops: the caller owns the one of a turn, so one that comes early is not lost."""

import pytest

from hermes_agent.testing.scripted import call
from hermes_agent.tools.base import Args
from hermes_agent.tools.base import Call as ToolCall
from hermes_agent.turn.stop import Stop
from hermes_core.errors import Interrupted
from tests.agent.conftest import Counting, MakeChat


def test_a_stop_before_the_turn_started_interrupts_it(make_chat: MakeChat) -> None:
    chat, stop = make_chat(["never"]), Stop()
    turn_id = chat.agent.accept("hello").turn_id
    stop.set()
    assert chat.agent.run(turn_id, stop=stop).status == "interrupted"
    assert (chat.states(), chat.model.requests) == (["interrupted"], [])


def test_a_turn_that_is_suspended_before_it_started_runs_later(make_chat: MakeChat) -> None:
    chat, stop = make_chat(["Here I am."]), Stop()
    turn_id = chat.agent.accept("hello").turn_id
    stop.suspend()
    assert chat.agent.run(turn_id, stop=stop).status == "suspended"
    assert chat.states() == ["running"]
    assert chat.agent.run(turn_id, stop=Stop()).text == "Here I am."


def test_a_stop_before_a_compaction_started_ends_it(make_chat: MakeChat) -> None:
    chat, stop = make_chat(lambda _request: "word " * 400), Stop()
    for _ in range(6):
        chat.say("question " * 200)
    count = len(chat.model.requests)
    stop.set()
    with pytest.raises(Interrupted):
        chat.agent.compress(stop=stop)
    assert len(chat.model.requests) == count


def test_a_lost_lease_ends_the_attempt_and_leaves_the_stop_of_the_caller(
    make_chat: MakeChat,
) -> None:
    def lose(_args: Args, _call: ToolCall) -> str:
        chat.agent.interrupt()  # the loss of the lease does the same
        return "done"

    chat = make_chat([call("count"), "Done."], [Counting(then=lose).tool()])
    stop = Stop()
    outcome = chat.agent.run(chat.agent.accept("go").turn_id, stop=stop)
    assert outcome.status == "interrupted"
    assert not stop.is_set
