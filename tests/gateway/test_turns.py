"""Turns of chats: what a message does to a busy conversation, stopping, and stores that fail."""

import json
from dataclasses import replace

import pytest

from gateway.platforms.base import MessageEvent, Receipt
from hermes_agent.testing.scripted import Quiet, call, say, silence
from hermes_state import SessionDB
from hermes_state.ledger import inbox, outbox, turns
from hermes_state.ledger.turns import MAX_ATTEMPTS
from hermes_state.values import Accepted
from tests.gateway.harness import Inside, Process, World
from tests.support.faults import disk_full_at, eventually

_TIMEOUT_S = 10


# -- a busy conversation -----------------------------------------------------------------------------


def test_what_is_said_to_a_steered_turn_reaches_it_and_is_answered_once(world: World) -> None:
    world.configure(busy="steer")
    quiet = Quiet()
    world.play(replace(call("todo"), quiet=quiet), say("both done"))
    with Inside(world) as inside:
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        world.platform.say("a", "and blue, please")
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        quiet.release()
        world.wait_for_text("a", "both done")
        assert "and blue, please" in json.dumps(world.model.model_requests[-1].json)
        eventually(lambda: inside.open_turns() == set())
        world.platform.say("a", "three")
        world.wait_for_text("a", "You said: three")
        assert len(world.replies("a")) == 2


def test_what_a_steered_turn_did_not_hear_is_answered_next(world: World) -> None:
    world.configure(busy="steer")
    quiet = Quiet()
    world.play(silence(quiet, then="the end of one"))
    with Inside(world):
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        world.platform.say("a", "two")
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        quiet.release()
        first, second = world.wait_for_replies("a", 2)
        assert first == "the end of one"
        assert "You said: two" in second


def test_a_picture_is_not_said_to_a_turn_but_answered_next(world: World) -> None:
    world.configure(busy="steer")
    quiet = Quiet()
    png = bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8"
        "cfc0000003010100c9fe92ef0000000049454e44ae426082"
    )
    world.play(replace(call("todo"), quiet=quiet), say("first"))
    with Inside(world):
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        world.platform.say("a", "look", files=[("dot.png", png)])
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        quiet.release()
        first, notice, second = world.wait_for_replies("a", 3)
        assert first == "first"
        assert "does not see images" in notice
        assert "You said: look" in second


def test_a_message_interrupts_what_runs_and_is_answered(world: World) -> None:
    world.configure(busy="interrupt", streaming=True)
    world.play(silence(Quiet(), after="Half of a long sentence "))
    with Inside(world):
        world.platform.say("a", "one")
        world.wait_for_text("a", "Half of")
        world.platform.say("a", "two")
        first, second = world.wait_for_replies("a", 2)
        assert first.startswith("Half of")
        assert "Stopped" in first
        assert "You said: two" in second


def test_a_message_does_not_interrupt_its_own_turn(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, then="not stopped"))
    with Inside(world) as inside:
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        services = inside.services
        (running,) = services.turns.running()
        target = services.turns.target_of(running.turn.id)
        assert target is not None
        turn = running.turn
        accepted = Accepted(
            turn.id, turn.session_id, turn.conversation_id, turn.user_message_id, is_new=True
        )
        services.turns.interrupt_for(accepted, target)
        assert not running.stop.is_set
        quiet.release()
        assert world.wait_for_replies("a", 1) == ["not stopped"]


def test_stop_all_takes_back_what_waits(world: World) -> None:
    world.configure(streaming=True)
    world.play(silence(Quiet(), after="Half of a long sentence "))
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_text("a", "Half of")
        world.platform.say("a", "two")
        world.platform.say("a", "three")
        world.platform.say("a", "/stop all")
        world.wait_for_text("a", "2 queued messages were cancelled")
        world.wait_for_text("a", "⏹ Stopped.")
        world.platform.say("a", "four")
        world.wait_for_text("a", "You said: four")
        result = json.dumps(world.model.model_requests[-1].json)
        assert "two" not in result
        assert "three" not in result
        assert inside.store.read(turns.unfinished) == []


