"""What is asked in a chat: how the answer is to be written, and whose words it is taken from."""

from typing import Any

from gateway.enclosures import Enclosures
from gateway.origin import Origin
from gateway.platforms.base import Abilities
from gateway.replies import Replies
from gateway.source import SessionSource
from hermes_agent.events import QuestionAsked
from hermes_agent.standing import Standing
from hermes_agent.testing.scripted import call, say
from hermes_core.paths import Home
from hermes_state import SessionDB
from tests.gateway.living import Inside, World

_GROUP: dict[str, Any] = {"chat_type": "group", "mention": False}


def _standing(_place: SessionSource) -> Standing:
    raise AssertionError("nobody is asked about files")


def test_commands_are_named_as_people_write_them_on_the_platform(home: Home) -> None:
    came_from = Origin({"platform": "matrix", "chat_id": "!r", "chat_type": "group"})
    with SessionDB.in_memory() as store:
        able = Abilities(text_limit=4000, command_prefix="!")
        nothing = Enclosures(home, 0, _standing)
        names = ["help", "approve", "deny"]
        replies = Replies(store, lambda _: able, nothing, home.root, names)
        (piece,) = replies.answer(
            came_from, "See /help. Folder: /help/me, a/help and /helpful", name="x"
        )
        assert piece.content == "See !help. Folder: /help/me, a/help and /helpful"
        asked = QuestionAsked("q", "approval", "terminal", "It deletes.", "rm -r /help", ["once"])
        (question,) = replies.question(came_from, asked)
        assert (
            "Answer !approve (or !approve session, !approve always) or !deny." in question.content
        )
        assert "rm -r /help" in question.content


def test_who_is_asked_in_a_group_answers_without_naming_the_bot(world: World) -> None:
    world.play(call("clarify", question="Which one?"))
    with Inside(world) as inside:
        world.platform.say("g", "bot, choose", chat_type="group")
        world.wait_for_text("g", "Which one?")
        world.platform.say("g", "not for you", user="u2", **_GROUP)
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        assert len(inside.store.questions.pending()) == 1
        world.platform.say("g", "the blue one", **_GROUP)
        world.wait_for_text("g", "The tool says: the blue one")
        world.platform.say("g", "and now to something else", **_GROUP)
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        assert not inside.house.lanes.held
        assert len(world.replies("g")) == 2


def test_an_approval_in_a_group_is_given_by_the_command_alone(world: World) -> None:
    world.play(call("terminal", command="rm -rf /nonexistent/hermes-test"), say("done it"))
    with Inside(world):
        world.platform.say("g", "bot, clean up", chat_type="group")
        world.wait_for_text("g", "May this run?")
        world.platform.say("g", "yes, why not", **_GROUP)
        world.platform.say("g", "/approve", **_GROUP)
        world.wait_for_text("g", "done it")
        assert not any("why not" in one for one in world.replies("g"))
