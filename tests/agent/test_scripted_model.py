import threading

import pytest

from hermes_agent.models.base import Model, Request, Usage
from hermes_agent.testing.scripted import (
    TIMEOUT_S,
    Quiet,
    RecordingSink,
    ScriptedModel,
    call,
    fail,
    raw_call,
    say,
    silence,
    together,
)
from hermes_agent.turn.events import ReasoningDelta, TextDelta, ToolCallBegun, ignore
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ContextTooLongError, Interrupted, ModelError, ModelUnreachableError

HELLO = Request("You help.", [], [{"role": "user", "content": "hello"}])


def test_a_script_is_played_step_by_step_and_its_requests_are_kept():
    model: Model = (scripted := ScriptedModel(["Hi there.", say("Bye.", reasoning="Enough.")]))
    sink = RecordingSink()
    assert model.ask(HELLO, Stop(), sink).text == "Hi there."
    assert sink.events == [TextDelta("Hi "), TextDelta("there.")]
    reply = model.ask(HELLO, Stop(), sink)
    assert (reply.text, reply.reasoning, reply.finish) == ("Bye.", "Enough.", "stop")
    assert sink.of(ReasoningDelta) == [ReasoningDelta("Enough.")]
    assert scripted.requests == [HELLO, HELLO]


def test_calls_get_ids_of_their_own_and_may_stand_beside_a_text():
    model = ScriptedModel([together("Look: ", call("read", path="x"), raw_call("write", "{bad"))])
    sink = RecordingSink()
    reply = model.ask(HELLO, Stop(), sink)
    assert [tool_call["id"] for tool_call in reply.tool_calls] == ["call_1", "call_2"]
    assert [tool_call["function"]["arguments"] for tool_call in reply.tool_calls] == [
        '{"path":"x"}',
        "{bad",
    ]
    assert reply.finish == "tool_calls"
    assert [event.name for event in sink.of(ToolCallBegun)] == ["read", "write"]


def test_a_failure_may_come_after_some_of_the_reply():
    model = ScriptedModel([fail(ModelUnreachableError("cut"), after="Half of")])
    sink = RecordingSink()
    with pytest.raises(ModelUnreachableError, match="cut"):
        model.ask(HELLO, Stop(), sink)
    assert sink.text == "Half of"


def test_a_silent_model_can_be_stopped_from_another_thread():
    quiet, stop = Quiet(), Stop()
    model = ScriptedModel([silence(quiet, after="Well")])
    outcome: list[str] = []

    def ask() -> None:
        with pytest.raises(Interrupted):
            model.ask(HELLO, stop, ignore)
        outcome.append("interrupted")

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    assert quiet.started.wait(TIMEOUT_S)
    stop.set()
    thread.join(TIMEOUT_S)
    assert outcome == ["interrupted"]


def test_a_released_silence_goes_on():
    quiet = Quiet()
    quiet.release()
    reply = ScriptedModel([silence(quiet, after="One ", then="two.")]).ask(HELLO, Stop(), ignore)
    assert reply.text == "One two."


def test_delays_use_the_wait_that_was_given():
    waited: list[float] = []
    model = ScriptedModel([say("a b c", delay_s=2)], wait=lambda _stop, s: waited.append(s))
    model.ask(HELLO, Stop(), ignore)
    assert waited == [2, 2, 2]


def test_a_function_makes_steps_without_end():
    model = ScriptedModel(lambda request: f"You said {request.messages[-1]['content']}.")
    for _ in range(3):
        assert model.ask(HELLO, Stop(), ignore).text == "You said hello."


def test_a_script_that_ended_and_a_window_that_is_full_are_model_errors():
    with pytest.raises(ModelError, match="request 1"):
        ScriptedModel([]).ask(HELLO, Stop(), ignore)
    with pytest.raises(ContextTooLongError):
        ScriptedModel(["x"], window=5, strict_window=True).ask(HELLO, Stop(), ignore)


def test_a_stopped_turn_asks_nothing():
    stop, model = Stop(), ScriptedModel(["x"])
    stop.set()
    with pytest.raises(Interrupted):
        model.ask(HELLO, stop, ignore)
    assert model.requests == []


def test_usage_is_estimated_unless_it_is_given():
    model = ScriptedModel(["four", say("x", usage=Usage(7, 8))])
    assert model.ask(HELLO, Stop(), ignore).usage.input_tokens > 0
    assert model.ask(HELLO, Stop(), ignore).usage == Usage(7, 8)
