"""The boundaries of conversations: resets by the clock, the watcher, hooks, and last words."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from markdown_it import MarkdownIt

from gateway.reply_text import EMPTY, STOPPED_BEFORE, TOO_LONG, text_of
from gateway.run import _normalize_empty_agent_response
from gateway.session import SessionEntry
from hermes_agent import lease
from hermes_agent.testing.scripted import Quiet, say, silence
from hermes_agent.turn.values import Outcome
from hermes_cli import plugins
from hermes_state.ledger import lineage, messages, outbox
from tests.gateway.harness import Inside, World
from tests.support.faults import disk_full_at, eventually

pytestmark = pytest.mark.promise("P6")

_SESSION_HOOKS = ("on_session_start", "on_session_end", "on_session_finalize", "on_session_reset")
_IDLE = 'reset = "idle"\nreset_idle_minutes = 60\n'


class _HookCalls:
    """What the hooks of conversations were told, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.cut_off: list[tuple[str, bool]] = []
        """The sessions that ended, and whether they were interrupted."""
        plugins.register_hook(
            "on_session_end",
            lambda session_id, interrupted: self.cut_off.append((session_id, interrupted)),
        )
        for name in _SESSION_HOOKS:
            plugins.register_hook(name, self._note(name))

    def _note(self, name: str) -> Callable[..., None]:
        def note(session_id: str, platform: str) -> None:
            assert platform == "loopback"
            self.calls.append((name, session_id))

        return note


@pytest.fixture
def hook_calls() -> Iterator[_HookCalls]:
    yield _HookCalls()


def _entry(inside: Inside) -> SessionEntry:
    (entry,) = inside.runner.session_store.list_sessions()
    return entry


def _make_old(inside: Inside, *, is_running: bool = False) -> None:
    """Have the chat be silent for two days; its turn has left the lane by then, unless it runs on."""
    entry = _entry(inside)
    if not is_running:
        eventually(lambda: not inside.services.turns.is_busy(entry.session_key))
    entry.updated_at -= timedelta(days=2)


def _look(inside: Inside) -> None:
    inside.call(inside.runner._look_for_expired())


# -- hooks --------------------------------------------------------------------------------------------


def test_a_conversation_that_is_reset_tells_its_start_its_end_and_the_next(
    world: World, hook_calls: _HookCalls
) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        old = _entry(inside).session_id
        world.platform.say("a", "/new")
        world.wait_for_text("a", "Session reset")
        new = _entry(inside).session_id
        assert hook_calls.calls == [
            ("on_session_start", old),
            ("on_session_end", old),
            ("on_session_finalize", old),
            ("on_session_reset", new),
        ]
        world.platform.say("a", "two")
        world.wait_for_replies("a", 3)
        assert hook_calls.calls[4:] == [("on_session_start", new)]


def test_of_a_conversation_that_goes_on_in_another_chat_no_end_is_told(
    world: World, hook_calls: _HookCalls
) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        shared = _entry(inside).session_id
        world.platform.say("b", f"/resume {shared}")
        world.wait_for_text("b", "You are in")
        hook_calls.calls.clear()
        world.platform.say("b", "/new")
        world.wait_for_text("b", "Session reset")
        assert [name for name, _ in hook_calls.calls] == ["on_session_reset"]
        world.platform.say("a", "/new")
        world.wait_for_text("a", "Session reset")
        assert hook_calls.calls[1:3] == [
            ("on_session_end", shared),
            ("on_session_finalize", shared),
        ]


def test_of_a_conversation_that_was_shortened_elsewhere_the_end_is_told_where_it_went_on(
    world: World, hook_calls: _HookCalls
) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        shortened = inside.store.write(lineage.rotate, _entry(inside).session_id, [])
        hook_calls.calls.clear()
        world.platform.say("a", "/new")
        world.wait_for_text("a", "Session reset")
        assert hook_calls.calls[:2] == [
            ("on_session_end", shortened),
            ("on_session_finalize", shortened),
        ]
        assert (inside.store.get_session(shortened) or {})["end_reason"] == "session_reset"


