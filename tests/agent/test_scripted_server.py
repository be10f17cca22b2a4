"""The scripted server, proved right by the providers' own clients."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.models.base import Usage
from hermes_agent.testing.faults import (
    Answer,
    Break,
    Cut,
    Hold,
    Refuse,
    context_too_long,
    no_quota,
    overloaded,
    rate_limited,
    unknown_model,
    wrong_key,
)
from hermes_agent.testing.scripted import TIMEOUT_S, Quiet, call, say, silence, together
from hermes_agent.testing.server import ScriptedServer
from hermes_agent.testing.shell import read_script
from hermes_core.errors import UsageError
from tests.support.clients import anthropic, openai

WEATHER: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
ASK: Any = [{"role": "user", "content": "hello"}]
USED = Usage(100, 20, cache_read_tokens=60, cache_write_tokens=30, reasoning_tokens=5)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer([]) as server:
        yield server


@pytest.fixture
def gpt(server: ScriptedServer) -> Iterator[Any]:
    with openai.OpenAI(
        base_url=server.openai_url, api_key="k", max_retries=0, timeout=TIMEOUT_S
    ) as client:
        yield client.chat.completions


@pytest.fixture
def claude(server: ScriptedServer) -> Iterator[Any]:
    with anthropic.Anthropic(
        base_url=server.url, api_key="k", max_retries=0, timeout=TIMEOUT_S
    ) as client:
        yield client.messages


def openai_tools() -> Any:
    function = {"name": "weather", "description": "Tells it.", "parameters": WEATHER}
    return [{"type": "function", "function": function}]


def anthropic_tools() -> Any:
    return [{"name": "weather", "description": "Tells it.", "input_schema": WEATHER}]


def test_the_openai_client_reads_a_whole_reply(server: ScriptedServer, gpt: Any):
    server.add(say("Hello there.", usage=USED))
    reply = gpt.create(model="scripted", messages=ASK)
    assert reply.choices[0].message.content == "Hello there."
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.prompt_tokens == 100
    assert reply.usage.prompt_tokens_details.cached_tokens == 60
    assert reply.usage.completion_tokens_details.reasoning_tokens == 5


def test_the_openai_client_streams(server: ScriptedServer, gpt: Any):
    server.add(say("One two three.", usage=USED))
    stream = gpt.create(
        model="scripted", messages=ASK, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    texts = [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content]
    assert texts == ["One ", "two ", "three."]
    assert chunks[-1].usage.completion_tokens == 20


@pytest.mark.parametrize("is_streaming", [False, True])
def test_the_openai_client_gets_parallel_tool_calls(
    server: ScriptedServer, gpt: Any, is_streaming: bool
):
    server.add(together("Both: ", call("weather", city="Rome"), call("weather", city="Oslo")))
    request = {"model": "scripted", "messages": ASK, "tools": openai_tools()}
    if is_streaming:
        with gpt.stream(**request) as stream:
            reply = stream.get_final_completion()
    else:
        reply = gpt.create(**request)
    calls = reply.choices[0].message.tool_calls
    assert [json.loads(c.function.arguments)["city"] for c in calls] == ["Rome", "Oslo"]
    assert len({c.id for c in calls}) == 2
    assert reply.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (wrong_key(), "AuthenticationError"),
        (no_quota(), "RateLimitError"),
        (rate_limited(3), "RateLimitError"),
        (unknown_model("x"), "NotFoundError"),
        (context_too_long("openai"), "BadRequestError"),
        (Refuse(503, "down"), "InternalServerError"),
        (Break("it broke", after="Half"), "APIError"),
    ],
)
def test_the_openai_client_understands_the_errors(
    server: ScriptedServer, gpt: Any, fault: Any, kind: str
):
    server.add(fault)
    with pytest.raises(getattr(openai, kind)) as caught:
        list(gpt.create(model="scripted", messages=ASK, stream=True))
    assert fault.message in str(caught.value)


def test_the_openai_client_sees_when_to_come_back(server: ScriptedServer, gpt: Any):
    moment = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    server.add(rate_limited(3), rate_limited(moment))
    for expected in ("3", "Wed, 02 Jan 2030 03:04:05 GMT"):
        with pytest.raises(openai.RateLimitError) as caught:
            gpt.create(model="scripted", messages=ASK)
        assert caught.value.response.headers["retry-after"] == expected


def test_the_openai_client_notices_a_cut(server: ScriptedServer, gpt: Any):
    server.add(Cut("Half of"))
    with pytest.raises(Exception, match="incomplete|Connection"):
        list(gpt.create(model="scripted", messages=ASK, stream=True))


def test_the_openai_client_lists_models(server: ScriptedServer):
    server.models = {"a": {"max_model_len": 8192}, "b": {}}
    with openai.OpenAI(base_url=server.openai_url, api_key="k") as client:
        assert [model.id for model in client.models.list()] == ["a", "b"]


def test_the_anthropic_client_reads_a_whole_reply(server: ScriptedServer, claude: Any):
    server.add(say("Hello there.", reasoning="Be kind.", usage=USED))
    reply = claude.create(model="scripted", messages=ASK, max_tokens=50)
    assert [block.type for block in reply.content] == ["thinking", "text"]
    assert (reply.content[0].thinking, reply.content[1].text) == ("Be kind.", "Hello there.")
    assert reply.stop_reason == "end_turn"
    assert reply.usage.input_tokens == 10
    assert reply.usage.cache_read_input_tokens == 60
    assert reply.usage.cache_creation_input_tokens == 30


def test_the_anthropic_client_streams(server: ScriptedServer, claude: Any):
    server.add(say("One two three.", reasoning="Count aloud.", usage=USED))
    with claude.stream(model="scripted", messages=ASK, max_tokens=50) as stream:
        assert list(stream.text_stream) == ["One ", "two ", "three."]
        final = stream.get_final_message()
    assert final.content[0].thinking == "Count aloud."
    assert final.content[0].signature
    assert final.usage.output_tokens == 20


@pytest.mark.parametrize("is_streaming", [False, True])
def test_the_anthropic_client_gets_parallel_tool_calls(
    server: ScriptedServer, claude: Any, is_streaming: bool
):
    server.add(together("Both: ", call("weather", city="Rome"), call("weather", city="Oslo")))
    request = {
        "model": "scripted",
        "messages": ASK,
        "max_tokens": 50,
        "tools": anthropic_tools(),
    }
    if is_streaming:
        with claude.stream(**request) as stream:
            reply = stream.get_final_message()
    else:
        reply = claude.create(**request)
    used = [block for block in reply.content if block.type == "tool_use"]
    assert [block.input["city"] for block in used] == ["Rome", "Oslo"]
    assert reply.stop_reason == "tool_use"


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (wrong_key(), "AuthenticationError"),
        (rate_limited(1), "RateLimitError"),
        (overloaded(), "InternalServerError"),
        (unknown_model("x"), "NotFoundError"),
        (context_too_long("anthropic"), "BadRequestError"),
        (Break("too much", kind="overloaded_error", after="Half"), "APIStatusError"),
    ],
)
def test_the_anthropic_client_understands_the_errors(
    server: ScriptedServer, claude: Any, fault: Any, kind: str
):
    server.add(fault)
    with pytest.raises(getattr(anthropic, kind)) as caught:
        for _ in claude.create(model="scripted", messages=ASK, max_tokens=50, stream=True):
            pass
    assert fault.message in str(caught.value)


def test_requests_are_kept_byte_for_byte(server: ScriptedServer):
    server.add("ok")
    body = b'{"model": "scripted",  "messages": []}'
    with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as line:
        line.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Mine: yes\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        line.recv(65536)
    assert server.requests[0].body == body
    assert server.requests[0].headers["x-mine"] == "yes"


def test_silence_lasts_until_it_is_released(server: ScriptedServer, gpt: Any):
    before, middle = Quiet(), Quiet()
    server.add(Hold(before), silence(middle, after="Half ", then="whole."))
    before.release()
    middle.release()
    assert gpt.create(model="scripted", messages=ASK).choices[0].message.content == "Here I am."
    stream = gpt.create(model="scripted", messages=ASK, stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in stream) == "Half whole."
    assert before.started.is_set()
    assert middle.started.is_set()


def test_a_closed_server_ends_its_silences_and_its_connections():
    quiet = Quiet()
    with ScriptedServer([Hold(quiet)]) as server:
        line = socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S)
        body = b'{"model":"scripted"}'
        head = b"POST /v1/messages HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        line.sendall(head + body)
        assert quiet.started.wait(TIMEOUT_S)
    with line:
        assert line.recv(100) == b""


def test_only_the_right_key_and_a_known_model_are_let_in():
    with (
        ScriptedServer(["ok"], key="right", strict_models=True) as server,
        openai.OpenAI(base_url=server.openai_url, api_key="wrong", max_retries=0) as stranger,
        openai.OpenAI(base_url=server.openai_url, api_key="right", max_retries=0) as friend,
    ):
        with pytest.raises(openai.AuthenticationError):
            stranger.chat.completions.create(model="scripted", messages=ASK)
        with pytest.raises(openai.NotFoundError):
            friend.chat.completions.create(model="other", messages=ASK)
        reply = friend.chat.completions.create(model="scripted", messages=ASK)
        assert reply.choices[0].message.content == "ok"


def test_without_a_script_it_repeats_and_calls_tools():
    with (
        ScriptedServer() as server,
        openai.OpenAI(base_url=server.openai_url, api_key="k") as client,
    ):
        messages: Any = [{"role": "user", "content": 'please call weather {"city": "Rome"}'}]
        plain = client.chat.completions.create(model="scripted", messages=messages)
        assert "please call weather" in (plain.choices[0].message.content or "")
        called: Any = client.chat.completions.create(
            model="scripted", messages=messages, tools=openai_tools()
        )
        tool_call = called.choices[0].message.tool_calls[0]
        assert json.loads(tool_call.function.arguments) == {"city": "Rome"}
        result = {"role": "tool", "tool_call_id": tool_call.id, "content": "sunny"}
        message = called.choices[0].message.model_dump(exclude_none=True)
        history: Any = [*messages, message, result]
        after: Any = client.chat.completions.create(model="scripted", messages=history)
        assert "sunny" in after.choices[0].message.content


def test_a_function_makes_the_steps_and_other_pages_are_served():
    def answer(request: Any) -> Any:
        return say(request.json["model"])

    with ScriptedServer(answer, pages={"/api/show": {"n": 1}}) as server:
        with openai.OpenAI(base_url=server.openai_url, api_key="k") as client:
            reply = client.chat.completions.create(model="m1", messages=ASK)
            assert reply.choices[0].message.content == "m1"
            assert client.with_options(base_url=server.url).get("/api/show", cast_to=object) == {
                "n": 1
            }
        assert [r.path for r in server.model_requests] == ["/v1/chat/completions"]


def test_it_runs_from_a_shell_with_a_script_in_a_file(tmp_path: Path):
    script, record = tmp_path / "script.json", tmp_path / "requests.jsonl"
    script.write_text(json.dumps({"steps": ["One.", {"say": "Two."}], "repeat": True}))
    command = [sys.executable, "-m", "hermes_agent.testing.server"]
    with subprocess.Popen(
        [*command, "--script", str(script), "--record", str(record)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        with openai.OpenAI(base_url=f"{url}/v1", api_key="k") as client:
            texts = [
                client.chat.completions.create(model="scripted", messages=ASK)
                .choices[0]
                .message.content
                for _ in range(3)
            ]
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
    assert texts == ["One.", "Two.", "One."]
    assert len(record.read_bytes().splitlines()) == 3


def test_every_kind_of_step_can_be_written_as_json():
    steps: Any = read_script(
        json.dumps(
            [
                "text",
                {"say": "a", "reasoning": "b", "delay_s": 0.5, "calls": [{"name": "t"}]},
                {"status": 500, "message": "no"},
                {"fault": "cut", "after": "x"},
                {"fault": "rate_limited", "retry_after": 2},
                {"fault": "garbage"},
            ]
        )
    )
    assert steps[1].calls[0]["function"] == {"name": "t", "arguments": "{}"}
    assert steps[1].delay_s == 0.5
    assert steps[2:4] == [Refuse(500, "no"), Cut("x")]
    assert steps[4].headers == {"Retry-After": "2"}
    assert isinstance(steps[5], Answer)


@pytest.mark.parametrize("text", ["{", "[]", '[{"fault": "unheard of"}]', "[3]"])
def test_a_script_that_is_none_is_refused(text: str):
    with pytest.raises(UsageError):
        read_script(text)
