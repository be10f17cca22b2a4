"""Things that happen at the same moment: none of them loses what the other was promised."""

import threading
from dataclasses import replace

import msgspec

from hermes_agent.permissions import Permissions
from hermes_agent.testing.scripted import Quiet, call, say, silence
from hermes_agent.testing.server import ScriptedServer
from hermes_cli import plugins
from hermes_core.paths import Home
from hermes_state import SessionDB
from hermes_state.ledger import leases, lineage, messages, turns, workers
from hermes_state.ledger.turns import TurnSource
from hermes_state.values import Scope
from tests.rpc.harness import TIMEOUT_S, Inside, Process, RefusedError, World
from tests.support.faults import disk_full_at, eventually
from tests.support.plugins import enable
from tui_gateway import server


def test_a_prompt_that_meets_a_new_conversation_is_refused_or_told_its_end(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    sid = client.open()
    for number in range(15):
        model.add("one", "two")
        client.say(sid, "hello")
        moving = client.post("slash.exec", session_id=sid, command="/new")
        try:
            turn_id = client.call("prompt.submit", session_id=sid, text=f"{number}")["turn_id"]
        except RefusedError as refused:
            assert refused.number == 4001
        else:
            client.event("message.complete", turn_id=turn_id)
        try:
            client.answer(moving)
        except RefusedError as refused:
            assert "has to wait" in str(refused)
    client.event("session.info", running=False)
    with world.store() as store:
        assert store.read(turns.all_open) == []


def test_a_server_that_ends_waits_for_the_end_of_what_a_command_left(
    client: Inside, model: ScriptedServer
) -> None:
    sid = client.open()
    model.add("one")
    client.say(sid)
    is_called, may_end, closed_ids = threading.Event(), threading.Event(), []

    def end() -> None:
        is_called.set()
        may_end.wait(TIMEOUT_S)

    plugins.register_hook("on_session_end", end)
    plugins.register_hook("on_session_finalize", lambda session_id: closed_ids.append(session_id))
    client.post("slash.exec", session_id=sid, command="/new")
    assert is_called.wait(TIMEOUT_S)
    shutting_down = threading.Thread(target=server.shut_down)
    shutting_down.start()
    may_end.set()
    shutting_down.join()
    assert len(closed_ids) == 1


def _killed_in_mid_turn(world: World, other: Process | None = None) -> tuple[str, str]:
    """A conversation whose process was killed while one prompt ran and one waited; with its session in
    another process that has it open too.
    """
    first = world.start()
    opened = first.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    first.say(sid, "zero")
    quiet = Quiet()
    world.model.add(silence(quiet))
    first.call("prompt.submit", session_id=sid, text="one")
    assert quiet.started.wait(TIMEOUT_S)
    first.call("prompt.submit", session_id=sid, text="two")
    elsewhere = other.call("session.resume", session_id=key)["session_id"] if other else ""
    first.kill()
    quiet.release()
    return key, elsewhere


def test_of_two_who_open_what_was_left_unfinished_one_goes_on_with_it(
    world: World, model: ScriptedServer
) -> None:
    model.add("first")
    key, _ = _killed_in_mid_turn(world)
    both = [world.start() for _ in range(2)]
    model.add("1", "2")
    numbers = [client.post("session.resume", session_id=key) for client in both]
    opened = [client.answer(number) for client, number in zip(both, numbers, strict=True)]
    assert [session["inflight"]["user"] for session in opened] == ["one", "one"]
    eventually(lambda: world.states(key) == ["answered"] * 3)
    texts = [reply for role, reply in world.transcript(key) if role == "assistant"]
    assert [text for text in texts if text.isdigit()] == ["1", "2"], "each by one of them"


def test_what_a_killed_process_left_goes_on_where_its_conversation_is_open_too(
    world: World, model: ScriptedServer
) -> None:
    model.add("first")
    other = world.start()
    key, sid = _killed_in_mid_turn(world, other)
    model.add("1", "2", "3")
    other.call("prompt.submit", session_id=sid, text="three")
    other.event("message.complete", text="3")
    texts = [text for role, text in world.transcript(key) if role == "assistant"]
    assert [text for text in texts if text.isdigit()] == ["1", "2", "3"]


def test_who_waits_for_a_process_that_is_killed_comes_after_what_it_left(
    world: World, model: ScriptedServer
) -> None:
    model.add("first")
    first, other = world.start(), world.start()
    opened = first.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    first.say(sid, "zero")
    quiet = Quiet()
    model.add(replace(call("todo"), quiet=quiet))
    first.call("prompt.submit", session_id=sid, text="one")
    assert quiet.started.wait(TIMEOUT_S)
    elsewhere = other.call("session.resume", session_id=key)["session_id"]
    other.call("prompt.submit", session_id=elsewhere, text="two")
    other.event("status.update", kind="waiting")
    first.kill()
    quiet.release()
    model.add("1", "2")
    other.event("message.complete", text="2")
    assert [text for _, text in world.transcript(key)] == ["zero", "first", "one", "1", "two", "2"]


def test_what_waits_for_another_process_runs_before_what_came_later(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    opened = client.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    model.add("first", "to two", "to three")
    client.say(sid, "one")
    with world.store() as store:
        theirs = store.write(leases.acquire, store.read(lineage.root, key), "another-machine:1:1:1")
        assert theirs is not None
        client.call("prompt.submit", session_id=sid, text="two")
        client.event("status.update", kind="waiting")
        store.write(turns.accept, key, {"role": "user", "content": "three"})
        store.write(leases.release, theirs)
    client.event("message.complete", text="to two")
    client.event("message.complete", text="to three")


def test_what_others_leave_is_looked_for_now_and_again(world: World, model: ScriptedServer) -> None:
    model.add("first")
    other = world.start()
    _killed_in_mid_turn(world, other)
    model.add("1", "2")
    other.event("message.complete", text="2")


def test_what_a_messenger_left_runs_with_the_permissions_of_its_sender(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    opened = client.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    model.add("to the owner", call("write_file", path="x", content="x"), "to the guest", "again")
    client.say(sid)
    guest = Permissions(
        "telegram:7", "guest", Scope("telegram", "7"), is_private=True, tools=frozenset({"todo"})
    )
    source = TurnSource("gateway", "a-dead-worker:1:1", msgspec.json.encode(guest).decode())
    with world.store() as store:
        message = {"role": "user", "content": "from a chat"}
        store.write(turns.accept, key, message, source=source)
        store.write(workers.forget, ["a-dead-worker:1:1"])
    client.event("message.complete", text="to the guest")
    client.say(sid, "and I?")
    tools = [
        {tool["function"]["name"] for tool in request.json.get("tools", ())}
        for request in model.model_requests
    ]
    assert "write_file" in tools[0] & tools[-1], "the owner still has everything"
    assert tools[1] == tools[2] == {"todo"}
    assert not (world.workspace / "x").exists()


def test_what_another_process_said_is_told_once_when_nothing_runs(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    opened = client.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    model.add("one", "two")
    client.say(sid)
    client.event("session.info", running=False)
    server.report_foreign_answers()
    assert client.events("session.changed") == [], "of what is said here it is told by events"
    with world.store() as store:
        theirs = store.write(turns.accept, key, {"role": "user", "content": "from elsewhere"})
        store.write(turns.start, theirs.turn_id)
        answer = {"role": "assistant", "content": "answered there"}
        store.write(turns.finish, theirs.turn_id, "answered", message=answer)
    client.say(sid, "again")
    client.event("session.info", running=False)
    server.report_foreign_answers()
    server.report_foreign_answers()
    assert [event["reason"] for event in client.events("session.changed")] == ["elsewhere"]
    messages = client.call("session.activate", session_id=sid)["messages"]
    assert [message["text"] for message in messages][2:4] == ["from elsewhere", "answered there"]
    server.report_foreign_answers()
    assert len(client.events("session.changed")) == 1


def test_what_another_process_took_back_is_told_and_what_is_taken_back_here_is_not(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    opened = client.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    model.add("one", "two", "three")
    for text in ("first", "second", "third"):
        client.say(sid, text)
    client.event("session.info", running=False)
    client.call("session.activate", session_id=sid)
    client.call("session.undo", session_id=sid)
    server.report_foreign_answers()
    assert client.events("session.changed") == []
    with world.store() as store:
        *_, last, _ = store.get_messages_as_conversation(key)
        store.write(messages.rewind, key, last["id"])
    server.report_foreign_answers()
    assert [event["reason"] for event in client.events("session.changed")] == ["elsewhere"]


def test_a_conversation_that_is_open_elsewhere_is_not_ended_by_who_leaves_it(
    world: World, model: ScriptedServer
) -> None:
    model.add("one")
    first, second = world.start(), world.start()
    opened = first.call("session.create")
    key = opened["stored_session_id"]
    first.say(opened["session_id"])
    second.call("session.resume", session_id=key)
    second.hang_up()
    second.wait_for_end()
    assert world.row(key)["ended_at"] is None
    first.hang_up()
    first.wait_for_end()
    assert world.row(key)["end_reason"] == "tui_shutdown"


def test_a_turn_that_cannot_be_stored_runs_as_soon_as_there_is_room(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    opened = client.call("session.create")
    sid, key = opened["session_id"], opened["stored_session_id"]
    model.add("one", "two", "three")
    client.say(sid)
    store = server._get_db()
    assert isinstance(store, SessionDB)
    with disk_full_at(store, "UPDATE OF state ON turns"):
        client.call("prompt.submit", session_id=sid, text="no room")
        assert "no space left" in client.event("status.update", kind="waiting")["text"]
        assert len(client.events("message.complete")) == 1
    assert client.event("message.complete")["status"] == "complete"
    assert world.states(key) == ["answered", "answered"]
    assert client.say(sid, "and now")["status"] == "complete"


def test_what_waits_for_a_model_keeps_nobody_else_waiting(
    client: Inside, world: World, home: Home
) -> None:
    enable(
        home,
        "slow",
        "import threading\n"
        "done = threading.Event()\n"
        "def register(ctx):\n"
        "    ctx.command('slow', lambda _: done.wait() and 'done', description='x')\n"
        "    ctx.command('done', lambda _: done.set() or 'yes', description='x')\n",
    )
    sid = client.open()
    slow = [client.post("slash.exec", session_id=sid, command="/slow") for _ in range(12)]
    assert client.call("session.list")["sessions"] == []
    client.call("slash.exec", session_id=sid, command="/done")
    assert [client.answer(number)["output"] for number in slow] == ["done"] * 12


def test_a_prompt_that_is_to_wait_stops_nothing(client: Inside, model: ScriptedServer) -> None:
    client.call("config.set", key="busy", value="interrupt")
    sid = client.open()
    quiet = Quiet()
    model.add(silence(quiet, then="Done."), say("Also done."))
    client.call("prompt.submit", session_id=sid, text="one")
    assert quiet.started.wait(TIMEOUT_S)
    result = client.call("slash.exec", session_id=sid, command="/queue two")
    assert (result["type"], result["message"], result["busy"]) == ("send", "two", "queue")
    client.call("prompt.submit", session_id=sid, text=result["message"], busy=result["busy"])
    quiet.release()
    assert client.event("message.complete")["text"] == "Done."
    assert client.event("message.complete")["text"] == "Also done."