@pytest.mark.parametrize("leaving", ["/new", "/branch"])
def test_a_chat_that_knows_a_conversation_as_it_was_before_its_shortening_is_in_it_all_the_same(
    world: World, hook_calls: _HookCalls, leaving: str
) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        shared = _entry(inside).session_id
        world.platform.say("b", f"/resume {shared}")
        world.wait_for_text("b", "You are in")
        shortened = inside.store.write(
            lineage.rotate, shared, [{"role": "user", "content": "Earlier."}]
        )
        world.platform.say("a", "two")
        world.wait_for_text("a", "You said: two")
        inside.runner.session_store.used("agent:main:loopback:dm:b")
        inside.runner.session_store.save_changes()
        hook_calls.calls.clear()
        world.platform.say("a", leaving)
        world.wait_for_replies("a", 3)
        assert "on_session_finalize" not in [name for name, _ in hook_calls.calls]
        assert (inside.store.get_session(shortened) or {})["ended_at"] is None


def test_a_chat_that_resumes_the_conversation_it_is_in_stays_there_and_no_end_is_told(
    world: World, hook_calls: _HookCalls
) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        entry = _entry(inside)
        agent = inside.agent_of(entry)
        hook_calls.calls.clear()
        world.platform.say("a", f"/resume {entry.session_id}")
        world.wait_for_text("a", "You are in 'one' now")
        assert hook_calls.calls == []
        assert inside.agent_of(entry) is agent


def test_a_message_that_finds_its_conversation_over_tells_its_end_and_the_next(
    world: World, hook_calls: _HookCalls
) -> None:
    world.configure(more=_IDLE)
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        old = _entry(inside).session_id
        _make_old(inside)
        hook_calls.calls.clear()
        world.platform.say("a", "two")
        world.wait_for_text("a", "You said: two")
        new = _entry(inside).session_id
        assert hook_calls.calls == [
            ("on_session_end", old),
            ("on_session_finalize", old),
            ("on_session_reset", new),
            ("on_session_start", new),
        ]
        assert hook_calls.cut_off == [(old, False)]
        assert len(inside.services.turns.engine.agents) == 1


def test_it_also_tells_the_end_of_a_conversation_that_slept_through_a_restart(
    world: World, hook_calls: _HookCalls
) -> None:
    world.configure(more=_IDLE)
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        old = _entry(inside).session_id
    hook_calls.calls.clear()
    models: list[str] = []
    plugins.register_hook("on_session_end", lambda model: models.append(model))
    with Inside(world) as inside:
        _make_old(inside)
        world.platform.say("a", "two")
        world.wait_for_text("a", "You said: two")
        new = _entry(inside).session_id
    assert hook_calls.calls == [
        ("on_session_end", old),
        ("on_session_finalize", old),
        ("on_session_reset", new),
        ("on_session_start", new),
    ]
    assert models == ["scripted"]


def test_what_the_watcher_has_ended_is_not_ended_again_by_the_next_message(
    world: World, hook_calls: _HookCalls
) -> None:
    world.configure(more=_IDLE)
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        _make_old(inside)
        _look(inside)
        hook_calls.calls.clear()
        world.platform.say("a", "two")
        world.wait_for_text("a", "You said: two")
        new = _entry(inside).session_id
        assert hook_calls.calls == [("on_session_reset", new), ("on_session_start", new)]


def test_what_the_watcher_has_ended_is_not_ended_again_by_new(
    world: World, hook_calls: _HookCalls
) -> None:
    world.configure(more=_IDLE)
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        _make_old(inside)
        _look(inside)
        hook_calls.calls.clear()
        world.platform.say("a", "/new")
        world.wait_for_text("a", "Session reset")
        assert hook_calls.calls == [("on_session_reset", _entry(inside).session_id)]


def test_a_conversation_whose_time_is_up_in_every_chat_that_is_in_it_ends_once(
    world: World, hook_calls: _HookCalls
) -> None:
    world.configure(more=_IDLE)
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        shared = _entry(inside).session_id
        world.platform.say("b", f"/resume {shared}")
        world.wait_for_text("b", "You are in")
        eventually(lambda: inside.open_turns() == set())
        first, second = inside.runner.session_store.list_sessions()
        hook_calls.calls.clear()
        first.updated_at -= timedelta(days=2)
        _look(inside)
        assert hook_calls.calls == []
        second.updated_at -= timedelta(days=2)
        _look(inside)
        assert hook_calls.calls == [("on_session_end", shared), ("on_session_finalize", shared)]
        assert (inside.store.get_session(shared) or {})["end_reason"] == "session_reset"


