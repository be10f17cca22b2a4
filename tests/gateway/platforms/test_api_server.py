"""The API, with the official client and a real server on loopback."""

import asyncio
import socket
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from gateway.config import Platform, PlatformConfig
from gateway.platforms.api_server import exchange
from gateway.platforms.api_server.adapter import ApiServerAdapter
from gateway.platforms.api_server.manifest import MANIFEST, ApiSettings
from gateway.platforms.base import MessageEvent, MessageType, PlatformError, Receipt
from hermes_agent.turn.events import (
    FellBack,
    QuestionAsked,
    ReasoningDelta,
    Retrying,
    StepStored,
    TextDelta,
    ToolStarted,
)
from hermes_core.errors import SessionNotFoundError, StoreBusyError
from tests.gateway.platforms.scripted_ingress import (
    TIMEOUT_S,
    Loop,
    Script,
    ScriptedIngress,
    connected,
    says,
)
from tests.support.clients import openai

TOKEN = "a-token-for-the-tests"
_AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "YPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


@dataclass
class Server:
    """A served API, and ways to ask it."""

    ingress: ScriptedIngress
    adapter: ApiServerAdapter
    loop: Loop
    http: httpx2.Client

    def client(self, **options: Any) -> "openai.OpenAI":
        client_options: dict[str, Any] = {
            "api_key": TOKEN,
            "max_retries": 0,
            "http_client": self.http,
        } | options
        return openai.OpenAI(base_url=self.adapter.url, **client_options)

    def post(self, path: str = "chat/completions", **options: Any) -> httpx2.Response:
        headers = _AUTHORIZED | options.pop("headers", {})
        url = f"{self.adapter.url}/{path}"
        return self.http.post(url, headers=headers, **options)

    @property
    def port(self) -> int:
        return int(self.adapter.url.rsplit(":", 1)[1].removesuffix("/v1"))


@contextmanager
def serving(
    folder: Path, ingress: ScriptedIngress | None = None, **settings: Any
) -> Generator[Server]:
    ingress = ingress or ScriptedIngress()
    chosen = msgspec.convert({"token": TOKEN, "port": 0} | settings, ApiSettings)
    adapter = MANIFEST.make(PlatformConfig(enabled=True), chosen, folder)
    assert isinstance(adapter, ApiServerAdapter)
    with connected(adapter, ingress) as loop, httpx2.Client(timeout=TIMEOUT_S) as client:
        yield Server(ingress, adapter, loop, client)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path) as running_server:
        yield running_server


def user(text: str) -> Any:
    return [{"role": "user", "content": text}]


def ask(server: Server, text: str = "hello", **options: Any) -> Any:
    return server.client().chat.completions.create(
        model="hermes", messages=options.pop("messages", user(text)), **options
    )


# -- whole answers -------------------------------------------------------------------------------


def test_a_chat_completion_has_the_reply_and_what_it_cost(server: Server) -> None:
    answer = ask(server)
    assert answer.choices[0].message.content == "You said: hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "scripted-1"
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (100, 20, 120)
    assert usage.prompt_tokens_details.cached_tokens == 60
    assert usage.completion_tokens_details.reasoning_tokens == 7


@pytest.mark.parametrize(
    ("finish", "reason"), [("length", "length"), ("refusal", "content_filter")]
)
def test_a_reply_that_is_not_all_there_is_to_say_tells_why(
    server: Server, finish: str, reason: str
) -> None:
    server.ingress.script = lambda _: replace(says("To be, or"), finish=finish)
    assert ask(server).choices[0].finish_reason == reason
    chunks = list(ask(server, stream=True))
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:]] == [None, reason]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "To be, or"


def test_without_a_header_the_request_is_a_conversation_with_the_history_that_it_brings(
    server: Server,
) -> None:
    ask(
        server,
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "one"}]},
            {"role": "assistant", "content": "two"},
            {"role": "assistant", "content": None},
            {"role": "developer", "content": "In rhymes."},
            {"role": "user", "content": "three"},
        ],
    )
    (event,) = server.ingress.events
    assert event.text == "three"
    assert event.options == {
        "history": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}],
        "instructions": "Be brief.\n\nIn rhymes.",
        "is_single": True,
    }
    assert event.source is not None
    assert (event.source.platform, event.source.user_id) == (Platform.API_SERVER, "owner")
    ask(server)
    second = server.ingress.events[1].source
    assert second is not None and second.chat_id != event.source.chat_id


