"""What fails in the middle: it is told with what to do, and leaves nothing half done."""

import asyncio
import errno
import json
import os
import subprocess
import sys
import threading
from typing import cast

import pytest

from hermes_agent.testing.scripted import Quiet, say, silence
from hermes_agent.testing.server import ScriptedServer
from hermes_cli import plugins
from hermes_core.paths import Home
from hermes_state import SessionDB
from hermes_state.ledger import leases
from tests.rpc.harness import TIMEOUT_S, Inside, RefusedError, World
from tests.support.faults import disk_full_at, eventually
from tests.support.plugins import enable
from tui_gateway import prompts, server


def _store() -> SessionDB:
    return cast("SessionDB", server._get_db())


def _disk_full(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_what_the_system_says_no_to_is_told_with_what_to_do(
    client: Inside, model: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.add("hi")
    sid = client.open()
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", _disk_full)
        with pytest.raises(RefusedError, match="No space left") as refused:
            client.call("prompt.submit", session_id=sid, text="hello")
    assert refused.value.data["fix"] == "Make room on the disk."
    assert client.say(sid)["text"] == "hi"
    assert len(server._resources.presence.open_here) == 1, "others see that it is open"


def test_a_conversation_that_cannot_be_opened_is_not_open(
    client: Inside, model: ScriptedServer
) -> None:
    opened = client.call("session.create")
    model.add("hi")
    client.say(opened["session_id"])
    client.call("session.close", session_id=opened["session_id"])
    key = opened["stored_session_id"]
    with disk_full_at(_store(), "UPDATE ON sessions"), pytest.raises(RefusedError):
        client.call("session.resume", session_id=key)
    assert client.call("session.active_list")["sessions"] == []
    assert client.call("session.resume", session_id=key)["message_count"] == 2


def test_who_cannot_go_to_another_conversation_stays_in_this_one(
    client: Inside, model: ScriptedServer
) -> None:
    model.add("one", "two", "three")
    first, second = (client.call("session.create") for _ in range(2))
    for session in (first, second):
        client.say(session["session_id"])
    client.call("session.close", session_id=first["session_id"])
    sid = second["session_id"]
    target = f"/resume {first['stored_session_id']}"
    with disk_full_at(_store(), "UPDATE OF ended_at ON sessions"), pytest.raises(RefusedError):
        client.call("slash.exec", session_id=sid, command=target)
    assert client.say(sid, "still here?")["text"] == "three"
    assert len(client.call("session.history", session_id=sid)["messages"]) == 4


def test_where_no_session_has_room_nothing_is_copied(
    client: Inside, model: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_SESSIONS", 1)
    sid = client.open()
    model.add("hi")
    client.say(sid)
    with pytest.raises(RefusedError, match="sessions are open"):
        client.call("session.branch", session_id=sid)
    assert len(client.call("session.list")["sessions"]) == 1


def test_a_reply_that_had_no_room_is_made_again_when_there_is(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    opened = client.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    model.add(say("all of the reply"), say("the reply again"))
    with disk_full_at(_store(), "UPDATE ON turns WHEN NEW.state = 'answered'"):
        client.call("prompt.submit", session_id=sid, text="hello")
        assert client.event("status.update", kind="waiting")["void"], "of what was streamed"
    assert client.event("message.complete")["text"] == "the reply again"
    assert world.transcript(key) == [("user", "hello"), ("assistant", "the reply again")]
    assert world.states(key) == ["answered"]


def test_what_is_attached_while_a_prompt_is_taken_in_goes_along_with_the_next(
    client: Inside, world: World, model: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.add("one", "two")
    sid = client.open()
    for name in ("a", "b"):
        (world.workspace / f"{name}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(16))
    client.call("image.attach", session_id=sid, path="a.png")
    submit = prompts.submit

    def slow(*args: object, **more: object) -> object:
        if len(server._sessions[sid].get("attached_images", [])) == 1:
            client.call("image.attach", session_id=sid, path="b.png")
        return submit(*args, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as held:
        held.setattr(prompts, "submit", slow)
        client.say(sid, "first")
    client.say(sid, "second")
    pictures = [str(request.json["messages"][-1]["content"]) for request in model.model_requests]
    assert ["a.png" in picture for picture in pictures] == [True, False]
    assert ["b.png" in picture for picture in pictures] == [False, True]


def test_ends_that_hang_in_a_plugin_keep_nobody_else_waiting(
    client: Inside, model: ScriptedServer
) -> None:
    is_called, may_end = threading.Event(), threading.Event()

    def hang() -> None:
        is_called.set()
        may_end.wait(TIMEOUT_S)

    model.add(*["hi"] * 13)
    plugins.register_hook("on_session_end", hang)
    opened = [client.call("session.create") for _ in range(13)]
    for session in opened:
        client.say(session["session_id"])
    first, *others, last = opened
    closing = [
        client.post("session.close", session_id=session["session_id"])
        for session in (first, *others)
    ]
    assert is_called.wait(TIMEOUT_S)
    again = client.post("session.resume", session_id=first["stored_session_id"])
    snapshot = client.call("session.resume", session_id=last["stored_session_id"])
    assert snapshot["session_id"] == last["session_id"]
    assert len(client.call("session.list")["sessions"]) == 13
    may_end.set()
    for number in (*closing, again):
        client.answer(number)


def test_a_turn_whose_beginning_hangs_in_a_plugin_can_be_stopped(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    is_called, may_end = threading.Event(), threading.Event()

    def hang() -> None:
        is_called.set()
        may_end.wait(TIMEOUT_S)

    plugins.register_hook("on_session_start", hang)
    opened = client.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    client.call("prompt.submit", session_id=sid, text="hello")
    assert is_called.wait(TIMEOUT_S)
    client.call("session.interrupt", session_id=sid)
    assert client.event("message.complete")["status"] == "interrupted"
    assert world.states(key) == ["interrupted"]
    may_end.set()
    model.add("hi")
    assert client.say(sid, "again")["text"] == "hi"


def test_a_plugin_that_raises_ctrl_c_ends_nothing(client: Inside, model: ScriptedServer) -> None:
    def press() -> None:
        raise KeyboardInterrupt

    plugins.register_hook("on_turn_start", press)
    model.add("hi", "again")
    sid = client.open()
    assert client.say(sid)["text"] == "hi"
    assert client.say(sid)["text"] == "again"


@pytest.mark.parametrize("hook", ["on_turn_start", "on_turn_end", "on_session_reset"])
def test_a_plugin_that_raises_what_is_no_error_hangs_nothing(
    client: Inside, model: ScriptedServer, hook: str
) -> None:
    def fail() -> None:
        raise asyncio.CancelledError

    plugins.register_hook(hook, fail)
    model.add("hi", "again", "anew")
    sid = client.open()
    assert client.say(sid)["text"] == "hi"
    assert client.say(sid)["text"] == "again"
    client.call("slash.exec", session_id=sid, command="/new")
    assert client.say(sid)["text"] == "anew"


def test_a_plugin_that_was_not_loaded_is_told_to_who_opens_a_conversation(
    client: Inside, home: Home
) -> None:
    enable(home, "broken", "raise RuntimeError('not today')")
    client.open()
    payload = client.event("session.info", lazy=None)
    assert "broken (RuntimeError: not today)" in payload["config_warning"]


def test_who_closes_a_session_has_the_others_told(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    other, quiet = Inside(), Quiet()
    model.add(silence(quiet, after="begun"))
    opened = client.call("session.create")
    sid = opened["session_id"]
    client.call("prompt.submit", session_id=sid, text="hello")
    client.wait_for_text("begun")
    other.call("session.close", session_id=sid)
    assert client.event("message.complete")["status"] == "interrupted"
    payload = client.event("session.closed")
    assert payload == {"reason": "tui_close", "stored_session_id": opened["stored_session_id"]}
    assert other.events("session.closed") == []


def test_what_another_process_runs_is_not_deleted(client: Inside, world: World) -> None:
    with world.store() as store:
        store.create_session("theirs", "cli")
        assert store.write(leases.acquire, "theirs", "another-machine:1:1:1")
    with pytest.raises(RefusedError, match="open in another window"):
        client.call("session.delete", session_id="theirs")
    assert world.row("theirs")


def test_a_folder_that_is_gone_keeps_nobody_from_a_conversation(
    client: Inside, world: World, model: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = world.workspace / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    model.add("hi")
    assert client.say(client.open())["text"] == "hi"


@pytest.mark.parametrize("closed", ["2>&-", "1>&-", "0<&- 2>&-"])
def test_a_server_without_standard_streams_ends_in_good_order(world: World, closed: str) -> None:
    line = f"{sys.executable} -m tui_gateway.entry {closed}"
    ended = subprocess.run(
        ["sh", "-c", line],
        input=b'{"jsonrpc": "2.0", "id": 1, "method": "session.list"}\n',
        capture_output=True,
        env=world.environment,
        cwd=world.workspace,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0
    assert b"Traceback" not in ended.stderr
    assert all(json.loads(frame) for frame in ended.stdout.splitlines())


def test_the_sub_agents_of_a_killed_process_are_ended_with_it(world: World) -> None:
    with world.store() as store:
        store.create_session("parent", "tui")
        store.append_message("parent", "user", "hi")
        store.create_session(
            "child",
            "delegate",
            parent_session_id="parent",
            model_config={"_delegate_from": "parent"},
        )
    process = world.start()
    process.call("session.list")

    def are_ended() -> bool:
        return all(world.row(name)["end_reason"] for name in ("parent", "child"))

    eventually(are_ended)