def test_stop_all_stops_a_turn_that_heard_what_waited(world: World) -> None:
    world.configure(busy="steer")
    before, after = Quiet(), Quiet()
    world.play(replace(call("todo"), quiet=before), silence(after))
    with Inside(world) as inside:
        world.platform.say("a", "one")
        assert before.started.wait(_TIMEOUT_S)
        world.platform.say("a", "heard by the first")
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        before.release()
        assert after.started.wait(_TIMEOUT_S)
        world.platform.say("a", "/queue three")
        world.platform.say("a", "/stop all")
        world.wait_for_text("a", "⏹ Stopping. 1 queued message was cancelled.")
        eventually(lambda: inside.open_turns() == set())
        assert inside.store.read(turns.unfinished) == []
        world.platform.say("a", "four")
        world.wait_for_text("a", "You said: four")
        assert "three" not in json.dumps(world.model.model_requests[-1].json)


def test_a_stop_when_nothing_runs_says_so(world: World) -> None:
    with Inside(world):
        world.platform.say("a", "/stop")
        assert world.wait_for_replies("a", 1) == ["Nothing is running."]


def test_the_command_of_one_person_does_not_stop_the_turn_of_another(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, then="for the first one"))
    with Inside(world):
        world.platform.say("g", "one", user="u1", chat_type="group", thread="t")
        assert quiet.started.wait(_TIMEOUT_S)
        world.platform.say("g", "/status", user="u2", chat_type="group", thread="t")
        world.wait_for_text("g", "A turn is running.")
        quiet.release()
        assert world.wait_for_text("g", "for the first one").text == "for the first one"


def test_two_chats_in_one_conversation_take_turns(world: World) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "the word is apple")
        world.wait_for_replies("a", 1)
        session_id = inside.runner.session_store.list_sessions()[0].session_id
        world.platform.say("b", f"/resume {session_id}")
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        quiet = Quiet()
        world.play(silence(quiet, then="from a"))
        eventually(
            lambda: (
                {session.session_id for session in inside.runner.session_store.list_sessions()}
                == {session_id}
            )
        )
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        world.platform.say("b", "two")
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        quiet.release()
        world.wait_for_text("a", "from a")
        world.wait_for_text("b", "You said: two")
        assert "apple" in json.dumps(world.model.model_requests[-1].json)
        world.platform.say("a", "/new")
        world.wait_for_text("a", "Session reset")
        world.platform.say("b", "three")
        world.wait_for_text("b", "You said: three")
        assert "apple" in json.dumps(world.model.model_requests[-1].json)


# -- a store that cannot be written ---------------------------------------------------------------


def test_a_message_that_cannot_be_stored_is_not_acknowledged_and_answered_later(
    world: World,
) -> None:
    with Inside(world) as inside:
        with disk_full_at(inside.store, "INSERT ON turns"):
            world.platform.say("a", "hello", message_id="m1")
            eventually(lambda: inside.services.ingress.received_count >= 2)
            assert world.platform.unacknowledged() == ["m1"]
        assert "hello" in world.wait_for_replies("a", 1)[0]


