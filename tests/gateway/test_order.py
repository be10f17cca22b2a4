"""One order for the turns of a conversation, however many chats are in it."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from hermes_agent.testing.scripted import Quiet, call, say, silence
from hermes_state import SessionDB
from hermes_state.ledger import turns
from tests.gateway.harness import Inside, Process, World
from tests.support.faults import eventually

pytestmark = pytest.mark.promise("P5")

_TIMEOUT_S = 10


def _meet(world: World, routes: Callable[[], str]) -> None:
    """Have the chats a and b be in one conversation, whose session is told."""
    world.platform.say("a", "zero")
    world.wait_for_text("a", "You said: zero")
    world.platform.say("b", f"/resume {routes()}")
    world.wait_for_text("b", "You are in")


def _inside(inside: Inside) -> str:
    (entry,) = inside.runner.session_store.list_sessions()
    return entry.session_id


def _accept(world: World, chat: str, text: str) -> None:
    """Say something and wait until it is on disk."""
    world.platform.say(chat, text)
    world.platform.wait_until(lambda: not world.platform.unacknowledged())


def _prompts(world: World) -> list[str]:
    """The last words that the model was asked, request by request."""
    requests = (request.json["messages"] for request in world.model.model_requests)
    return [
        [message for message in messages if message["role"] == "user"][-1]["content"]
        for messages in requests
    ]


# -- chats -----------------------------------------------------------------------------------------


def test_who_came_first_is_answered_first_whichever_chat_it_is(world: World) -> None:
    quiet = Quiet()
    with Inside(world) as inside:
        _meet(world, lambda: _inside(inside))
        world.play(silence(quiet, then="the first"))
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        for chat, text in (("b", "two"), ("a", "three"), ("b", "four"), ("a", "five")):
            _accept(world, chat, text)
        quiet.release()
        world.wait_for_text("a", "You said: five")
        world.wait_for_text("b", "You said: four")
        assert _prompts(world) == ["zero", "one", "two", "three", "four", "five"]
        _resumed, *replies = [reply.partition("\n")[0] for reply in world.replies("b")]
        assert "another chat in this conversation is answered first" in replies[0]
        assert replies[1:] == ["You said: two", "You said: four"]


def test_a_chat_whose_message_is_queued_hears_that_it_waits_for_another_one(world: World) -> None:
    quiet = Quiet()
    with Inside(world) as inside:
        _meet(world, lambda: _inside(inside))
        world.play(silence(quiet, then="the first"))
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        world.platform.say("b", "/queue two")
        world.wait_for_text("b", "another chat in this conversation is answered first")
        quiet.release()
        world.wait_for_text("b", "You said: two")


def test_the_order_holds_across_a_kill(world: World) -> None:
    quiet = Quiet()

    def there() -> str:
        with SessionDB(world.home.database) as store:
            (row,) = store.list_sessions_rich()
            return str(row["id"])

    with Process(world) as gateway:
        gateway.wait_until_up()
        _meet(world, there)
        world.play(silence(quiet))
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        for chat, text in (("b", "two"), ("a", "three"), ("b", "four")):
            _accept(world, chat, text)
        gateway.kill()
    before = len(world.model.model_requests)
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.wait_for_text("b", "You said: four")
        world.wait_for_text("a", "You said: three")
    assert _prompts(world)[before:] == ["one", "two", "three", "four"]


def test_a_chat_that_leaves_takes_what_waits_along_and_holds_nobody_up(world: World) -> None:
    quiet = Quiet()
    with Inside(world) as inside:
        _meet(world, lambda: _inside(inside))
        world.play(silence(quiet, then="the first"))
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        _accept(world, "b", "two")
        _accept(world, "a", "three")
        world.platform.say("b", "/new")
        world.wait_for_text("b", "1 queued message will be answered in it.")
        world.wait_for_text("b", "You said: two")  # beside what runs: it is in another conversation
        assert "zero" not in json.dumps(world.model.model_requests[-1].json)
        quiet.release()
        world.wait_for_text("a", "You said: three")
        assert inside.store.check() == []


def test_what_was_taken_back_in_one_chat_holds_up_no_other(world: World) -> None:
    quiet = Quiet()
    with Inside(world) as inside:
        _meet(world, lambda: _inside(inside))
        world.play(silence(quiet, then="the first"))
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        _accept(world, "b", "two")
        _accept(world, "a", "three")
        services = inside.services
        (waits,) = [
            turn_id
            for turn_id in inside.open_turns()
            if inside.store.read(turns.user_text, turn_id) == "two"
        ]
        assert services.turns.cancel(waits, "cancelled")
        quiet.release()
        world.wait_for_text("a", "You said: three")
        eventually(lambda: inside.open_turns() == set())


# -- a busy conversation ---------------------------------------------------------------------------


def test_a_message_interrupts_what_runs_for_another_chat_which_hears_of_it(world: World) -> None:
    world.configure(busy="interrupt")
    quiet = Quiet()
    with Inside(world) as inside:
        _meet(world, lambda: _inside(inside))
        world.play(silence(quiet))
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        world.platform.say("b", "two")
        world.wait_for_text("a", "⏹ Stopped from another chat")
        world.wait_for_text("b", "You said: two")


def test_a_message_is_said_to_what_runs_for_another_chat(world: World) -> None:
    world.configure(busy="steer")
    quiet = Quiet()
    with Inside(world) as inside:
        _meet(world, lambda: _inside(inside))
        world.play(replace(call("todo"), quiet=quiet), say("both done"))
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        world.platform.say("b", "and blue, please")
        world.wait_for_text("b", "is answered there")
        quiet.release()
        world.wait_for_text("a", "both done")
        assert "and blue, please" in json.dumps(world.model.model_requests[-1].json)
        eventually(lambda: inside.open_turns() == set())
        assert len(world.model.model_requests) == 3


def test_a_chat_hears_that_its_turn_was_stopped_from_another_one(world: World) -> None:
    quiet = Quiet()
    with Inside(world) as inside:
        _meet(world, lambda: _inside(inside))
        world.play(silence(quiet))
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        world.platform.say("b", "/stop")
        world.wait_for_text("b", "⏹ Stopping.")
        world.wait_for_text("a", "⏹ Stopped from another chat")
