"""What servers of OpenAI's format do differently from each other."""

import json
from typing import Any

import pytest

from hermes_agent.models.base import Model, Request, ToolSpec
from hermes_agent.testing.faults import Answer, Events, Refuse
from hermes_agent.testing.scripted import RecordingSink, say
from hermes_agent.testing.server import Recorded, ScriptedServer
from hermes_agent.turn.events import ignore
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ModelRefusedError, ModelUnreachableError
from tests.agent.models.conftest import Make

HELLO = Request("You help.", [], [{"role": "user", "content": "hello"}])
PNG = "data:image/png;base64,iVBORw0KGgo="


@pytest.fixture
def model(server: ScriptedServer, connect: Make) -> Model:
    return connect("openai", server.url)


def events(*deltas: dict[str, Any], finish: str | None = "stop", done: bool = True) -> Events:
    chunks: list[Any] = [{"choices": [{"delta": delta}]} for delta in deltas]
    if finish:
        chunks.append({"choices": [{"delta": {}, "finish_reason": finish}]})
    payloads = [json.dumps(chunk).encode() for chunk in chunks]
    return Events((*payloads, b"[DONE]") if done else tuple(payloads))


def part(**fields: Any) -> dict[str, Any]:
    function = {key: fields.pop(key) for key in ("name", "arguments") if key in fields}
    return {"tool_calls": [{**fields, "function": function}]}


@pytest.mark.parametrize(
    "deltas",
    [
        # no index
        [part(id="a", name="x", arguments='{"n"'), part(arguments=":1}"), part(id="b", name="y")],
        # no index and no id
        [part(name="x", arguments='{"n":1}'), part(name="y", arguments="{}")],
        # all calls with the same index
        [
            part(index=0, id="a", name="x", arguments='{"n":1}'),
            part(index=0, id="b", name="y", arguments=""),
        ],
        # id and name with every fragment
        [
            part(index=0, id="a", name="x", arguments='{"n"'),
            part(index=0, id="a", name="x", arguments=":1}"),
            part(index=1, id="b", name="y", arguments="{}"),
        ],
        # arguments as an object
        [part(index=0, name="x", arguments={"n": 1}), part(index=1, name="y")],
        # the same id twice
        [part(index=0, id="a", name="x", arguments='{"n":1}'), part(index=1, id="a", name="y")],
        # fragments that alternate
        [
            part(index=0, id="a", name="x", arguments='{"n"'),
            part(index=1, id="b", name="y", arguments="{"),
            part(index=0, arguments=":1}"),
            part(index=1, arguments="}"),
        ],
    ],
)
def test_tool_calls_are_understood_however_they_come(
    server: ScriptedServer, model: Model, deltas: Any
):
    server.add(events(*deltas, finish="tool_calls"))
    calls = model.ask(HELLO, Stop(), ignore).tool_calls
    assert [tool_call["function"]["name"] for tool_call in calls] == ["x", "y"]
    assert [json.loads(tool_call["function"]["arguments"]) for tool_call in calls] == [{"n": 1}, {}]
    assert len({tool_call["id"] for tool_call in calls}) == 2
    assert all(tool_call["id"] for tool_call in calls)


def test_calls_count_though_the_server_says_stop(server: ScriptedServer, model: Model):
    server.add(events(part(index=0, id="a", name="x"), finish="stop"))
    assert model.ask(HELLO, Stop(), ignore).finish == "tool_calls"


def test_a_stream_without_done_is_whole_when_it_said_why_it_ended(
    server: ScriptedServer, model: Model
):
    server.add(events({"content": "hi"}, done=False))
    assert model.ask(HELLO, Stop(), ignore).text == "hi"


def test_a_stream_with_done_needs_no_reason(server: ScriptedServer, model: Model):
    server.add(events({"content": "hi"}, finish=None))
    assert model.ask(HELLO, Stop(), ignore).text == "hi"


