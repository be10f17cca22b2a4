"""Small-model mode: one constrained step at a time, few steps, no step twice, a short stable prompt."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.models import small_prompt, small_step
from hermes_agent.models.base import Reply, Request, ToolSpec, Usage
from hermes_agent.models.small import MAX_STEPS, SmallModel
from hermes_agent.testing.scripted import RecordingSink, ScriptedModel, Step, say
from hermes_agent.tools.registry import Toolbox, default_tools
from hermes_agent.turn.events import Retrying, TextDelta, ToolCallBegun
from hermes_agent.turn.stop import Stop
from hermes_core.settings import Settings


def tool(name: str, *parameters: str) -> ToolSpec:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return ToolSpec(name, f"The tool {name}.", schema)


TOOLS = (
    tool("read_file", "path"),
    tool("write_file", "path", "content")._replace(writes=True),
)


def step(name: str, **arguments: object) -> str:
    return json.dumps({"name": name, "arguments": arguments})


def reply(text: str) -> str:
    return step("reply", text=text)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def call(number: int, name: str, **arguments: object) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    tool_call = {"id": f"c{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [tool_call]}


def result(number: int, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"c{number}", "tool_name": "x", "content": text}


class Exchange:
    """A small model on a script, asked once."""

    def __init__(
        self, script: Sequence[str | Step], *messages: dict[str, Any], tools: Any = TOOLS
    ) -> None:
        self.model = ScriptedModel(script)
        self.sink = RecordingSink()
        request = Request("You are Hermes.", tools, messages or (user("hello"),))
        self.reply: Reply = SmallModel(self.model).ask(request, Stop(), self.sink)

    @property
    def requests(self) -> list[Request]:
        return self.model.requests

    @property
    def streamed(self) -> str:
        return "".join(e.text for e in self.sink.events if isinstance(e, TextDelta))

    def names_allowed(self, number: int = 0) -> list[str]:
        shape = self.requests[number].json_schema or {}
        choices = shape.get("anyOf", [shape])
        return [choice["properties"]["name"]["const"] for choice in choices]


def test_a_reply_step_becomes_text() -> None:
    exchange = Exchange([reply("Hello there.")])
    assert exchange.reply.text == "Hello there."
    assert exchange.reply.tool_calls == []
    assert exchange.reply.finish == "stop"


def test_a_tool_step_becomes_a_tool_call() -> None:
    exchange = Exchange([step("read_file", path="ä.txt")])
    (tool_call,) = exchange.reply.tool_calls
    assert tool_call["function"]["name"] == "read_file"
    assert json.loads(tool_call["function"]["arguments"]) == {"path": "ä.txt"}
    assert exchange.reply.finish == "tool_calls"
    assert ToolCallBegun("read_file") in exchange.sink.events
    assert exchange.streamed == ""


def test_calls_have_ids_of_their_own() -> None:
    ids = {Exchange([step("read_file", path="a")]).reply.tool_calls[0]["id"] for _ in range(5)}
    assert len(ids) == 5


def test_the_reply_is_streamed_while_it_is_written() -> None:
    written = reply('A "quoted" line\nand more')
    exchange = Exchange([say(written, chunks=list(written))])
    assert exchange.streamed == exchange.reply.text == 'A "quoted" line\nand more'
    assert len([e for e in exchange.sink.events if isinstance(e, TextDelta)]) > 10


@given(text=st.text(min_size=1), cuts=st.lists(st.integers(0, 400)), escaped=st.booleans())
def test_any_reply_is_streamed_as_it_is_read(text: str, cuts: list[int], escaped: bool) -> None:
    written = json.dumps({"name": "reply", "arguments": {"text": text}}, ensure_ascii=escaped)
    marks = sorted({0, len(written), *(cut % (len(written) + 1) for cut in cuts)})
    chunks = [written[a:b] for a, b in zip(marks, marks[1:], strict=False)]
    exchange = Exchange([say(written, chunks=chunks)])
    assert exchange.reply.text == exchange.streamed == text


def test_a_retry_begins_the_stream_anew() -> None:
    sink = RecordingSink()
    listener = small_step.Listener(sink)
    for piece in ('{"name": "reply", "argum', 'ents": {"text": "lost'):
        listener.receive(TextDelta(piece))
    listener.receive(Retrying("cut", 0.0, 1))
    listener.receive(TextDelta(reply("kept")))
    assert listener.text == "kept"


def test_half_a_character_is_never_passed_on() -> None:
    written = '{"name": "reply", "arguments": {"text": "a\\ud83d b\\ude00"}}'
    exchange = Exchange([say(written, chunks=list(written))])
    assert exchange.reply.text.encode()
    assert exchange.streamed.encode()


def test_each_step_is_held_to_the_tools_and_a_reply() -> None:
    exchange = Exchange([reply("ok")])
    assert exchange.names_allowed() == ["read_file", "write_file", "reply"]
    assert exchange.requests[0].tools == ()


def test_every_text_of_a_step_has_an_end() -> None:
    shape = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "long words"},
            "mode": {"type": "string", "enum": ["a", "b"]},
            "count": {"type": ["integer", "null"], "minimum": 1},
            "names": {"type": "array", "items": {"type": "string"}},
            "more": {"type": "object", "properties": {"text": {"type": "string"}}},
        },
        "required": ["path"],
    }
    arguments = small_step.schema([ToolSpec("t", "T.", shape)])["anyOf"][0]["properties"][
        "arguments"
    ]
    found = arguments["properties"]
    assert found["path"]["maxLength"] > 0
    assert "description" not in found["path"]
    assert found["mode"] == {"type": "string", "enum": ["a", "b"]}
    assert found["count"] == {"type": "integer", "minimum": 1}
    assert found["names"]["maxItems"] > 0
    assert found["names"]["items"]["maxLength"] > 0
    assert found["more"]["properties"]["text"]["maxLength"] > 0
    assert arguments["required"] == ["path"]
    assert arguments["additionalProperties"] is False


def test_a_request_without_tools_is_passed_on_as_it_is() -> None:
    exchange = Exchange(["A title"], tools=())
    assert exchange.requests[0] == Request("You are Hermes.", (), (user("hello"),))
    assert exchange.reply.text == "A title"


def test_the_head_stays_the_same_and_the_history_only_grows() -> None:
    first = Exchange([step("read_file", path="a")], user("read a")).requests[0]
    later = Exchange(
        [reply("done")], user("read a"), call(1, "read_file", path="a"), result(1, "text")
    ).requests[0]
    assert later.system == first.system
    assert list(later.messages[: len(first.messages)]) == list(first.messages)
    assert later.messages[1]["content"] == step("read_file", path="a")


def test_the_head_names_every_tool_and_stays_short_whatever_the_system_says() -> None:
    tools = Toolbox(default_tools(Settings())).small
    assert len(tools) <= 8
    head = small_prompt.head("You are Hermes. " * 200, tools)
    assert len(head) <= small_prompt.MAX_HEAD
    for offered in tools:
        assert f"- {offered.name}(" in head


@pytest.mark.parametrize(
    ("text", "may_write"),
    [
        ("Where is the key according to the note?", False),
        ("Show me the note", False),
        ("Is the key under the pot?", False),
        ("Can you rename the note?", True),
        ("Write down where the key is.", True),
        ("Tell me a joke and save it", True),
        ("hello", True),
    ],
)
def test_a_question_is_answered_without_tools_that_change_files(text: str, may_write: bool) -> None:
    exchange = Exchange([reply("ok")], user(text))
    assert ("write_file" in exchange.names_allowed()) is may_write
    assert "- write_file(" in exchange.requests[0].system


def test_a_tool_brings_its_advice_and_examples_where_there_is_room() -> None:
    counting = tool("count", "what")._replace(
        advice="To count, use count.", examples="User: How many?"
    )
    prompt = small_prompt.head("", [*TOOLS, counting])
    assert "To count, use count.\n" in prompt
    assert "\nExamples:\nUser: How many?" in prompt
    long = counting._replace(examples="User: How many?\n" * 200)
    prompt = small_prompt.head("", [*TOOLS, long])
    assert "To count, use count.\n" in prompt and "Examples:" not in prompt
    assert "Examples:" not in small_prompt.head("", TOOLS)


def test_at_most_eight_tools_are_offered() -> None:
    exchange = Exchange([reply("ok")], tools=[tool(f"t{n}", "x") for n in range(12)])
    assert len(exchange.names_allowed()) == 9


def test_a_parameter_that_is_no_text_is_shown_with_its_kind() -> None:
    shape = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "how": {"enum": ["up", "down"]}},
        "required": ["n"],
    }
    assert "- move(n: integer, how?: up|down): Go." in small_prompt.head(
        "", [ToolSpec("move", "Go.", shape)]
    )


def test_long_results_are_shortened_in_the_middle() -> None:
    text = "begin" + "x" * 20_000 + "end"
    exchange = Exchange(
        [reply("ok")], user("read"), call(1, "read_file", path="a"), result(1, text)
    )
    content = exchange.requests[0].messages[-1]["content"]
    assert len(content) < 2_000
    assert "begin" in content
    assert content.endswith("end")


def test_messages_of_one_role_are_joined() -> None:
    exchange = Exchange(
        [reply("ok")], user("one"), call(1, "read_file", path="a"), result(1, "r"), user("steer")
    )
    roles = [message["role"] for message in exchange.requests[0].messages]
    assert roles == ["user", "assistant", "user"]


def test_parallel_calls_of_a_stronger_model_are_told_one_after_the_other() -> None:
    both = call(1, "read_file", path="a")
    both["tool_calls"] += call(2, "read_file", path="b")["tool_calls"]
    exchange = Exchange([reply("ok")], user("go"), both, result(1, "A"), result(2, "B"))
    contents = [message["content"] for message in exchange.requests[0].messages]
    assert contents[1:] == [
        step("read_file", path="a"),
        "Result of read_file:\nA",
        step("read_file", path="b"),
        "Result of read_file:\nB",
    ]


def test_a_picture_is_named_where_it_cannot_be_shown() -> None:
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "x"}}]
    exchange = Exchange([reply("ok")], {"role": "user", "content": parts})
    assert "image_url left out" in exchange.requests[0].messages[0]["content"]


def test_a_step_that_was_taken_before_is_objected_to_once() -> None:
    again = step("read_file", path="a")
    exchange = Exchange(
        [again, step("read_file", path="b")],
        user("read"),
        call(1, "read_file", path="a"),
        result(1, "A"),
    )
    assert json.loads(exchange.reply.tool_calls[0]["function"]["arguments"]) == {"path": "b"}
    assert "already" in exchange.requests[1].messages[-1]["content"]


def test_a_step_that_is_repeated_in_spite_of_that_ends_in_a_reply() -> None:
    again = step("read_file", path="a")
    exchange = Exchange(
        [again, again, reply("It says A.")],
        user("read"),
        call(1, "read_file", path="a"),
        result(1, "A"),
    )
    assert exchange.reply.text == "It says A."
    assert exchange.names_allowed(2) == ["reply"]


def test_the_same_step_may_be_taken_in_another_turn() -> None:
    again = step("read_file", path="a")
    before = [user("read"), call(1, "read_file", path="a"), result(1, "A")]
    exchange = Exchange(
        [again], *before, {"role": "assistant", "content": "It says A."}, user("again")
    )
    assert exchange.reply.tool_calls
    assert len(exchange.requests) == 1


def test_a_turn_has_few_steps_and_the_last_one_is_a_reply() -> None:
    messages = [user("go")]
    for number in range(MAX_STEPS - 1):
        messages += [call(number, "read_file", path=str(number)), result(number, "no")]
    exchange = Exchange([reply("I could not find it.")], *messages)
    assert exchange.reply.text == "I could not find it."
    assert exchange.names_allowed() == ["reply"]


def test_a_reply_that_breaks_off_is_kept_as_far_as_it_goes() -> None:
    exchange = Exchange(
        [say('{"name": "reply", "arguments": {"text": "half a sen', finish="length")]
    )
    assert exchange.reply.text == exchange.streamed == "half a sen"
    assert exchange.reply.finish == "length"


def test_a_call_that_breaks_off_is_asked_for_again_and_never_run() -> None:
    cut = say('{"name": "write_file", "arguments": {"path": "a", "content": "ha', finish="length")
    exchange = Exchange([cut, step("write_file", path="a", content="short")])
    arguments = json.loads(exchange.reply.tool_calls[0]["function"]["arguments"])
    assert arguments == {"path": "a", "content": "short"}
    assert "broke off" in exchange.requests[1].messages[-1]["content"]


def test_a_call_that_breaks_off_twice_ends_in_a_reply() -> None:
    cut = say('{"name": "write_file", "arguments": {"path": "a", "content": "ha', finish="length")
    exchange = Exchange([cut, cut, reply("That is too long for me.")])
    assert exchange.reply.text == "That is too long for me."
    assert exchange.reply.tool_calls == []


def test_a_reply_about_a_file_nobody_looked_at_is_objected_to_once() -> None:
    exchange = Exchange(
        [reply("It is 1.0."), step("read_file", path="package.json")],
        user("Which version is in package.json?"),
    )
    assert exchange.reply.tool_calls
    assert exchange.streamed == ""
    assert "package.json" in exchange.requests[1].messages[-1]["content"]


def test_a_model_that_insists_on_its_reply_has_its_way() -> None:
    exchange = Exchange([reply("Thanks!"), reply("You are welcome.")], user("thanks for a.txt"))
    assert exchange.reply.text == exchange.streamed == "You are welcome."


@pytest.mark.parametrize("text", ["What is 3.5 plus 2?", "Well... fine.", "Hello! How are you?"])
def test_a_question_that_names_no_file_is_answered_at_once(text: str) -> None:
    assert len(Exchange([reply("ok")], user(text)).requests) == 1


def test_a_server_that_does_not_hold_to_the_shape_is_understood_too() -> None:
    assert Exchange(["Just words."]).reply.text == "Just words."
    fenced = f"Sure:\n```json\n{step('read_file', path='a')}\n```"
    assert Exchange([fenced]).reply.tool_calls[0]["function"]["name"] == "read_file"
    assert Exchange(['{"answer": 42}']).reply.text == '{"answer": 42}'


def test_words_that_were_not_streamed_are_told_at_the_end() -> None:
    exchange = Exchange(["Just words."])
    assert exchange.streamed == "Just words."


def test_usage_is_the_sum_of_all_attempts() -> None:
    again = step("read_file", path="a")
    script = [
        say(again, usage=Usage(10, 1)),
        say(again, usage=Usage(20, 2)),
        say(reply("A"), usage=Usage(30, 3)),
    ]
    exchange = Exchange(script, user("read"), call(1, "read_file", path="a"), result(1, "A"))
    assert exchange.reply.usage == Usage(60, 6)


def test_a_small_model_says_that_it_is_small_and_closes_its_inner_one() -> None:
    inner = ScriptedModel([])
    model = SmallModel(inner)
    assert model.facts.is_small
    model.close()
    assert inner.closed
