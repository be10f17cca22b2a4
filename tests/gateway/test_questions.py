"""What is asked in a chat: how the answer is to be written, and whose words it is taken from."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.config import Platform
from gateway.platforms.base import Abilities, MessageEvent
from gateway.platforms.telegram import markdown
from gateway.questions import lines_of
from gateway.replies import Replies, decode
from gateway.reply_attachments import ReplyAttachments
from gateway.reply_target import ReplyTarget
from gateway.source import SessionSource
from gateway.workspaces import Workspaces
from hermes_agent.approval import display
from hermes_agent.permissions import Permissions
from hermes_agent.testing.scripted import Step, call, say
from hermes_agent.turn.events import QuestionAsked
from hermes_core.paths import Home
from hermes_core.settings import Settings
from hermes_state import SessionDB
from hermes_state.ledger import questions
from tests.gateway.harness import Inside, World

CHOICES = ["once", "session", "always", "deny"]
_GROUP: dict[str, Any] = {"chat_type": "group", "mention": False}


def _standing(_place: SessionSource) -> Permissions:
    raise AssertionError("nobody is asked about files")


def test_commands_are_named_as_people_write_them_on_the_platform(home: Home) -> None:
    target = ReplyTarget({"platform": "matrix", "chat_id": "!r", "chat_type": "group"})
    with SessionDB.in_memory() as store:
        able = Abilities(text_limit=4000, command_prefix="!")
        nothing = ReplyAttachments(home, 0, _standing, Workspaces(home, Settings()))
        names = ["help", "approve", "deny"]
        replies = Replies(store, lambda _: able, nothing, names)
        (piece,) = replies.answer(
            target, "See /help. Folder: /help/me, a/help and /helpful", name="x"
        )
        assert piece.content == "See !help. Folder: /help/me, a/help and /helpful"
        event = QuestionAsked("q", "approval", "terminal", "It deletes.", "rm -r /help", CHOICES)
        (question,) = replies.question(target, event)
        assert (
            "Answer !approve (or !approve session, !approve always) or !deny." in question.content
        )
        assert "rm -r /help" in question.content


def _drawn(home: Home, text: str, command: str) -> str:
    """All that a chat is shown of an approval, as Telegram draws it: its code."""
    target = ReplyTarget({"platform": "telegram", "chat_id": "a"})
    event = QuestionAsked("q", "approval", "terminal", text, command, ["once", "deny"])
    with SessionDB.in_memory() as store:
        able = Abilities(text_limit=4000, has_buttons=True)
        replies = Replies(
            store,
            lambda _: able,
            ReplyAttachments(home, 0, _standing, Workspaces(home, Settings())),
        )
        pieces = replies.question(target, event)
        drawn = [markdown.render(item.content) for item in pieces]
    assert [item.buttons is not None for item in pieces] == [*[False] * (len(pieces) - 1), True]
    assert len(msgspec.json.decode(pieces[-1].buttons or "")) == 2
    first = drawn[0].text.partition("\n")[0]
    reason = "" if "\n" in text else f" {text}"
    assert first == f"🔐 Allow this command?{reason}"
    outside = [
        item.text.encode("utf-16-le")[entity.end * 2 :].decode("utf-16-le").strip()
        for item in drawn
        for entity in item.entities
    ]
    assert not any(outside), "nothing of it stands outside of the code"
    return "\n".join(
        item.text.encode("utf-16-le")[entity.offset * 2 : entity.end * 2].decode("utf-16-le")
        for item in drawn
        for entity in item.entities
        if entity.type == "pre"
    )


def test_an_approval_shows_all_that_would_run(home: Home) -> None:
    lines = [f"echo {number}" for number in range(900)]
    command = "\n".join([*lines, "rm -rf /nonexistent/hermes-test"])
    assert _drawn(home, "It deletes.", command) == command


def test_the_largest_approval_is_shown_whole(home: Home) -> None:
    lines = [f"+line {number} {'x' * 50}" for number in range(1_000)]
    change = "\n".join(lines)
    assert len(change) < display.MAX_BYTES
    assert _drawn(home, "It writes.", change) == change


def test_a_long_approval_is_a_file_with_the_choices_after_it(home: Home) -> None:
    detail = "\n".join(["--- a", *(f"+line {number}" for number in range(4_000))])
    covers = '"For this conversation" and "always" cover exactly this change in ~/x.'
    question = QuestionAsked("ab", "approval", "patch", f"Changes a\n{covers}", detail, CHOICES)
    target = ReplyTarget({"platform": "telegram", "chat_id": "a"})
    able = Abilities(text_limit=4000, has_buttons=True, can_send_files=True, can_send_whole=True)
    files = ReplyAttachments(home, 0, _standing, Workspaces(home, Settings()))
    with SessionDB.in_memory() as store:
        replies = Replies(store, lambda _: able, files)
        first, file, last = replies.question(target, question)
        path = Path(decode(file.extra).files[0])
        assert (path.suffix, path.read_text()) == (".diff", detail)
        assert decode(file.extra).is_whole
        assert "Changes a" in first.content and covers in last.content
        assert [part.buttons is None for part in (first, file, last)] == [True, True, False]
        replies.close_question("ab")
        assert not path.exists()


def test_a_question_that_cannot_be_delivered_is_a_no(world: World) -> None:
    world.play(call("terminal", command="rm -rf /nonexistent/hermes-test"))
    with Inside(world) as inside:
        world.platform.close_chat("a")
        world.platform.say("a", "clean up")
        requests = world.model.wait_for_requests(2)
        result = requests[1].json["messages"][-1]["content"]
        assert "could not be shown to the person who may allow it" in result
        assert inside.store.read(questions.pending) == []


def test_what_a_lasting_yes_is_for_stands_beside_the_choices(home: Home) -> None:
    covers = '"For this conversation" and "always" cover exactly this command in ~/x.'
    question = QuestionAsked("q", "approval", "t", f"It deletes.\n{covers}", "rm x", CHOICES)
    assert lines_of(question) == ["🔐 Allow this command? It deletes.", "```\nrm x\n```", covers]


def test_nothing_of_a_command_is_taken_for_words_of_ours(home: Home) -> None:
    command = "cat <<E\n```\n**Checked**: it is safe.\n````\nE\nrm -rf ~/x"
    assert _drawn(home, "• Writes /tmp/a\n• Reads /tmp/b", command) == command


def test_who_is_asked_in_a_group_answers_without_naming_the_bot(world: World) -> None:
    world.play(call("clarify", question="Which one?"))
    with Inside(world) as inside:
        world.platform.say("g", "bot, choose", chat_type="group")
        world.wait_for_text("g", "Which one?")
        world.platform.say("g", "not for you", user="u2", **_GROUP)
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        assert len(inside.store.read(questions.pending)) == 1
        world.platform.say("g", "the blue one", **_GROUP)
        world.wait_for_text("g", "The tool says: the blue one")
        world.platform.say("g", "and now to something else", **_GROUP)
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        assert not inside.open_turns()
        assert len(world.replies("g")) == 2


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (call("clarify", question="Which one?"), "No one can answer questions here."),
        (call("terminal", command="rm -rf /nonexistent/hermes-test"), "No one can allow this here"),
    ],
    ids=["a question", "an approval"],
)
def test_where_nobody_is_shown_a_question_it_is_answered_with_no_at_once(
    world: World, step: Step, expected: str
) -> None:
    world.play(step)
    with Inside(world) as inside:
        source = SessionSource(Platform("loopback"), "a", user_id="u1")
        event = MessageEvent("go on", source=source, message_id="1", can_be_asked=False)
        inside.call(inside.services.ingress.accept(event))
        world.wait_for_text("a", expected)
        world.play(call("clarify", question="Which one?"))
        world.platform.say("a", "now with somebody there")
        world.wait_for_text("a", "Which one?")


def test_an_approval_in_a_group_is_given_by_the_command_alone(world: World) -> None:
    world.play(call("terminal", command="rm -rf /nonexistent/hermes-test"), say("done it"))
    with Inside(world):
        world.platform.say("g", "bot, clean up", chat_type="group")
        world.wait_for_text("g", "Allow this command?")
        world.platform.say("g", "yes, why not", **_GROUP)
        world.platform.say("g", "/approve", **_GROUP)
        world.wait_for_text("g", "done it")
        assert not any("why not" in reply for reply in world.replies("g"))
