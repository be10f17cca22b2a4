"""What /background has done beside a conversation: seen, answered and stopped in its chat."""

import pytest

from hermes_agent.testing.scripted import Quiet, call, say, silence
from hermes_state.ledger import outbox, questions, turns
from tests.gateway.harness import Inside, Process, World
from tests.support.faults import eventually

_TIMEOUT_S = 10


def test_a_job_that_a_kill_cut_off_goes_on_beside_its_conversation(world: World) -> None:
    before, after = Quiet(), Quiet()
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.play(silence(before))
        world.platform.say("a", "/background look it up")
        assert before.started.wait(_TIMEOUT_S)
        gateway.kill()
    world.play(silence(after, then="looked up"))
    with Inside(world) as inside:
        assert after.started.wait(_TIMEOUT_S)
        world.platform.say("a", "and meanwhile?")
        world.wait_for_text("a", "You said: and meanwhile?")
        assert "looked up" not in world.replies("a")
        after.release()
        world.wait_for_text("a", "looked up")
        eventually(lambda: inside.store.read(turns.all_open) == [], "the end of the turns")


_DANGEROUS = call("terminal", command="rm -rf /nonexistent/hermes-test")
_CLARIFY = call("clarify", question="Which colour?", choices=["red", "blue"])


def test_what_a_job_asks_is_allowed_by_a_button_in_its_chat(world: World) -> None:
    world.play(_DANGEROUS, say("done it"))
    with Inside(world):
        world.platform.say("a", "/background clean up")
        message = world.wait_for_text("a", "Allow this command?")
        assert message.question is not None
        world.platform.press("a", message.question, "once")
        world.wait_for_text("a", "done it")
        assert world.wait_for_text("a", "✅ Allowed once.").message_id == message.message_id


@pytest.mark.parametrize(("command", "expected"), [("/approve", "once"), ("/deny", "deny")])
def test_what_a_job_asks_is_answered_in_words(world: World, command: str, expected: str) -> None:
    world.play(_DANGEROUS, say("it is over"))
    with Inside(world):
        world.platform.say("a", "/background clean up")
        world.wait_for_text("a", "Allow this command?")
        world.platform.say("a", "/status")
        world.wait_for_text("a", "1 question waits for an answer")
        world.platform.say("a", command)
        world.wait_for_text("a", f"terminal: {expected}.")
        world.wait_for_text("a", "it is over")


def test_what_a_job_asks_is_not_answered_from_other_chats(world: World) -> None:
    world.play(_DANGEROUS)
    with Inside(world):
        world.platform.say("a", "/background clean up")
        world.wait_for_text("a", "Allow this command?")
        world.platform.say("b", "/approve", user="u2")
        world.wait_for_text("b", "There is no open question.")


def test_what_a_job_wants_to_know_is_answered_by_a_reply_and_nothing_else(world: World) -> None:
    world.play(_CLARIFY, say("beside: said"), say("in front: said"))
    with Inside(world) as inside:
        world.platform.say("a", "/background paint it")
        message = world.wait_for_text("a", "Reply to this message to answer it.")
        (question,) = inside.store.read(questions.pending)
        question_key = f"question:{question['id']}:0"
        eventually(
            lambda: (inside.store.read(outbox.find, question_key) or {})["state"] == "sent",
            "the note",
        )
        world.platform.say("a", "how are you?")
        world.wait_for_text("a", "said")
        assert inside.store.read(questions.pending) == [question]
        world.platform.say("a", "2", reply_to=message.message_id)
        world.wait_for_text("a", "→ blue")
        world.wait_for_text("a", "in front: said")


def test_a_question_of_the_running_turn_is_answered_though_a_job_asks_too(world: World) -> None:
    world.play(_CLARIFY)
    with Inside(world) as inside:
        world.platform.say("a", "/background paint it")
        world.wait_for_text("a", "Reply to this message to answer it.")
        world.play(call("clarify", question="How big?", choices=[]), say("as you like"))
        world.platform.say("a", "build it")
        world.wait_for_text("a", "How big?")
        world.platform.say("a", "very big")
        world.wait_for_text("a", "as you like")
        (question,) = inside.store.read(questions.pending)
        assert question["text"] == "Which colour?"


