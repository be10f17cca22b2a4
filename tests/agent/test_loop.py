"""A turn: what is asked, what is stored, in which order, and how it ends."""

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes_agent.models.base import Facts, Usage
from hermes_agent.testing.scripted import (
    TIMEOUT_S,
    Quiet,
    call,
    fail,
    raw_call,
    say,
    silence,
    together,
)
from hermes_agent.tools.base import Args, Call, Result
from hermes_agent.turn.events import (
    Notice,
    StepStored,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    Used,
)
from hermes_agent.turn.partial_reply import PartialReply
from hermes_core.errors import ContextTooLongError, ModelError, ModelRefusedError, StoreFullError
from hermes_core.settings import AgentSettings, Settings
from hermes_state import SessionDB
from hermes_state.ledger import budgets, messages
from hermes_state.ledger import effects as effect_ledger
from hermes_state.ledger import lineage as lineage_ledger
from hermes_state.ledger import partials as partial_ledger
from tests.agent.conftest import Chat, Counting, MakeChat, RecordingHooks
from tests.support.faults import eventually, no_threads


def limited(**limits: Any) -> Settings:
    return Settings(agent=AgentSettings(titles=False, **limits))


def in_background(chat: Chat, text: str = "hello") -> tuple[threading.Thread, list[dict[str, Any]]]:
    results: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: results.append(chat.say(text)), daemon=True)
    thread.start()
    return thread, results


def joined(thread: threading.Thread) -> None:
    thread.join(TIMEOUT_S)
    assert not thread.is_alive(), "the turn did not come back"


def test_an_answer_without_tools_is_stored_and_returned(make_chat: MakeChat) -> None:
    chat = make_chat(["Good morning."])
    result = chat.say("hello")
    assert result["final_response"] == "Good morning."
    assert result["completed"]
    assert not result["failed"]
    assert result["session_id"] == chat.agent.session_id
    assert result["api_calls"] == 1
    assert chat.transcript() == [("user", "hello"), ("assistant", "Good morning.")]
    assert [m["content"] for m in result["messages"]] == ["hello", "Good morning."]
    assert chat.states() == ["answered"]


def test_nothing_is_in_the_store_before_the_first_message(make_chat: MakeChat) -> None:
    chat = make_chat(["hi"])
    assert chat.store.session_count() == 0
    chat.say()
    assert chat.store.session_count() == 1
    assert chat.hooks.of("on_session_start")[0]["session_id"] == chat.agent.session_id


def test_the_prompt_is_on_disk_before_the_model_is_asked(make_chat: MakeChat) -> None:
    chat = make_chat(lambda _request: str(chat_of[0].transcript()))
    chat_of = [chat]
    assert chat.say("first")["final_response"] == str([("user", "first")])


def test_a_step_is_on_disk_before_its_tool_runs_and_the_tool_is_marked_started(
    make_chat: MakeChat,
) -> None:
    seen: list[Any] = []

    def look(_args: Args, call_: Call) -> str:
        store = call_.bench.store
        seen.append(
            store.read(messages.as_conversation, call_.session_id)[-1]["tool_calls"][0]["id"]
        )
        seen.append(store.read(effect_ledger.of_turn, call_.turn_id)[0]["state"])
        return "seen"

    tool = Counting(then=look)
    chat = make_chat([call("count", n=1), "done"], [tool.tool()])
    result = chat.say()
    assert result["final_response"] == "done"
    assert seen == ["call_1", "started"]
    assert tool.runs == [{"n": 1}]
    assert [role for role, _ in chat.transcript()] == ["user", "assistant", "tool", "assistant"]
    (effect,) = chat.store.read(effect_ledger.of_turn, chat.turns()[0]["id"])
    assert effect["state"] == "done"