def test_a_server_that_does_not_stream_is_understood(server: ScriptedServer, model: Model):
    message = {"role": "assistant", "content": "all at once", "reasoning_content": "hm"}
    whole = {
        "choices": [{"message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "prompt_cache_hit_tokens": 3},
    }
    server.add(Answer(json.dumps(whole).encode()))
    sink = RecordingSink()
    reply = model.ask(HELLO, Stop(), sink)
    assert (reply.text, sink.text, reply.reasoning) == ("all at once", "all at once", "hm")
    assert (reply.usage.input_tokens, reply.usage.cache_read_tokens) == (5, 3)


def test_json_that_is_no_reply_is_told(server: ScriptedServer, model: Model):
    server.add(Answer(b'{"hello": "world"}'))
    with pytest.raises(ModelUnreachableError, match="can be read"):
        model.ask(HELLO, Stop(), ignore)


def test_an_error_with_a_status_of_success_is_an_error(server: ScriptedServer, model: Model):
    server.add(Answer(b'{"error": {"message": "No endpoints found for x.", "code": 404}}'))
    with pytest.raises(ModelRefusedError, match="No endpoints"):
        model.ask(HELLO, Stop(), ignore)


def test_content_and_reasoning_in_parts_are_text(server: ScriptedServer, model: Model):
    server.add(events({"content": [{"type": "text", "text": "hi"}, {"type": "thinking"}]}))
    assert model.ask(HELLO, Stop(), ignore).text == "hi"


def test_think_tags_are_left_alone(server: ScriptedServer, model: Model):
    server.add("<think>hm</think>yes")
    assert model.ask(HELLO, Stop(), ignore).text == "<think>hm</think>yes"


def test_a_refusal_in_words_is_the_reply(server: ScriptedServer, model: Model):
    server.add(events({"refusal": "I will not."}))
    reply = model.ask(HELLO, Stop(), ignore)
    assert (reply.text, reply.finish) == ("I will not.", "refusal")


def test_reasoning_goes_back_in_the_form_it_came(server: ScriptedServer, model: Model):
    details = [
        {"type": "reasoning.text", "index": 0, "text": "So "},
        {"type": "reasoning.text", "index": 0, "text": "then.", "signature": "sig"},
        {"type": "reasoning.encrypted", "index": 1, "data": "xyz"},
    ]
    server.add(
        events(
            {"reasoning_content": "So ", "reasoning_details": details[:1]},
            {"reasoning_content": "then.", "reasoning_details": details[1:]},
            {"content": "Yes."},
        ),
        "ok",
    )
    reply = model.ask(HELLO, Stop(), ignore)
    assert reply.reasoning == "So then."
    message = {
        "role": "assistant",
        "content": reply.text,
        "reasoning": reply.reasoning,
        **reply.extra,
    }
    model.ask(HELLO._replace(messages=[*HELLO.messages, message]), Stop(), ignore)
    sent = server.model_requests[1].json["messages"][-1]
    assert sent == {
        "role": "assistant",
        "content": "Yes.",
        "reasoning_content": "So then.",
        "reasoning_details": [
            {"type": "reasoning.text", "index": 0, "text": "So then.", "signature": "sig"},
            {"type": "reasoning.encrypted", "index": 1, "data": "xyz"},
        ],
    }


def refusing(field: str) -> Any:
    """A server that does not know a field."""

    def answer(request: Recorded) -> Any:
        body = json.dumps(request.json)
        is_there = f'"{field}"' in body
        return Refuse(400, f"Unrecognized request argument: {field}") if is_there else say("ok")

    return answer


@pytest.mark.parametrize("field", ["stream_options", "max_completion_tokens", "response_format"])
def test_a_field_that_is_refused_is_left_out_from_then_on(connect: Make, field: str):
    request = HELLO._replace(max_output_tokens=50, json_schema={"type": "object"})
    with ScriptedServer(refusing(field)) as server:
        model = connect("openai", server.url)
        assert model.ask(request, Stop(), ignore).text == "ok"
        assert model.ask(request, Stop(), ignore).text == "ok"
        assert len(server.model_requests) == 3
        if field == "max_completion_tokens":
            assert server.model_requests[-1].json["max_tokens"] == 50


def test_reasoning_that_another_server_refuses_is_left_out(connect: Make):
    message = {"role": "assistant", "content": "Yes.", "reasoning_details": [{"type": "x"}]}
    with ScriptedServer(refusing("reasoning_details")) as server:
        model = connect("openai", server.url)
        request = HELLO._replace(messages=[*HELLO.messages, message])
        assert model.ask(request, Stop(), ignore).text == "ok"


def test_a_model_that_may_not_think_while_it_has_tools_is_told_not_to(connect: Make):
    def answer(request: Recorded) -> Any:
        if request.json.get("reasoning_effort") == "none":
            return say("ok")
        return Refuse(400, "Function tools with reasoning_effort are not supported for this model.")

    with ScriptedServer(answer) as server:
        model = connect("openai", server.url)
        request = HELLO._replace(tools=[ToolSpec("x", "Does.", {"type": "object"})])
        assert model.ask(request, Stop(), ignore).text == "ok"
        assert model.ask(request, Stop(), ignore).text == "ok"
        assert len(server.model_requests) == 3


def test_a_field_that_is_always_refused_does_not_go_round_in_circles(connect: Make):
    with ScriptedServer(lambda _: Refuse(400, "no max_tokens, no max_completion_tokens")) as server:
        model = connect("openai", server.url)
        with pytest.raises(ModelRefusedError):
            model.ask(HELLO._replace(max_output_tokens=5), Stop(), ignore)
        assert len(server.model_requests) == 2


def test_other_servers_get_the_older_name_of_the_limit(server: ScriptedServer, connect: Make):
    server.add("ok")
    model = connect("openai", server.url, provider="local")
    model.ask(HELLO._replace(max_output_tokens=50), Stop(), ignore)
    assert server.model_requests[0].json["max_tokens"] == 50


def test_a_model_without_tools_is_told_with_the_way_out(server: ScriptedServer, model: Model):
    server.add(Refuse(400, "registry.ollama.ai/library/gemma:2b does not support tools"))
    with pytest.raises(ModelRefusedError) as caught:
        model.ask(HELLO, Stop(), ignore)
    assert 'model.small = "on"' in caught.value.fix


def test_an_address_without_its_path_is_told(server: ScriptedServer, connect: Make):
    model = connect("openai", f"{server.url}/wrong")
    with pytest.raises(ModelRefusedError, match="Nothing answers") as caught:
        model.ask(HELLO, Stop(), ignore)
    assert "/v1" in caught.value.fix


def test_a_schema_is_asked_for(server: ScriptedServer, model: Model):
    server.add('{"a":1}')
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    model.ask(HELLO._replace(json_schema=schema), Stop(), ignore)
    sent = server.model_requests[0].json["response_format"]
    assert sent == {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}


def test_images_of_results_follow_all_the_results(server: ScriptedServer, model: Model):
    image = {"type": "image_url", "image_url": {"url": PNG}}
    call = {"id": "a", "function": {"name": "look", "arguments": "{}"}}
    seen = [{"type": "text", "text": "a cat"}, image]
    messages = [
        {"role": "user", "content": "look twice"},
        {"role": "assistant", "content": "", "tool_calls": [call, {**call, "id": "b"}]},
        {"role": "tool", "tool_call_id": "a", "content": seen},
        {"role": "tool", "tool_call_id": "b", "content": "nothing"},
    ]
    server.add("ok", "ok")
    model.ask(HELLO._replace(messages=messages), Stop(), ignore)
    longer = [
        *messages,
        {"role": "assistant", "content": "A cat."},
        {"role": "user", "content": "?"},
    ]
    model.ask(HELLO._replace(messages=longer), Stop(), ignore)
    roles = [m["role"] for m in server.model_requests[0].json["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user"]
    assert server.model_requests[0].json["messages"][-1]["content"][-1] == image
    assert server.model_requests[1].body.startswith(
        server.model_requests[0].body.removesuffix(b"]}")
    )


def test_the_tools_are_sent_as_functions(server: ScriptedServer, model: Model):
    server.add("ok")
    model.ask(HELLO._replace(tools=[ToolSpec("x", "Does.", {"type": "object"})]), Stop(), ignore)
    function = {"name": "x", "description": "Does.", "parameters": {"type": "object"}}
    assert server.model_requests[0].json["tools"] == [{"type": "function", "function": function}]
    assert server.model_requests[0].headers["authorization"] == "Bearer sk-of-the-test"
