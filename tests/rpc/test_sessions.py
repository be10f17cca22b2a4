"""Sessions: opened, resumed, listed, titled, branched, undone, shortened, closed."""

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.sandbox import detect
from hermes_agent.testing.scripted import Quiet, Step, call, say
from hermes_agent.testing.server import ScriptedServer
from hermes_core.paths import Home
from hermes_core.settings import Settings
from hermes_state.ledger import turns
from tests.rpc.harness import TIMEOUT_S, Inside, RefusedError, World
from tui_gateway import server


def test_a_new_session_is_answered_at_once_and_stored_only_with_its_first_message(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    opened = client.call("session.create", cols=100)
    sid, key = opened["session_id"], opened["stored_session_id"]
    assert opened["info"]["lazy"]
    assert opened["messages"] == []
    assert client.event("session.info", lazy=None)["tools"]["core"]
    event = client.event("session.info", sandbox=detect.choose(Settings()).name)
    assert event["network"]
    assert world.store().session_count() == 0
    model.add("hi")
    assert client.say(sid)["text"] == "hi"
    assert world.transcript(key) == [("user", "hello"), ("assistant", "hi")]
    assert world.row(key)["source"] == "tui"
    assert world.row(key)["cwd"] == str(world.workspace)
    assert world.row(key)["model"] == "scripted"


def test_a_session_in_which_nothing_was_said_leaves_nothing(client: Inside, world: World) -> None:
    sid = client.open(title="never used")
    client.event("session.info", lazy=None)
    assert client.call("session.close", session_id=sid) == {"closed": True}
    assert client.call("session.close", session_id=sid) == {"closed": False}
    assert world.store().session_count() == 0


def test_the_first_frame_after_a_request_is_its_answer(
    client: Inside, model: ScriptedServer
) -> None:
    number = client.post("session.create")
    sid = client.answer(number)["session_id"]
    assert client.frames[0]["id"] == number
    model.add("hi")
    number = client.post("prompt.submit", session_id=sid, text="hello")
    client.event("message.start")
    kinds = [f.get("id") or f["params"]["type"] for f in client.frames]
    assert kinds.index(number) < kinds.index("message.start")


def test_a_title_can_be_given_before_and_after_the_first_message(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    model.add("one", "two")
    opened = client.call("session.create", title="Planned")
    sid, key = opened["session_id"], opened["stored_session_id"]
    assert client.call("session.title", session_id=sid)["title"] == "Planned"
    client.say(sid)
    assert world.row(key)["title"] == "Planned"
    client.call("session.title", session_id=sid, title="  Later \n name ")
    assert world.row(key)["title"] == "Later name"
    assert client.event("session.title") == {"session_id": key, "title": "Later name"}
    for bad, number in (("  ", 4021), ("x" * 500, 4022)):
        with pytest.raises(RefusedError) as refused:
            client.call("session.title", session_id=sid, title=bad)
        assert refused.value.number == number


def test_a_title_makes_the_session_and_another_conversation_cannot_have_it(
    client: Inside, world: World
) -> None:
    first = client.call("session.create")
    client.call("session.title", session_id=first["session_id"], title="Mine")
    assert world.row(first["stored_session_id"])["title"] == "Mine"
    with pytest.raises(RefusedError) as refused:
        client.call("session.title", session_id=client.open(), title="Mine")
    assert refused.value.number == 4022
    assert world.store().session_count() == 1, "a session without words and title is none"


def test_a_conversation_is_resumed_by_id_beginning_or_title_and_reopened(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    model.add("hi", "again")
    opened = client.call("session.create", title="The plan")
    key = opened["stored_session_id"]
    client.say(opened["session_id"])
    client.call("session.close", session_id=opened["session_id"])
    assert world.row(key)["end_reason"] == "tui_close"
    for name in (key, key[:-1], "The plan"):
        resumed = client.call("session.resume", session_id=name)
        assert resumed["resumed"] == key
        assert world.row(key)["ended_at"] is None
        client.call("session.close", session_id=resumed["session_id"])
    resumed = client.call("session.resume", session_id=key)
    messages = [(message["role"], message["text"]) for message in resumed["messages"]]
    assert messages == [("user", "hello"), ("assistant", "hi")]
    assert (resumed["status"], resumed["running"], resumed["inflight"]) == ("starting", False, None)
    assert resumed["info"]["title"] == "The plan"
    assert client.say(resumed["session_id"], "once more")["text"] == "again"
    assert [text for _, text in world.transcript(key)] == ["hello", "hi", "once more", "again"]


def test_resuming_what_is_open_gives_the_same_session(
    client: Inside, model: ScriptedServer
) -> None:
    model.add("hi")
    opened = client.call("session.create")
    client.say(opened["session_id"])
    other = Inside()
    resumed = other.call("session.resume", session_id=opened["stored_session_id"])
    assert resumed["session_id"] == opened["session_id"]
    model.add("both hear this")
    client.say(opened["session_id"], "again")
    assert other.event("message.complete")["text"] == "both hear this"


@pytest.mark.parametrize(("params", "number"), [({}, 4006), ({"session_id": "nobody"}, 4007)])
def test_what_is_not_there_cannot_be_resumed(
    client: Inside, params: dict[str, Any], number: int
) -> None:
    with pytest.raises(RefusedError) as refused:
        client.call("session.resume", **params)
    assert refused.value.number == number
    if params:
        assert "hermes sessions list" in refused.value.data["fix"]


def test_messages_that_a_client_brings_along_are_stored_with_the_first_prompt(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    opened = client.call(
        "session.create",
        messages=[{"role": "user", "content": "a"}, {"role": "assistant", "text": "b"}],
    )
    sid, key = opened["session_id"], opened["stored_session_id"]
    assert opened["message_count"] == 2
    assert len(client.call("session.history", session_id=sid)["messages"]) == 2
    assert world.store().session_count() == 0
    model.add("d")
    client.say(sid, "c")
    assert [text for _, text in world.transcript(key)] == ["a", "b", "c", "d"]
    with pytest.raises(RefusedError):
        client.call("session.create", messages=[{"role": "tool", "content": "x"}])


def test_what_a_client_brings_along_is_not_stored_without_the_prompt(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    opened = client.call("session.create", messages=[{"role": "user", "content": "before"}])
    sid, key = opened["session_id"], opened["stored_session_id"]
    model.add("elsewhere")
    result = client.say(client.open(), "x", idempotency_key="k")
    again = client.call("prompt.submit", session_id=sid, text="x", idempotency_key="k")
    assert again["turn_id"] == result["turn_id"]
    assert world.store().get_session(key) is None
    model.add("yes")
    client.call("prompt.submit", session_id=sid, text="now")
    client.event("message.complete", text="yes")
    assert [text for _, text in world.transcript(key)] == ["before", "now", "yes"]


def test_what_a_client_brings_along_is_stored_with_a_title_too(
    client: Inside, world: World
) -> None:
    opened = client.call("session.create", messages=[{"role": "user", "content": "before"}])
    client.call("session.title", session_id=opened["session_id"], title="Mine")
    assert world.transcript(opened["stored_session_id"]) == [("user", "before")]


def test_a_long_conversation_is_read_page_by_page(client: Inside, world: World) -> None:
    with world.store() as store:
        store.create_session("long", "tui")
        store.append_messages(
            "long", [{"role": "user", "content": f"message {n}"} for n in range(200)]
        )
    resumed = client.call("session.resume", session_id="long", limit=3)
    assert [m["text"] for m in resumed["messages"]] == ["message 197", "message 198", "message 199"]
    assert resumed["message_count"] == 200
    sid, before = resumed["session_id"], resumed["messages"][0]["id"]
    page = client.call("session.history", session_id=sid, limit=2, before=before)
    assert [m["text"] for m in page["messages"]] == ["message 195", "message 196"]
    assert page["count"] == 200
    preview = client.call("session.history", session_id="long", limit=1)
    assert preview["messages"][0]["text"] == "message 199", "also of what is not open"


def test_conversations_are_listed_searched_and_deleted(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    assert client.call("session.most_recent")["session_id"] is None
    model.add("blue", "green")
    first = client.call("session.create", title="Houses")
    second = client.call("session.create")
    client.say(first["session_id"], "the blue house")
    client.say(second["session_id"], "the green car")
    rows = client.call("session.list")["sessions"]
    keys = [second["stored_session_id"], first["stored_session_id"]]
    assert [row["id"] for row in rows] == keys
    assert rows[1]["title"] == "Houses"
    assert rows[0]["preview"] == "the green car"
    assert [r["id"] for r in client.call("session.list", query="house")["sessions"]] == keys[1:]
    assert client.call("session.list", limit=1)["sessions"][0]["id"] == keys[0]
    assert client.call("session.most_recent")["session_id"] == keys[0]
    hits = client.call("session.search", query="blue house")["hits"]
    assert hits[0]["session_id"] == keys[1]
    with pytest.raises(RefusedError) as refused:
        client.call("session.delete", session_id=keys[0])
    assert refused.value.number == 4023
    assert "/new" in refused.value.data["fix"], "a person can follow it"
    client.call("session.close", session_id=second["session_id"])
    for name in ("2", keys[0][:-1], "Houses"):
        with pytest.raises(RefusedError) as refused:
            client.call("session.delete", session_id=name)
        assert refused.value.number == 4007, "only a whole id is sure to be the one that is meant"
    assert client.call("session.delete", session_id=keys[0]) == {"deleted": keys[0]}
    assert world.store().session_count() == 1


def test_a_prompt_of_a_process_that_was_killed_is_listed_as_pending_at_once(
    client: Inside, world: World
) -> None:
    with world.store() as store:
        store.create_session("left", "tui")
        turn_id = store.write(
            turns.accept, "left", {"role": "user", "content": "and then?"}
        ).turn_id
        holder = f"{os.uname().nodename}:{2**22 + 1}:1:1"  # no process has this number
        assert store.write(turns.claim, turn_id, "left", holder) is not None
    [row] = client.call("session.list")["sessions"]
    assert row["pending"] == 1


def test_open_sessions_are_listed_with_what_they_do(client: Inside, model: ScriptedServer) -> None:
    model.add("hi")
    sid, other = client.open(), client.open()
    client.say(sid)
    client.event("session.info", running=False)
    rows = client.call("session.active_list", current_session_id=sid)["sessions"]
    assert {row["id"]: row["current"] for row in rows} == {sid: True, other: False}
    assert next(row for row in rows if row["id"] == sid)["status"] == "idle"
    assert client.call("session.activate", session_id=sid)["message_count"] == 2


def test_a_branch_is_a_copy_that_goes_its_own_way(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    model.add("one", "two", "three")
    opened = client.call("session.create", title="Trunk")
    sid, key = opened["session_id"], opened["stored_session_id"]
    with pytest.raises(RefusedError) as refused:
        client.call("session.branch", session_id=sid)
    assert refused.value.number == 4008
    client.say(sid)
    branch = client.call("session.branch", session_id=sid, name="Twig")
    assert (branch["title"], branch["parent"]) == ("Twig", key)
    client.say(branch["session_id"], "and then")
    assert len(world.transcript(key)) == 2, "the original is as it was"
    assert len(world.transcript(branch["stored_session_id"])) == 4
    tree = client.call("session.tree", session_id=sid)["sessions"]
    assert [row["relation"] for row in tree] == [None, "branch"]
    with pytest.raises(RefusedError) as refused:
        client.call("session.branch", session_id=sid, name="Twig")
    assert refused.value.number == 4022
    assert world.store().session_count() == 2, "a branch that is refused is not there"


def test_the_command_to_branch_leaves_nothing_behind_when_it_is_refused(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    model.add("one", "two")
    client.say(client.open(title="Taken"))
    opened = client.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    client.say(sid)
    with pytest.raises(RefusedError) as refused:
        client.call("slash.exec", session_id=sid, command="/branch Taken")
    assert refused.value.number == 4022
    client.call("session.undo", session_id=sid)
    for method, params in (("slash.exec", {"command": "/branch bb"}), ("session.branch", {})):
        with pytest.raises(RefusedError) as refused:
            client.call(method, session_id=sid, **params)
        assert refused.value.number == 4008
    assert world.store().session_count() == 2
    assert client.call("session.activate", session_id=sid)["stored_session_id"] == key


def test_what_is_not_over_stays_out_of_a_branch(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    opened = client.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    quiet = Quiet()
    model.add("one", Step(quiet=quiet, rest=("slowly",)), "three", "elsewhere")
    client.say(sid, "first")
    client.call("prompt.submit", session_id=sid, text="second")
    assert quiet.started.wait(TIMEOUT_S)
    client.call("prompt.submit", session_id=sid, text="third")
    branch = client.call("session.branch", session_id=sid)
    assert [text for _, text in world.transcript(branch["stored_session_id"])] == ["first", "one"]
    quiet.release()
    client.event("message.complete", text="slowly")
    client.event("message.complete", text="three")
    client.say(branch["session_id"], "and there")
    texts = [
        m["content"] for m in model.model_requests[-1].json["messages"] if m["role"] != "system"
    ]
    assert texts == ["first", "one", "and there"]
    assert [text for _, text in world.transcript(key)][2:] == ["second", "slowly", "third", "three"]


def test_a_prompt_that_comes_while_another_is_taken_back_is_not_lost(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    opened = client.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    for number in range(10):
        quiet = Quiet()  # once it is answered, the prompt is what an undo takes back
        model.add("base", Step(quiet=quiet, rest=("new",)))
        client.say(sid, f"base {number}")
        client.event("session.info", running=False)
        undo = client.post("session.undo", session_id=sid)
        client.call("prompt.submit", session_id=sid, text=f"new {number}")
        with suppress(RefusedError):  # it may have come too late
            client.answer(undo)
        quiet.release()
        client.event("message.complete", text="new")
        client.event("session.info", running=False)
        assert ("user", f"new {number}") in world.transcript(key)


def test_a_conversation_cannot_be_the_branch_of_one_that_is_not_there(client: Inside) -> None:
    with pytest.raises(RefusedError) as refused:
        client.call("session.create", parent_session_id="nobody")
    assert refused.value.number == 4007


def test_undo_takes_back_the_last_exchange(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    model.add("one", "two", "three")
    opened = client.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    client.say(sid, "first")
    client.say(sid, "second")
    assert client.call("session.undo", session_id=sid) == {"removed": 2}
    assert [text for _, text in world.transcript(key)] == ["first", "one"]
    client.say(sid, "third")
    texts = [
        m["content"] for m in model.model_requests[-1].json["messages"] if m["role"] != "system"
    ]
    assert texts == ["first", "one", "third"]
    client.call("session.undo", session_id=sid)
    client.call("session.undo", session_id=sid)
    with pytest.raises(RefusedError) as refused:
        client.call("session.undo", session_id=sid)
    assert refused.value.number == 4008


def test_an_earlier_prompt_can_be_replaced(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    model.add("one", "two", "other")
    opened = client.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    client.say(sid, "first")
    client.say(sid, "second")
    client.say(sid, "instead", truncate_before_user_ordinal=1)
    assert [text for _, text in world.transcript(key)] == ["first", "one", "instead", "other"]
    for ordinal, number in ((7, 4018), (-1, 4018), ("x", 4004), (True, 4004)):
        with pytest.raises(RefusedError) as refused:
            client.call(
                "prompt.submit", session_id=sid, text="x", truncate_before_user_ordinal=ordinal
            )
        assert refused.value.number == number


def test_what_was_said_into_a_turn_counts_as_it_is_shown(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    opened = client.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    quiet = Quiet()
    model.add(replace(call("todo"), quiet=quiet), say("one"), "two", "other")
    number = client.post("prompt.submit", session_id=sid, text="first")
    assert quiet.started.wait(TIMEOUT_S)
    steered = client.post("session.steer", session_id=sid, text="and this")
    client.answer(number)
    quiet.release()
    client.answer(steered)
    client.event("message.complete", text="one")
    client.say(sid, "second")
    messages = client.call("session.history", session_id=sid)["messages"]
    texts = [message["text"] for message in messages if message["role"] == "user"]
    assert texts == ["first", "and this", "second"]
    with pytest.raises(RefusedError, match="to a running turn"):
        client.call("prompt.submit", session_id=sid, text="x", truncate_before_user_ordinal=1)
    client.say(sid, "instead", truncate_before_user_ordinal=2)
    texts = [text for role, text in world.transcript(key) if role == "user"]
    assert texts == ["first", "and this", "instead"]


def test_a_title_is_meant_before_the_beginning_of_an_id(
    client: Inside, model: ScriptedServer
) -> None:
    model.add("one", "two")
    first = client.call("session.create")
    client.say(first["session_id"])
    title = first["stored_session_id"][:-2]
    second = client.call("session.create", title=title)
    client.say(second["session_id"])
    resumed = client.call("session.resume", session_id=title)
    assert resumed["session_id"] == second["session_id"]


def test_a_shortened_conversation_keeps_its_session_here_and_its_title(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    for _ in range(6):
        model.add(say("reply " * 300))
    opened = client.call("session.create", title="Long")
    sid, key = opened["session_id"], opened["stored_session_id"]
    too_short = client.call("session.compress", session_id=sid)
    assert too_short["summary"]["noop"]
    for n in range(6):
        client.say(sid, f"question {n} " * 150)
    model.add(say("## Goal\nTalk about questions.\n## Next step\nGo on."))
    result = client.call("session.compress", session_id=sid, focus_topic="the questions")
    assert result["status"] == "compressed"
    assert result["after_tokens"] < result["before_tokens"]
    new = result["info"]["stored_session_id"]
    assert new != key
    assert world.row(key)["end_reason"] == "compression"
    assert world.row(new)["title"] == "Long"
    tree = client.call("session.tree", session_id=sid)["sessions"]
    assert [row["relation"] for row in tree] == [None, "continuation"]
    assert [s["kind"] for s in client.events("status.update")][-1] == "ready"
    model.add("on it goes")
    assert client.say(sid, "go on")["text"] == "on it goes"
    whole = client.call("session.history", session_id=sid)["messages"]
    assert sum(message["role"] == "user" for message in whole) == 7, "the originals are shown"
    page = client.call("session.history", session_id=sid, limit=5)["messages"]
    assert page == whole[-5:]
    client.call("session.close", session_id=sid)
    assert world.row(new)["end_reason"] == "tui_close"
    resumed = client.call("session.resume", session_id=key)
    assert resumed["session_key"] == new, "any id of a conversation opens it where it is now"


def test_a_session_works_in_the_folder_it_is_told(
    client: Inside, world: World, tmp_path: Path, model: ScriptedServer
) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    sid = client.open(cwd=str(world.workspace))
    client.event("session.info", lazy=None)
    assert client.call("session.cwd.set", session_id=sid, cwd=str(place))["cwd"] == str(place)
    for cwd, number in (("", 4016), (str(tmp_path / "nowhere"), 4017)):
        with pytest.raises(RefusedError) as refused:
            client.call("session.cwd.set", session_id=sid, cwd=cwd)
        assert refused.value.number == number
    for nowhere in ("/no/such/place", "~nobody-of-this-name", "x" * 5000, "a\0b"):
        with pytest.raises(RefusedError) as refused:
            client.open(cwd=nowhere)
        assert refused.value.number == 4017
    model.add("hi")
    client.say(sid)
    key = client.call("session.title", session_id=sid)["session_key"]
    client.call("session.close", session_id=sid)
    place.rmdir()
    client.call("session.resume", session_id=key)
    warning = f"Its folder {place} no longer exists; using {world.workspace} now."
    client.event("session.info", config_warning=warning)
    assert world.row(key)["cwd"] == str(world.workspace)


def test_there_is_an_end_to_how_many_sessions_can_be_open(
    client: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_SESSIONS", 2)
    client.open()
    sid = client.open()
    with pytest.raises(RefusedError) as refused:
        client.open()
    assert refused.value.number == 4090
    client.call("session.close", session_id=sid)
    client.open()


def test_a_session_of_a_messenger_is_not_ended_by_being_looked_at(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    with world.store() as store:
        store.create_session("chat", "telegram", session_key="agent:main:telegram:dm:1")
        store.append_message("chat", "user", "hi")
    model.add("hello")
    sid = client.call("session.resume", session_id="chat")["session_id"]
    client.say(sid)
    client.call("session.close", session_id=sid)
    assert world.row("chat")["ended_at"] is None


def test_a_client_learns_what_a_session_has_used(client: Inside, model: ScriptedServer) -> None:
    model.add("hi")
    sid = client.open()
    done = client.say(sid)
    used = client.call("session.usage", session_id=sid)
    assert used["calls"] == 1
    assert used["total"] == used["input"] + used["output"] > 0
    assert used["context_max"] == 32000
    assert done["usage"]["calls"] == 1
    assert "scripted" in client.call("session.status", session_id=sid)["output"]
    assert client.call("terminal.resize", session_id=sid, cols=132) == {"cols": 132}


def test_the_home_is_left_alone_by_a_client_that_only_looks(client: Inside, home: Home) -> None:
    client.call("session.list")
    client.call("session.active_list")
    assert not (home.root / "open").exists()