def test_events_tell_the_story_in_order(make_chat: MakeChat) -> None:
    chat = make_chat([together("Let me count.", call("count")), "Two."], [Counting().tool()])
    chat.say()
    kinds = [type(event) for event in chat.sink.events]
    story = [
        kind for kind in kinds if kind in (StepStored, ToolStarted, ToolEnded, TurnEnded, Used)
    ]
    assert story == [Used, StepStored, ToolStarted, ToolEnded, Used, TurnEnded]
    assert chat.sink.text == "Let me count.Two."
    assert msgspec.json.decode(msgspec.json.encode(chat.sink.events[-1]))["event"] == "turnended"


def test_the_reply_is_streamed_to_a_callback(make_chat: MakeChat) -> None:
    chat, pieces = make_chat([say("one two three")]), list[str]()
    chat.say(stream_callback=pieces.append)
    assert len(pieces) == 3
    assert "".join(pieces) == "one two three"


def test_calls_that_only_read_run_at_the_same_time(make_chat: MakeChat) -> None:
    meeting = threading.Barrier(2)

    def meet(args: Args, _call: Call) -> str:
        meeting.wait(TIMEOUT_S)
        return f"met {args['n']}"

    tool = Counting(read_only=True, then=meet)
    chat = make_chat([together(call("count", n=1), call("count", n=2)), "ok"], [tool.tool()])
    chat.say()
    assert [content for role, content in chat.transcript() if role == "tool"] == ["met 1", "met 2"]


def test_calls_that_change_things_run_one_after_the_other(make_chat: MakeChat) -> None:
    running: list[int] = []

    def alone(args: Args, _call: Call) -> str:
        assert not running
        running.append(args["n"])
        running.clear()
        return "ok"

    reader = Counting("read", read_only=True, then=alone)
    writer = Counting("write", then=alone)
    calls = together(call("read", n=1), call("write", n=2), call("write", n=3))
    chat = make_chat([calls, "ok"], [reader.tool(), writer.tool()])
    chat.say()
    contents = [content for role, content in chat.transcript() if role == "tool"]
    assert contents == ["ok", "ok", "ok"]


def test_a_tool_that_fails_is_told_to_the_model_and_harms_nothing_else(make_chat: MakeChat) -> None:
    def explode(_args: Args, _call: Call) -> str:
        raise ValueError("boom")

    chat = make_chat([call("count"), "I see."], [Counting(then=explode).tool()])
    assert chat.say()["final_response"] == "I see."
    assert "ValueError: boom" in chat.transcript()[2][1]
    assert chat.hooks.of("post_tool_call")[0]["status"] == "failed"


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (call("nothing"), "There is no tool 'nothing'"),
        (raw_call("count", "{{{"), "JSON"),
        (call("count", n="many"), "n"),
    ],
)
def test_a_call_that_cannot_run_is_explained_to_the_model(
    make_chat: MakeChat, step: Any, says: str
) -> None:
    tool = Counting()
    chat = make_chat([step, "Sorry."], [tool.tool()])
    assert chat.say()["final_response"] == "Sorry."
    assert says in chat.transcript()[2][1]
    assert tool.runs == []
    (effect,) = chat.store.read(effect_ledger.of_turn, chat.turns()[0]["id"])
    assert effect["state"] == "cancelled"


def test_a_plugin_may_block_or_change_a_call(make_chat: MakeChat) -> None:
    def decide(arguments: dict[str, Any], **_: Any) -> Any:
        if arguments["n"] == 1:
            return {"action": "block", "message": "not one"}
        return {"action": "change", "arguments": {"n": 7}}

    tool = Counting()
    hooks = RecordingHooks(pre_tool_call=decide)
    chat = make_chat([call("count", n=1), call("count", n=2), "ok"], [tool.tool()], hooks=hooks)
    chat.say()
    assert tool.runs == [{"n": 7}]
    assert chat.transcript()[2][1] == "not one"
    assert [c["status"] for c in hooks.of("post_tool_call")] == ["blocked", "done"]