def test_what_a_job_asked_before_a_kill_is_answered_after_it(world: World) -> None:
    world.play(_DANGEROUS, say("done it"))
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.say("a", "/background clean up")
        world.wait_for_text("a", "Allow this command?")
        gateway.kill()
    with Inside(world):
        world.platform.say("a", "/approve")
        world.wait_for_text("a", "done it")


def test_status_counts_the_jobs_beside_a_conversation(world: World) -> None:
    world.play(silence(), silence())
    with Inside(world):
        world.platform.say("a", "/background one")
        world.platform.say("a", "/background two")
        world.wait_for_replies("a", 2)
        world.platform.say("a", "/status")
        text = world.wait_for_text("a", "2 background jobs run.").text
        assert "Nothing is running." in text
        world.platform.say("b", "/status", user="u2")
        assert "beside" not in world.wait_for_text("b", "Nothing is running.").text


def test_a_job_whose_conversation_a_chat_has_opened_is_not_beside_it(world: World) -> None:
    world.play(silence())
    with Inside(world) as inside:
        world.platform.say("a", "/background one")
        text = world.wait_for_text("a", "Working on it in the background").text
        eventually(lambda: bool(inside.services.turns.running_agents()), "the job")
        world.platform.say("a", f"/resume {text.split('(')[1].split(')')[0]}")
        world.wait_for_text("a", "You are in")
        world.platform.say("a", "/status")
        assert "beside" not in world.wait_for_text("a", "A turn is running.").text
        world.platform.say("a", "/stop")
        eventually(lambda: not inside.services.turns.running(), "the end of the job")


def test_stop_names_the_jobs_that_stop_all_stops(world: World) -> None:
    world.play(silence(), silence())
    with Inside(world) as inside:
        world.platform.say("a", "/background one")
        world.platform.say("a", "/background two")
        world.wait_for_replies("a", 2)
        eventually(lambda: len(inside.services.turns.running()) == 2, "the jobs")
        world.platform.say("a", "/stop")
        world.wait_for_text(
            "a", "Nothing is running here. 2 background jobs are still running; /stop all"
        )
        assert len(inside.services.turns.running()) == 2
        world.platform.say("a", "/stop all")
        world.wait_for_text("a", "⏹ Stopping. 2 background jobs were stopped.")
        eventually(lambda: inside.store.read(turns.all_open) == [], "the end of the jobs")


def test_stop_leaves_the_jobs_beside_what_it_stops(world: World) -> None:
    beside, front = Quiet(), Quiet()
    world.play(silence(beside, then="looked up"))
    with Inside(world):
        world.platform.say("a", "/background look it up")
        assert beside.started.wait(_TIMEOUT_S)
        world.play(silence(front))
        world.platform.say("a", "one")
        assert front.started.wait(_TIMEOUT_S)
        world.platform.say("a", "/stop")
        world.wait_for_text(
            "a", "⏹ Stopping. 1 background job is still running; /stop all stops that too."
        )
        beside.release()
        world.wait_for_text("a", "looked up")


def test_new_stops_a_job_in_the_conversation_that_it_ends(world: World) -> None:
    beside = Quiet()
    world.play(silence(beside))
    with Inside(world) as inside:
        world.platform.say("a", "/background look it up")
        assert beside.started.wait(_TIMEOUT_S)
        (turn,) = inside.store.read(turns.all_open)
        world.platform.say("a", f"/resume {turn['session_id']}")
        world.wait_for_text("a", "You are in")
        world.platform.say("a", "/new")
        world.wait_for_text("a", "Session reset")
        assert inside.store.read(turns.all_open) == []
