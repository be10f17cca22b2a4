"""What is asked in a chat: how the answer is to be written, and whose words it is taken from."""

from typing import Any

import pytest

from gateway.config import Platform
from gateway.enclosures import Enclosures
from gateway.origin import Origin
from gateway.platforms.base import Abilities, MessageEvent
from gateway.replies import Replies
from gateway.source import SessionSource
from hermes_agent.events import QuestionAsked
from hermes_agent.standing import Standing
from hermes_agent.testing.scripted import Step, call, say
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


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        (call("clarify", question="Which one?"), "Nobody is here to be asked."),
        (call("terminal", command="rm -rf /nonexistent/hermes-test"), "needs a yes"),
    ],
    ids=["a question", "an approval"],
)
def test_where_nobody_is_shown_a_question_it_is_answered_with_no_at_once(
    world: World, wish: Step, said: str
) -> None:
    world.play(wish)
    with Inside(world) as inside:
        source = SessionSource(Platform("loopback"), "a", user_id="u1")
        event = MessageEvent("go on", source=source, message_id="1", can_be_asked=False)
        inside.call(inside.house.accept(event))
        world.wait_for_text("a", said)
        world.play(call("clarify", question="Which one?"))
        world.platform.say("a", "now with somebody there")
        world.wait_for_text("a", "Which one?")


def test_an_approval_in_a_group_is_given_by_the_command_alone(world: World) -> None:
    world.play(call("terminal", command="rm -rf /nonexistent/hermes-test"), say("done it"))
    with Inside(world):
        world.platform.say("g", "bot, clean up", chat_type="group")
        world.wait_for_text("g", "May this run?")
        world.platform.say("g", "yes, why not", **_GROUP)
        world.platform.say("g", "/approve", **_GROUP)
        world.wait_for_text("g", "done it")
        assert not any("why not" in one for one in world.replies("g"))