def test_with_a_conversation_header_only_the_last_message_is_taken(server: Server) -> None:
    raw = server.client().chat.completions.with_raw_response.create(
        model="hermes",
        messages=[*user("old"), {"role": "assistant", "content": "older"}, *user("new")],
        extra_headers={"X-Hermes-Conversation": "my project/7"},
    )
    (event,) = server.ingress.events
    assert event.source is not None and event.source.chat_id == "my project/7"
    assert (event.text, event.options) == ("new", {})
    assert raw.headers["x-hermes-session-id"] == "s-0"
    assert raw.headers["x-hermes-conversation"] == "my project/7"


def test_a_session_can_be_asked_for_by_its_id(server: Server) -> None:
    ask(server, extra_headers={"X-Hermes-Session-Id": "20261115_1"})
    (event,) = server.ingress.events
    assert event.options == {"session_id": "20261115_1", "is_single": True}
    server.ingress.error = SessionNotFoundError("No session 20261115_2.")
    with pytest.raises(openai.NotFoundError) as caught:
        ask(server, extra_headers={"X-Hermes-Session-Id": "20261115_2"})
    assert caught.value.code == "session_not_found"


def test_a_model_can_be_asked_for_and_an_unknown_one_is_refused(server: Server) -> None:
    names = [model.id for model in server.client().models.list()]
    assert names == ["hermes", "scripted-1", "vendor/scripted-2"]
    listed = server.http.get(f"{server.adapter.url}/models/", headers=_AUTHORIZED).json()["data"]
    assert [model["id"] for model in listed] == names
    assert server.client().models.retrieve("vendor/scripted-2").id == "vendor/scripted-2"
    chat = server.client().chat.completions
    chat.create(model="vendor/scripted-2", messages=user("hi"))
    assert server.ingress.events[0].options["model"] == "vendor/scripted-2"
    with pytest.raises(openai.NotFoundError, match="hermes") as caught:
        chat.create(model="gpt-2", messages=user("hi"))
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    assert server.ingress.model_calls == 1


def test_a_command_is_answered_with_what_it_says(server: Server) -> None:
    server.ingress.receipt = Receipt("command", session_id="s-9", reply="A new conversation.")
    answer = ask(server, "/new", extra_headers={"X-Hermes-Conversation": "a"})
    assert answer.choices[0].message.content == "A new conversation."
    assert server.ingress.events[0].message_type is MessageType.COMMAND
    assert answer.usage.total_tokens == 0
    stream = ask(server, "/new", stream=True)
    assert (
        "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "A new conversation."
    )


def test_pictures_become_attachments_and_those_of_the_history_stay_in_it(server: Server) -> None:
    picture = {"type": "image_url", "image_url": {"url": PIXEL}}
    message = {"role": "user", "content": [{"type": "text", "text": "what is it?"}, picture]}
    ask(server, messages=[message, {"role": "assistant", "content": "a dot"}, message])
    (event,) = server.ingress.events
    assert event.text == "what is it?"
    assert event.message_type is MessageType.PHOTO
    assert [attachment.name for attachment in event.attachments] == ["picture-1.png"]
    assert server.ingress.saved[0].startswith(b"\x89PNG")
    assert event.options["history"][0] == message


def test_a_failed_turn_is_an_error_that_the_client_does_not_repeat(server: Server) -> None:
    server.ingress.script = lambda _: Script(status="failed", reason="The key is wrong.")
    with pytest.raises(openai.InternalServerError, match=r"The key is wrong\.") as caught:
        server.client(max_retries=3).chat.completions.create(model="hermes", messages=user("hi"))
    assert caught.value.code == "turn_failed"
    assert len(server.ingress.events) == 1


def test_a_turn_that_somebody_stopped_is_a_conflict(server: Server) -> None:
    server.ingress.script = lambda _: Script(status="interrupted", reason="Stopped.")
    with pytest.raises(openai.ConflictError, match="Stopped"):
        server.client(max_retries=3).chat.completions.create(model="hermes", messages=user("hi"))
    assert len(server.ingress.events) == 1


def test_a_store_that_refuses_is_told_as_unavailable_and_the_client_tries_again(
    server: Server,
) -> None:
    server.ingress.error = StoreBusyError("Another process holds the store.")
    answer = server.post(json={"messages": user("hi")})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"]["code"] == "store.busy"
    assert server.ingress.events == []


def test_somebody_who_may_not_speak_is_told_so(server: Server) -> None:
    server.ingress.receipt = Receipt("ignored")
    with pytest.raises(openai.PermissionDeniedError):
        ask(server)


