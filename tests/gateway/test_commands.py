"""Every command of a chat, as people use it."""

import json
import re
import threading

import pytest

from gateway.commands import TABLE
from gateway.platforms.base import SendMetadata, SendResult
from hermes_agent.testing.scripted import Quiet, call, say, silence
from hermes_cli import plugins
from hermes_state import SessionDB
from hermes_state.ledger import inbox, routes, turns
from hermes_state.values import InboundMessage
from tests.gateway.harness import Inside, Process, World
from tests.support.faults import disk_full_at, eventually
from tests.support.loopback.adapter import LoopbackAdapter

_TIMEOUT_S = 10


def _last_request(world: World) -> str:
    """What the model was asked last."""
    return json.dumps(world.model.model_requests[-1].json["messages"])


def _replaced(world: World, old: str, new: str) -> None:
    text = world.home.config.read_text()
    assert old in text
    world.home.config.write_text(text.replace(old, new))


def test_every_command_that_chats_have_is_in_the_one_table() -> None:
    expected = (
        "new reset stop retry undo branch title resume sessions search expand compress compact model"
        " usage status approve deny background queue steer sethome whoami help restart pair"
    )
    names = {name for command in TABLE for name in (command.name, *command.aliases)}
    assert set(expected.split()) <= names
    assert "exit" not in names


def test_help_lists_the_commands_and_those_of_plugins(world: World) -> None:
    init = world.home.plugins / "loopback" / "__init__.py"
    added = '    ctx.command("weather", lambda text: f"Rain in {text}.", description="Tell it.")\n'
    init.write_text(init.read_text() + added)
    with Inside(world):
        world.platform.say("a", "/help")
        assert "/weather" in world.wait_for_text("a", "/compress").text
        world.platform.say("a", "/weather Ulm")
        world.wait_for_text("a", "Rain in Ulm.")
        assert world.model.model_requests == []
        offered = ("weather", "Tell it.")
        eventually(lambda: offered in world.platform.commands, "the menu")


def test_our_own_commands_speak_plainly_and_those_of_plugins_may_use_markdown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    init = world.home.plugins / "loopback" / "__init__.py"
    added = (
        '    ctx.command("weather", lambda text: f"**Rain** in {text}.", description="Tell it.")\n'
    )
    init.write_text(init.read_text() + added)
    is_plain: dict[str, bool] = {}
    send = LoopbackAdapter.send

    async def watched(
        self: LoopbackAdapter,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: SendMetadata | None = None,
    ) -> SendResult:
        is_plain[content] = (metadata or {}).get("plain", False)
        return await send(self, chat_id, content, reply_to, metadata)

    monkeypatch.setattr(LoopbackAdapter, "send", watched)
    with Inside(world):
        for text, answer in (
            ("/title *x*", "*x*"),
            ("/weather Ulm", "**Rain**"),
            ("one", "You said"),
        ):
            world.platform.say("a", text)
            world.wait_for_text("a", answer)
    assert list(is_plain.values()) == [True, False, False]


def test_help_is_a_list_with_commands_to_tap(world: World) -> None:
    with Inside(world):
        world.platform.say("a", "/help")
        lines = world.wait_for_text("a", "**Commands**").text.splitlines()
    assert "- /title `[TEXT]` – Show or set the title." in lines
    assert not [line for line in lines if "  " in line], "no columns of blanks"


def test_help_leaves_out_what_somebody_may_not_use(world: World) -> None:
    _replaced(world, "[gateway.owners]", '[gateway.allow]\nloopback = ["m1"]\n\n[gateway.owners]')
    with Inside(world):
        world.platform.say("m", "/help", user="m1")
        theirs = world.wait_for_text("m", "/compress").text
        world.platform.say("a", "/help")
        ours = world.wait_for_text("a", "/compress").text
        for name in ("/pair", "/restart", "/sethome"):
            assert f"{name} " in ours
            assert f"{name} " not in theirs


def test_model_alone_lists_what_is_known(world: World) -> None:
    _replaced(world, "retries = 1", 'retries = 1\nfallbacks = ["openai/gpt-4o-mini"]')
    with Inside(world):
        world.platform.say("a", "/model")
        text = world.wait_for_text("a", "scripted (").text
        assert "  scripted: from the settings" in text
        assert "  openai/gpt-4o-mini: a fallback" in text
        assert "/model NAME" in text


