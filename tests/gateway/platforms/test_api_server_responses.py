"""The responses of the API, with the official client."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.platforms.base import MessageType, Receipt
from hermes_agent.turn.events import TextDelta
from hermes_core.errors import StoreBusyError
from tests.gateway.platforms.scripted_ingress import Script, says
from tests.gateway.platforms.test_api_server import PIXEL, Server, serving, user
from tests.support.clients import openai


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path) as running_server:
        yield running_server


def ask(server: Server, content: Any = "hello", **options: Any) -> Any:
    return server.client().responses.create(model="hermes", input=content, **options)


def test_a_response_has_the_reply_and_what_it_cost(server: Server) -> None:
    answer = ask(server, instructions="Be brief.", metadata={"order": "7"})
    assert (answer.status, answer.output_text) == ("completed", "You said: hello")
    assert answer.model == "scripted-1"
    assert answer.metadata == {"order": "7"}
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (100, 20)
    assert answer.usage.input_tokens_details.cached_tokens == 60
    assert server.ingress.events[0].options == {"instructions": "Be brief.", "is_single": True}


@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "max_output_tokens"), ("refusal", "content_filter")]
)
def test_a_response_that_is_not_all_there_is_to_say_is_incomplete(
    server: Server, finish: str, reason: str
) -> None:
    server.ingress.script = lambda _: replace(says("To be, or"), finish=finish)
    answer = ask(server)
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", reason)
    assert (answer.output[0].status, answer.output_text) == ("incomplete", "To be, or")
    *_, item, last = list(ask(server, stream=True))
    assert (item.type, item.item.status) == ("response.output_item.done", "incomplete")
    assert (last.type, last.response.incomplete_details.reason) == ("response.incomplete", reason)
    assert last.response.usage.total_tokens == 120
    assert ask(server, "go on", previous_response_id=last.response.id).output_text


def test_a_response_follows_another_one_in_its_conversation(server: Server) -> None:
    first = ask(server, "one")
    second = ask(server, "two", previous_response_id=first.id)
    third = ask(server, "three", previous_response_id=second.id)
    assert third.previous_response_id == second.id
    assert [event.options.get("session_id") for event in server.ingress.events] == [
        None,
        "s-0",
        "s-0",
    ]


def test_a_response_follows_a_command_in_its_conversation(server: Server) -> None:
    server.ingress.receipt = Receipt("command", session_id="20261115_ab", reply="Done.")
    first = ask(server, "/title X")
    assert first.output_text == "Done."
    assert server.ingress.events[0].message_type is MessageType.COMMAND
    server.ingress.receipt = None
    ask(server, "and now?", previous_response_id=first.id)
    assert server.ingress.events[1].options["session_id"] == "20261115_ab"


@pytest.mark.parametrize("name", ["resp_0", "resp_", "x", "resp_a/b", "resp_session_"])
def test_a_response_that_is_not_known_cannot_be_followed(server: Server, name: str) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        ask(server, previous_response_id=name)
    assert caught.value.code == "previous_response_not_found"
    assert server.ingress.events == []


def test_a_store_that_fails_does_not_make_a_response_unknown(server: Server) -> None:
    first = ask(server)
    server.ingress.error = StoreBusyError("Another process holds the store.")
    with pytest.raises(openai.InternalServerError) as caught:
        ask(server, previous_response_id=first.id)
    assert (caught.value.status_code, caught.value.code) == (503, "store.busy")


def test_a_conversation_can_be_named_in_the_body(server: Server) -> None:
    ask(server, conversation="notes")
    ask(server, conversation={"id": "notes"})
    assert [event.source.chat_id for event in server.ingress.events if event.source] == [
        "notes",
        "notes",
    ]
    with pytest.raises(openai.BadRequestError, match="not both"):
        ask(server, conversation="notes", previous_response_id="resp_1")


def test_a_request_that_names_two_conversations_goes_to_neither(server: Server) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(server, conversation="coffee", extra_headers={"X-Hermes-Conversation": "tea"})
    assert caught.value.code == "invalid_header"
    ask(server, conversation="tea", extra_headers={"X-Hermes-Conversation": "tea"})
    assert len(server.ingress.events) == 1


def test_what_was_said_before_comes_along_in_the_input(server: Server) -> None:
    ask(
        server,
        [
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": [{"type": "input_text", "text": "one"}]},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "two", "annotations": []}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "what is it?"},
                    {"type": "input_image", "image_url": PIXEL, "detail": "auto"},
                ],
            },
        ],
    )
    (event,) = server.ingress.events
    assert event.text == "what is it?"
    assert event.options["history"] == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
    ]
    assert event.options["instructions"] == "Be kind."
    assert len(event.attachments) == 1


def test_after_a_response_the_input_is_one_message(server: Server) -> None:
    first = ask(server)
    with pytest.raises(openai.BadRequestError, match="only the new message"):
        ask(server, [*user("a"), *user("b")], previous_response_id=first.id)


def test_a_stream_of_a_response_can_be_followed_by_the_clients_own_helper(server: Server) -> None:
    server.ingress.script = lambda _: says("One, ", "two.")
    with server.client().responses.stream(model="hermes", input="count") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(10))
    assert final.output_text == "One, two."
    assert final.usage is not None and final.usage.total_tokens == 120
    assert ask(server, "more", previous_response_id=final.id).output_text


def test_a_stream_that_fails_says_so_in_an_event(server: Server) -> None:
    server.ingress.script = lambda _: Script(
        [TextDelta("So")], "So", "failed", "The model is gone."
    )
    last = list(ask(server, stream=True))[-1]
    assert last.type == "response.failed"
    assert last.response.error.message == "The model is gone."


def test_a_repeat_of_a_stream_is_told_at_once(server: Server) -> None:
    server.ingress.script = lambda _: says("a", "b", "c")
    key = {"Idempotency-Key": "one"}
    for pieces in (["a", "b", "c"], ["abc"]):
        stream = ask(server, stream=True, extra_headers=key)
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        assert deltas == pieces
    assert len(server.ingress.turns) == 1


def test_work_in_the_background_is_refused_with_the_other_way(server: Server) -> None:
    with pytest.raises(openai.BadRequestError, match="Idempotency-Key") as caught:
        ask(server, background=True)
    assert caught.value.param == "background"