def test_a_conversation_whose_turn_runs_is_not_idle(world: World, hook_calls: _HookCalls) -> None:
    world.configure(more=_IDLE)
    quiet = Quiet()
    world.play(silence(quiet, after="Half"))
    with Inside(world) as inside:
        world.platform.say("a", "one")
        assert quiet.started.wait(10)
        entry = _entry(inside)
        _make_old(inside, is_running=True)
        world.platform.say("a", "two")
        world.platform.say("a", "/stop all")
        world.wait_for_text("a", "Stopping")
        assert _entry(inside) is entry
        assert [name for name, _ in hook_calls.calls] == ["on_session_start"]


def test_a_conversation_that_a_terminal_runs_is_not_idle(
    world: World, hook_calls: _HookCalls
) -> None:
    world.configure(more=_IDLE)
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        entry = _entry(inside)
        _make_old(inside)
        with lease.held(inside.store, entry.session_id, lambda: None):
            _look(inside)
            world.platform.say("a", "two")
            world.platform.wait_until(lambda: not world.platform.unacknowledged())
        world.wait_for_text("a", "You said: two")
        assert _entry(inside) is entry
        assert [name for name, _ in hook_calls.calls] == ["on_session_start"]


def test_a_reset_in_the_middle_of_a_turn_says_that_it_was_cut_off(
    world: World, hook_calls: _HookCalls
) -> None:
    quiet = Quiet()
    world.play(silence(quiet, after="Half"))
    with Inside(world) as inside:
        world.platform.say("a", "one")
        assert quiet.started.wait(10)
        old = _entry(inside).session_id
        world.platform.say("a", "/new")
        world.wait_for_text("a", "Session reset")
        assert hook_calls.cut_off == [(old, True)]


def test_a_conversation_beside_and_a_copy_tell_their_start(
    world: World, hook_calls: _HookCalls
) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        hook_calls.calls.clear()
        world.platform.say("a", "/background something else")
        text = world.wait_for_text("a", "in the background").text
        world.wait_for_text("a", "You said: something else")
        beside = text.partition("(")[2].partition(")")[0]
        assert hook_calls.calls == [("on_session_start", beside)]
        old = _entry(inside).session_id
        hook_calls.calls.clear()
        world.platform.say("a", "/branch")
        world.wait_for_text("a", "This is a copy")
        assert hook_calls.calls == [
            ("on_session_end", old),
            ("on_session_finalize", old),
            ("on_session_start", _entry(inside).session_id),
        ]
        hook_calls.calls.clear()
        world.platform.say("a", "in the copy")
        world.wait_for_text("a", "You said: in the copy")
        assert hook_calls.calls == []


def test_a_conversation_that_begins_with_its_title_tells_who_answers_in_it(world: World) -> None:
    models: list[str] = []
    plugins.register_hook("on_session_start", lambda model: models.append(model))
    with Inside(world):
        world.platform.say("a", "/title Fruit")
        world.wait_for_text("a", "called 'Fruit'")
        assert models == ["scripted"]


def test_a_first_reset_has_nothing_to_end(world: World, hook_calls: _HookCalls) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "/new")
        world.wait_for_text("a", "New session")
        assert hook_calls.calls == [("on_session_reset", _entry(inside).session_id)]


def test_a_chat_that_goes_elsewhere_tells_the_end_of_where_it_was(
    world: World, hook_calls: _HookCalls
) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        first = _entry(inside).session_id
        world.platform.say("a", "/new")
        world.platform.say("a", "two")
        world.wait_for_replies("a", 3)
        second = _entry(inside).session_id
        hook_calls.calls.clear()
        world.platform.say("a", f"/resume {first}")
        eventually(lambda: _entry(inside).session_id == first)
        eventually(lambda: len(hook_calls.calls) == 2)
        assert hook_calls.calls == [("on_session_end", second), ("on_session_finalize", second)]


def test_a_plugin_rewrites_and_drops_what_comes_in(world: World) -> None:
    with Inside(world) as inside:
        plugins.register_hook("on_message_received", lambda: {"action": "what?"})
        plugins.register_hook(
            "on_message_received",
            lambda text: {"action": "rewrite", "text": text.upper()} if "up" in text else None,
        )
        plugins.register_hook(
            "on_message_received", lambda: {"action": "rewrite", "text": "the second one"}
        )
        plugins.register_hook(
            "on_message_received", lambda text: {"action": "drop"} if "spam" in text else None
        )
        world.platform.say("a", "spam up", message_id="m1")
        world.platform.say("a", "speak up")
        (reply,) = world.wait_for_replies("a", 1)
        assert "You said: SPEAK UP" in reply
        row = inside.store.read(
            lambda c: c.value("SELECT outcome FROM inbox WHERE message_id = 'm1'")
        )
        assert row == "ignored"