def test_a_path_and_a_command_after_a_blank_are_something_to_say(world: World) -> None:
    with Inside(world):
        world.platform.say("a", "/etc/passwd is what?")
        world.wait_for_text("a", "You said: /etc/passwd")
        world.platform.say("a", " /new is a command, is it?")
        world.wait_for_text("a", "/new is a command, is it?")


def test_what_is_said_right_after_new_is_said_in_the_new_conversation(world: World) -> None:
    with Inside(world):
        world.platform.say("a", "my name is Ada")
        world.wait_for_replies("a", 1)
        plugins.register_hook("on_session_end", lambda: threading.Event().wait(0.5) or None)
        world.platform.say("a", "/new")
        world.platform.say("a", "who am I?")
        world.wait_for_text("a", "You said: who am I?")
        assert "Ada" not in _last_request(world)


def test_new_after_a_restart_is_a_reset_of_what_was_before(world: World) -> None:
    with Inside(world):
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
    with Inside(world) as inside:
        world.platform.say("a", "/new")
        world.wait_for_text("a", "Session reset")
        ended = [r for r in inside.store.list_sessions_rich() if r["end_reason"] == "session_reset"]
        assert len(ended) == 1


def test_new_that_cannot_be_stored_leaves_the_chat_where_it_was(world: World) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "my name is Ada")
        world.wait_for_replies("a", 1)
        with disk_full_at(inside.store, "INSERT ON routes"):
            world.platform.say("a", "/new")
            world.wait_for_text("a", "no space left")
        before = inside.runner.session_store.list_sessions()[0].session_id
        stored = inside.store.read(routes.load)
        assert [row["session_id"] for row in stored.values()] == [before]


def test_retry_asks_the_last_thing_again(world: World) -> None:
    world.play(say("a poor answer"), say("a better one"))
    with Inside(world):
        world.platform.say("a", "what is it?")
        world.wait_for_text("a", "a poor answer")
        world.platform.say("a", "/retry")
        world.wait_for_text("a", "a better one")
        request = _last_request(world)
        assert request.count("what is it?") == 1
        assert "poor" not in request


def test_undo_takes_an_exchange_back(world: World) -> None:
    with Inside(world):
        world.platform.say("a", "apple")
        world.platform.say("a", "banana")
        world.wait_for_replies("a", 2)
        world.platform.say("a", "/undo")
        world.wait_for_text("a", "Undone from here on: 'banana'")
        world.platform.say("a", "cherry")
        world.wait_for_text("a", "You said: cherry")
        assert "apple" in _last_request(world)
        assert "banana" not in _last_request(world)


def test_a_branch_goes_on_in_a_copy(world: World) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "apple")
        world.wait_for_replies("a", 1)
        before = inside.runner.session_store.list_sessions()[0].session_id
        world.platform.say("a", "/branch The other way")
        world.wait_for_text("a", f"/resume {before} goes back")
        world.platform.say("a", "banana")
        world.wait_for_text("a", "You said: banana")
        assert "apple" in _last_request(world)
        world.platform.say("a", f"/resume {before}")
        world.platform.say("a", "cherry")
        world.wait_for_text("a", "You said: cherry")
        assert "apple" in _last_request(world)
        assert "banana" not in _last_request(world)


def test_a_command_right_after_a_reply_waits_for_the_rest_of_the_turn(world: World) -> None:
    with Inside(world) as inside:
        came = InboundMessage("loopback", "a", "the-command")

        def is_held() -> None:
            eventually(lambda: inside.store.read(inbox.find, came) is not None, "the command")

        plugins.register_hook("on_turn_end", is_held)
        world.platform.say("a", "apple")
        world.wait_for_replies("a", 1)
        here = inside.runner.session_store.list_sessions()[0].session_id
        world.platform.say("a", f"/resume {here}", message_id=came.message_id)
        assert "You are in" in world.wait_for_replies("a", 2)[1]


