"""What both wire formats do alike."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from hermes_agent.models.base import Model, Request, ToolSpec, Usage
from hermes_agent.testing import faults
from hermes_agent.testing.scripted import Quiet, RecordingSink, call, raw_call, say, together
from hermes_agent.testing.server import ScriptedServer
from hermes_agent.turn.events import ReasoningDelta, TextDelta, ToolCallBegun, ignore
from hermes_agent.turn.stop import Stop
from hermes_core import clock, secrets
from hermes_core.errors import (
    ContextTooLongError,
    ModelError,
    ModelRefusedError,
    ModelUnreachableError,
)
from tests.agent.models.conftest import Format, Make

READ = ToolSpec("read", "Reads.", {"type": "object", "properties": {"path": {"type": "string"}}})
HELLO = Request(
    "You help.", [READ], [{"role": "user", "content": "hello", "id": 7, "timestamp": 1.5}]
)
PNG = "data:image/png;base64,iVBORw0KGgo="


def test_a_reply_is_streamed_and_returned(server: ScriptedServer, model: Model):
    used = Usage(100, 20, cache_read_tokens=60)
    server.add(say("One two three.", reasoning="Count aloud.", usage=used))
    sink = RecordingSink()
    reply = model.ask(HELLO, Stop(), sink)
    assert (reply.text, reply.reasoning, reply.finish) == ("One two three.", "Count aloud.", "stop")
    assert [event.text for event in sink.of(TextDelta)] == ["One ", "two ", "three."]
    assert [event.text for event in sink.of(ReasoningDelta)] == ["Count ", "aloud."]
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (100, 20)
    assert reply.usage.cache_read_tokens == 60
    assert server.model_requests[0].json["stream"] is True


def test_parallel_tool_calls_are_put_together_from_fragments(server: ScriptedServer, model: Model):
    server.add(together("Look: ", call("read", path="a long name.txt"), call("read", path="b")))
    sink = RecordingSink()
    reply = model.ask(HELLO, Stop(), sink)
    assert reply.text == "Look: "
    assert reply.finish == "tool_calls"
    arguments = [json.loads(tool_call["function"]["arguments"]) for tool_call in reply.tool_calls]
    assert arguments == [{"path": "a long name.txt"}, {"path": "b"}]
    assert [tool_call["function"]["name"] for tool_call in reply.tool_calls] == ["read", "read"]
    assert len({tool_call["id"] for tool_call in reply.tool_calls}) == 2
    assert [event.name for event in sink.of(ToolCallBegun)] == ["read", "read"]


def test_broken_arguments_are_left_as_they_are(server: ScriptedServer, model: Model):
    server.add(raw_call("read", '{"path": "a'))
    assert model.ask(HELLO, Stop(), ignore).tool_calls[0]["function"]["arguments"] == '{"path": "a'


@pytest.mark.parametrize(("finish", "expected"), [("length", "length"), ("refusal", "refusal")])
def test_why_a_reply_ended_is_told(
    server: ScriptedServer, model: Model, finish: Any, expected: str
):
    server.add(say("Half", finish=finish))
    assert model.ask(HELLO, Stop(), ignore).finish == expected


def test_connections_are_used_again(server: ScriptedServer, model: Model):
    server.add("one", "two", "three")
    for _ in range(3):
        model.ask(HELLO, Stop(), ignore)
    assert len(server.clients) == 1


def test_a_longer_conversation_begins_with_the_same_bytes(server: ScriptedServer, model: Model):
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read a and b, ünd see."}]
    request = Request("You help.", [READ], messages)
    server.add(
        together(
            "Look: ", call("read", path="a"), call("read", path="b"), say("", reasoning="Hm.")
        ),
        "Done.",
        "Yes.",
    )
    first = model.ask(request, Stop(), ignore)
    message = {"role": "assistant", "content": first.text, "tool_calls": first.tool_calls}
    messages = [*messages, {**message, **first.extra, "reasoning": first.reasoning}]
    for tool_call, result in zip(first.tool_calls, ("A", "B"), strict=True):
        messages.append({"role": "tool", "tool_call_id": tool_call["id"], "content": result})
    second = model.ask(request._replace(messages=messages), Stop(), ignore)
    messages = [*messages, {"role": "assistant", "content": second.text}]
    messages.append({"role": "user", "content": "Thanks?"})
    # as they come back from the store: other objects, other keys, the same content
    stored = [
        {**m, "id": n, "timestamp": 2.0} for n, m in enumerate(json.loads(json.dumps(messages)))
    ]
    model.ask(request._replace(messages=stored), Stop(), ignore)

    bodies = [_without_marks(sent.body) for sent in server.model_requests]
    for shorter, longer in zip(bodies, bodies[1:], strict=False):
        assert longer.startswith(shorter.removesuffix(b"]}"))
        assert len(longer) > len(shorter)


def _without_marks(body: bytes) -> bytes:
    """Cache marks wander with the end of the conversation and are no part of what is cached."""
    return body.replace(b',"cache_control":{"type":"ephemeral"}', b"")


def test_the_same_request_has_the_same_bytes(server: ScriptedServer, model: Model):
    server.add("a", "b")
    model.ask(HELLO, Stop(), ignore)
    model.ask(HELLO, Stop(), ignore)
    assert server.model_requests[0].body == server.model_requests[1].body


def test_secrets_do_not_reach_the_model(server: ScriptedServer, model: Model):
    secrets.register({"GITHUB_TOKEN": "ghp_very-secret-value"})
    server.add("ok")
    messages = [{"role": "user", "content": "push with ghp_very-secret-value"}]
    model.ask(HELLO._replace(messages=messages), Stop(), ignore)
    body = server.model_requests[0].body
    assert b"very-secret" not in body
    assert b"[secret GITHUB_TOKEN]" in body


def test_half_characters_are_sent_as_something_readable(server: ScriptedServer, model: Model):
    server.add("ok")
    messages = [{"role": "user", "content": "half \ud83d of it"}]
    assert model.ask(HELLO._replace(messages=messages), Stop(), ignore).text == "ok"


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": ""}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}],
        [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": None, "kind": "partial"},
        ],
        [{"role": "assistant", "content": "I begin."}],
        [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
        [{"role": "user", "content": [{"type": "text", "text": "a"}, "b", {"odd": 1}]}],
        [{"role": "user", "content": {"a": 1}}],
        [
            {"role": "user", "content": "a"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "functions.x:0", "function": {"name": "x", "arguments": "{broken"}}
                ],
            },
            {"role": "tool", "tool_call_id": "functions.x:0", "content": ""},
        ],
    ],
)
def test_odd_messages_make_valid_requests(
    server: ScriptedServer, model: Model, format_: Format, messages: Any
):
    server.add("ok")
    model.ask(HELLO._replace(messages=messages), Stop(), ignore)
    sent = server.model_requests[0].json["messages"]
    (_check_openai if format_ == "openai" else _check_anthropic)(sent)


def _check_openai(sent: list[dict[str, Any]]) -> None:
    for message in sent:
        assert message["content"] is None or isinstance(message["content"], str | list)
        if message["role"] == "assistant":
            assert message["content"] or message["tool_calls"]
            for tool_call in message.get("tool_calls", []):
                assert isinstance(json.loads(tool_call["function"]["arguments"]), dict)


def _check_anthropic(sent: list[dict[str, Any]]) -> None:
    assert [m["role"] for m in sent] == [("user", "assistant")[n % 2] for n in range(len(sent))]
    assert sent[-1]["role"] == "user"
    for message in sent:
        assert message["content"]
        for block in message["content"]:
            assert block["type"] in ("text", "tool_use", "tool_result")
            assert block["type"] != "text" or block["text"].strip()
            assert block["type"] != "tool_use" or isinstance(block["input"], dict)


def test_images_are_sent_to_those_who_can_see_and_to_no_others(
    server: ScriptedServer, connect: Make, format_: Format
):
    server.add("ok", "ok")
    parts = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": PNG}}]
    request = HELLO._replace(messages=[{"role": "user", "content": parts}])
    connect(format_, server.url).ask(request, Stop(), ignore)
    connect(format_, server.url, takes_images=False).ask(request, Stop(), ignore)
    assert b"iVBORw0KGgo=" in server.model_requests[0].body
    assert b"iVBORw0KGgo=" not in server.model_requests[1].body
    assert b"left out" in server.model_requests[1].body


def test_the_limit_of_a_reply_is_passed_on(server: ScriptedServer, model: Model, format_: Format):
    server.add("ok")
    model.ask(HELLO._replace(max_output_tokens=77), Stop(), ignore)
    name = "max_completion_tokens" if format_ == "openai" else "max_tokens"
    assert server.model_requests[0].json[name] == 77


def test_a_wrong_key_is_named(server: ScriptedServer, model: Model):
    server.add(faults.wrong_key())
    with pytest.raises(ModelRefusedError) as caught:
        model.ask(HELLO, Stop(), ignore)
    assert "THE_KEY" in caught.value.fix
    assert (caught.value.retryable, caught.value.status) == (False, 401)


def test_a_missing_key_is_told_apart_from_a_wrong_one(
    server: ScriptedServer, connect: Make, format_: Format
):
    server.add(faults.wrong_key())
    with pytest.raises(ModelRefusedError, match="none is set"):
        connect(format_, server.url, api_key="").ask(HELLO, Stop(), ignore)


@pytest.mark.parametrize("fault", [faults.no_quota(), faults.no_credits()])
def test_no_quota_is_not_a_rate_limit(server: ScriptedServer, model: Model, fault: Any):
    server.add(fault)
    with pytest.raises(ModelRefusedError, match="no quota left") as caught:
        model.ask(HELLO, Stop(), ignore)
    assert not caught.value.retryable


def test_a_rate_limit_says_when_to_come_back(server: ScriptedServer, model: Model):
    moment = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    server.add(faults.rate_limited(3), faults.rate_limited(moment), faults.rate_limited())
    found: list[float | None] = []
    with clock.replaced(lambda: moment.timestamp() - 7):
        for _ in range(3):
            with pytest.raises(ModelError) as caught:
                model.ask(HELLO, Stop(), ignore)
            assert caught.value.retryable
            found.append(caught.value.retry_after_s)
    assert found == [3, 7, None]


@pytest.mark.parametrize("status", [408, 409, 500, 502, 503, 504, 529])
def test_faults_of_the_server_may_be_retried(server: ScriptedServer, model: Model, status: int):
    server.add(faults.Refuse(status, "busy"))
    with pytest.raises(ModelUnreachableError, match=f"{status}.*busy") as caught:
        model.ask(HELLO, Stop(), ignore)
    assert caught.value.retryable


@pytest.mark.parametrize("status", [400, 403, 422])
def test_refusals_may_not_be_retried(server: ScriptedServer, model: Model, status: int):
    server.add(faults.Refuse(status, "we will not"))
    with pytest.raises(ModelRefusedError, match="we will not") as caught:
        model.ask(HELLO, Stop(), ignore)
    assert not caught.value.retryable


def test_an_unknown_model_comes_with_close_names(
    server: ScriptedServer, connect: Make, format_: Format
):
    server.models = {"scripted-mini": {}, "scripted-max": {}, "else": {}}
    server.add(faults.unknown_model("scripted-mino"))
    with pytest.raises(ModelRefusedError, match="no model scripted-mino") as caught:
        connect(format_, server.url, name="scripted-mino").ask(HELLO, Stop(), ignore)
    assert "scripted-mini" in caught.value.fix
    assert "else" not in caught.value.fix


@pytest.mark.parametrize(
    "wording", ["openai", "anthropic", "llama.cpp", "vllm", "ollama", "openrouter"]
)
def test_a_context_that_is_too_long_is_recognised(
    server: ScriptedServer, model: Model, wording: faults.Wording
):
    server.add(faults.context_too_long(wording))
    with pytest.raises(ContextTooLongError) as caught:
        model.ask(HELLO, Stop(), ignore)
    assert not caught.value.retryable


def test_a_cut_stream_may_be_retried(server: ScriptedServer, model: Model):
    server.add(faults.Cut("Half of"))
    sink = RecordingSink()
    with pytest.raises(ModelUnreachableError, match="cut the connection|broke off") as caught:
        model.ask(HELLO, Stop(), sink)
    assert caught.value.retryable
    assert sink.text == "Half of"


def test_a_stream_that_just_ends_is_a_cut_one(server: ScriptedServer, model: Model):
    server.add(faults.Events(()))
    with pytest.raises(ModelUnreachableError, match="broke off"):
        model.ask(HELLO, Stop(), ignore)


def test_an_error_in_the_middle_of_a_stream_is_told(server: ScriptedServer, model: Model):
    server.add(faults.Break("Too much to do", kind="overloaded_error", after="Half"))
    with pytest.raises(ModelUnreachableError, match="Too much to do") as caught:
        model.ask(HELLO, Stop(), ignore)
    assert (caught.value.status, caught.value.retryable) == (529, True)


def test_a_web_page_instead_of_a_reply_is_told(server: ScriptedServer, model: Model):
    server.add(faults.garbage())
    with pytest.raises(ModelUnreachableError, match="web page") as caught:
        model.ask(HELLO, Stop(), ignore)
    assert "base_url" in caught.value.fix
    assert not caught.value.retryable


@pytest.mark.parametrize("data", [b"{not json", b"[]", b"3", b"\xff\xfe"])
def test_noise_in_a_stream_is_told(server: ScriptedServer, model: Model, data: bytes):
    server.add(faults.Events((data,)))
    with pytest.raises(ModelUnreachableError, match="can be read") as caught:
        model.ask(HELLO, Stop(), ignore)
    assert caught.value.retryable


def test_a_page_of_a_proxy_with_an_error_status_is_told(server: ScriptedServer, model: Model):
    page = faults.garbage()
    server.add(faults.Answer(page.body, 502, "text/html"))
    with pytest.raises(ModelUnreachableError, match="web page"):
        model.ask(HELLO, Stop(), ignore)


def test_nobody_listening_is_told_with_the_address(connect: Make, format_: Format):
    with ScriptedServer([]) as server:
        url = server.url
    with pytest.raises(ModelUnreachableError, match="refused") as caught:
        connect(format_, url).ask(HELLO, Stop(), ignore)
    assert url.removeprefix("http://") in caught.value.message
    assert "Start" in caught.value.fix
    assert caught.value.retryable


def test_a_name_that_is_not_known_is_told(connect: Make, format_: Format):
    with pytest.raises(ModelUnreachableError, match="is not known"):
        connect(format_, "http://nowhere.invalid").ask(HELLO, Stop(), ignore)


def test_a_server_that_is_silent_for_too_long_is_given_up(
    server: ScriptedServer, connect: Make, format_: Format
):
    server.add(faults.Hold(Quiet()))
    with pytest.raises(ModelUnreachableError, match="did not answer in time") as caught:
        connect(format_, server.url, timeout_s=0.05).ask(HELLO, Stop(), ignore)
    assert caught.value.retryable
    assert "model.timeout_s" in caught.value.fix
