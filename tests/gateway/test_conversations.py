"""Conversations in chats, end to end: a platform on one side, a scripted model on the other."""

import json
from collections.abc import Sequence

import pytest

from gateway.commands import TABLE
from gateway.config import Platform
from gateway.platforms.base import MessageEvent, PlatformError, SendResult
from gateway.source import SessionSource
from hermes_agent.testing.faults import Refuse
from hermes_agent.testing.scripted import Quiet, call, say, silence
from hermes_state import SessionDB
from hermes_state.ledger import messages, people, sessions
from tests.gateway.harness import Inside, World
from tests.support.faults import eventually
from tests.support.loopback.adapter import LoopbackAdapter


def test_a_message_is_answered_in_its_chat(world: World) -> None:
    with Inside(world):
        world.platform.say("a", "hello there")
        assert "hello there" in world.wait_for_replies("a", 1)[0]
        world.platform.wait_until(lambda: not world.platform.unacknowledged())


def test_chats_do_not_mix(world: World) -> None:
    with Inside(world):
        for chat in "abc":
            world.platform.say(chat, f"this is chat {chat}", user="u1")
        for chat in "abc":
            assert f"this is chat {chat}" in world.wait_for_replies(chat, 1)[0]
        world.platform.say("a", "again")
        world.wait_for_replies("a", 2)
        messages = world.model.model_requests[-1].json["messages"]
        request_text = json.dumps(messages)
        assert "this is chat a" in request_text
        assert "this is chat b" not in request_text


def test_a_second_delivery_of_the_same_message_is_not_answered_again(world: World) -> None:
    with Inside(world):
        world.platform.say("a", "once", message_id="m1")
        world.wait_for_replies("a", 1)
        world.platform.say("a", "once", message_id="m1")
        world.platform.say("a", "twice", message_id="m2")
        replies = world.wait_for_replies("a", 2)
        assert len(replies) == 2
        assert "twice" in replies[1]


def test_messages_to_a_busy_conversation_are_answered_in_their_order(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, then="first"))
    with Inside(world):
        world.platform.say("a", "one")
        assert quiet.started.wait(10)
        world.platform.say("a", "two")
        world.platform.say("a", "three")
        world.platform.say("b", "elsewhere")
        assert "elsewhere" in world.wait_for_replies("b", 1)[0]
        quiet.release()
        first, second, third = world.wait_for_replies("a", 3)
        assert first == "first"
        assert "two" in second
        assert "three" in third


def test_whoever_wrote_in_a_conversation_that_is_deleted_hears_of_it_and_goes_on(
    world: World,
) -> None:
    quiet = Quiet()
    world.play(silence(quiet, then="too late"))
    with Inside(world):
        world.platform.say("a", "one")
        assert quiet.started.wait(10)
        world.platform.say("a", "two")
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        with SessionDB(world.home.database) as store:
            store.write(sessions.delete, [row["id"] for row in store.list_sessions_rich()])
        quiet.release()
        replies = world.wait_for_replies("a", 2)
        assert all("was deleted" in text for text in replies)
        world.platform.say("a", "three")
        assert "three" in world.wait_for_replies("a", 3)[2]


def test_stop_stops_at_once_and_what_waits_follows(world: World) -> None:
    world.configure(streaming=True)
    world.play(silence(Quiet(), after="Half of a long sentence "))
    with Inside(world):
        world.platform.say("a", "one")
        world.wait_for_text("a", "Half of")
        world.platform.say("a", "two")
        world.platform.say("a", "/stop")
        world.wait_for_text("a", "⏹ Stopped.")
        world.wait_for_text("a", "two")
        world.wait_for_text("a", "Stopping")


def test_a_stop_before_the_first_word_is_told_once(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet))
    with Inside(world):
        world.platform.say("a", "one")
        assert quiet.started.wait(10)
        world.platform.say("a", "/stop")
        world.platform.say("a", "two")
        world.wait_for_text("a", "two")
        assert len([text for text in world.replies("a") if "two" not in text]) == 1


def test_a_new_version_of_a_message_that_waits_takes_its_place(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, then="first"))
    with Inside(world):
        world.platform.say("a", "one")
        assert quiet.started.wait(10)
        waiting = world.platform.say("a", "tow")
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        world.platform.edit("a", waiting, "two")
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        quiet.release()
        first, second = world.wait_for_replies("a", 2)
        assert first == "first"
        assert "two" in second
        assert "tow" not in second


