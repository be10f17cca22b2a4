"""What only Anthropic's format has: cache marks, signed thoughts, results in one message."""

import json
from typing import Any

import pytest

from hermes_agent.models.base import Model, Request, ToolSpec, Usage
from hermes_agent.testing.faults import Answer, Events, Refuse
from hermes_agent.testing.scripted import RecordingSink, raw_call, say, together
from hermes_agent.testing.server import ScriptedServer
from hermes_agent.turn.events import ignore
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ContextTooLongError, ModelRefusedError
from tests.agent.models.conftest import Make

READ = ToolSpec("read", "Reads.", {"type": "object"})
WRITE = ToolSpec("write", "Writes.", {"type": "object"})
HELLO = Request("You help.", [READ, WRITE], [{"role": "user", "content": "hello"}])
MARK = {"type": "ephemeral"}


@pytest.fixture
def model(server: ScriptedServer, connect: Make) -> Model:
    return connect("anthropic", server.url)


def sent_for(server: ScriptedServer, model: Model, messages: Any) -> dict[str, Any]:
    server.add("ok")
    model.ask(HELLO._replace(messages=messages), Stop(), ignore)
    return server.model_requests[-1].json


def marks(value: Any) -> int:
    return json.dumps(value).count('"cache_control"')


def test_the_end_of_tools_system_and_history_are_marked(server: ScriptedServer, model: Model):
    history = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "two"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "three"},
    ]
    sent = sent_for(server, model, history)
    assert sent["tools"][-1]["cache_control"] == sent["system"][-1]["cache_control"] == MARK
    assert [marks(m) for m in sent["messages"]] == [0, 0, 1, 0, 1]
    assert marks(sent) == 4


def test_the_end_of_the_request_before_is_marked_again(server: ScriptedServer, model: Model):
    history: list[Any] = [{"role": "user", "content": "one"}]
    before = sent_for(server, model, history)
    assert marks(before["messages"][-1]) == 1
    history += [{"role": "assistant", "content": "1"}, {"role": "user", "content": "two"}]
    after = sent_for(server, model, history)
    assert after["messages"][0] == before["messages"][0]


