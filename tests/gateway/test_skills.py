"""Skills in a chat: a message like any other, answered once whatever happens."""

import json

from gateway.config import Platform
from gateway.platforms.base import MessageEvent
from gateway.source import SessionSource
from hermes_agent.testing.scripted import Quiet, call, say, silence
from hermes_state import SessionDB
from tests.agent.test_skills import REVIEW, write
from tests.gateway.harness import Inside, Process, World


def _prompts(world: World) -> list[str]:
    """What the person said so far, as the model was told."""
    messages = world.model.model_requests[-1].json["messages"]
    return [message["content"] for message in messages if message["role"] == "user"]


def test_a_skill_is_said_with_the_words_and_answered_once(world: World) -> None:
    write(world.home, "review", REVIEW)
    with Inside(world) as inside:
        world.platform.say("a", "/code-review the\nparser", message_id="twice")
        world.wait_for_text("a", "You said: [skill code-review] the\nparser")
        world.platform.deliver_again("a", "twice")
        world.platform.say("a", "the end")
        world.wait_for_text("a", "You said: the end")
        assert len(world.replies("a")) == 2
        assert "Read it twice." in _prompts(world)[0]
        found = inside.store.read(
            lambda c: c.tuples("SELECT message_id, outcome FROM inbox ORDER BY received_at")
        )
        assert found[0] == ("twice", "turn")
        world.platform.say("a", "/undo 2")
        world.wait_for_text("a", "[skill code-review]")


def test_platforms_are_told_of_skills_and_an_underscore_stands_for_a_dash(world: World) -> None:
    write(world.home, "review", REVIEW)
    write(world.home, "new", "Hidden by the built-in command.")
    with Inside(world):
        world.platform.wait_until(lambda: bool(world.platform.commands))
        commands = [tuple(command) for command in world.platform.commands]
        assert ("code-review", "Looks at a change with fresh eyes.") in commands
        assert sum(name == "new" for name, _ in commands) == 1
        world.platform.say("a", "/code_review@bot it")
        world.wait_for_text("a", "You said: [skill code-review] it")
        world.platform.say("a", "/help")
        assert "- /code-review – Looks" in world.wait_for_text("a", "/whoami").text


def test_files_and_a_quotation_go_along_with_a_skill(world: World) -> None:
    write(world.home, "review", REVIEW)
    with Inside(world) as inside:
        world.platform.say("a", "/code-review", files=[("notes.txt", b"remember the tests")])
        world.wait_for_text("a", "You said: [skill code-review]")
        assert "notes.txt" in _prompts(world)[0]
        source = SessionSource(platform=Platform("loopback"), chat_id="b", user_id="u1")
        event = MessageEvent("/code-review it", source=source, message_id="q", reply_to_text="x")
        inside.call(inside.services.ingress.accept(event))
        world.wait_for_text("b", "You said: > x\n\n[skill code-review] it")


def test_a_message_that_is_corrected_follows_with_its_skill(world: World) -> None:
    write(world.home, "review", REVIEW)
    with Inside(world):
        first = world.platform.say("a", "/code-review the persar")
        world.wait_for_replies("a", 1)
        world.platform.edit("a", first, "/code-review the parser")
        text = world.wait_for_text("a", "I corrected my message.").text
        assert "[skill code-review] the parser" in text


def test_a_member_may_use_skills_and_a_stranger_may_not(world: World) -> None:
    world.configure(more='[gateway.allow]\nloopback = ["m1"]\n')
    write(world.home, "review", REVIEW)
    with Inside(world):
        world.platform.say("m", "/code-review it", user="m1")
        world.wait_for_text("m", "You said: [skill code-review] it")
        world.platform.say("s", "/code-review it", user="nobody")
        world.wait_for_text("s", "I do not know you yet.")
        assert len(world.model.model_requests) == 1


def test_a_skill_waits_for_the_turn_that_runs_and_answers_no_question(world: World) -> None:
    write(world.home, "review", REVIEW)
    world.play(call("clarify", question="Which colour?"), say("Blue it is."))
    with Inside(world):
        world.platform.say("a", "paint")
        world.wait_for_text("a", "Which colour?")
        world.platform.say("a", "/code-review the wall")
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        world.platform.say("a", "blue")
        world.wait_for_text("a", "Blue it is.")
        world.wait_for_text("a", "You said: [skill code-review] the wall")


def test_a_skill_that_a_kill_cut_off_is_answered_afterwards(world: World) -> None:
    write(world.home, "review", REVIEW)
    quiet = Quiet()
    world.play(silence(quiet, after="Half"))
    with Process(world) as first:
        first.wait_until_up()
        world.platform.say("a", "/code-review it", message_id="one")
        assert quiet.started.wait(20)
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        first.kill()
    with Process(world) as second:
        second.wait_until_up()
        world.platform.deliver_again("a", "one")
        world.wait_for_text("a", "You said: [skill code-review] it")
        assert len(world.replies("a")) == 1
        assert second.terminate() == 0
    with SessionDB(world.home.database) as store:
        rows = store.read(lambda c: c.tuples("SELECT payload FROM inbox"))
    assert [json.loads(payload).get("text", "") for (payload,) in rows] == [""]