def test_a_model_that_cannot_answer_fails_the_turn_with_a_reason(make_chat: MakeChat) -> None:
    chat = make_chat([fail(ModelRefusedError("The key is wrong.", fix="Set OPENAI_API_KEY."))])
    result = chat.say()
    assert result["failed"]
    assert result["error"] == "The key is wrong. Set OPENAI_API_KEY."
    assert result["final_response"] is None
    assert chat.states() == ["failed"]
    assert chat.hooks.of("on_turn_end")[0]["status"] == "failed"
    chat.model.add("Better now.")
    assert chat.say("again")["final_response"] == "Better now."


def test_a_turn_without_memory_for_a_tools_thread_fails_and_says_so(make_chat: MakeChat) -> None:
    chat = make_chat([call("count"), "Better now."], [Counting().tool()])
    with no_threads("tool-count"):
        result = chat.say()
    assert result["failed"] and "short of memory" in result["error"]
    assert chat.say("again")["final_response"] == "Better now."


def test_an_empty_reply_is_asked_for_once_more(make_chat: MakeChat) -> None:
    chat = make_chat([say(""), "Here I am."])
    assert chat.say()["final_response"] == "Here I am."
    chat.model.add(say(""), say("  "))
    result = chat.say()
    assert result["failed"]
    assert "nothing" in result["error"]


def test_a_reply_cut_by_the_models_limit_is_marked_partial(make_chat: MakeChat) -> None:
    chat = make_chat([say("and then", finish="length")])
    result = chat.say()
    assert result["completed"]
    assert result["partial"]


# -- stopping ------------------------------------------------------------------------------------


def test_a_silent_model_can_be_stopped_and_what_it_said_is_kept(make_chat: MakeChat) -> None:
    quiet = Quiet()
    chat = make_chat([silence(quiet, after="I was about to")])
    thread, results = in_background(chat)
    assert quiet.started.wait(TIMEOUT_S)
    chat.agent.interrupt()
    joined(thread)
    assert results[0]["interrupted"]
    assert results[0]["partial"]
    assert chat.transcript()[-1] == ("assistant", "I was about to")
    assert chat.states() == ["interrupted"]
    chat.model.add("Yes?")
    assert chat.say("go on")["final_response"] == "Yes?"


def test_what_was_streamed_is_kept_when_nothing_more_comes(make_chat: MakeChat) -> None:
    quiet = Quiet()
    chat = make_chat([silence(quiet, after="Once upon a time")])
    thread, _ = in_background(chat)
    assert quiet.started.wait(TIMEOUT_S)

    def is_kept() -> bool:
        found = chat.store.read(partial_ledger.of_session, chat.agent.session_id)
        stored = [(row["content"], row["kind"]) for row in found]
        return stored == [("Once upon a time", "partial")]

    eventually(is_kept)
    chat.agent.interrupt()
    joined(thread)
    assert chat.store.read(partial_ledger.of_session, chat.agent.session_id) == []
    assert chat.transcript()[-1] == ("assistant", "Once upon a time")


