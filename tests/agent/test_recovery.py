"""Recovery: what a crash left open is run to its end, once, by whoever comes next."""

import os
import subprocess
import sys
import threading
from typing import Any

import pytest

from hermes_agent import lease, recovery
from hermes_agent.agent import Agent
from hermes_agent.delegation import SubAgents
from hermes_agent.permissions import Permissions
from hermes_agent.testing import validity
from hermes_agent.testing.scripted import TIMEOUT_S, Quiet, call, silence, together
from hermes_agent.tools import schema
from hermes_agent.tools.base import Args, Tool
from hermes_agent.tools.base import Call as ToolCall
from hermes_agent.tools.clarify import TOOL as CLARIFY
from hermes_agent.turn.events import QuestionAsked, TextDelta, ToolEnded
from hermes_agent.turn.stop import Stop
from hermes_agent.turn.values import Turn
from hermes_core.errors import ConversationBusyError
from hermes_core.settings import AgentSettings, Settings
from hermes_state import SessionDB
from hermes_state.ledger import chat_moves, effects, leases, lineage, questions, sessions, turns
from hermes_state.ledger import messages as message_ledger
from hermes_state.values import Call, InboundMessage, NewSession, Route, Scope
from tests.agent.conftest import Chat, Counting, MakeChat

pytestmark = pytest.mark.promise("P3")

DEAD = "somewhere-else:1:1:1"


def crashed(
    store: SessionDB, session_id: str = "s", *, states: tuple[str, ...] = ("started",), **how: Any
) -> str:
    """A turn as a killed process leaves it: a step whose calls are in these states."""
    store.create_session(session_id, "cli")
    turn_id = store.write(turns.accept, session_id, {"role": "user", "content": "go"}).turn_id
    store.write(turns.start, turn_id)
    calls = [Call(f"c{n}", how.get("tool", "count"), f'{{"n":{n}}}', how.get("read_only", False))
             for n in range(len(states))]  # fmt: skip
    tool_calls = [{"id": c.tool_call_id, "function": {"name": c.tool_name, "arguments": c.arguments}}
            for c in calls]  # fmt: skip
    store.write(
        turns.step, turn_id, {"role": "assistant", "content": None, "tool_calls": tool_calls}, calls
    )
    for row, state in zip(store.read(effects.of_turn, turn_id), states, strict=True):
        if state != "intended":
            store.write(effects.start, row["id"])
        if state == "done":
            result = {"role": "tool", "content": "before", "tool_call_id": row["tool_call_id"]}
            store.write(effects.done, row["id"], result)
    return turn_id


def resume(agent: Agent) -> None:
    """Run the unfinished turns of an agent's conversation."""
    for row in recovery.unfinished(agent.store, agent.conversation_id):
        agent.run_turn(row["id"])


def resumed(make_chat: MakeChat, script: Any, tool: Counting, session_id: str = "s") -> Chat:
    chat = make_chat(script, [tool.tool()], session_id=session_id)
    resume(chat.agent)
    return chat


def test_a_finished_tool_is_not_run_again_and_an_unbegun_one_is_run(
    make_chat: MakeChat, store: SessionDB
) -> None:
    crashed(store, states=("done", "intended"))
    tool = Counting()
    chat = resumed(make_chat, ["All done."], tool)
    assert tool.runs == [{"n": 1}]
    assert chat.states() == ["answered"]
    assert [content for role, content in chat.transcript() if role == "tool"] == [
        "before", "counted"
    ]  # fmt: skip


def test_a_tool_that_was_cut_off_is_told_as_unknown_and_not_run_again(
    make_chat: MakeChat, store: SessionDB
) -> None:
    turn_id = crashed(store, states=("started", "intended"))
    tool = Counting()
    chat = resumed(make_chat, ["I will check."], tool)
    assert tool.runs == [{"n": 1}]
    assert [row["state"] for row in store.read(effects.of_turn, turn_id)] == ["unknown", "done"]
    messages = chat.model.requests[0].messages
    assert "unknown" in messages[2]["content"]
    assert validity.problems(chat.agent.store.read(message_ledger.as_conversation, "s")) == []
    ended = [item for item in chat.sink.events if isinstance(item, ToolEnded)]
    assert [item.is_error for item in ended] == [True, False], "whoever watches is told too"
    settled = chat.hooks.of("post_tool_call")
    assert [item["tool_call_id"] for item in settled] == ["c0", "c1"], (
        "and plugins are, once a call"
    )
    assert [item["status"] for item in settled] == ["failed", "done"]
    assert settled[0]["arguments"] == {"n": 0}
    assert "unknown" in settled[0]["result"]