def test_a_fault_of_ours_is_one_answer_and_the_server_goes_on(server: Server) -> None:
    server.ingress.error = ZeroDivisionError("a bug")
    with pytest.raises(openai.InternalServerError, match="log") as caught:
        ask(server)
    assert caught.value.code == "internal_error"
    server.ingress.error = None
    assert ask(server).choices


# -- streams -------------------------------------------------------------------------------------


def text_of(stream: Any) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def test_a_stream_tells_the_reply_as_it_is_written_and_ends(server: Server) -> None:
    server.ingress.script = lambda _: says("One, ", "two, ", "three.")
    chunks = list(ask(server, stream=True))
    texts = [chunk.choices[0].delta.content for chunk in chunks]
    assert texts == ["", "One, ", "two, ", "three.", None]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:]] == [None, "stop"]
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_stream_tells_what_it_cost_when_it_is_asked_to(server: Server) -> None:
    chunks = list(ask(server, stream=True, stream_options={"include_usage": True}))
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == 120


def test_a_stream_ends_with_done_and_is_not_kept_by_proxies(server: Server) -> None:
    answer = server.post(json={"messages": user("hi"), "stream": True})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.text.endswith("data: [DONE]\n\n")


def test_what_the_model_thinks_is_told_apart_from_what_it_says(server: Server) -> None:
    server.ingress.script = lambda _: Script([ReasoningDelta("Hm."), TextDelta("Yes.")], "Yes.")
    deltas = [chunk.choices[0].delta for chunk in ask(server, stream=True)]
    assert [getattr(delta, "reasoning_content", None) for delta in deltas][1] == "Hm."
    assert "".join(delta.content or "" for delta in deltas) == "Yes."


def test_the_steps_of_a_turn_are_paragraphs(server: Server) -> None:
    steps = [
        TextDelta("I look."),
        StepStored(1, "I look.", 1),
        ToolStarted("c1", "read_file", {}),
        TextDelta("It "),
        TextDelta("says 7."),
        StepStored(2, "It says 7.", 0),
    ]
    server.ingress.script = lambda _: Script(steps, "It says 7.")
    assert text_of(ask(server, stream=True)) == "I look.\n\nIt says 7."


@pytest.mark.parametrize("again", [Retrying("cut", 0.1, 1), FellBack("other", "cut")])
def test_what_became_void_is_marked_and_told_again(server: Server, again: Any) -> None:
    events = [TextDelta("The ans"), again, TextDelta("The answer.")]
    server.ingress.script = lambda _: Script(events, "The answer.")
    text = text_of(ask(server, stream=True))
    assert text.startswith("The ans\n\n[")
    assert text.endswith("]\n\nThe answer.")


def test_what_was_not_streamed_of_the_stored_reply_is_told_at_the_end(server: Server) -> None:
    server.ingress.script = lambda _: Script([TextDelta("The ans")], "The answer.")
    assert text_of(ask(server, stream=True)) == "The answer."
    server.ingress.script = lambda _: Script([], "All of it.")
    assert text_of(ask(server, stream=True)) == "All of it."
    server.ingress.script = lambda _: Script([TextDelta("secret 123")], "secret [hidden]")
    assert text_of(ask(server, stream=True)) == "secret 123\n\nsecret [hidden]"


def test_a_question_to_the_person_is_told_in_the_stream_and_how_it_is_answered(
    server: Server,
) -> None:
    event = QuestionAsked(
        "q1", "approval", "shell", "Deletes build", "rm -r build", ["once", "deny"]
    )
    server.ingress.script = lambda _: Script([event, TextDelta("Done.")], "Done.")
    assert text_of(ask(server, stream=True)) == (
        "🔐 Allow this command? Deletes build\n```\nrm -r build\n```\n"
        "Answer /approve or /deny.\n\nDone."
    )
    event = QuestionAsked("q2", "clarify", "clarify", "Which one?", "", ["red", "blue"])
    server.ingress.script = lambda _: Script([event, TextDelta("Done.")], "Done.")
    assert text_of(ask(server, stream=True)) == (
        "❓ Which one?\n1. red\n2. blue\nAnswer with a number or in your own words.\n\nDone."
    )


def test_a_turn_that_fails_in_a_stream_is_an_error_in_it(server: Server) -> None:
    server.ingress.script = lambda _: Script(
        [TextDelta("So")], "So", "failed", "The model is gone."
    )
    with pytest.raises(openai.APIError, match=r"The model is gone\."):
        list(ask(server, stream=True))


