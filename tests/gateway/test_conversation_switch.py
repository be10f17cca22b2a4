"""A chat that leaves its conversation: what waits goes along, and nothing runs in one that is over."""

import json
import threading
from datetime import timedelta
from typing import Any

import pytest

from hermes_agent import lease
from hermes_agent.testing.scripted import Quiet, call, silence
from hermes_agent.turn.events import TurnEnded
from hermes_cli import plugins
from hermes_engine.events import LogEntry
from hermes_state import SessionDB
from hermes_state.ledger import partials, sessions, turns
from tests.gateway.harness import Inside, Process, World
from tests.support.faults import disk_full_at, eventually

_TIMEOUT_S = 10


def _last_request(world: World) -> str:
    """What the model was asked last."""
    return json.dumps(world.model.model_requests[-1].json["messages"])


def _here(inside: Inside) -> str:
    (entry,) = inside.runner.session_store.list_sessions()
    return entry.session_id


def _waiting(inside: Inside) -> int:
    """How many messages wait in the chat and have not begun."""
    (entry,) = inside.runner.session_store.list_sessions()
    return len(inside.services.turns.queued(entry.session_key))


def _wait_until_taken(world: World) -> None:
    world.platform.wait_until(lambda: not world.platform.unacknowledged())


def test_new_while_messages_wait_answers_them_in_the_new_conversation(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, after="Half"))
    with Inside(world) as inside:
        world.platform.say("a", "my name is Ada")
        assert quiet.started.wait(_TIMEOUT_S)
        old = _here(inside)
        world.platform.say("a", "and I wait")
        world.platform.say("a", "so do I")
        _wait_until_taken(world)
        world.platform.say("a", "/reset")
        world.wait_for_text("a", "2 queued messages will be answered in it.")
        world.wait_for_text("a", "You said: and I wait")
        world.wait_for_text("a", "You said: so do I")
        assert "Ada" not in _last_request(world)
        assert "and I wait" in _last_request(world)
        texts = [message["content"] for message in inside.store.get_messages_as_conversation(old)]
        assert "and I wait" not in texts
        assert inside.store.read(turns.unfinished) == []
        assert inside.store.check() == []


def test_new_while_a_terminal_runs_the_conversation_answers_all_that_waits(world: World) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "my name is Ada")
        world.wait_for_replies("a", 1)
        eventually(lambda: inside.open_turns() == set())
        old = _here(inside)
        with lease.held(inside.store, old, lambda: None):
            world.platform.say("a", "and I wait")
            world.platform.say("a", "so do I")
            eventually(lambda: _waiting(inside) == 2)
            world.platform.say("a", "/new")
            world.wait_for_text("a", "2 queued messages will be answered in it.")
            world.wait_for_text("a", "You said: and I wait")
            world.wait_for_text("a", "You said: so do I")
            assert "Ada" not in _last_request(world)


@pytest.mark.parametrize(
    ("stop", "expected", "is_answered"),
    [
        ("/stop", "Nothing is running here. 1 queued message is next", True),
        ("/stop all", "1 queued message was cancelled.", False),
    ],
)
def test_what_waits_for_a_terminal_is_not_stopped_as_if_it_ran(
    world: World, stop: str, expected: str, is_answered: bool
) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        eventually(lambda: inside.open_turns() == set())
        with lease.held(inside.store, _here(inside), lambda: None):
            world.platform.say("a", "two")
            eventually(lambda: _waiting(inside) == 1)
            eventually(
                lambda: (
                    not inside.services.turns.running_agents()
                    and not inside.services.turns.running()
                )
            )
            world.platform.say("a", stop)
            world.wait_for_text("a", expected)
        world.platform.say("a", "three")
        world.wait_for_text("a", "You said: three")
        assert any("You said: two" in text for text in world.replies("a")) is is_answered


def test_what_a_killed_terminal_left_is_named_and_can_be_given_up(world: World) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        eventually(lambda: inside.open_turns() == set())
        acceptance = inside.store.write(
            turns.accept, _here(inside), {"role": "user", "content": "in a terminal"}
        )
        events: list[LogEntry] = []
        inside.services.turns.engine.subscribe(acceptance.conversation_id, events.append)
        world.platform.say("a", "/undo")
        world.wait_for_text("a", "in a terminal has no answer yet.")
        world.platform.say("a", "/stop all")
        world.wait_for_text("a", "1 message of a terminal was cancelled.")
        (ended,) = [entry.event for entry in events if entry.turn_id == acceptance.turn_id]
        assert isinstance(ended, TurnEnded) and ended.status == "interrupted"
        world.platform.say("a", "/undo")
        world.wait_for_text("a", "Undone from here on: 'in a terminal'")