def test_a_tool_that_only_reads_is_run_again(make_chat: MakeChat, store: SessionDB) -> None:
    crashed(store, states=("started",), read_only=True)
    tool = Counting(read_only=True)
    chat = resumed(make_chat, ["Read."], tool)
    assert len(tool.runs) == 1
    assert chat.states() == ["answered"]


def test_after_three_attempts_a_turn_fails_with_a_notice(
    make_chat: MakeChat, store: SessionDB
) -> None:
    turn_id = crashed(store)
    store.write(turns.start, turn_id)
    store.write(turns.start, turn_id)
    tool = Counting()
    chat = resumed(make_chat, [], tool)
    row = store.read(turns.find, turn_id)
    assert row is not None
    assert row["state"] == "failed"
    assert "3 times" in row["reason"]
    assert chat.model.requests == []
    assert validity.problems(store.read(message_ledger.as_conversation, "s")) == []


def started(chat: Chat, turn_id: str) -> tuple[threading.Thread, Stop]:
    """A turn that runs in a thread, and its stop."""
    stop = Stop()
    running = threading.Thread(target=chat.agent.run_turn, args=(turn_id,), kwargs={"stop": stop})
    running.start()
    return running, stop


def test_a_turn_that_was_put_off_again_and_again_is_answered(make_chat: MakeChat) -> None:
    quiets = [Quiet() for _ in range(5)]
    chat = make_chat([*[silence(quiet, after="Well") for quiet in quiets], "Done."])
    turn_id = chat.agent.accept("a long task").turn_id
    for quiet in quiets:
        running, stop = started(chat, turn_id)
        assert quiet.started.wait(TIMEOUT_S)
        stop.suspend()
        running.join()
    assert chat.agent.run_turn(turn_id)["final_response"] == "Done."
    assert chat.states() == ["answered"]


def test_what_was_asked_when_a_turn_was_put_off_can_be_answered_until_it_goes_on(
    make_chat: MakeChat,
) -> None:
    chat = make_chat([call("clarify", question="Which one?"), "Fine."], [CLARIFY], can_ask=True)
    turn_id = chat.agent.accept("choose").turn_id
    running, stop = started(chat, turn_id)
    question = chat.sink.wait_for(QuestionAsked)
    stop.suspend()
    running.join()
    assert [row["id"] for row in chat.store.read(questions.pending)] == [question.question_id]
    chat.agent.answer(question.question_id, "the blue one")
    assert chat.agent.run_turn(turn_id)["final_response"] == "Fine."
    assert ("tool", "the blue one") in chat.transcript()


def test_a_call_that_was_cut_off_when_its_turn_was_put_off_is_told_as_unknown(
    make_chat: MakeChat,
) -> None:
    is_begun = threading.Event()

    def run(_args: Args, tool_call: ToolCall) -> str:
        is_begun.set()
        tool_call.stop.wait(TIMEOUT_S)
        return "never"

    tool = Tool(name="wait", description="Waits.", parameters=schema.of([]), run=run)
    chat = make_chat([call("wait"), "Fine."], [tool])
    turn_id = chat.agent.accept("go").turn_id
    running, stop = started(chat, turn_id)
    assert is_begun.wait(TIMEOUT_S)
    stop.suspend()
    running.join()
    assert chat.agent.run_turn(turn_id)["final_response"] == "Fine."
    ((_, message),) = [entry for entry in chat.transcript() if entry[0] == "tool"]
    assert "unknown" in message
    assert "Stopped by the user" not in message


def test_a_turn_that_never_began_is_run(make_chat: MakeChat, store: SessionDB) -> None:
    store.create_session("s", "cli")
    store.write(turns.accept, "s", {"role": "user", "content": "hello?"})
    chat = resumed(make_chat, ["Here."], Counting())
    assert chat.transcript()[-1] == ("assistant", "Here.")


def test_a_turn_stopped_by_the_user_stays_stopped(make_chat: MakeChat, store: SessionDB) -> None:
    turn_id = crashed(store, states=("intended",))
    store.write(turns.finish, turn_id, "interrupted")
    assert recovery.unfinished(store) == []