def test_a_silent_turn_is_kept_alive(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "KEEP_ALIVE_S", 0.01)
    server.ingress.script = lambda _: replace(says("late"), hold=True)
    with httpx2.stream(
        "POST",
        f"{server.adapter.url}/chat/completions",
        json={"messages": user("hi"), "stream": True},
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=TIMEOUT_S,
    ) as answer:
        lines = answer.iter_lines()
        assert any(line == ": working" for line in lines)
        server.loop.call(server.ingress.turns[f"{0:032x}"].ended.set)
        assert any(line == "data: [DONE]" for line in lines)


# -- repeats, and clients that hang up --------------------------------------------------------------


def test_a_repeat_with_the_same_key_gets_the_first_answer(server: Server) -> None:
    key = {"Idempotency-Key": "order-1"}
    first = ask(server, "buy", extra_headers=key)
    second = ask(server, "buy", extra_headers=key)
    assert first.id == second.id
    assert second.choices[0].message.content == "You said: buy"
    assert len(server.ingress.turns) == 1
    assert text_of(ask(server, "buy", extra_headers=key, stream=True)) == "You said: buy"
    ask(server, "buy", extra_headers={"Idempotency-Key": "order-2"})
    assert len(server.ingress.turns) == 2


def test_a_repeat_while_the_first_still_runs_waits_and_is_told_all_of_it(server: Server) -> None:
    server.ingress.script = lambda _: replace(says("all ", "of it"), hold=True)
    key = {"Idempotency-Key": "order-1"}
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lambda: text_of(ask(server, stream=True, extra_headers=key)))
        assert server.ingress.watched.wait(TIMEOUT_S)
        server.ingress.watched.clear()
        second = pool.submit(lambda: text_of(ask(server, stream=True, extra_headers=key)))
        assert server.ingress.watched.wait(TIMEOUT_S)
        server.loop.call(server.ingress.turns[f"{0:032x}"].ended.set)
        assert first.result(TIMEOUT_S) == second.result(TIMEOUT_S) == "all of it"
    assert len(server.ingress.turns) == 1


def hang_up(server: Server, body: bytes, key: str = "") -> None:
    """Ask, and cut the connection while the turn runs."""
    with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            + f"Authorization: Bearer {TOKEN}\r\n".encode()
            + (f"Idempotency-Key: {key}\r\n".encode() if key else b"")
            + f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        assert server.ingress.watched.wait(TIMEOUT_S)


WHOLE = b'{"messages": [{"role": "user", "content": "hi"}]}'
STREAM = b'{"messages": [{"role": "user", "content": "hi"}], "stream": true}'


@pytest.mark.parametrize("body", [WHOLE, STREAM], ids=["whole", "stream"])
def test_a_turn_is_stopped_when_its_client_hangs_up(server: Server, body: bytes) -> None:
    server.ingress.script = lambda _: replace(says("a lot"), hold=True)
    hang_up(server, body)
    assert server.ingress.stopped.wait(TIMEOUT_S)


@pytest.mark.parametrize("body", [WHOLE, STREAM], ids=["whole", "stream"])
def test_a_turn_with_a_key_goes_on_when_its_client_hangs_up(server: Server, body: bytes) -> None:
    server.ingress.script = lambda _: replace(says("worth ", "it"), hold=True)
    hang_up(server, body, "k")
    server.loop.call(server.ingress.turns[f"{0:032x}"].ended.set)
    answer = ask(server, "hi", extra_headers={"Idempotency-Key": "k"})
    assert answer.choices[0].message.content == "worth it"
    assert not server.ingress.stopped.is_set()
    assert len(server.ingress.turns) == 1


# -- the end and the beginning of the server ---------------------------------------------------------


@pytest.mark.parametrize("key", ["k", ""], ids=["with a key", "without"])
@pytest.mark.parametrize("stream", [True, False])
def test_who_waits_when_the_gateway_stops_is_told_how_to_come_back(
    tmp_path: Path, stream: bool, key: str
) -> None:
    ingress = ScriptedIngress(lambda _: replace(says("later"), hold=True))
    with serving(tmp_path, ingress) as server, ThreadPoolExecutor(1) as pool:
        body = {"messages": user("hi"), "stream": stream}
        headers = {"Idempotency-Key": key} if key else {}
        request = pool.submit(lambda: server.post(json=body, headers=headers))
        assert ingress.watched.wait(TIMEOUT_S)
        server.loop.run(server.adapter.disconnect())
        answer = request.result(TIMEOUT_S)
    assert ("repeat the request with the same Idempotency-Key" in answer.text) == bool(key)
    assert ("would be another turn" in answer.text) != bool(key)
    assert not ingress.stopped.is_set()
    if not stream:
        assert (answer.status_code, answer.headers.get("retry-after")) == (
            503,
            "5" if key else None,
        )