def test_a_command_has_to_wait_for_a_turn_that_runs(world: World) -> None:
    world.play(silence())
    with Inside(world) as inside:
        world.platform.say("a", "apple")
        eventually(lambda: bool(inside.services.turns.running_agents()), "the turn")
        world.platform.say("a", "/undo")
        world.wait_for_text("a", "/undo has to wait for the turn.")
        world.platform.say("a", "/stop")
        eventually(lambda: not inside.services.turns.running(), "the end of the turn")


def test_a_title_names_a_conversation_that_resume_finds(world: World) -> None:
    with Inside(world):
        world.platform.say("a", "apple")
        world.wait_for_replies("a", 1)
        world.platform.say("a", "/title Fruit")
        world.wait_for_text("a", "called 'Fruit'")
        world.platform.say("a", "/new")
        world.wait_for_text("a", "Session reset")
        world.platform.say("a", "/sessions")
        assert "Fruit" in world.wait_for_replies("a", 4)[3]
        world.platform.say("a", "/resume Fruit")
        text = world.wait_for_text("a", "You are in 'Fruit' now").text
        assert ": 2 messages, the last one 20" in text
        world.platform.say("a", "go on")
        world.wait_for_text("a", "You said: go on")
        assert "apple" in _last_request(world)


def test_new_with_a_title_names_the_new_conversation(world: World) -> None:
    started: list[str] = []
    with Inside(world) as inside:
        plugins.register_hook("on_session_start", lambda session_id: started.append(session_id))
        world.platform.say("a", "apple")
        world.wait_for_replies("a", 1)
        world.platform.say("a", "/new Holiday plans")
        world.wait_for_text("a", "This conversation is called 'Holiday plans'.")
        world.platform.say("a", "where to?")
        world.wait_for_text("a", "You said: where to?")
        (entry,) = inside.runner.session_store.list_sessions()
        row = inside.store.get_session(entry.session_id) or {}
        assert (row["title"], row["user_id"], row["chat_id"]) == ("Holiday plans", "u1", "a")
        assert started.count(entry.session_id) == 1
        assert "apple" not in _last_request(world)
        world.platform.say("a", "/reset Holiday plans")
        assert "belongs to session" in world.wait_for_replies("a", 4)[3]
        (entry,) = inside.runner.session_store.list_sessions()
        assert inside.store.get_session(entry.session_id) is None


def test_a_group_is_not_told_of_a_private_conversation_by_its_title(world: World) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "/title Fruit")
        world.wait_for_text("a", "called 'Fruit'")
        (private,) = inside.runner.session_store.list_sessions()
        world.platform.say("a", "/new Fruit")
        assert private.session_id in world.wait_for_text("a", "The title 'Fruit'").text
        world.platform.say("g", "/title Fruit", chat_type="group")
        world.wait_for_text("g", "⚠️ The title 'Fruit' is taken. Choose another one.")


def test_a_title_is_given_before_anything_is_said(world: World) -> None:
    with Inside(world):
        world.platform.say("a", "/title")
        world.wait_for_text("a", "has no messages yet")
        world.platform.say("a", "/title Early")
        world.wait_for_text("a", "This conversation is called 'Early'.")
        world.platform.say("a", "hello")
        world.wait_for_text("a", "You said: hello")
        world.platform.say("a", "/title")
        assert "Early" in world.wait_for_replies("a", 4)[3]


def test_nobody_sees_the_conversations_of_others(world: World) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "the treasure is under the tree", user="u1")
        world.wait_for_replies("a", 1)
        secret = inside.runner.session_store.list_sessions()[0].session_id
        world.platform.say("b", "/sessions", user="u2")
        assert "treasure" not in world.wait_for_replies("b", 1)[0]
        world.platform.say("b", f"/resume {secret}", user="u2")
        assert "is not one conversation" in world.wait_for_replies("b", 2)[1]
        world.platform.say("b", "/search treasure", user="u2")
        assert world.wait_for_replies("b", 3)[2] == "Nothing found."