@pytest.mark.promise("P9")
def test_limits_hold_over_a_crash(make_chat: MakeChat, store: SessionDB) -> None:
    settings = Settings(agent=AgentSettings(titles=False, max_steps=2))
    chat = make_chat(lambda _r: call("count"), [Counting().tool()], settings=settings)
    turn_id = chat.agent.accept("go").turn_id
    store.write(turns.start, turn_id)  # the process died in its first call
    result = chat.agent.run_turn(turn_id)
    assert result["failed"]
    assert len(chat.model.requests) == 1


def test_a_conversation_that_another_process_runs_is_left_to_it(
    make_chat: MakeChat, store: SessionDB
) -> None:
    crashed(store)
    held = store.write(leases.acquire, "s", DEAD)
    assert held is not None
    assert recovery.unfinished(store) == [], "of a process on another machine we cannot know"
    chat = make_chat([], session_id="s")
    with pytest.raises(ConversationBusyError):
        chat.say("me too")
    assert store.read(turns.of_session, "s")[-1]["state"] == "accepted", "it waits, visibly"
    store.write(leases.release, held)
    assert len(recovery.unfinished(store)) == 2


def test_the_lease_of_a_process_that_is_gone_is_taken_at_once(store: SessionDB) -> None:
    store.create_session("s", "cli")
    mine = lease.acquire(store, "s").holder
    host, pid, started, number = mine.split(":")
    assert not lease.is_gone(mine)
    assert lease.is_gone(f"{host}:{pid}:{int(started) - 1}:{number}"), "the number was used again"
    assert lease.is_gone(f"{host}:999999999:{started}:1")
    store.write(leases.take_over, "s", mine, f"{host}:999999999:1:1")
    assert lease.acquire(store, "s").token > 2


def test_a_process_that_has_ended_is_gone_also_when_nobody_asked_how_it_ended() -> None:
    read, write = os.pipe()
    code = "import hermes_agent.lease as l; print(l.process_name(), flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=read, stdout=subprocess.PIPE)
    assert child.stdout is not None
    name = f"{child.stdout.readline().decode().strip()}:1"
    assert not lease.is_gone(name)
    os.write(write, b"\n")
    assert child.stdout.read() == b"", "it has ended, and is not waited for yet"
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert lease.is_gone(name)
    child.wait()
    for pipe in (read, write):
        os.close(pipe)
    child.stdout.close()


def test_two_turns_of_one_conversation_do_not_run_at_once(make_chat: MakeChat) -> None:
    quiet = Quiet()
    chat = make_chat([silence(quiet, then="first"), "second"])
    thread = threading.Thread(target=lambda: chat.say("one"), daemon=True)
    thread.start()
    assert quiet.started.wait(TIMEOUT_S)
    with pytest.raises(ConversationBusyError):
        chat.say("two")
    quiet.release()
    thread.join(TIMEOUT_S)
    resume(chat.agent)
    assert [content for _, content in chat.transcript()] == ["one", "first", "two", "second"]


def test_a_sub_agent_is_resumed_and_not_sent_twice(make_chat: MakeChat, store: SessionDB) -> None:
    def delegate(args: Args, call_: ToolCall) -> Any:
        return call_.delegate(args["task"], "")

    schema = {"type": "object", "properties": {"task": {"type": "string"}}}
    tool = Tool("delegate", "Delegate.", schema, delegate, resumes=True)

    def script(request: Any) -> Any:
        text = str(request.messages[-1]["content"])
        if text == "the part":
            return "The part is done."
        return "All done." if "part is done" in text else call("delegate", task="the part")

    chat = make_chat(script, [tool])
    assert chat.say("the whole")["final_response"] == "All done."
    parent = chat.agent.session_id
    tree = store.read(lineage.tree, parent)
    assert [row["relation"] for row in tree] == [None, "delegate"]
    child = store.read(sessions.find, tree[1]["id"])
    assert child is not None and child["end_reason"] == "delegate_done", "it is over with its task"
    (effect,) = store.read(effects.of_turn, chat.turns()[0]["id"])
    assert effect["read_only"], "it may be started again: it finds its own work"
    again = chat.agent.toolbox.get("delegate")
    assert again is tool
    count = len(chat.model.requests)
    held = lease.acquire(store, parent)
    turn = Turn(chat.turns()[0]["id"], parent, parent, 1, held, Stop(), chat.sink)
    result = SubAgents(chat.agent).of(turn, effect["tool_call_id"], Stop())("the part", "")
    assert result.text == "The part is done."
    assert len(chat.model.requests) == count, "the first report was found"
    assert len(store.read(lineage.tree, parent)) == 2


