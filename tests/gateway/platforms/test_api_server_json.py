"""JSON mode: the reply is one JSON object, or an error says that it is not."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.platforms.base import MessageEvent
from tests.gateway.platforms.scripted_ingress import Script, ScriptedIngress, says
from tests.gateway.platforms.test_api_server import Server, ask, serving
from tests.support.clients import openai

_OBJECT: Any = {"type": "json_object"}
_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer"}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
_STRICT: Any = {
    "type": "json_schema",
    "json_schema": {"name": "place", "schema": _SCHEMA, "strict": True},
}
_FITS = '{"city": "Ulm", "people": 128928}'


@pytest.fixture
def replies() -> list[str]:
    """What the agent replies."""
    return [_FITS]


@pytest.fixture
def server(tmp_path: Path, replies: list[str]) -> Iterator[Server]:
    def script(_event: MessageEvent) -> Script:
        return says(*replies)

    with serving(tmp_path, ScriptedIngress(script)) as running_server:
        yield running_server


@pytest.mark.parametrize("form", [_OBJECT, _STRICT])
@pytest.mark.parametrize("around", ["{}", "Here it is:\n```json\n{}\n```\nThat is all.", "\n{}\n"])
def test_the_reply_is_the_object_alone(
    server: Server, replies: list[str], form: Any, around: str
) -> None:
    replies[:] = [around.replace("{}", _FITS)]
    answer = ask(server, "Where?", response_format=form)
    assert answer.choices[0].message.content == _FITS
    assert answer.choices[0].finish_reason == "stop"


def test_the_model_is_told_the_schema_after_the_message(server: Server) -> None:
    ask(server, "Where?", response_format=_STRICT)
    ask(server, "Where?", response_format={"type": "text"})
    json_text, plain_text = (event.text for event in server.ingress.events)
    assert json_text.startswith("Where?\n\n[")
    assert '"additionalProperties":false' in json_text
    assert plain_text == "Where?"


def test_a_stream_has_the_object_alone(server: Server, replies: list[str]) -> None:
    replies[:] = ["Well: ", f"```json\n{_FITS}\n```"]
    chunks = list(ask(server, "Where?", response_format=_OBJECT, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == _FITS
    assert chunks[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    ("form", "reply"),
    [
        (_OBJECT, "I do not know."),
        (_OBJECT, "[1, 2]"),
        (_STRICT, '{"city": "Ulm"}'),
        (_STRICT, '{"city": "Ulm", "people": "many"}'),
        (_STRICT, '{"city": "Ulm", "people": 1, "more": 2}'),
    ],
)
def test_a_reply_that_does_not_fit_is_an_error(
    server: Server, replies: list[str], form: Any, reply: str
) -> None:
    replies[:] = [reply]
    with pytest.raises(openai.APIStatusError) as error:
        ask(server, "Where?", response_format=form)
    assert (error.value.status_code, error.value.code) == (502, "reply_not_json")
    with pytest.raises(openai.APIError, match="reply"):
        list(ask(server, "Where?", response_format=form, stream=True))


def test_a_response_takes_the_format_in_its_text_options(server: Server) -> None:
    form: Any = {"format": {"type": "json_schema", "name": "place", "schema": _SCHEMA}}
    answer = server.client().responses.create(model="hermes", input="Where?", text=form)
    assert answer.output_text == _FITS


def test_a_command_is_answered_as_ever(server: Server) -> None:
    ask(server, "/new", response_format=_OBJECT)
    assert server.ingress.events[0].text == "/new"
