"""What is said to a turn that runs: who may say it, and that none of it is lost."""

import json
import threading
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gateway.access import are_alike
from hermes_agent.permissions import Permissions
from hermes_agent.testing.scripted import Quiet, call, say, silence
from hermes_cli import plugins
from hermes_state.ledger import questions
from hermes_state.values import Scope
from tests.gateway.harness import Inside, World

_TIMEOUT_S = 10
_THREAD: dict[str, Any] = {"chat_type": "group", "thread": "t"}


def _with_a_member(world: World, busy: str = "queue") -> None:
    world.configure(busy=busy)
    text = world.home.config.read_text()
    members = '[gateway.allow]\nloopback = ["m1"]\n\n[gateway.owners]'
    world.home.config.write_text(text.replace("[gateway.owners]", members))


def _offered(world: World) -> set[str]:
    """The tools that the model was offered last."""
    return {tool["function"]["name"] for tool in world.model.model_requests[-1].json["tools"]}


@pytest.mark.parametrize(
    ("busy", "content"), [("queue", "/steer and run this"), ("steer", "and run this")]
)
def test_nobody_speaks_into_the_turn_of_somebody_with_other_rights(
    world: World, busy: str, content: str
) -> None:
    _with_a_member(world, busy)
    quiet = Quiet()
    world.play(replace(call("todo"), quiet=quiet), say("for the owner"))
    with Inside(world):
        world.platform.say("g", "one", **_THREAD)
        assert quiet.started.wait(_TIMEOUT_S)
        world.platform.say("g", content, user="m1", **_THREAD)
        world.wait_for_text("g", "person with other permissions")
        quiet.release()
        world.wait_for_text("g", "for the owner")
        world.wait_for_text("g", "and run this")
        to_the_owner, to_the_member = world.model.model_requests[-2:]
        assert "and run this" not in json.dumps(to_the_owner.json)
        assert "and run this" in json.dumps(to_the_member.json)
        assert "terminal" not in _offered(world)


def test_nobody_answers_for_somebody_with_other_rights(world: World) -> None:
    _with_a_member(world, "queue")
    world.play(call("clarify", question="Which one?", choices=["red", "blue"]), say("chosen"))
    with Inside(world) as inside:
        world.platform.say("g", "one", **_THREAD)
        world.wait_for_text("g", "Which one?")
        world.platform.say("g", "all of them", user="m1", **_THREAD)
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        (question,) = inside.store.read(questions.pending)
        world.platform.press("g", question["id"], "red", user="m1")
        world.wait_for_text("g", "Only the person who asked may answer this.")
        world.platform.say("g", "2", **_THREAD)
        world.wait_for_text("g", "You said: [m1] all of them")
        results = [
            message["content"]
            for message in world.model.model_requests[1].json["messages"]
            if message["role"] == "tool"
        ]
        assert results == ["blue"]


def test_what_an_owner_answers_for_a_member_has_their_name(world: World) -> None:
    _with_a_member(world, "queue")
    world.play(call("clarify", question="Which one?"))
    with Inside(world):
        world.platform.say("g", "one", user="m1", **_THREAD)
        world.wait_for_text("g", "Which one?")
        world.platform.say("g", "the blue one", **_THREAD)
        world.wait_for_text("g", "The tool says: [u1] the blue one")


def test_owners_speak_into_each_others_turns(world: World) -> None:
    quiet = Quiet()
    world.play(replace(call("todo"), quiet=quiet), say("both done"))
    with Inside(world):
        world.platform.say("g", "one", **_THREAD)
        assert quiet.started.wait(_TIMEOUT_S)
        world.platform.say("g", "/steer and blue, please", user="u2", **_THREAD)
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        quiet.release()
        world.wait_for_text("g", "both done")
        assert "and blue, please" in json.dumps(world.model.model_requests[-1].json)
        assert world.replies("g") == ["both done"]