def test_a_long_reply_comes_in_pieces_and_in_order(world: World) -> None:
    text = "\n\n".join(f"Paragraph {number}. " + "word " * 60 for number in range(60))
    world.play(say(text))
    with Inside(world):
        world.platform.say("a", "tell me a lot")
        world.wait_for_text("a", "Paragraph 59.")
        joined = "".join(world.replies("a"))
        positions = [joined.index(f"Paragraph {number}.") for number in range(60)]
        assert positions == sorted(positions)
        assert len(world.replies("a")) > 1


def test_a_dangerous_call_waits_for_a_button_in_the_chat(world: World) -> None:
    world.play(call("terminal", command="rm -rf /nonexistent/hermes-test"), say("done it"))
    with Inside(world):
        world.platform.say("a", "clean up")
        message = world.wait_for_text("a", "Allow this command?")
        assert message.question is not None
        assert ("Deny", "deny") in message.buttons
        world.platform.press("a", message.question, "deny")
        world.wait_for_text("a", "done it")
        after = world.wait_for_text("a", "🚫 Denied.")
        assert (after.message_id, after.buttons) == (message.message_id, ())
        assert "Allow this command?" in after.text
        request_text = json.dumps(world.model.model_requests[-1].json)
        assert "not allow" in request_text or "denied" in request_text.lower()


def test_a_clarifying_question_is_answered_with_the_next_message(world: World) -> None:
    world.play(call("clarify", question="Which one?", choices=["red", "blue"]), say("blue it is"))
    with Inside(world):
        world.platform.say("a", "paint it")
        message = world.wait_for_text("a", "Which one?")
        assert message.buttons == (("red", "red"), ("blue", "blue"))
        world.platform.say("a", "2")
        world.wait_for_text("a", "blue it is")
        assert world.wait_for_text("a", "→ blue").buttons == ()
        results = [
            m for m in world.model.model_requests[-1].json["messages"] if m["role"] == "tool"
        ]
        assert "blue" in results[-1]["content"]


def test_new_starts_a_conversation_that_knows_nothing_of_the_last(world: World) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "my name is Ada")
        world.wait_for_replies("a", 1)
        world.platform.say("a", "/new")
        world.wait_for_text("a", "Session reset")
        world.platform.say("a", "who am I?")
        world.wait_for_replies("a", 3)
        assert "Ada" not in json.dumps(world.model.model_requests[-1].json["messages"])
        ended = [r for r in inside.store.list_sessions_rich() if r["end_reason"] == "session_reset"]
        assert len(ended) == 1


@pytest.mark.parametrize("closing", ["session_reset", "tui_close", "deleted"])
def test_a_chat_goes_on_whatever_another_surface_did_to_its_conversation(
    world: World, closing: str
) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "remember blue")
        world.wait_for_text("a", "You said: remember blue")
        (before,) = inside.runner.session_store.list_sessions()
        old = before.session_id
        if closing == "deleted":
            inside.store.write(sessions.delete, [old])
        else:
            inside.store.end_session(old, closing)
        world.platform.say("a", "which colour?")
        world.wait_for_text("a", "You said: which colour?")
        (after,) = inside.runner.session_store.list_sessions()
        row = inside.store.get_session(after.session_id) or {}
        assert row["ended_at"] is None
        assert (after.session_id != old) == (closing == "session_reset")
        assert inside.store.read(messages.count, after.session_id) == (
            4 if closing == "tui_close" else 2
        )


def test_strangers_get_a_code_and_nothing_else(world: World) -> None:
    with Inside(world) as inside:
        world.platform.say("s", "let me in", user="stranger")
        code = world.wait_for_text("s", "Your pairing code is").text.split("code is ")[1][:8]
        assert world.model.model_requests == []
        world.platform.say("a", f"/pair {code} guest")
        world.wait_for_text("a", "guest")
        world.wait_for_text("s", "You have access now")
        world.platform.say("s", "hello again", user="stranger")
        world.wait_for_text("s", "You said: hello again")
        assert [p.role for p in inside.store.read(people.list_all)] == ["guest"]