def test_a_store_that_cannot_keep_what_is_streamed_does_not_stop_the_reply(
    make_chat: MakeChat, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quiet, is_requested = Quiet(), threading.Event()
    chat = make_chat([silence(quiet, after="All of ", then="it.")])

    def full(*_: object) -> None:
        is_requested.set()
        raise StoreFullError("The disk is full.")

    monkeypatch.setattr(partial_ledger, "save", full)
    thread, results = in_background(chat)
    assert is_requested.wait(TIMEOUT_S)
    quiet.release()
    joined(thread)
    assert results[0]["final_response"] == "All of it."
    assert "could not store its partial reply" in caplog.text


def test_nothing_is_noted_of_a_step_that_is_over() -> None:
    reply, noting, may_end = PartialReply(), threading.Event(), threading.Event()
    noted: list[str] = []

    def note(text: str) -> None:
        noting.set()
        may_end.wait(TIMEOUT_S)
        noted.append(text)

    with reply.step(note):
        reply.receive(TextDelta("one"))
        assert noting.wait(TIMEOUT_S)
        reply.receive(TextDelta(" two"))
        may_end.set()
    assert noted[0] == "one", "what was being noted is noted when the step ends"
    before = list(noted)
    with PartialReply().step(noted.append):  # the thread goes on with others
        pass
    assert noted == before


def test_a_call_that_was_stopped_or_failed_counts_although_nothing_limits_it(
    make_chat: MakeChat,
) -> None:
    quiet = Quiet()
    chat = make_chat([silence(quiet), fail(ModelError("gone")), "Here."], facts=PRICED)
    thread, results = in_background(chat)
    assert quiet.started.wait(TIMEOUT_S)
    chat.agent.interrupt()
    joined(thread)
    assert results[0]["api_calls"] == 1
    stopped = chat.store.read(budgets.today_usd)
    assert stopped > 0.01, "the whole reply may have been charged for"
    assert chat.say()["api_calls"] == 1
    failed = chat.store.read(budgets.today_usd)
    assert failed > 2 * stopped * 0.9
    assert chat.say()["completed"]
    assert chat.store.read(budgets.today_usd) - failed < 0.01, "what it did cost"


def test_a_stop_in_a_tool_leaves_no_call_without_a_result(make_chat: MakeChat) -> None:
    inside = threading.Event()

    def hang(_args: Args, _call: Call) -> str:
        inside.set()
        threading.Event().wait()  # a tool that never hears a stop
        return "never"

    tool = Counting(then=hang)
    steps = [together(call("count", n=1), call("count", n=2))]
    chat = make_chat(steps, [tool.tool()])
    thread, results = in_background(chat)
    assert inside.wait(TIMEOUT_S)
    chat.agent.interrupt()
    joined(thread)
    assert results[0]["interrupted"]
    assert [role for role, _ in chat.transcript()] == ["user", "assistant", "tool", "tool"]
    effects = chat.store.read(effect_ledger.of_turn, chat.turns()[0]["id"])
    assert [effect["state"] for effect in effects] == ["unknown", "cancelled"]
    assert "unknown" in chat.transcript()[2][1]


def test_a_tool_that_hears_the_stop_hands_in_what_it_has(make_chat: MakeChat) -> None:
    inside = threading.Event()

    def listen(_args: Args, call_: Call) -> str:
        is_stopped = threading.Event()
        with call_.stop.callback(is_stopped.set):
            inside.set()
            assert is_stopped.wait(TIMEOUT_S)
        return "half of it"

    chat = make_chat([call("count")], [Counting(then=listen).tool()])
    thread, _ = in_background(chat)
    assert inside.wait(TIMEOUT_S)
    chat.agent.interrupt()
    joined(thread)
    assert chat.transcript()[-1] == ("tool", "half of it")
    assert chat.states() == ["interrupted"]


def test_a_tool_that_overruns_its_time_is_left_behind(make_chat: MakeChat) -> None:
    def hang(_args: Args, call_: Call) -> str:
        is_stopped = threading.Event()
        with call_.stop.callback(is_stopped.set):
            is_stopped.wait(TIMEOUT_S)
        return "timed out, but tidy"

    tool = Counting(then=hang, options={"timeout_s": 0.01})
    chat = make_chat([call("count"), "ok"], [tool.tool()])
    assert chat.say()["completed"]
    assert chat.transcript()[2][1] == "timed out, but tidy"


def test_what_is_said_to_a_running_turn_reaches_the_model_after_the_tool(
    make_chat: MakeChat,
) -> None:
    def steer(_args: Args, _call: Call) -> str:
        chat_of[0].agent.steer("rather in blue")
        return "painted"

    chat = make_chat([call("count"), "Blue it is."], [Counting(then=steer).tool()])
    chat_of = [chat]
    chat.say("paint it")
    assert [m["content"] for m in chat.model.requests[1].messages][-2:] == [
        "painted",
        "rather in blue",
    ]


def test_a_message_that_waits_behind_a_turn_is_not_shown_to_it(make_chat: MakeChat) -> None:
    def another(_args: Args, _call: Call) -> str:
        waiting.append(chat_of[0].agent.accept("second").turn_id)
        return "ok"

    waiting: list[str] = []
    chat = make_chat([call("count"), "One.", "Two."], [Counting(then=another).tool()])
    chat_of = [chat]
    chat.say("first")
    result = chat.agent.run_turn(waiting[0])
    assert result["final_response"] == "Two."
    assert [m["content"] for m in chat.model.requests[1].messages] == ["first", None, "ok"]
    assert [m["content"] for m in chat.model.requests[2].messages] == [
        "first", None, "ok", "One.", "second"
    ]  # fmt: skip


# -- limits --------------------------------------------------------------------------------------


def test_the_steps_of_a_turn_are_limited(make_chat: MakeChat) -> None:
    tool = Counting()
    chat = make_chat(lambda _r: call("count"), [tool.tool()], settings=limited(max_steps=3))
    result = chat.say()
    assert result["failed"]
    assert "3 steps" in result["error"]
    assert result["api_calls"] == 3
    assert len(tool.runs) == 3


PRICED = Facts("m", "p", 8000, max_output=1000, input_price=1.0, output_price=10.0)


def test_the_money_of_a_turn_is_limited_before_it_is_spent(make_chat: MakeChat) -> None:
    usage = Usage(100, 500)
    chat = make_chat(
        lambda _r: together(call("count"), say("x", usage=usage)),
        [Counting().tool()],
        settings=limited(max_cost_usd=0.012),
        facts=PRICED,
    )
    result = chat.say()
    assert result["failed"]
    assert result["estimated_cost_usd"] <= 0.012
    assert result["api_calls"] == 2
    assert chat.model.requests[-1].max_output_tokens < 1000, "the reply was cut to what is left"


def test_the_money_of_a_day_is_limited_for_all_conversations(make_chat: MakeChat) -> None:
    settings = limited(max_cost_per_day_usd=0.012)
    first = make_chat([say("a", usage=Usage(0, 1000))], settings=settings, facts=PRICED)
    assert first.say()["completed"]
    other = make_chat([say("b", usage=Usage(0, 1000))], settings=settings, facts=PRICED)
    assert other.say()["failed"]


def test_the_working_time_of_a_turn_is_limited(make_chat: MakeChat) -> None:
    chat = make_chat(
        lambda _r: call("count"), [Counting().tool()], settings=limited(max_seconds=1e-9)
    )
    assert "seconds" in chat.say()["error"]


# -- the window ----------------------------------------------------------------------------------


def test_a_request_that_is_too_long_for_the_provider_is_shortened_once_and_sent_again(
    make_chat: MakeChat,
) -> None:
    chat = make_chat([f"answer {n} " + "word " * 300 for n in range(6)])
    for n in range(6):
        chat.say(f"question {n} " + "text " * 300)
    before = chat.agent.session_id
    chat.model.add(fail(ContextTooLongError("too long")), "## Goal\nAnswer questions.", "At last.")
    result = chat.say("one more")
    assert result["final_response"] == "At last."
    assert result["session_id"] != before
    assert chat.store.read(lineage_ledger.tip, before) == result["session_id"]
    sent = chat.model.requests
    assert len(str(sent[-1].messages)) < len(str(sent[6].messages))
    whole = chat.store.read(messages.originals, result["session_id"])
    assert sum("question" in str(m["content"]) for m in whole) == 6, "the originals stay"


def test_a_request_that_stays_too_long_fails_readably(make_chat: MakeChat) -> None:
    chat = make_chat(lambda _r: fail(ContextTooLongError("The window is too small.")))
    result = chat.say("hello")
    assert result["failed"]
    assert "window" in result["error"]
    assert result["failure_reason"] == "model.context_too_long"


def test_a_conversation_that_outgrows_its_window_is_compacted_in_the_middle_of_a_turn(
    make_chat: MakeChat,
) -> None:
    facts = Facts("m", "p", window=8000, max_output=500)
    tool = Counting(then=lambda args, _c: f"result {args['n']} " + "data " * 800)

    def script(request: Any) -> Any:
        if not request.tools:
            return "## Goal\nCount.\n## Next step\nGo on."
        done = len(tool.runs)
        return call("count", n=done) if done < 20 else "All counted."

    chat = make_chat(script, [tool.tool()], facts=facts)
    result = chat.say("count to twenty")
    assert result["final_response"] == "All counted."
    assert len(tool.runs) == 20, "compaction repeats nothing"
    lineage = chat.store.read(lineage_ledger.members, result["session_id"])
    assert len(lineage) > 1
    assert chat.turns()[-1]["state"] == "answered"
    compactions = [name for name in chat.hooks.names() if name.endswith("compaction")]
    assert compactions[:2] == ["pre_compaction", "post_compaction"]


# -- the prefix ----------------------------------------------------------------------------------


@pytest.mark.promise("P10")
def test_the_beginning_of_every_request_is_the_same_also_after_a_restart(
    make_chat: MakeChat, tmp_path: Path
) -> None:
    chat = make_chat([call("count"), "one", "two"], [Counting().tool()])
    chat.say("first")
    chat.say("second")
    with SessionDB(tmp_path / "state.db") as reopened:
        later = make_chat(
            ["three"], [Counting().tool()], session_id=chat.agent.session_id, on=reopened
        )
        later.say("third")
        requests = [*chat.model.requests, *later.model.requests]
    for earlier, following in zip(requests, requests[1:], strict=False):
        assert following.system == earlier.system
        assert following.tools == earlier.tools
        assert list(following.messages)[: len(earlier.messages)] == list(earlier.messages)


def test_a_turn_that_was_sent_twice_is_answered_once(make_chat: MakeChat) -> None:
    chat = make_chat(["only once"])
    first = chat.say("hello", task_id="k1")
    again = chat.say("hello", task_id="k1")
    assert first["final_response"] == again["final_response"] == "only once"
    assert len(chat.model.requests) == 1


def test_an_error_of_our_own_ends_the_turn_with_a_notice(make_chat: MakeChat) -> None:
    def broken(_request: Any) -> Any:
        raise RuntimeError("a bug")

    chat = make_chat(broken)
    result = chat.say()
    assert result["failed"]
    assert "a bug" in result["error"]
    assert chat.states() == ["failed"]
    assert isinstance(chat.sink.events[-1], TurnEnded)


def test_images_of_a_tool_reach_the_model(make_chat: MakeChat) -> None:
    picture = "data:image/png;base64,AAAA"
    tool = Counting(then=lambda _a, _c: Result("a picture", images=[picture]))
    chat = make_chat([call("count"), "nice"], [tool.tool()])
    chat.say()
    content = chat.model.requests[1].messages[-1]["content"]
    assert content[1]["image_url"]["url"] == picture


def test_a_failed_call_is_retried_by_nobody_else_than_the_chain(make_chat: MakeChat) -> None:
    chat = make_chat([fail(ModelError("no")), "unused"])
    chat.say()
    assert len(chat.model.requests) == 1
    assert chat.sink.of(TextDelta) == []


@pytest.mark.parametrize(("sees", "notices"), [(False, 1), (True, 0)])
def test_a_person_is_told_when_the_model_does_not_see_their_image(
    make_chat: MakeChat, sees: bool, notices: int
) -> None:
    facts = Facts("blind", "scripted", 100_000, takes_images=sees)
    chat = make_chat([call("count"), "Nice."], [Counting().tool()], facts=facts)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    chat.say([{"type": "text", "text": "What is this?"}, image])
    found = [notice.text for notice in chat.sink.of(Notice)]
    assert len(found) == notices
    assert all("model.images" in text for text in found)