@pytest.mark.parametrize(
    "event",
    [
        "UPDATE OF state ON turns WHEN NEW.state = 'running'",
        "UPDATE OF state ON turns WHEN NEW.state = 'answered'",
        "INSERT ON outbox",
        "INSERT ON leases",
    ],
)
def test_a_turn_whose_steps_cannot_be_stored_is_run_again_in_its_place(
    world: World, event: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Inside(world) as inside:
        world.platform.say("x", "warm up")
        world.wait_for_replies("x", 1)
        with disk_full_at(inside.store, event):
            world.platform.say("a", "one")
            world.platform.say("a", "two")
            world.platform.wait_until(lambda: not world.platform.unacknowledged())
            eventually(lambda: "is tried again" in caplog.text)
            assert world.replies("a") == []
        first, second = world.wait_for_replies("a", 2)
        assert "You said: one" in first
        assert "You said: two" in second
        assert inside.store.read(turns.unfinished) == []


def test_a_turn_is_not_given_up_because_the_disk_is_full_for_long(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_engine.runner._RETRY_S", 0.01)
    with Inside(world) as inside:
        with disk_full_at(inside.store, "INSERT ON outbox"):
            world.platform.say("a", "one")
            eventually(lambda: len(world.model.model_requests) > MAX_ATTEMPTS + 1)
        assert "You said: one" in world.wait_for_replies("a", 1)[0]


def test_the_note_of_a_reset_that_cannot_be_stored_does_not_lose_the_message(world: World) -> None:
    world.configure(more='reset = "idle"\nreset_idle_minutes = 1\n')
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        eventually(lambda: inside.open_turns() == set())
        (entry,) = inside.runner.session_store.list_sessions()
        entry.updated_at = entry.updated_at.replace(year=2020)
        with disk_full_at(inside.store, "INSERT ON outbox WHEN NEW.key LIKE 'reset:%'"):
            world.platform.say("a", "two", message_id="m2")
            eventually(lambda: inside.services.ingress.received_count >= 3)
            assert world.platform.unacknowledged() == ["m2"]
        note, reply = world.wait_for_replies("a", 3)[1:]
        assert "idle" in note
        assert "You said: two" in reply


def test_a_command_that_was_done_is_told_when_the_store_can_be_written(world: World) -> None:
    with Inside(world) as inside:
        with disk_full_at(inside.store, "INSERT ON outbox"):
            world.platform.say("a", "/whoami")
            world.platform.wait_until(lambda: not world.platform.unacknowledged())
            eventually(lambda: len(inside.store.read(inbox.unsettled)) == 1)
        assert "You are u1" in world.wait_for_replies("a", 1)[0]
        eventually(lambda: inside.store.read(inbox.unsettled) == [])


def test_a_message_nobody_foresaw_is_told_of_and_holds_up_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Inside(world) as inside:
        pipeline = inside.services.pipeline
        accept = pipeline.accept

        def fail_for_one(event: MessageEvent) -> Receipt:
            assert event.source is not None
            if event.source.chat_id == "bad":
                raise ZeroDivisionError
            return accept(event)

        monkeypatch.setattr(pipeline, "accept", fail_for_one)
        world.platform.say("bad", "this breaks something")
        world.platform.say("a", "this does not")
        assert "was not accepted" in world.wait_for_replies("bad", 1)[0]
        assert "this does not" in world.wait_for_replies("a", 1)[0]


# -- platforms that come and go -----------------------------------------------------------------------


def test_what_came_from_a_platform_that_is_off_is_answered_and_sent_when_it_is_on(
    world: World,
) -> None:
    quiet = Quiet()
    world.play(silence(quiet))
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.say("a", "one")
        assert quiet.started.wait(20)
        gateway.kill()
    text = world.home.config.read_text()
    off, _, _ = text.replace('enabled = ["loopback"]', "enabled = []").partition(
        "[gateway.platforms.loopback]"
    )
    world.home.config.write_text(f"{off}[gateway.platforms.api_server]\nport = 0\n")
    world.play(say("x" * 3000))
    with Process(world) as gateway, SessionDB(world.home.database) as store:
        gateway.wait_until_up()
        eventually(lambda: len(store.read(outbox.due)) == 1, "the reply in the outbox")
        assert gateway.terminate() == 0
    assert world.replies("a") == []
    world.home.config.write_text(text)
    with Process(world) as gateway:
        gateway.wait_until_up()
        assert "".join(world.wait_for_replies("a", 2)) == "x" * 3000
