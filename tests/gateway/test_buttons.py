"""The buttons of a question go when it is over, whatever ended it."""

import pytest

from hermes_agent.testing.scripted import Quiet, call, say, silence
from hermes_state import SessionDB
from hermes_state.ledger import questions
from tests.gateway.harness import Inside, Process, World
from tests.support.loopback.server import ShownMessage

_DANGEROUS = call("terminal", command="rm -rf /nonexistent/hermes-test")


def _question_message(world: World) -> ShownMessage:
    world.play(_DANGEROUS)
    world.platform.say("a", "clean up")
    message = world.wait_for_text("a", "Allow this command?")
    assert message.buttons
    return message


@pytest.mark.parametrize("command", ["/stop", "/new"])
def test_they_go_when_the_turn_that_asked_is_stopped(world: World, command: str) -> None:
    with Inside(world) as inside:
        message = _question_message(world)
        world.platform.say("a", command)
        after = world.wait_for_text("a", "This question is closed.")
        assert (after.message_id, after.buttons) == (message.message_id, ())
        assert inside.store.read(questions.pending) == []


def test_they_go_when_nobody_answers_in_time(world: World) -> None:
    text = world.home.config.read_text()
    world.home.config.write_text(text.replace("timeout_s = 30.0", "timeout_s = 0.1"))
    quiet = Quiet()
    with Inside(world):
        world.play(_DANGEROUS, silence(quiet))
        world.platform.say("a", "clean up")
        assert world.wait_for_text("a", "Nobody answered in time.").buttons == ()
        quiet.release()


def test_they_go_when_somebody_answered_while_the_gateway_was_away(world: World) -> None:
    with Process(world) as gateway:
        gateway.wait_until_up()
        message = _question_message(world)
        gateway.kill()
    with SessionDB(world.home.database) as store:
        (question,) = store.read(questions.pending)
        store.write(questions.answer, question["id"], "deny")
    world.play(say("left it"))
    with Inside(world):
        world.wait_for_text("a", "left it")
        after = world.wait_for_text("a", "🚫 Denied.")
        assert (after.message_id, after.buttons) == (message.message_id, ())


def test_they_stay_over_a_restart_while_an_answer_is_waited_for(world: World) -> None:
    with Process(world) as gateway:
        gateway.wait_until_up()
        message = _question_message(world)
        gateway.kill()
    world.play(say("done it"))
    with Inside(world):
        assert message.question is not None
        world.platform.press("a", message.question, "once")
        world.wait_for_text("a", "done it")
        assert world.wait_for_text("a", "✅ Allowed once.").message_id == message.message_id
