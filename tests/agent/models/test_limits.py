"""What a hostile server may take of us: each flood ends with one error, and little of it is kept."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.agent import Agent
from hermes_agent.models import limits
from hermes_agent.models.base import Model, Request
from hermes_agent.models.limits import MIB
from hermes_agent.testing.faults import Events, Flood
from hermes_agent.testing.scripted import RecordingSink, say
from hermes_agent.testing.server import ScriptedServer
from hermes_agent.tools.registry import Toolbox
from hermes_agent.turn.events import ignore
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ModelError, ModelUnreachableError
from hermes_core.paths import Home
from hermes_core.settings import AgentSettings, Settings
from hermes_state import SessionDB
from tests.agent.models import floods
from tests.agent.models.conftest import Format, Make

HELLO = Request("You help.", [], [{"role": "user", "content": "hello"}])
IN_FLIGHT = 16 * MIB
"""What a server has sent that nobody has read: the buffers of both sockets."""

by_format: dict[str, tuple[Callable[[Format], Flood], str, int]] = {
    "text": (floods.endless_text, "more text", limits.MAX_TEXT_CHARS),
    "reasoning": (floods.endless_reasoning, "more reasoning", limits.MAX_TEXT_CHARS),
    "arguments": (floods.endless_arguments, "longer arguments", limits.MAX_ARGUMENTS_CHARS),
    "calls": (floods.many_calls, "more tool calls", limits.MAX_TOOL_CALLS * 300),
}
of_http: dict[str, tuple[Callable[[], Flood], str, int]] = {
    "line": (floods.endless_line, "a longer event", limits.MAX_EVENT_BYTES),
    "event": (floods.endless_event, "a longer event", limits.MAX_EVENT_BYTES),
    "headers": (floods.endless_headers, "more bytes", limits.MAX_HEAD_BYTES),
    "body": (floods.endless_body, "more bytes", limits.MAX_EVENT_BYTES),
}


@pytest.mark.parametrize("kind", by_format)
def test_an_endless_reply_ends_with_an_error(
    kind: str, server: ScriptedServer, model: Model, format_: Format
):
    flood, what, most = by_format[kind]
    server.add(flood(format_), "Still here.")
    sink = RecordingSink()
    with pytest.raises(ModelError, match=f"sent {what} than a reply may have") as caught:
        model.ask(HELLO, Stop(), sink)
    assert not caught.value.retryable
    assert len(sink.text) + len(sink.reasoning) <= limits.MAX_TEXT_CHARS
    # A piece of 4,000 characters is 4,060 bytes or so on the wire.
    assert server.wait_for_floods(1)[0] < most * 1.1 + IN_FLIGHT
    assert model.ask(HELLO, Stop(), ignore).text == "Still here."


@pytest.mark.parametrize("kind", of_http)
def test_http_without_end_ends_with_an_error(kind: str, server: ScriptedServer, model: Model):
    flood, what, most = of_http[kind]
    server.add(flood(), "Still here.")
    with pytest.raises(ModelError, match=f"sent {what} than a reply may have") as caught:
        model.ask(HELLO, Stop(), ignore)
    assert not caught.value.retryable
    assert server.wait_for_floods(1)[0] < most + IN_FLIGHT
    assert model.ask(HELLO, Stop(), ignore).text == "Still here."


def test_endless_reasoning_details_end_with_an_error(server: ScriptedServer, connect: Make):
    server.add(floods.endless_details("ab"))
    with pytest.raises(ModelError, match="more reasoning than a reply may have"):
        connect("openai", server.url).ask(HELLO, Stop(), ignore)
    assert server.wait_for_floods(1)[0] < limits.MAX_TEXT_CHARS * 3 + IN_FLIGHT


@pytest.mark.parametrize("make", [floods.endless_text, floods.endless_arguments])
def test_a_reply_in_tiny_pieces_takes_no_more_memory_than_a_long_one(
    make: Callable[[Format, str], Flood],
    server: ScriptedServer,
    connect: Make,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(limits, "MAX_TEXT_CHARS", MIB // 16)
    monkeypatch.setattr(limits, "MAX_ARGUMENTS_CHARS", MIB // 16)
    server.add(make("openai", "ab"))
    tracemalloc.start()
    try:
        with pytest.raises(ModelError):
            connect("openai", server.url).ask(HELLO, Stop(), ignore)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MIB


@pytest.mark.parametrize(
    "flood",
    [
        floods.dripping_headers(0.02),
        floods.dripping_bytes(0.02),
        floods.dripping_comments(0.02),
    ],
    ids=["headers", "bytes", "comments"],
)
def test_a_trickle_is_not_progress(
    flood: Flood, server: ScriptedServer, connect: Make, format_: Format
):
    server.add(flood)
    with pytest.raises(ModelUnreachableError, match="did not answer in time"):
        connect(format_, server.url, timeout_s=0.1).ask(HELLO, Stop(), ignore)


def test_a_slow_reply_that_goes_on_is_waited_for(
    server: ScriptedServer, connect: Make, format_: Format
):
    server.add(say("one two three four five six", delay_s=0.1))
    model = connect(format_, server.url, timeout_s=0.4)
    assert model.ask(HELLO, Stop(), ignore).text == "one two three four five six"


def test_a_stream_that_goes_on_after_its_end_is_left(server: ScriptedServer, connect: Make):
    done = b'data: {"choices":[{"delta":{"content":"Hi."},"finish_reason":"stop"}]}\n\n'
    flood = floods.endless_text("openai")
    server.add(Flood(flood.first + done + b"data: [DONE]\n\n", flood.again), "Still here.")
    model = connect("openai", server.url)
    assert model.ask(HELLO, Stop(), ignore).text == "Hi."
    assert model.ask(HELLO, Stop(), ignore).text == "Still here."


def test_a_call_after_the_reply_was_finished_is_not_taken(server: ScriptedServer, connect: Make):
    call = b'"tool_calls":[{"index":0,"id":"c","function":{"name":"read","arguments":"{}"}}]'
    server.add(
        Events(
            (
                b'{"choices":[{"delta":{"content":"Done."}}]}',
                b'{"choices":[{"delta":{},"finish_reason":"stop"}]}',
                b'{"choices":[{"delta":{%b}}]}' % call,
                b"[DONE]",
            )
        ),
        Events((b'{"choices":[{"delta":{%b},"finish_reason":"stop"}]}' % call, b"[DONE]")),
    )
    model = connect("openai", server.url)
    reply = model.ask(HELLO, Stop(), ignore)
    assert (reply.text, reply.tool_calls, reply.finish) == ("Done.", [], "stop")
    together = model.ask(HELLO, Stop(), ignore)
    assert together.finish == "tool_calls", "what comes with the end belongs to the reply"


def test_a_block_after_the_message_was_finished_is_not_taken(server: ScriptedServer, connect: Make):
    server.add(
        Events(
            (
                b'{"type":"message_delta","delta":{"stop_reason":"end_turn"}}',
                b'{"type":"content_block_start","content_block":'
                b'{"type":"tool_use","id":"c","name":"read","input":{}}}',
                b'{"type":"content_block_delta","delta":'
                b'{"type":"input_json_delta","partial_json":"{}"}}',
                b'{"type":"message_stop"}',
            )
        )
    )
    reply = connect("anthropic", server.url).ask(HELLO, Stop(), ignore)
    assert (reply.tool_calls, reply.finish) == ([], "stop")


def test_a_flood_fails_its_turn_alone(
    server: ScriptedServer, model: Model, format_: Format, tmp_path: Path, home: Home
):
    server.add(floods.endless_text(format_), "Here I am.")
    settings = Settings(agent=AgentSettings(titles=False))
    with SessionDB(tmp_path / "state.db") as store:
        agent = Agent(model, Toolbox([]), store, settings, home, workspace=tmp_path)
        failed = agent.run_conversation("Tell me everything.")
        answered = agent.run_conversation("Are you there?")
        agent.close()
    assert "more text than a reply may have" in failed["error"]
    assert answered["final_response"] == "Here I am."