def test_what_is_said_from_another_chat_of_the_conversation_reaches_the_turn_that_runs(
    world: World,
) -> None:
    quiet = Quiet()
    with Inside(world) as inside:
        world.platform.say("a", "zero")
        world.wait_for_text("a", "You said: zero")
        (entry,) = inside.runner.session_store.list_sessions()
        world.platform.say("b", f"/resume {entry.session_id}")
        world.wait_for_text("b", "You are in")
        world.play(replace(call("todo"), quiet=quiet), say("both done"))
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        world.platform.say("b", "/steer and blue, please")
        world.wait_for_text("b", "belongs to another chat")
        quiet.release()
        world.wait_for_text("a", "both done")
        assert "and blue, please" in json.dumps(world.model.model_requests[-1].json)
        world.platform.say("b", "two")
        world.wait_for_text("b", "You said: two")
        assert len(world.replies("b")) == 3


def test_what_went_along_to_a_new_conversation_is_not_said_to_a_turn_of_the_last_one(
    world: World,
) -> None:
    quiet, is_renewed, may_begin = Quiet(), threading.Event(), threading.Event()

    def reset() -> None:
        is_renewed.set()
        may_begin.wait(_TIMEOUT_S)

    with Inside(world) as inside:
        world.platform.say("a", "zero")
        world.wait_for_text("a", "You said: zero")
        (entry,) = inside.runner.session_store.list_sessions()
        world.platform.say("b", f"/resume {entry.session_id}")
        world.wait_for_text("b", "You are in")
        world.play(replace(call("todo"), quiet=quiet), say("for b alone"))
        world.platform.say("b", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        world.platform.say("a", "/steer and blue, please")
        world.wait_for_text("a", "belongs to another chat")
        plugins.register_hook("on_session_reset", reset)
        world.platform.say("a", "/new")
        assert is_renewed.wait(_TIMEOUT_S)
        quiet.release()
        world.wait_for_text("b", "for b alone")
        may_begin.set()
        world.wait_for_text("a", "1 queued message will be answered in it.")
        world.wait_for_text("a", "You said: and blue, please")


def test_people_are_alike_who_may_use_the_same_and_pay_from_no_purse_of_their_own() -> None:
    anna = Permissions("telegram:1", "member", Scope("telegram"), is_private=False)
    ben = Permissions("telegram:2", "member", Scope("telegram"), is_private=False)
    frugal = Permissions("telegram:2", "member", Scope("telegram"), False, usd_per_day=1.0)
    busy = Permissions("telegram:2", "member", Scope("telegram"), False, tools=frozenset({"todo"}))
    guest = Permissions("telegram:2", "guest", Scope("telegram"), is_private=False)
    assert are_alike(anna, ben)
    assert are_alike(frugal, frugal)
    assert not any(are_alike(anna, other) for other in (frugal, busy, guest))
    assert not are_alike(frugal, msgspec.structs.replace(frugal, person="telegram:3"))


@pytest.mark.parametrize("stop", ["/stop", "/new"])
def test_what_a_stopped_turn_did_not_hear_is_answered_next(world: World, stop: str) -> None:
    world.play(call("clarify", question="Which one?"))
    with Inside(world):
        world.platform.say("a", "one")
        world.wait_for_text("a", "Which one?")
        world.platform.say("a", "/steer and blue, please")
        world.platform.say("a", stop)
        world.wait_for_text("a", "1 queued message")
        world.wait_for_text("a", "You said: and blue, please")


def test_what_a_turn_has_heard_does_not_follow_it(world: World) -> None:
    quiet = Quiet()
    world.play(call("clarify", question="Which one?"), silence(quiet))
    with Inside(world):
        world.platform.say("a", "one")
        world.wait_for_text("a", "Which one?")
        world.platform.say("a", "/steer and blue, please")
        world.platform.say("a", "the first")
        assert quiet.started.wait(_TIMEOUT_S)
        assert "and blue, please" in json.dumps(world.model.model_requests[-1].json)
        world.platform.say("a", "/stop")
        world.wait_for_text("a", "Stopping.")
        assert not any("queued message" in reply for reply in world.replies("a"))