def test_a_plugin_rewrites_and_drops_what_goes_out(world: World) -> None:
    seen: list[tuple[str, str]] = []

    def rewrite(chat_id: str, session_id: str, text: str) -> dict[str, str] | None:
        seen.append((chat_id, session_id))
        if "secret" in text:
            return {"action": "drop", "reason": "not for there"}
        return {"action": "rewrite", "text": " " if text == "nothing" else f"{text}!"}

    world.play(say("a secret"), say("nothing"), say("a word"))
    with Inside(world) as inside:
        plugins.register_hook("pre_send", rewrite)
        world.platform.say("a", "one")
        world.platform.say("a", "two")
        world.platform.say("a", "three")
        assert world.wait_for_replies("a", 1) == ["a word!"]
        session_id = _entry(inside).session_id
        assert seen == [("a", session_id)] * 3
        texts = [row["content"] for row in inside.store.read(messages.of_session, session_id)]
        assert sorted(texts) == ["a secret", "a word", "nothing", "one", "three", "two"]
        dropped = [(row["content"], row["error"]) for row in inside.store.read(outbox.failed)]
        assert dropped == [
            ("a secret", "A plugin dropped it: not for there."),
            ("nothing", "A plugin dropped it: it removed all text."),
        ]


@pytest.mark.parametrize("hook", ["on_message_received", "pre_send", "on_turn_end"])
def test_a_plugin_that_raises_what_is_no_error_leaves_everybody_answered(
    world: World, hook: str
) -> None:
    def fail() -> None:
        raise asyncio.CancelledError

    with Inside(world):
        plugins.register_hook(hook, fail)
        world.platform.say("a", "one")
        world.platform.say("b", "two")
        assert "You said: one" in world.wait_for_replies("a", 1)[0]
        assert "You said: two" in world.wait_for_replies("b", 1)[0]
        world.platform.say("a", "three")
        assert "You said: three" in world.wait_for_replies("a", 2)[1]


def test_a_reply_of_a_plugin_that_holds_half_a_character_is_sent(world: World) -> None:
    with Inside(world):
        plugins.register_hook("pre_send", lambda: {"action": "rewrite", "text": "half \ud83d."})
        world.platform.say("a", "one")
        assert world.wait_for_replies("a", 1) == ["half ?."]


def test_the_gateway_tells_its_start_and_its_stop(world: World) -> None:
    calls: list[object] = []
    plugins.register_hook("on_gateway_start", lambda platforms: calls.append(platforms))
    plugins.register_hook("on_gateway_stop", lambda reason: calls.append(reason))
    with Inside(world):
        assert calls == [["loopback"]]
    assert calls == [["loopback"], "stopped"]


def test_a_stop_finalizes_what_ran_and_leaves_it_to_go_on(
    world: World, hook_calls: _HookCalls
) -> None:
    world.configure(drain=0.0)
    quiet = Quiet()
    world.play(silence(quiet, after="Half"))
    with Inside(world) as inside:
        world.platform.say("a", "one")
        assert quiet.started.wait(10)
        session_id = _entry(inside).session_id
        hook_calls.calls.clear()
    assert hook_calls.calls == [("on_session_end", session_id), ("on_session_finalize", session_id)]
    assert hook_calls.cut_off == [(session_id, True)]
    with Inside(world) as inside:
        world.platform.wait_for("a", lambda messages: len(messages) == 2, 30)
        assert "You said: one" in world.replies("a")[1]


def test_a_turn_that_ends_while_the_gateway_drains_was_not_cut_off(
    world: World, hook_calls: _HookCalls
) -> None:
    world.play(say("an answer that takes a moment", delay_s=0.2))
    with Inside(world) as inside:
        world.platform.say("a", "one")
        eventually(lambda: bool(inside.services.turns.running_agents()))
        session_id = _entry(inside).session_id
    assert hook_calls.cut_off == [(session_id, False)]


# -- the clock ----------------------------------------------------------------------------------------


def test_an_idle_conversation_starts_afresh_with_a_note(world: World) -> None:
    world.configure(more=_IDLE)
    with Inside(world) as inside:
        world.platform.say("a", "my name is Ada")
        world.wait_for_replies("a", 1)
        _make_old(inside)
        world.platform.say("a", "who am I?")
        note, reply = world.wait_for_replies("a", 3)[1:]
        assert note == "ℹ️ New conversation: the last one was idle for a long time."
        assert "You said: who am I?" in reply
        world.platform.say("a", "and now?")
        assert len(world.wait_for_replies("a", 4)) == 4