def test_status_tells_what_waits_from_what_runs(world: World) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        (entry,) = inside.runner.session_store.list_sessions()
        with inside.services.turns.blocked(entry.session_key):
            world.platform.say("a", "two")
            eventually(lambda: _waiting(inside) == 1)
            world.platform.say("a", "/status")
            world.wait_for_text("a", "Turns are queued here; none has begun yet.")
        world.wait_for_text("a", "You said: two")


def test_plugins_are_told_of_a_reset_before_what_waits_begins(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet))
    calls: list[str] = []
    with Inside(world):
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        begins = threading.Event()

        def reset() -> None:
            begins.wait(0.3)  # a plugin that takes its time
            calls.append("on_session_reset")

        plugins.register_hook("on_session_reset", reset)
        plugins.register_hook("on_session_start", lambda: calls.append("on_session_start"))
        plugins.register_hook("on_turn_start", begins.set)
        world.platform.say("a", "two")
        world.platform.say("a", "/new")
        world.wait_for_text("a", "You said: two")
        assert calls == ["on_session_reset", "on_session_start"]


def test_nothing_runs_in_a_conversation_whose_end_was_told(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet))
    calls: list[tuple[str, str]] = []
    with Inside(world) as inside:
        for hook in ("on_session_finalize", "on_session_start", "on_turn_start", "on_turn_end"):
            plugins.register_hook(
                hook, lambda session_id, hook=hook: calls.append((hook, session_id))
            )
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        old = _here(inside)
        world.platform.say("a", "two")
        _wait_until_taken(world)
        world.platform.say("a", "/new")
        world.wait_for_text("a", "You said: two")
        eventually(lambda: len(calls) == 7, "the end of the second turn")
        new = _here(inside)
        assert calls == [
            ("on_session_start", old),
            ("on_turn_start", old),
            ("on_turn_end", old),
            ("on_session_finalize", old),
            ("on_session_start", new),
            ("on_turn_start", new),
            ("on_turn_end", new),
        ]


def test_what_a_message_asks_that_went_along_is_answered_where_the_chat_is(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet), call("terminal", command="rm -rf /nonexistent/hermes-test"))
    with Inside(world):
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        world.platform.say("a", "clean up")
        _wait_until_taken(world)
        world.platform.say("a", "/new")
        world.wait_for_text("a", "Allow this command?")
        world.platform.say("a", "/deny")
        world.wait_for_text("a", "terminal: deny.")


def test_a_new_that_cannot_be_stored_leaves_what_waits_where_it_was(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet))
    with Inside(world) as inside:
        world.platform.say("a", "my name is Ada")
        assert quiet.started.wait(_TIMEOUT_S)
        world.platform.say("a", "who am I?")
        _wait_until_taken(world)
        with disk_full_at(inside.store, "UPDATE ON routes"):
            world.platform.say("a", "/new")
            world.wait_for_text("a", "no space left")
        world.wait_for_text("a", "You said: who am I?")
        assert "Ada" in _last_request(world)


@pytest.mark.parametrize("is_everyday", [True, False])
def test_a_message_that_is_taken_in_while_its_chat_leaves_is_said_where_the_chat_is(
    world: World, monkeypatch: pytest.MonkeyPatch, is_everyday: bool
) -> None:
    if not is_everyday:
        plugins.register_hook("on_message_received", lambda text: None)
    with Inside(world) as inside:
        world.platform.say("a", "marzipan")
        world.wait_for_text("a", "You said: marzipan")
        eventually(lambda: inside.open_turns() == set())
        old, routes, of = _here(inside), inside.runner.session_store, inside.services.model_input.of
        (entry,) = routes.list_sessions()

        def leave(*args: Any) -> Any:
            """The chat has been looked up; before the message is stored, it leaves."""
            monkeypatch.undo()
            routes.reset_session(entry.session_key)
            return of(*args)

        monkeypatch.setattr(inside.services.model_input, "of", leave)
        world.platform.say("a", "hello")
        world.wait_for_text("a", "You said: hello")
        assert _here(inside) != old
        assert "marzipan" not in _last_request(world)
        assert (inside.store.get_session(old) or {})["end_reason"] == "session_reset"