def test_all_results_of_a_step_are_in_one_message_before_what_is_said_next(
    server: ScriptedServer, model: Model
):
    calls = [{"id": c, "function": {"name": "read", "arguments": '{"n":1}'}} for c in ("a", "b.1")]
    sent = sent_for(
        server,
        model,
        [
            {"role": "user", "content": "read"},
            {"role": "assistant", "content": "Look:", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "a", "content": "A"},
            {"role": "tool", "tool_call_id": "b.1", "content": ""},
            {"role": "user", "content": "and?"},
        ],
    )["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "user"]
    assert [b["type"] for b in sent[1]["content"]] == ["text", "tool_use", "tool_use"]
    assert sent[1]["content"][1]["input"] == {"n": 1}
    assert [b["type"] for b in sent[2]["content"]] == ["tool_result", "tool_result", "text"]
    assert [b["tool_use_id"] for b in sent[2]["content"][:2]] == ["a", "b_1"]


def test_signed_thoughts_go_back_word_for_word(server: ScriptedServer, model: Model):
    server.add(together(say("Look.", reasoning="Let me think."), raw_call("read", "{}")))
    reply = model.ask(HELLO, Stop(), ignore)
    message = {"role": "assistant", "content": reply.text, "tool_calls": reply.tool_calls}
    result = {"role": "tool", "tool_call_id": reply.tool_calls[0]["id"], "content": "A"}
    stored = json.loads(json.dumps({**message, "reasoning": reply.reasoning, **reply.extra}))
    sent = sent_for(server, model, [*HELLO.messages, stored, result])["messages"]
    thought = {"type": "thinking", "thinking": "Let me think.", "signature": "signed-13"}
    assert sent[1]["content"][0] == thought


def test_hidden_thoughts_are_kept_and_unsigned_ones_are_not(server: ScriptedServer, model: Model):
    blocks = [
        {"type": "redacted_thinking", "data": "cipher"},
        {"type": "thinking", "thinking": "aloud", "signature": ""},
        {"type": "text", "text": "Hi."},
    ]
    server.add(
        Answer(
            json.dumps({"type": "message", "content": blocks, "stop_reason": "end_turn"}).encode()
        )
    )
    reply = model.ask(HELLO, Stop(), ignore)
    assert reply.extra == {"thinking_blocks": blocks[:1]}
    assert (reply.text, reply.reasoning) == ("Hi.", "aloud")


def test_a_server_that_does_not_stream_is_understood(server: ScriptedServer, model: Model):
    blocks = [{"type": "tool_use", "id": "t", "name": "read", "input": {"path": "x"}}]
    usage = {"input_tokens": 4, "cache_read_input_tokens": 6, "output_tokens": 2}
    whole = {"type": "message", "content": blocks, "stop_reason": "tool_use", "usage": usage}
    server.add(Answer(json.dumps(whole).encode()))
    reply = model.ask(HELLO, Stop(), ignore)
    assert reply.tool_calls[0]["function"]["arguments"] == '{"path":"x"}'
    assert reply.usage == Usage(10, 2, cache_read_tokens=6)


def test_usage_counts_what_was_cached(server: ScriptedServer, model: Model):
    server.add(say("ok", usage=Usage(100, 7, cache_read_tokens=60, cache_write_tokens=30)))
    used = model.ask(HELLO, Stop(), ignore).usage
    assert used == Usage(100, 7, cache_read_tokens=60, cache_write_tokens=30)


def test_images_are_translated(server: ScriptedServer, model: Model):
    def image(url: Any) -> dict[str, Any]:
        return {"type": "image_url", "image_url": url}

    parts = [
        image({"url": "data:image/png;base64,AAAA"}),
        image("https://x.test/a.png"),
        image({"url": "file:///etc/passwd"}),
    ]
    call = {"id": "a", "function": {"name": "read", "arguments": "{}"}}
    sent = sent_for(
        server,
        model,
        [
            {"role": "user", "content": parts},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": parts[:1]},
        ],
    )["messages"]
    png = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    sources = [block.get("source") for block in sent[0]["content"]]
    assert sources == [png, {"type": "url", "url": "https://x.test/a.png"}, None]
    assert sent[2]["content"][0]["content"][0]["source"] == png


def test_a_shape_is_forced_with_a_tool_and_comes_back_as_text(server: ScriptedServer, model: Model):
    server.add(raw_call("reply", '{"title": "A day out"}'))
    sink = RecordingSink()
    schema = {"type": "object", "properties": {"title": {"type": "string"}}}
    reply = model.ask(HELLO._replace(json_schema=schema), Stop(), sink)
    assert (reply.text, reply.tool_calls, reply.finish) == ('{"title": "A day out"}', [], "stop")
    assert sink.text == reply.text
    sent = server.model_requests[0].json
    assert sent["tool_choice"] == {"type": "tool", "name": "reply"}
    assert sent["tools"][-1]["input_schema"] == schema


def test_the_reply_has_a_limit_of_its_own_unless_one_is_asked_for(
    server: ScriptedServer, model: Model
):
    assert sent_for(server, model, HELLO.messages)["max_tokens"] == 4096


def test_the_key_and_the_version_are_in_the_headers(server: ScriptedServer, model: Model):
    sent_for(server, model, HELLO.messages)
    headers = server.model_requests[0].headers
    assert headers["x-api-key"] == "sk-of-the-test"
    assert headers["anthropic-version"]


def test_an_address_may_end_in_v1(server: ScriptedServer, connect: Make):
    sent_for(server, connect("anthropic", f"{server.url}/v1/"), HELLO.messages)


def test_an_account_without_credit_is_told(server: ScriptedServer, model: Model):
    server.add(Refuse(400, "Your credit balance is too low to access the API."))
    with pytest.raises(ModelRefusedError, match="no quota left"):
        model.ask(HELLO, Stop(), ignore)


def test_a_limit_that_leaves_no_room_is_a_context_that_is_too_long(
    server: ScriptedServer, model: Model
):
    server.add(
        Refuse(400, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000")
    )
    with pytest.raises(ContextTooLongError):
        model.ask(HELLO, Stop(), ignore)


def test_events_that_nobody_knows_yet_are_passed_over(server: ScriptedServer, model: Model):
    events = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1}}},
        {"type": "something_new", "delta": {"type": "x"}},
        {"type": "content_block_start", "content_block": {"type": "server_tool_use", "id": "s"}},
        {"type": "content_block_start", "content_block": {"type": "text", "text": "Hi"}},
        {"type": "content_block_delta", "delta": {"type": "citations_delta", "citation": {}}},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 9},
        },
        {"type": "message_stop"},
    ]
    server.add(Events(tuple(json.dumps(event).encode() for event in events)))
    reply = model.ask(HELLO, Stop(), ignore)
    assert (reply.text, reply.usage) == ("Hi", Usage(3, 9))