class Dawdling(ScriptedIngress):
    """Does a command for longer than the gateway is there."""

    async def accept(self, event: MessageEvent) -> Receipt:
        del event
        self.watched.set()
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize("key", ["k", ""], ids=["with a key", "without"])
@pytest.mark.parametrize("stream", [True, False])
def test_who_waits_for_a_command_when_the_gateway_stops_is_told_so(
    tmp_path: Path, stream: bool, key: str
) -> None:
    ingress = Dawdling()
    with serving(tmp_path, ingress) as server, ThreadPoolExecutor(1) as pool:
        body = {"messages": user("/compress"), "stream": stream}
        headers = {"Idempotency-Key": key} if key else {}
        request = pool.submit(lambda: server.post(json=body, headers=headers))
        assert ingress.watched.wait(TIMEOUT_S)
        server.loop.run(server.adapter.disconnect())
        answer = request.result(TIMEOUT_S)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "restarting")
    assert answer.headers.get("retry-after") == ("5" if key else None)
    assert answer.headers.get("x-should-retry") == (None if key else "false")


def test_it_can_be_connected_again_and_disconnected_at_any_time(server: Server) -> None:
    server.loop.run(server.adapter.disconnect())
    server.loop.run(server.adapter.disconnect())
    assert server.loop.run(server.adapter.connect(is_reconnect=True))
    assert ask(server).choices


def test_a_taken_port_is_told_and_may_be_tried_again(server: Server, tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match="port") as caught, serving(tmp_path, port=server.port):
        pytest.fail("two listen on one port")
    assert not caught.value.is_fatal


def test_without_a_token_one_is_made_and_kept_for_its_owner_alone(tmp_path: Path) -> None:
    with serving(tmp_path, token="") as server:
        file = tmp_path / "token"
        assert file.stat().st_mode & 0o777 == 0o600
        token = file.read_text().strip()
        assert server.client(api_key=token).models.list().data
        with pytest.raises(openai.AuthenticationError):
            server.client().models.list()
    with serving(tmp_path, token="") as again:
        assert again.client(api_key=token).models.list().data


@pytest.mark.parametrize("token", ["short", "with a\nline break in it", "schlüssel-schlüssel"])
def test_a_token_that_is_no_good_is_a_fatal_error_that_says_what_to_do(
    tmp_path: Path, token: str
) -> None:
    with pytest.raises(PlatformError, match="remove it") as caught, serving(tmp_path, token=token):
        pytest.fail("it started")
    assert caught.value.is_fatal
    assert token not in str(caught.value)


def test_nothing_is_sent_to_clients_by_ourselves(server: Server) -> None:
    result = server.loop.run(server.adapter.send("request:1", "psst"))
    assert (result.success, result.error_kind) == (False, "refused")
    assert server.adapter.abilities.answers_in_place


def test_sixteen_clients_are_served_at_once_and_none_is_refused(server: Server) -> None:
    everybody = threading.Barrier(16, timeout=TIMEOUT_S)

    def work(number: int) -> list[str]:
        client = server.client()
        everybody.wait()
        return [
            client.chat.completions.create(model="hermes", messages=user(f"{number}.{each}"))
            .choices[0]
            .message.content
            or ""
            for each in range(5)
        ]

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(work, range(16)))
    expected = [[f"You said: {number}.{each}" for each in range(5)] for number in range(16)]
    assert answers == expected


def test_many_that_wait_do_not_keep_others_waiting(server: Server) -> None:
    server.ingress.script = lambda event: replace(says(event.text), hold=event.text == "slow")
    with ThreadPoolExecutor(24) as pool:
        slow = [pool.submit(lambda: text_of(ask(server, "slow", stream=True))) for _ in range(24)]
        assert all(server.ingress.accepted.acquire(timeout=TIMEOUT_S) for _ in slow)
        assert text_of(ask(server, "quick", stream=True)) == "quick"
        for turn in server.ingress.turns.values():
            server.loop.call(turn.ended.set)
        assert {future.result(TIMEOUT_S) for future in slow} == {"slow"}
