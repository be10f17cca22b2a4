"""What the API says about itself, its stored responses, and the tool calls in them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.platforms.base import ToolCall
from hermes_agent.testing.scripted import call, say
from hermes_agent.turn.events import StepStored, TextDelta, ToolEnded, ToolStarted
from tests.gateway.harness import World
from tests.gateway.platforms.scripted_ingress import Script, says
from tests.gateway.platforms.test_api_server import Server, ask, serving
from tests.gateway.platforms.test_api_server_gateway import TABLE, Gateway
from tests.support.clients import openai

LOOKED = ToolCall("c1", "look", '{"at":"sky"}', "completed", "It is blue.")
LOOKS = Script(
    [
        TextDelta("I look."),
        StepStored(1, "I look.", 1),
        ToolStarted("c1", "look", {"at": "sky"}),
        ToolEnded("c1", "look", "It is blue.", False, 0.1, "", {"at": "sky"}),
        TextDelta("Blue."),
        StepStored(2, "Blue.", 0),
    ],
    "Blue.",
    tool_calls=[LOOKED],
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path) as running_server:
        yield running_server


@pytest.fixture
def gateway(world: World) -> Iterator[Gateway]:
    world.configure(more=TABLE)
    with Gateway(world) as running_gateway:
        yield running_gateway


def respond(server: Server | Gateway, **options: Any) -> Any:
    client: Any = server.client() if isinstance(server, Server) else server.client
    return client.responses.create(model="hermes", input=options.pop("input", "hello"), **options)


# -- one name for the model ----------------------------------------------------------------------


def test_a_stream_and_a_whole_answer_name_the_same_model(server: Server) -> None:
    whole = ask(server).model
    options = {"include_usage": True}
    assert {chunk.model for chunk in ask(server, stream=True, stream_options=options)} == {whole}
    assert whole == "scripted-1"


def test_the_model_of_a_stream_is_the_one_that_answers(gateway: Gateway) -> None:
    whole = gateway.ask("hello").model
    assert {chunk.model for chunk in gateway.ask("hello", stream=True)} == {whole}
    assert whole != "hermes"
    *_, last = respond(gateway, stream=True)
    assert last.response.model == respond(gateway).model == whole


# -- histories with tools ------------------------------------------------------------------------

CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
HISTORY = [
    {"role": "user", "content": "one"},
    CALLED,
    {"role": "tool", "tool_call_id": "1", "content": "42"},
    {"role": "assistant", "content": "It is 42."},
    {"role": "user", "content": "two"},
]
ITEMS = [
    {"role": "user", "content": "one"},
    {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": "42"},
    {"role": "assistant", "content": "It is 42."},
    {"role": "user", "content": "two"},
]
STORED = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "It is 42."}]


def test_tool_messages_are_ignored_where_the_tools_of_clients_are(tmp_path: Path) -> None:
    with serving(tmp_path, client_tools="ignore") as server:
        ask(server, messages=HISTORY)
        respond(server, input=ITEMS)
        assert [event.options["history"] for event in server.ingress.events] == [STORED, STORED]
        ask(server, messages=STORED + HISTORY[-1:])
        assert [event.quotes_others for event in server.ingress.events] == [True, True, False]


def test_tool_messages_are_refused_where_the_tools_of_clients_are(server: Server) -> None:
    with pytest.raises(openai.BadRequestError, match="client_tools"):
        ask(server, messages=HISTORY)
    with pytest.raises(openai.BadRequestError):
        respond(server, input=ITEMS)
    assert server.ingress.events == []


def test_the_output_of_a_response_can_be_sent_back_as_history(server: Server) -> None:
    server.ingress.script = lambda _: LOOKS
    output = [item.model_dump(mode="json") for item in respond(server).output]
    respond(server, input=[*output, {"role": "user", "content": "and now?"}])
    assert server.ingress.events[1].options["history"] == [
        {"role": "assistant", "content": "Blue."}
    ]


# -- tool calls in the output --------------------------------------------------------------------


def test_a_response_has_the_tool_calls_of_its_turn(server: Server) -> None:
    server.ingress.script = lambda _: LOOKS
    called, message = respond(server).output
    assert (called.type, called.name, called.arguments) == ("mcp_call", "look", '{"at":"sky"}')
    assert (called.output, called.status, called.server_label) == (
        "It is blue.",
        "completed",
        "hermes",
    )
    assert message.content[0].text == "Blue."


def test_a_streamed_response_has_the_tool_calls_of_its_turn(server: Server) -> None:
    server.ingress.script = lambda _: LOOKS
    events = list(respond(server, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    output = events[-1].response.output
    assert [item.type for item in output] == ["message", "mcp_call", "message"]
    assert [item.content[0].text for item in output if item.type == "message"] == [
        "I look.",
        "Blue.",
    ]
    assert (output[1].output, output[1].status) == ("It is blue.", "completed")
    kinds = [event.type.removeprefix("response.") for event in events]
    assert [kind for kind in kinds if "mcp" in kind] == [
        "mcp_call.in_progress",
        "mcp_call_arguments.done",
        "mcp_call.completed",
    ]
    for index, item in enumerate(output):
        of_item = [part for part in events if getattr(part, "output_index", None) == index]
        assert of_item[0].type == "response.output_item.added"
        assert of_item[-1].type == "response.output_item.done"
        assert {getattr(part, "item_id", item.id) for part in of_item} == {item.id}


def test_a_repeated_stream_has_the_stored_tool_calls(server: Server) -> None:
    server.ingress.script = lambda _: LOOKS
    key = {"Idempotency-Key": "k"}
    list(respond(server, stream=True, extra_headers=key))
    *_, last = respond(server, stream=True, extra_headers=key)
    assert [item.type for item in last.response.output] == ["mcp_call", "message"]
    assert last.response.output_text == "Blue."


def test_tool_calls_that_run_at_once_each_have_an_item(server: Server) -> None:
    events = [
        ToolStarted("c1", "look", {}),
        ToolStarted("c2", "hear", {}),
        ToolEnded("c2", "hear", "wind", False, 0.1),
        ToolEnded("c1", "look", "sky", False, 0.1),
        TextDelta("Done."),
    ]
    server.ingress.script = lambda _: Script(events, "Done.")
    *_, last = respond(server, stream=True)
    assert [getattr(item, "output", "") for item in last.response.output] == ["sky", "wind", ""]


def test_the_tool_calls_of_the_agent_are_in_its_responses(gateway: Gateway) -> None:
    gateway.world.play(
        call("todo", list="[x] a"), say("Nothing."), call("todo", list="[x] a"), say("No.")
    )
    whole = respond(gateway)
    *_, last = respond(gateway, stream=True)
    for response in (whole, last.response, gateway.client.responses.retrieve(whole.id)):
        called: Any = response.output[0]
        assert (called.type, called.name, called.status) == ("mcp_call", "todo", "completed")
        assert called.arguments == '{"list":"[x] a"}'
        assert called.output
    assert whole.output[0].output == last.response.output[0].output


# -- stored responses ----------------------------------------------------------------------------


def test_a_stored_response_is_the_one_that_was_given(gateway: Gateway) -> None:
    response = respond(gateway, instructions="Be brief.")
    found = gateway.client.responses.retrieve(response.id)
    assert found.status == "completed"
    assert found.output_text == response.output_text != ""
    assert (found.model, found.usage, found.instructions) == (
        response.model,
        response.usage,
        "Be brief.",
    )


@pytest.mark.parametrize(
    ("status", "expected"), [("failed", "failed"), ("interrupted", "cancelled")]
)
def test_a_stored_response_says_how_its_turn_ended(
    server: Server, status: str, expected: str
) -> None:
    server.ingress.script = lambda _: replace(says("x"), status=status, reason="Out of luck.")
    with pytest.raises(openai.APIStatusError):
        respond(server)
    found = server.client().responses.retrieve(f"resp_{0:032x}")
    assert found.status == expected
    assert (found.error.message if found.error else "Out of luck.") == "Out of luck."


def test_a_response_that_is_written_is_in_progress(server: Server) -> None:
    server.ingress.script = lambda _: replace(says("x"), hold=True)
    with server.client().responses.create(model="hermes", input="x", stream=True) as stream:
        event: Any = next(iter(stream))
        response = event.response
        assert server.client().responses.retrieve(response.id).status == "in_progress"


@pytest.mark.parametrize("name", ["resp_0", "x", "resp_session_.0123456789abcdef", "resp_%00"])
def test_a_response_that_does_not_exist_is_not_found(server: Server, name: str) -> None:
    for method in (server.client().responses.retrieve, server.client().responses.delete):
        with pytest.raises(openai.NotFoundError):
            method(name)


def test_a_response_of_somebody_else_is_not_found(world: World) -> None:
    world.configure(more=TABLE)
    with Gateway(world) as gateway:
        response = respond(gateway)
        assert gateway.client.responses.retrieve(response.id).output_text
    world.configure(more=TABLE + 'user = "kim"\n[gateway.allow]\napi_server = ["kim"]\n')
    with Gateway(world) as gateway:
        assert respond(gateway).output_text
        with pytest.raises(openai.NotFoundError):
            gateway.client.responses.retrieve(response.id)
        with pytest.raises(openai.NotFoundError):
            gateway.client.responses.delete(response.id)


def test_a_deleted_response_is_gone_with_its_conversation(gateway: Gateway) -> None:
    response = respond(gateway)
    gateway.client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        gateway.client.responses.retrieve(response.id)
    with pytest.raises(openai.NotFoundError):
        respond(gateway, previous_response_id=response.id)
    assert gateway.store.list_sessions_rich() == []


def test_a_response_in_a_longer_conversation_is_not_deleted(gateway: Gateway) -> None:
    first = respond(gateway)
    second = respond(gateway, previous_response_id=first.id)
    for response in (first, second):
        with pytest.raises(openai.ConflictError, match="hermes sessions delete"):
            gateway.client.responses.delete(response.id)
        assert gateway.client.responses.retrieve(response.id).output_text == response.output_text


# -- what the API says about itself --------------------------------------------------------------


@pytest.mark.parametrize("path", ["health", "openapi.json"])
def test_probes_and_generators_need_no_token(server: Server, path: str) -> None:
    base = server.adapter.url.removesuffix("/v1")
    assert server.http.get(f"{base}/{path}").status_code == 200


def test_health_is_below_v1_too(server: Server) -> None:
    answer = server.http.get(f"{server.adapter.url}/health")
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")


def test_the_description_names_every_path_and_resolves(server: Server) -> None:
    base = server.adapter.url.removesuffix("/v1")
    described = server.http.get(f"{base}/openapi.json").json()
    assert described["openapi"].startswith("3.1")
    assert set(described["paths"]) == {
        "/health",
        "/v1/health",
        "/openapi.json",
        "/v1/models",
        "/v1/models/{name}",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/responses/{id}",
    }
    schemas = described["components"]["schemas"]
    for name in references(described):
        assert name.removeprefix("#/components/schemas/") in schemas


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from [value] if key == "$ref" else references(value)
    elif isinstance(node, list):
        for item in node:
            yield from references(item)