@pytest.mark.parametrize("is_killed", [False, True], ids=["at once", "after a kill"])
def test_what_follows_a_long_turn_is_said_in_its_conversation(
    world: World, is_killed: bool
) -> None:
    world.configure(more=_IDLE)
    quiet = Quiet()
    world.play(silence(quiet, then="Shall I send it?"))
    with Inside(world) as inside:
        world.platform.say("a", "write a letter")
        assert quiet.started.wait(10)
        entry = _entry(inside)
        _make_old(inside, is_running=True)
        quiet.release()
        world.wait_for_text("a", "Shall I send it?")
        eventually(lambda: inside.open_turns() == set())
        if is_killed:  # of the next start there is what was stored
            store = inside.runner.session_store
            found = type(store)(store.sessions_dir, store.config, db=inside.store).list_sessions()
            assert [match.updated_at for match in found] == [entry.updated_at]
        world.platform.say("a", "yes")
        world.wait_for_text("a", "You said: yes")
        assert _entry(inside) is entry


@pytest.mark.parametrize("command", ["/queue who am I?", "/usage"])
def test_a_command_too_is_told_that_its_conversation_is_new(world: World, command: str) -> None:
    world.configure(more=_IDLE)
    with Inside(world) as inside:
        world.platform.say("a", "my name is Ada")
        world.wait_for_replies("a", 1)
        _make_old(inside)
        world.platform.say("a", command)
        note, _ = world.wait_for_replies("a", 3)[1:]
        assert note == "ℹ️ New conversation: the last one was idle for a long time."
        world.platform.say("a", "and now?")
        assert "You said: and now?" in world.wait_for_replies("a", 4)[3]


def test_the_watcher_ends_what_is_expired_once(world: World, hook_calls: _HookCalls) -> None:
    world.configure(more=_IDLE)
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        eventually(lambda: inside.open_turns() == set())
        entry = _entry(inside)
        _look(inside)
        assert not entry.expiry_finalized
        _make_old(inside)
        hook_calls.calls.clear()
        _look(inside)
        _look(inside)
        assert hook_calls.calls == [
            ("on_session_end", entry.session_id),
            ("on_session_finalize", entry.session_id),
        ]
        row = inside.store.get_session(entry.session_id)
        assert row is not None
        assert row["end_reason"] == "session_reset"
        assert len(inside.services.turns.engine.agents) == 0
    with Inside(world) as inside:
        assert _entry(inside).expiry_finalized
        world.platform.say("a", "two")
        world.wait_for_text("a", "You said: two")
        assert _entry(inside).session_id != entry.session_id


def test_the_watcher_leaves_a_conversation_alone_in_which_somebody_writes(
    world: World, hook_calls: _HookCalls
) -> None:
    world.configure(more=_IDLE)
    quiet = Quiet()
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        entry = _entry(inside)
        world.play(silence(quiet, then="still here"))
        world.platform.say("a", "two")
        assert quiet.started.wait(10)
        _make_old(inside, is_running=True)
        _look(inside)
        quiet.release()
        world.wait_for_text("a", "still here")
        assert not entry.expiry_finalized
        eventually(lambda: inside.open_turns() == set())
        entry.updated_at += timedelta(days=2)
        inside.runner._expire(entry)  # it was found to be expired, and somebody wrote since
        assert not entry.expiry_finalized
        assert [name for name, _ in hook_calls.calls] == ["on_session_start"]


def test_nobody_waits_while_the_watcher_asks_who_is_at_work(world: World) -> None:
    world.configure(more=_IDLE)
    with Inside(world) as inside:
        world.platform.say("a", "hello")
        world.wait_for_text("a", "You said: hello")
        _make_old(inside)
        threads = list[threading.Thread]()

        def is_at_work(_session_key: str) -> bool:
            threads.append(threading.current_thread())
            return True

        inside.runner.session_store._has_active_processes = is_at_work
        _look(inside)

        async def loop() -> threading.Thread:
            return threading.current_thread()

        assert threads
        assert inside.call(loop()) not in threads