def test_parallel_calls_survive_as_a_whole(make_chat: MakeChat, store: SessionDB) -> None:
    crashed(store, states=("done", "started", "intended"))
    tool = Counting()
    chat = resumed(make_chat, [together(call("count", n=9), call("count", n=8)), "ok"], tool)
    assert [run["n"] for run in tool.runs] == [2, 9, 8]
    messages = store.read(message_ledger.as_conversation, "s")
    assert validity.problems(messages) == []
    assert validity.problems_on_the_wire(messages) == []
    assert chat.states() == ["answered"]


def test_what_its_chat_took_along_is_left_to_the_conversation_that_it_is_in(
    make_chat: MakeChat, store: SessionDB
) -> None:
    store.create_session("s", "cli")
    message = {"role": "user", "content": "go"}
    delivery = InboundMessage("p", "c", "1", session_key="key")
    moves = store.write(turns.accept, "s", message, inbound=delivery).turn_id
    stays = store.write(turns.accept, "s", message).turn_id
    chat = make_chat(["here I am"], session_id="s")
    waiting = [row["id"] for row in recovery.unfinished(store, "s")]
    store.write(
        chat_moves.move_chat,
        Route("key"),
        "new",
        former="s",
        reason="why",
        new_session=NewSession("p"),
    )
    results = [chat.agent.run_turn(turn_id) for turn_id in waiting]
    assert waiting == [moves, stays]
    assert [result["completed"] for result in results] == [False, True]
    assert [row["id"] for row in store.read(turns.all_open)] == [moves]
    assert len(chat.model.requests) == 1


def test_an_earlier_turn_of_another_process_is_completed_first(
    make_chat: MakeChat, store: SessionDB
) -> None:
    first = crashed(store)
    chat = make_chat(["I will check.", "Here."], [Counting().tool()], session_id="s")
    second = chat.agent.accept("and now?")
    assert chat.agent.run(second.turn_id).text == "Here."
    row = store.read(turns.find, first)
    assert row is not None and row["state"] == "answered"
    assert [content for role, content in chat.transcript() if role == "assistant"] == [
        None, "I will check.", "Here."
    ]  # fmt: skip
    texts = [event.text for event in chat.sink.events if isinstance(event, TextDelta)]
    assert "".join(texts) == "Here.", "the reply of the earlier turn is not shown as this one's"
    requests = chat.model.requests
    assert [validity.problems(request.messages) for request in requests] == [[], []]


def test_an_earlier_turn_that_stays_open_keeps_the_later_one_waiting(
    make_chat: MakeChat, store: SessionDB
) -> None:
    first, stop = crashed(store), Stop()
    chat = make_chat(["never"], [Counting().tool()], session_id="s")
    second = chat.agent.accept("and now?")
    stop.suspend()
    assert chat.agent.run(second.turn_id, stop=stop).status == "suspended"
    assert [row["id"] for row in recovery.unfinished(store)] == [first, second.turn_id]
    assert chat.states() == ["running", "accepted"]


def test_whoever_has_limits_leaves_the_message_of_another_person_to_its_platform(
    make_chat: MakeChat, store: SessionDB
) -> None:
    store.create_session("s", "cli")
    message = {"role": "user", "content": "go"}
    store.write(turns.accept, "s", message, inbound=InboundMessage("p", "c", "1", "{}"))
    guest = Permissions("p:guest", "guest", Scope("p", "guest"), is_private=True)
    chat = make_chat(["never"], session_id="s", permissions=guest)
    second = chat.agent.accept("and now?")
    with pytest.raises(ConversationBusyError):
        chat.agent.run(second.turn_id)
    assert chat.states() == ["accepted", "accepted"]
    assert store.read(leases.held) == {}


def test_a_request_answers_every_tool_call_whatever_the_store_holds(
    make_chat: MakeChat, store: SessionDB, caplog: pytest.LogCaptureFixture
) -> None:
    turn_id = crashed(store, states=("started", "done"))
    store.write(
        lambda c: c.run(
            "UPDATE turns SET state = 'failed', reason = 'lost', ended_at = 1 WHERE id = ?", turn_id
        )
    )
    chat = make_chat(["Here."], session_id="s")
    chat.say("and now?")
    (request,) = chat.model.requests
    assert validity.problems(request.messages) == []
    assert "c0 has no result" in caplog.text