def test_a_conversation_at_work_is_not_reset_by_the_clock(world: World) -> None:
    world.configure(more='reset = "idle"\nreset_idle_minutes = 60\n')
    quiet = Quiet()
    world.play(silence(quiet, then="done"))
    with Inside(world) as inside:
        world.platform.say("a", "take your time")
        assert quiet.started.wait(_TIMEOUT_S)
        (entry,) = inside.runner.session_store.list_sessions()
        entry.updated_at -= timedelta(days=2)
        world.platform.say("a", "are you there?")
        _wait_until_taken(world)
        quiet.release()
        world.wait_for_text("a", "You said: are you there?")
        assert "take your time" in _last_request(world)


def test_a_turn_that_new_stopped_does_not_go_on_after_a_crash(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet))
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.say("a", "one")
        assert quiet.started.wait(_TIMEOUT_S)
        gateway.kill()
    with SessionDB(world.home.database) as store:
        (turn,) = store.read(turns.all_open)
        store.write(sessions.end_for_reset, turn["session_id"])
    with Inside(world) as inside:
        eventually(lambda: inside.store.read(turns.all_open) == [])
        assert len(world.model.model_requests) == 1


def test_what_was_shown_of_a_turn_that_new_stopped_says_so_after_a_crash(world: World) -> None:
    world.configure(streaming=True)
    quiet = Quiet()
    world.play(silence(quiet, after="Half of the answer is written here by now."))
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.say("a", "one")
        world.wait_for_text("a", "by now.")
        with SessionDB(world.home.database) as store:
            (turn,) = store.read(turns.all_open)
            eventually(lambda: bool(store.read(partials.of_session, turn["session_id"])))
        gateway.kill()
    with SessionDB(world.home.database) as store:
        store.write(sessions.end_for_reset, turn["session_id"])
    with Inside(world):
        text = "Half of the answer is written here by now.\n\n⏹ Stopped."
        world.platform.wait_for(
            "a", lambda messages: [message.text for message in messages] == [text]
        )


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_room_that_passes_to_somebody_else_does_not_pass_on_what_was_said_in_private(
    world: World, is_forgotten: bool
) -> None:
    text = world.home.config.read_text()
    allowed = '[gateway.allow]\nloopback = ["ana", "bob"]\n\n[gateway.owners]'
    world.home.config.write_text(text.replace("[gateway.owners]", allowed))
    with Inside(world) as inside:
        world.platform.say("room", "the code is 4711", user="ana")
        world.wait_for_text("room", "You said: the code is 4711")
        hers = _here(inside)
        eventually(lambda: inside.open_turns() == set())
        if is_forgotten:
            routes = inside.runner.session_store
            (entry,) = routes.list_sessions()
            entry.updated_at -= timedelta(days=100)
            assert routes.prune_old_entries(90) == 1
        world.platform.say("room", "what was the code?", user="bob")
        world.wait_for_text("room", "You said: what was the code?")
        assert "4711" not in _last_request(world)
        world.platform.say("room", "/status", user="bob")
        world.wait_for_text("room", _here(inside))
        assert _here(inside) != hers
        assert (inside.store.get_session(_here(inside)) or {})["user_id"] == "bob"
        world.platform.say("room", "and now?", user="bob")
        world.wait_for_text("room", "You said: and now?")
        assert "what was the code?" in _last_request(world)


def test_what_waits_in_a_room_is_not_passed_on_with_it(world: World) -> None:
    text = world.home.config.read_text()
    allowed = '[gateway.allow]\nloopback = ["ana", "bob"]\n\n[gateway.owners]'
    world.home.config.write_text(text.replace("[gateway.owners]", allowed))
    quiet = Quiet()
    world.play(silence(quiet, then="to the first"))
    with Inside(world) as inside:
        world.platform.say("room", "hello", user="ana")
        assert quiet.started.wait(_TIMEOUT_S)
        world.platform.say("room", "the code is 4711", user="ana")
        _wait_until_taken(world)
        world.platform.say("room", "who is there?", user="bob")
        _wait_until_taken(world)
        quiet.release()
        world.wait_for_text("room", "You said: who is there?")
        eventually(lambda: inside.open_turns() == set())
        assert "4711" not in _last_request(world)
        assert not any("4711" in reply for reply in world.replies("room"))
        assert inside.store.check() == []