def test_a_chat_that_becomes_a_group_shows_nothing_of_what_was_said_in_private(
    world: World,
) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "the treasure is under the tree")
        world.wait_for_replies("a", 1)
        secret = inside.runner.session_store.list_sessions()[0].session_id
        for number, text in enumerate(["/sessions", f"/resume {secret}", "/search treasure"], 2):
            world.platform.say("a", text, chat_type="group")
            world.wait_for_replies("a", number)
        assert world.replies("a")[1] == "There are no conversations yet."
        assert "is not one conversation" in world.replies("a")[2]
        assert world.replies("a")[3] == "Nothing found."


def test_a_conversation_of_a_group_goes_on_in_private_in_a_copy(world: World) -> None:
    with Inside(world) as inside:
        world.platform.say("team", "the meeting is at noon", chat_type="group")
        world.wait_for_replies("team", 1)
        meeting = inside.runner.session_store.list_sessions()[0].session_id
        world.platform.say("a", f"/resume {meeting}")
        assert "do not reach the group" in world.wait_for_replies("a", 1)[0]
        world.platform.say("a", "my secret is fortytwo")
        world.wait_for_replies("a", 2)
        assert "the meeting is at noon" in str(world.model.model_requests[-1].json)
        world.platform.say("team", "what do you know?", chat_type="group")
        world.wait_for_replies("team", 2)
        assert "fortytwo" not in str(world.model.model_requests[-1].json)
        world.platform.say("team", "/search fortytwo", chat_type="group")
        assert world.wait_for_replies("team", 3)[2] == "Nothing found."
        world.platform.say("a", "/search fortytwo")
        assert "fortytwo" in world.wait_for_replies("a", 3)[2]


def test_search_finds_what_was_said(world: World) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "the treasure is under the tree")
        world.wait_for_replies("a", 1)
        eventually(lambda: bool(inside.store.search_messages("treasure")))
        world.platform.say("a", "/search treasure")
        assert "treasure" in world.wait_for_replies("a", 2)[1]


def _small_window(world: World) -> None:
    _replaced(world, "retries = 1", "retries = 1\ncontext_window = 16000\nmax_output_tokens = 500")


def test_compress_shortens_expand_brings_back_and_undo_undoes(world: World) -> None:
    _small_window(world)
    with Inside(world) as inside:
        for number in range(8):
            world.platform.say("a", f"word number {number} is {'blue ' * 600}")
            world.wait_for_replies("a", number + 1)
        before = inside.runner.session_store.list_sessions()[0].session_id
        world.play(say("A summary: they said blue a lot."))
        world.platform.say("a", "/compact colours")
        world.wait_for_text("a", "The conversation continues in")
        world.platform.say("a", "still there?")
        world.wait_for_text("a", "You said: still there?")
        assert "A summary" in _last_request(world)
        after = inside.runner.session_store.list_sessions()[0].session_id
        assert after != before
        world.platform.say("a", "/expand 1")
        world.wait_for_text("a", "The model sees these again")
        world.platform.say("a", "/undo compress")
        world.wait_for_text("a", "The last compaction is undone")
        world.platform.say("a", "and now?")
        world.wait_for_text("a", "You said: and now?")
        assert "word number 0 is" in _last_request(world)
        assert inside.runner.session_store.list_sessions()[0].session_id == before
        inside.runner.session_store.save_changes()
        (row,) = inside.store.read(routes.load).values()
        assert row["session_id"] == before


def test_new_tells_of_a_turn_that_it_stopped_before_its_first_word(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet))
    with Inside(world):
        world.platform.say("a", "important request")
        assert quiet.started.wait(_TIMEOUT_S)
        world.platform.say("a", "/new")
        message = world.wait_for_text("a", "Session reset")
        assert "The running turn was stopped." in message.text
        world.platform.say("a", "hello")
        world.wait_for_text("a", "You said: hello")
        world.platform.say("a", "/new")
        world.platform.wait_for("a", lambda messages: "Session reset" in messages[-1].text)
        assert "stopped" not in world.replies("a")[-1]