def test_an_end_that_cannot_be_stored_is_tried_again(world: World) -> None:
    world.configure(more=_IDLE)
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        eventually(lambda: inside.open_turns() == set())
        entry = _entry(inside)
        _make_old(inside)
        with disk_full_at(inside.store, "UPDATE OF end_reason ON sessions"):
            _look(inside)
            assert not entry.expiry_finalized
        _look(inside)
        assert entry.expiry_finalized


def test_the_watcher_forgets_silent_chats_once_an_hour(world: World) -> None:
    world.configure(more="forget_after_days = 30\n")
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        eventually(lambda: inside.open_turns() == set())
        _entry(inside).updated_at -= timedelta(days=31)
        inside.runner._tidy()
        assert inside.runner.session_store.list_sessions() == []
        world.platform.say("b", "two")
        world.wait_for_replies("b", 1)
        eventually(lambda: inside.open_turns() == set())
        _entry(inside).updated_at -= timedelta(days=31)
        inside.runner._tidy()
        assert len(inside.runner.session_store.list_sessions()) == 1


# -- last words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "history", "words"),
    [
        (
            {"failed": True, "error": "maximum context length is 8192"},
            0,
            ["context window", "/compact", "/reset"],
        ),
        ({"failed": True, "error": "Prompt TOO LONG"}, 0, ["context window"]),
        ({"failed": True, "error": "payload limit"}, 0, ["context window"]),
        ({"failed": True, "error": "Error code: 400"}, 51, ["context window"]),
        ({"failed": True, "error": "Error code: 400"}, 50, ["failed", "400", "/reset"]),
        ({"failed": True, "error": "x" * 400}, 0, ["x" * 300]),
        ({"failed": True}, 0, ["failed", "unknown error"]),
        ({"interrupted": True, "api_calls": 0}, 0, ["interrupted before", "send it again"]),
        ({"interrupted": True, "api_calls": 2}, 0, []),
        ({"api_calls": 1, "partial": True, "error": "it remained incomplete after 3 tries"}, 0, []),
        (
            {"api_calls": 1, "partial": True, "error": "y" * 300},
            0,
            ["Processing stopped", "y" * 200],
        ),
        ({"api_calls": 1, "partial": True}, 0, ["Processing stopped"]),
        ({"api_calls": 1}, 0, ["No response was generated"]),
        ({}, 0, ["was not processed"]),
    ],
)
def test_an_empty_response_is_explained(
    result: dict[str, Any], history: int, words: list[str]
) -> None:
    text = _normalize_empty_agent_response(result, "", history_len=history)
    assert all(word in text for word in words)
    assert bool(text) == bool(words)
    assert "x" * 301 not in text
    assert "y" * 201 not in text
    assert _normalize_empty_agent_response(result, "there is one") == "there is one"


@pytest.mark.parametrize(
    ("outcome", "calls", "text"),
    [
        (Outcome("answered", "yes"), 1, "yes"),
        (Outcome("answered", "  "), 1, EMPTY),
        (Outcome("failed", "", "No key.", "model.refused"), 1, "⚠️ No key."),
        (Outcome("failed", "half", "Cut.", "x"), 1, "half\n\n⚠️ Cut."),
        (Outcome("failed", "", "x", "model.context_too_long"), 1, TOO_LONG),
        (Outcome("interrupted", "half"), 1, "half\n\n⏹ Stopped."),
        (Outcome("interrupted", ""), 1, ""),
        (Outcome("interrupted", ""), 0, STOPPED_BEFORE),
    ],
)
def test_every_end_of_a_turn_has_its_words(outcome: Outcome, calls: int, text: str) -> None:
    assert text_of(outcome, calls) == text


@pytest.mark.parametrize(
    "beginning",
    [
        "Code:\n\n```py\nprint(1)\n",
        "```py",
        "~~~~\nx\n~~~",
        "- item\n  ```\n  x = 1",
        "> ```\n> x = 1",
        "```\nclosed\n```\n\n````md\n```\nwithin\n```",
        "`open and **bold",
    ],
)
def test_what_is_said_below_a_reply_that_broke_off_is_no_code(beginning: str) -> None:
    for outcome in (
        Outcome("interrupted", beginning),
        Outcome("failed", beginning, "Cut.", "x"),
        Outcome("answered", beginning, is_partial=True),
    ):
        text = text_of(outcome, 1)
        notice = text.rpartition("\n\n")[2]
        tokens = MarkdownIt("commonmark").parse(text)
        assert notice in [token.content for token in tokens if token.type == "inline"]
        assert text.startswith(beginning.rstrip())