def test_a_stranger_whose_code_a_platform_fails_to_show_may_ask_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_args: object) -> SendResult:
        raise RuntimeError("a platform's own mistake")

    with Inside(world):
        with monkeypatch.context() as broken:
            broken.setattr(LoopbackAdapter, "send", fail)
            world.platform.say("s", "let me in", user="stranger")
            world.platform.wait_until(lambda: not world.platform.unacknowledged())
        world.platform.say("s", "please", user="stranger")
        world.wait_for_text("s", "Your pairing code is")
        assert len(world.replies("s")) == 1


def test_whatever_is_sent_has_a_name_of_its_own(world: World) -> None:
    with Inside(world):
        world.platform.say("s", "let me in", user="stranger")
        world.platform.say("t", "me too", user="another")
        world.platform.say("a", "hello")
        for chat in ("s", "t", "a"):
            world.wait_for_replies(chat, 1)
    keys = [attempt.key for attempt in world.platform.attempts]
    assert all(keys)
    assert len(set(keys)) == len(keys)


def test_in_a_group_only_what_is_meant_for_us_is_answered(world: World) -> None:
    with Inside(world):
        world.platform.say("g", "chatter", chat_type="group", mention=False)
        world.platform.say("g", "you there?", chat_type="group", mention=True)
        assert "you there?" in world.wait_for_replies("g", 1)[0]
        assert len(world.model.model_requests) == 1


@pytest.mark.parametrize("needs_mention", ["true", "false"])
@pytest.mark.parametrize(
    ("text", "names_nobody", "outcome"),
    [
        ("/weather", True, "ignored"),
        ("/weather", False, "command"),
        ("/status", True, "command"),
        ("/morning-brief", True, "turn"),
    ],
)
def test_a_command_that_names_nobody_is_for_us_when_we_have_it(
    world: World, needs_mention: str, text: str, names_nobody: bool, outcome: str
) -> None:
    world.configure(more=f"groups_need_mention = {needs_mention}\n")
    skill = world.home.skills / "morning-brief" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: morning-brief\ndescription: Brief me.\n---\nTell me the news.\n")
    source = SessionSource(Platform.register("loopback"), "g", chat_type="group", user_id="u1")
    event = MessageEvent(
        text, source=source, message_id="m1", is_mention=True, names_nobody=names_nobody
    )
    with Inside(world) as inside:
        assert inside.call(inside.services.ingress.accept(event)).outcome == outcome


def test_streaming_shows_the_reply_in_one_message(world: World) -> None:
    world.configure(streaming=True)
    quiet = Quiet()
    text = "This is a beginning that is long enough to be shown. "
    world.play(silence(quiet, after=text, then="And this is the end."))
    with Inside(world):
        world.platform.say("a", "tell me")
        world.wait_for_text("a", "beginning")
        assert world.replies("a")[0].endswith("▉")
        quiet.release()
        whole = text + "And this is the end."
        messages = world.platform.wait_for("a", lambda messages: messages[0].text == whole)
        assert len(messages) == 1


def test_a_failed_turn_says_why(world: World) -> None:
    world.play(Refuse(401, "Incorrect API key provided.", code="invalid_api_key"))
    with Inside(world):
        world.platform.say("a", "hello")
        (text,) = world.wait_for_replies("a", 1)
        assert text.startswith("⚠️")
        assert "key" in text


def test_unknown_commands_name_the_nearest_one(world: World) -> None:
    with Inside(world):
        world.platform.say("a", "/statsu")
        assert "/status" in world.wait_for_replies("a", 1)[0]
        world.platform.say("a", "/help")
        assert "/background" in world.wait_for_text("a", "/compress").text
        new = ("new", "Start a new conversation.")
        eventually(lambda: new in world.platform.commands, "the menu")
        announced = {name for name, _ in world.platform.commands}
        assert announced.isdisjoint(command.name for command in TABLE if command.owner_only), (
            "everybody in a chat sees its menu"
        )


def test_commands_that_a_platform_does_not_take_at_once_are_offered_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce = LoopbackAdapter.announce_commands
    busy = [PlatformError("flooded")]

    async def announce_when_it_can(
        self: LoopbackAdapter, commands: Sequence[tuple[str, str]]
    ) -> None:
        if busy:
            raise busy.pop()
        await announce(self, commands)

    monkeypatch.setattr(LoopbackAdapter, "announce_commands", announce_when_it_can)
    with Inside(world):
        eventually(lambda: any(name == "new" for name, _ in world.platform.commands))