def test_what_a_turn_summed_up_is_neither_taken_back_nor_asked_again(world: World) -> None:
    _small_window(world)
    with Inside(world) as inside:
        sent = 0
        while _session_count(inside.store) < 2:
            sent += 1
            assert sent < 30
            world.platform.say("a", f"word number {sent} is {'blue ' * 600}")
            world.platform.wait_for("a", lambda messages, n=sent: len(messages) >= n, 30)
        (entry,) = inside.runner.session_store.list_sessions()
        world.platform.say("a", "/undo 99")
        text = world.wait_for_text("a", "/undo compress").text
        (number,) = re.findall(r"only (\d+) exchange", text)
        world.platform.say("a", f"/undo {number}")
        world.wait_for_text("a", "Undone")
        before = inside.store.get_messages_as_conversation(entry.session_id)
        world.platform.say("a", "/retry")
        world.wait_for_text("a", "nothing to retry since")
        assert any(message.get("kind") == "summary" for message in before)
        assert inside.store.get_messages_as_conversation(entry.session_id) == before


def test_a_route_follows_a_conversation_that_a_turn_shortened(world: World) -> None:
    _small_window(world)
    with Inside(world) as inside:
        sent = 0
        while _session_count(inside.store) < 2:
            sent += 1
            assert sent < 30
            world.platform.say("a", f"word number {sent} is {'blue ' * 600}")
            world.platform.wait_for("a", lambda messages, n=sent: len(messages) >= n, 30)
        (entry,) = inside.runner.session_store.list_sessions()
        assert (inside.store.get_session(entry.session_id) or {})["depth"] == 1
        (row,) = inside.store.read(routes.load).values()
        assert row["session_id"] == entry.session_id
        world.platform.say("a", "short")
        world.wait_for_text("a", "You said: short")
        assert f"word number {sent}" in _last_request(world)
        first = entry.session_id
    with Inside(world) as inside:
        world.platform.say("a", "after a restart")
        world.wait_for_text("a", "You said: after a restart")
        assert f"word number {sent}" in _last_request(world)
        assert inside.runner.session_store.list_sessions()[0].session_id == first


def _session_count(store: SessionDB) -> int:
    return store.read(lambda c: c.value("SELECT count(*) FROM sessions"))


def test_what_runs_in_the_background_goes_on_with_another_model(world: World) -> None:
    with Inside(world):
        world.platform.say("a", 'call terminal {"command": "sleep 300", "background": true}')
        world.wait_for_text("a", "Started in the background as p1")
        world.platform.say("a", "/model other")
        world.wait_for_text("a", "Switched to other.")
        world.platform.say("a", 'call process {"action": "list"}')
        world.wait_for_text("a", "The tool says: p1")
        assert world.model.model_requests[-1].json["model"] == "other"


def test_what_runs_in_the_background_goes_on_while_somebody_with_other_rights_speaks(
    world: World,
) -> None:
    members = '[gateway.allow]\nloopback = ["m1"]\n\n[gateway.owners]'
    _replaced(world, "[gateway.owners]", members)
    order = 'call terminal {"command": "sleep 300", "background": true}'
    with Inside(world):
        world.platform.say("g", order, chat_type="group", thread="t")
        world.wait_for_text("g", "Started in the background as p1")
        world.platform.say("g", "hello", user="m1", chat_type="group", thread="t")
        world.wait_for_text("g", "You said: [m1] hello")
        world.platform.say("g", 'call process {"action": "list"}', chat_type="group", thread="t")
        world.wait_for_text("g", "The tool says: p1")


def test_a_model_is_changed_for_one_chat_and_kept(world: World) -> None:
    world.model.models = {"scripted": {}, "other": {}}
    with Inside(world):
        world.platform.say("a", "/model other")
        world.wait_for_text("a", "Switched to other.")
        world.platform.say("a", "hello")
        world.wait_for_text("a", "You said: hello")
        assert world.model.model_requests[-1].json["model"] == "other"
        world.platform.say("a", "/retry")
        world.wait_for_replies("a", 3)
        assert world.model.model_requests[-1].json["model"] == "other"
        world.platform.say("b", "hello")
        world.wait_for_text("b", "You said: hello")
        assert world.model.model_requests[-1].json["model"] == "scripted"
    with Inside(world):
        world.platform.say("a", "again")
        world.wait_for_text("a", "You said: again")
        assert world.model.model_requests[-1].json["model"] == "other"
        world.platform.say("a", "/model")
        assert world.wait_for_text("a", "other (").text


def test_a_model_that_was_chosen_stays_with_the_chat_wherever_it_goes(world: World) -> None:
    world.model.models = {"scripted": {}, "other": {}}
    with Inside(world) as inside:
        world.platform.say("a", "first")
        world.wait_for_text("a", "You said: first")
        (first,) = inside.runner.session_store.list_sessions()
        began_in = first.session_id
        world.platform.say("a", "/model other")
        world.wait_for_text("a", "Switched to other.")
        world.platform.say("a", "/branch Copy")
        world.wait_for_text("a", "This is a copy")
        world.platform.say("a", "second")
        world.wait_for_text("a", "You said: second")
        assert world.model.model_requests[-1].json["model"] == "other"
        world.platform.say("a", f"/resume {began_in}")
        world.wait_for_text("a", "You are in")
    with Inside(world):
        world.platform.say("a", "third")
        world.wait_for_text("a", "You said: third")
        assert world.model.model_requests[-1].json["model"] == "other"
        world.platform.say("a", "/new")
        world.wait_for_text("a", "Model: ")
        world.platform.say("a", "fourth")
        world.wait_for_text("a", "You said: fourth")
        assert world.model.model_requests[-1].json["model"] == "scripted"


def test_a_model_that_cannot_be_built_is_told_of_and_blocks_nothing(world: World) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "hello")
        world.wait_for_replies("a", 1)
        (entry,) = inside.runner.session_store.list_sessions()
        inside.runner.session_store.set_model_override(entry.session_key, {"model": "anthropic/x"})
        world.platform.say("a", "and now?")
        assert world.wait_for_replies("a", 2)[1].startswith("⚠️")
        inside.runner.session_store.set_model_override(entry.session_key, None)
        world.platform.say("a", "better?")
        world.wait_for_text("a", "You said: better?")
        assert inside.store.read(turns.unfinished) == []


def test_usage_and_status_say_where_things_stand(world: World) -> None:
    with Inside(world):
        world.platform.say("a", "/usage")
        world.wait_for_text("a", "has no messages yet")
        world.platform.say("a", "hello")
        world.wait_for_replies("a", 2)
        world.platform.say("a", "/usage")
        assert "1 call," in world.wait_for_replies("a", 3)[2]
        world.platform.say("a", "/status")
        status = world.wait_for_replies("a", 4)[3]
        assert "Model: scripted" in status
        assert "Nothing is running." in status


def test_what_waits_for_a_yes_is_approved_or_denied_in_words(world: World) -> None:
    dangerous = call("terminal", command="rm -rf /nonexistent/hermes-test")
    world.play(dangerous, say("done it"), dangerous, say("left it"))
    with Inside(world):
        world.platform.say("a", "clean up")
        world.wait_for_text("a", "Allow this command?")
        world.platform.say("a", "/status")
        world.wait_for_text("a", "1 question waits")
        world.platform.say("a", "/approve")
        world.wait_for_text("a", "terminal: once.")
        world.wait_for_text("a", "done it")
        world.platform.say("a", "once more")
        world.platform.wait_for(
            "a",
            lambda messages: (
                sum("Allow this command?" in message.text for message in messages) == 2
            ),
        )
        world.platform.say("a", "/deny not today")
        world.wait_for_text("a", "left it")
        assert "not today" in _last_request(world)
        world.platform.say("a", "/approve")
        world.wait_for_text("a", "There is no open question.")


def test_background_is_answered_beside_the_conversation(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, then="in front"))
    with Inside(world):
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        world.platform.say("a", "/background look it up")
        world.wait_for_text("a", "in the background")
        world.wait_for_text("a", "You said: look it up")
        assert "in front" not in world.replies("a")
        quiet.release()
        world.wait_for_text("a", "in front")
        world.platform.say("a", "two")
        world.wait_for_text("a", "You said: two")
        assert "look it up" not in _last_request(world)


def test_queue_waits_and_steer_is_heard(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, then="first"))
    with Inside(world):
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        world.platform.say("a", "/queue two")
        world.platform.say("a", "/steer three")
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        quiet.release()
        first, second, third = world.wait_for_replies("a", 3)
        assert first == "first"
        assert "You said: two" in second
        assert "You said: three" in third
        world.platform.say("a", "/steer four")
        world.wait_for_text("a", "You said: four")
        world.platform.say("a", "/queue")
        world.wait_for_text("a", "/queue needs a text.")


def test_sethome_whoami_and_start(world: World) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "/start")
        world.wait_for_text("a", "/help")
        world.platform.say("a", "/whoami")
        assert "u1" in world.wait_for_text("a", "owner").text
        world.platform.say("a", "/sethome")
        world.wait_for_text("a", "I send notices to this chat now")
        assert inside.services.admin_chats.send("Tea is ready.", "tea") == 1
        world.wait_for_text("a", "Tea is ready.")


def test_what_only_owners_may_do_is_refused_to_others(world: World) -> None:
    _replaced(world, "[gateway.owners]", '[gateway.allow]\nloopback = ["m1"]\n\n[gateway.owners]')
    with Inside(world):
        for number, command in enumerate(("/restart", "/sethome", "/pair"), 1):
            world.platform.say("m", command, user="m1")
            assert "is for owners" in world.wait_for_replies("m", number)[-1]


def test_a_command_that_a_crash_cut_off_is_told_and_not_done_again(world: World) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "apple")
        world.wait_for_replies("a", 1)
        store = inside.store
        row = store.read(lambda c: c.value("SELECT payload FROM inbox"))
        payload = json.dumps({**json.loads(row), "text": "/undo"})
        store.write(
            lambda c: c.run(
                "INSERT INTO inbox (platform, chat_id, message_id, payload, received_at)"
                " VALUES ('loopback', 'a', 'cut', ?, 1.0), ('loopback', 'a', 'press', ?, 2.0),"
                " ('loopback', 'a', 'odd', '{}', 3.0)",
                payload,
                row,
            )
        )
    with Process(world) as gateway:
        gateway.wait_until_up()
        replies = world.wait_for_replies("a", 3)[1:]
        assert "while /undo was running" in replies[0]
        assert "your last message" in replies[1]
        world.platform.say("a", "/undo", message_id="cut")
        world.platform.say("a", "banana")
        world.wait_for_text("a", "You said: banana")
        assert "apple" in _last_request(world)


@pytest.mark.parametrize("command", ["/new", "/status", "/stop"])
def test_a_command_is_done_once_though_it_is_delivered_twice(world: World, command: str) -> None:
    with Inside(world):
        world.platform.say("a", "hello")
        world.wait_for_replies("a", 1)
        world.platform.say("a", command, message_id="twice")
        world.wait_for_replies("a", 2)
        world.platform.say("a", command, message_id="twice")
        world.platform.say("a", "the end")
        world.wait_for_text("a", "You said: the end")
        assert len(world.replies("a")) == 3


def test_what_only_looks_at_or_changes_the_store_needs_no_model(world: World) -> None:
    with Inside(world):
        world.platform.say("a", "remember the milk")
        world.wait_for_replies("a", 1)
    text = world.home.config.read_text()
    world.home.config.write_text(text[text.index("[agent]") :])
    names = {
        "/title Shopping": "called 'Shopping'",
        "/status": "Model: There is no model.",
        "/sessions": "Shopping",
        "/search milk": "user: remember the milk",
        "/usage": "scripted: 1 call",
        "/model": "/model NAME switches the model",
        "/approve": "There is no open question.",
        "/branch": "This is a copy",
        "/resume Shopping": "You are in 'Shopping #2' now",
        "/retry": "There is no model.",
        "/undo": "Undone from here on: 'remember the milk'",
    }
    with Inside(world):
        for number, (line, expected) in enumerate(names.items(), 2):
            world.platform.say("a", line)
            assert expected in world.wait_for_replies("a", number)[-1]


@pytest.mark.parametrize("line", ["/exit", "/quit"])
def test_a_command_that_chats_do_not_have_is_not_proposed(world: World, line: str) -> None:
    with Inside(world):
        world.platform.say("a", line)
        text = world.wait_for_text("a", f"Unknown command {line}.").text
        assert "Do you mean" not in text
        world.platform.say("a", "/statu")
        world.wait_for_text("a", "Did you mean /status?")
