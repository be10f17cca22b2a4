"""The API through the whole gateway: real store, real agent, a scripted model behind HTTP."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from gateway.platforms.api_server.adapter import ApiServerAdapter
from hermes_agent.testing.faults import Refuse
from hermes_agent.testing.scripted import Quiet, Step, call, say, silence
from hermes_cli import plugins
from hermes_state.ledger import messages as message_ledger
from hermes_state.ledger import meta, outbox, sessions, turns
from tests.gateway.harness import TIMEOUT_S, Inside, World
from tests.support.clients import openai
from tests.support.faults import eventually

TOKEN = "a-token-for-the-tests"
TABLE = f"""
[gateway.platforms.api_server]
token = "{TOKEN}"
port = 0
"""


class Gateway(Inside):
    """The gateway in this process, with the API beside the loopback platform."""

    def __enter__(self) -> "Gateway":
        self._thread.start()
        assert self.call(self.runner.start()) == ["api_server", "loopback"]
        services = self.runner._services
        assert services is not None
        adapter = services.connections.connected()["api_server"]
        assert isinstance(adapter, ApiServerAdapter)
        self.client = openai.OpenAI(
            base_url=adapter.url,
            api_key=TOKEN,
            max_retries=0,
            timeout=TIMEOUT_S,
            # There is no TLS, and reading the certificates of the world takes long.
            http_client=openai.DefaultHttpxClient(verify=False),
        )
        return self

    def __exit__(self, *exception: object) -> None:
        self.client.close()
        super().__exit__(*exception)

    def ask(self, text: str, **options: Any) -> Any:
        return self.client.chat.completions.create(
            model="hermes", messages=[{"role": "user", "content": text}], **options
        )


@pytest.fixture
def gateway(world: World) -> Iterator[Gateway]:
    world.configure(more=TABLE)
    with Gateway(world) as running_gateway:
        yield running_gateway


@pytest.mark.parametrize("offered", [["scripted", "another"], ["another"]])
def test_the_model_of_the_settings_can_be_asked_for_by_its_name(
    gateway: Gateway, world: World, offered: list[str]
) -> None:
    world.model.models = {name: {} for name in offered}
    names = [model.id for model in gateway.client.models.list()]
    assert names[:2] == ["hermes", "scripted"]
    assert all(name.strip("/") == name for name in names)
    answer = gateway.client.chat.completions.create(
        model="scripted", messages=[{"role": "user", "content": "apple"}]
    )
    assert "apple" in (answer.choices[0].message.content or "")


def test_a_request_that_a_plugin_drops_is_told_so(gateway: Gateway) -> None:
    plugins.register_hook("on_message_received", lambda: {"action": "drop", "reason": "spam"})
    for _ in range(2):
        with pytest.raises(openai.PermissionDeniedError, match="A plugin dropped this message"):
            gateway.ask("hello", extra_headers=keyed("k-1"))


def text_of(stream: Any) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def test_a_message_is_answered_by_the_agent_and_kept(gateway: Gateway) -> None:
    gateway.world.play(say("Good morning."))
    raw = gateway.client.chat.completions.with_raw_response.create(
        model="hermes", messages=[{"role": "user", "content": "Hello"}]
    )
    answer = raw.parse()
    assert answer.choices[0].message.content == "Good morning."
    assert answer.usage is not None and answer.usage.prompt_tokens > 0
    session_id = raw.headers["x-hermes-session-id"]
    messages = gateway.store.read(message_ledger.of_session, session_id)
    assert [message["content"] for message in messages] == ["Hello", "Good morning."]


def test_a_stream_misses_nothing_however_fast_the_model_is(gateway: Gateway) -> None:
    text = " ".join(f"word{number}" for number in range(40))
    for _ in range(10):
        gateway.world.play(say(text))
        assert text_of(gateway.ask("Go on", stream=True)) == text


def test_steps_with_tools_are_told_in_the_stream(gateway: Gateway) -> None:
    gateway.world.play(call("todo", items=[]), say("Nothing to do."))
    assert text_of(gateway.ask("What is to do?", stream=True)).endswith("Nothing to do.")


def test_a_conversation_goes_on_by_its_name_and_by_its_response(gateway: Gateway) -> None:
    gateway.world.play(say("one"), say("two"), say("three"), say("four"))
    for text in ("a", "b"):
        gateway.ask(text, extra_headers={"X-Hermes-Conversation": "notes"})
    assert model_messages(gateway)[-3:] == ["a", "one", "b"]
    first = gateway.client.responses.create(model="hermes", input="c")
    assert model_messages(gateway)[-1:] == ["c"]
    gateway.client.responses.create(model="hermes", input="d", previous_response_id=first.id)
    assert model_messages(gateway)[-3:] == ["c", "three", "d"]


def model_messages(gateway: Gateway) -> list[str]:
    """The conversation that the model was asked about last."""
    messages = gateway.world.model.requests[-1].json["messages"]
    return [_text(message["content"]) for message in messages if message["role"] != "system"]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else content[0]["text"]


def test_a_response_that_nobody_knows_cannot_be_followed(gateway: Gateway) -> None:
    with pytest.raises(openai.NotFoundError):
        gateway.client.responses.create(
            model="hermes", input="x", previous_response_id="resp_" + "0" * 32
        )


def test_the_history_that_a_request_brings_is_what_the_model_is_shown(gateway: Gateway) -> None:
    gateway.world.play(say("42"))
    gateway.client.chat.completions.create(
        model="hermes",
        messages=[
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": "three"},
        ],
    )
    assert model_messages(gateway) == ["one", "two", "three"]


def test_a_repeat_gets_the_first_answer_also_after_a_restart(world: World) -> None:
    world.configure(more=TABLE)
    world.play(say("once"))
    key = {"Idempotency-Key": "k-1"}
    with Gateway(world) as gateway:
        assert gateway.ask("pay", extra_headers=key).choices[0].message.content == "once"
    with Gateway(world) as gateway:
        assert gateway.ask("pay", extra_headers=key).choices[0].message.content == "once"
        assert text_of(gateway.ask("pay", extra_headers=key, stream=True)) == "once"
    assert len([request for request in world.model.requests if request.method == "POST"]) == 1


def test_a_repeat_gets_the_first_answer_also_when_its_model_is_gone(world: World) -> None:
    def ask(gateway: Gateway, key: str) -> Any:
        return gateway.client.responses.create(
            model="scripted", input="pay", extra_headers={"Idempotency-Key": key}
        )

    world.configure(more=TABLE)
    world.play(say("once"))
    with Gateway(world) as gateway:
        first = ask(gateway, "k-1")
    world.home.config.write_text(
        world.home.config.read_text().replace('name = "scripted"', 'name = "another"')
    )
    world.model.models = {"another": {}}
    with Gateway(world) as gateway:
        for _ in range(2):
            again = ask(gateway, "k-1")
            assert (again.id, again.output_text) == (first.id, "once")
            with pytest.raises(openai.NotFoundError) as caught:
                ask(gateway, "k-2")
            assert caught.value.code == "model_not_found"
    assert len(world.model.model_requests) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_repeat_is_told_that_its_answer_was_deleted(gateway: Gateway, stream: bool) -> None:
    key = {"Idempotency-Key": "k-1"}
    gateway.ask("pay", extra_headers=key)
    (paid,) = gateway.store.list_sessions_rich()
    gateway.store.write(sessions.delete, [paid["id"]])
    with pytest.raises(openai.APIStatusError) as caught:
        gateway.ask("pay", extra_headers=key, stream=stream)
    assert (caught.value.status_code, caught.value.code) == (410, "answer_deleted")
    assert len(gateway.world.model.model_requests) == 1


@pytest.mark.parametrize("content", ["pay", "/title Invoices"])
def test_a_key_counts_in_all_conversations(gateway: Gateway, content: str) -> None:
    answers = [
        gateway.ask(
            content, extra_headers={"Idempotency-Key": "k-1", "X-Hermes-Conversation": name}
        )
        for name in ("bills", "letters")
    ]
    assert answers[0].choices[0].message.content == answers[1].choices[0].message.content
    requests = [request for request in gateway.world.model.requests if request.method == "POST"]
    assert len(requests) == (content == "pay")
    assert len(gateway.store.list_sessions_rich()) == 1


def test_a_reply_that_the_model_had_to_cut_is_told_as_such_to_a_repeat_too(
    gateway: Gateway,
) -> None:
    gateway.world.play(say("To be, or", finish="length"))
    key = {"Idempotency-Key": "k-1"}
    for _ in range(2):
        choice = gateway.ask("Hamlet?", extra_headers=key).choices[0]
        assert (choice.finish_reason, choice.message.content) == ("length", "To be, or")
    *_, last = gateway.ask("Hamlet?", extra_headers=key, stream=True)
    assert last.choices[0].finish_reason == "length"
    gateway.world.play(say("That is", finish="length"))
    response = gateway.client.responses.create(model="hermes", input="Go on")
    assert (response.status, response.output_text) == ("incomplete", "That is")


def test_a_turn_that_fails_is_an_error_whole_and_in_a_stream(gateway: Gateway) -> None:
    gateway.world.play(*[Refuse(401, "Wrong key.")] * 3)
    with pytest.raises(openai.InternalServerError, match="key") as caught:
        gateway.ask("Hello")
    assert (caught.value.status_code, caught.value.code) == (502, "turn_failed")
    assert caught.value.type == "server_error"
    with pytest.raises(openai.APIError) as told_in_it:
        list(gateway.ask("Hello", stream=True))
    assert told_in_it.value.code == "turn_failed"
    *_, last = gateway.client.responses.create(model="hermes", input="Hello", stream=True)
    assert last.type == "response.failed" and last.response.error is not None
    assert last.response.error.code == "server_error"


def test_a_command_answers_on_its_request(gateway: Gateway) -> None:
    answer = gateway.ask("/whoami", extra_headers={"X-Hermes-Conversation": "notes"})
    assert "owner" in answer.choices[0].message.content


def test_what_only_answers_requests_is_no_place_for_notices(gateway: Gateway) -> None:
    answer = gateway.ask("/sethome", extra_headers={"X-Hermes-Conversation": "notes"})
    assert "Notices cannot be sent here" in answer.choices[0].message.content
    assert gateway.store.read(meta.get, "gateway.home.api_server") is None


_NOTES = {"X-Hermes-Conversation": "notes"}
_PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)


def keyed(key: str) -> dict[str, str]:
    return _NOTES | {"Idempotency-Key": key}


def text(answer: Any) -> str:
    return answer.choices[0].message.content or ""


def test_a_command_that_is_repeated_says_what_it_said_also_after_a_restart(world: World) -> None:
    world.configure(more=TABLE)
    with Gateway(world) as gateway:
        gateway.ask("hello", extra_headers=_NOTES)
        first = text(gateway.ask("/title Tea", extra_headers=keyed("k-1")))
        assert "Tea" in first
        gateway.ask("/title Coffee", extra_headers=keyed("k-2"))
        assert text(gateway.ask("/title Tea", extra_headers=keyed("k-1"))) == first
        assert text_of(gateway.ask("/title Tea", extra_headers=keyed("k-1"), stream=True)) == first
    with Gateway(world) as gateway:
        response = gateway.client.responses.create(
            model="hermes", input="/title Tea", extra_headers=keyed("k-1")
        )
        assert response.output_text == first
        assert gateway.store.read(outbox.failed) == []
        assert [row["title"] for row in gateway.store.list_sessions_rich()] == ["Coffee"]


def test_a_command_that_has_something_answered_is_answered_so_and_again(gateway: Gateway) -> None:
    gateway.world.play(say("one"), say("two"))
    gateway.ask("hello", extra_headers=_NOTES)
    for _ in range(2):
        assert text(gateway.ask("/retry", extra_headers=keyed("k-1"))) == "two"
    assert text_of(gateway.ask("/queue and now?", extra_headers=_NOTES, stream=True)).startswith(
        "You said: and now?"
    )


def test_work_beside_is_refused_where_its_result_would_reach_nobody(gateway: Gateway) -> None:
    texts = [text(gateway.ask("/background count", extra_headers=keyed("k-1"))) for _ in range(2)]
    assert texts[0] == texts[1]
    assert "needs a chat to deliver" in texts[0]
    assert gateway.world.model.model_requests == []
    assert gateway.store.read(turns.all_open) == []


def test_what_is_to_steer_a_turn_is_answered_when_none_runs(gateway: Gateway) -> None:
    assert text(gateway.ask("/steer and now?", extra_headers=_NOTES)).startswith(
        "You said: and now?"
    )
    assert text_of(gateway.ask("/steer and then?", extra_headers=_NOTES, stream=True)).startswith(
        "You said: and then?"
    )


def test_who_steers_a_turn_is_told_that_it_was_said_to_it(gateway: Gateway) -> None:
    quiet = Quiet()
    gateway.world.play(replace(call("terminal", command="true"), quiet=quiet), say("so be it"))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lambda: text(gateway.ask("one", extra_headers=_NOTES)))
        assert quiet.started.wait(TIMEOUT_S)
        second = pool.submit(lambda: text(gateway.ask("/steer two", extra_headers=_NOTES)))
        (agent,) = gateway.services.turns.running_agents().values()
        eventually(lambda: bool(agent._runner._steers), "what is to be said")
        quiet.release()
        assert first.result(TIMEOUT_S) == "so be it"
        assert second.result(TIMEOUT_S) == "The running turn includes this message."


def test_requests_by_name_and_by_id_are_answered_in_the_order_in_which_they_came(
    gateway: Gateway,
) -> None:
    named = gateway.client.chat.completions.with_raw_response.create(
        model="hermes", messages=[{"role": "user", "content": "zero"}], extra_headers=_NOTES
    )
    by_id = {"X-Hermes-Session-Id": named.headers["X-Hermes-Session-Id"]}
    quiet = Quiet()
    gateway.world.play(silence(quiet, then="the first"))
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(gateway.ask, "one", extra_headers=_NOTES)]
        assert quiet.started.wait(TIMEOUT_S)
        for number, (words, where) in enumerate(
            [("two", by_id), ("three", _NOTES), ("four", by_id)], 1
        ):
            futures.append(pool.submit(gateway.ask, words, extra_headers=where))
            eventually(lambda number=number: gateway.services.queued_count() == number)
        quiet.release()
        assert text(futures[0].result(TIMEOUT_S)) == "the first"
        for future in futures[1:]:
            future.result(TIMEOUT_S)
    assert [text for text in model_messages(gateway) if "\n" not in text] == [
        *("zero", "one", "the first", "two", "three", "four")
    ]


def test_a_picture_that_a_turn_cannot_be_told_is_answered_on_its_request(gateway: Gateway) -> None:
    quiet = Quiet()
    gateway.world.play(
        replace(call("terminal", command="true"), quiet=quiet), say("one"), say("two")
    )
    words = {"type": "text", "text": "/steer look"}
    picture = {"type": "image_url", "image_url": {"url": _PICTURE}}
    messages: Any = [{"role": "user", "content": [words, picture]}]

    def show() -> str:
        return text(
            gateway.client.chat.completions.create(
                model="hermes", messages=messages, extra_headers=_NOTES
            )
        )

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(lambda: text(gateway.ask("first", extra_headers=_NOTES)))
        assert quiet.started.wait(TIMEOUT_S)
        second = pool.submit(show)
        eventually(lambda: gateway.services.queued_count() == 1, "the picture waits")
        quiet.release()
        assert (first.result(TIMEOUT_S), second.result(TIMEOUT_S)) == ("one", "two")


@pytest.mark.parametrize("expected", ["hello", "/queue hello", "/steer hello", "/retry"])
def test_a_model_that_is_asked_for_with_a_command_answers_what_it_says(
    gateway: Gateway, expected: str
) -> None:
    gateway.world.model.models = {"scripted": {}, "another": {}}
    for words in ("/model another", "one"):
        gateway.ask(words, extra_headers=_NOTES)
    assert gateway.world.model.model_requests[-1].json["model"] == "another"
    messages: Any = [{"role": "user", "content": expected}]
    gateway.client.chat.completions.create(
        model="scripted", messages=messages, extra_headers=_NOTES
    )
    assert gateway.world.model.model_requests[-1].json["model"] == "scripted"


def test_a_command_that_is_still_being_done_is_a_conflict_that_clients_try_again(
    world: World,
) -> None:
    init = world.home.plugins / "loopback" / "__init__.py"
    world.configure(more=TABLE)
    added = '    from {} import dawdle\n    ctx.command("dawdle", dawdle, description="Wait.")\n'
    init.write_text(init.read_text() + added.format(__name__))
    with Gateway(world) as gateway, ThreadPoolExecutor(1) as pool:
        _dawdling.started.clear()
        first = pool.submit(lambda: text(gateway.ask("/dawdle", extra_headers=keyed("k-1"))))
        assert _dawdling.started.wait(TIMEOUT_S)
        for content, stream in product(("/dawdle", "other words"), (False, True)):
            with pytest.raises(openai.ConflictError) as caught:
                gateway.ask(content, extra_headers=keyed("k-1"), stream=stream)
            assert caught.value.code == "still_running"
            assert caught.value.response.headers["retry-after"] == "1"
        _dawdling.over.set()
        patient = gateway.client.with_options(max_retries=5)
        again = patient.chat.completions.create(
            model="hermes",
            messages=[{"role": "user", "content": "/dawdle"}],
            extra_headers=keyed("k-1"),
        )
        assert text(again) == first.result(TIMEOUT_S) == "That took a while."


class _Dawdling:
    """A command that takes as long as a test wants."""

    started, over = threading.Event(), threading.Event()


_dawdling = _Dawdling()


def dawdle(_argument: str) -> str:
    _dawdling.started.set()
    assert _dawdling.over.wait(TIMEOUT_S)
    return "That took a while."


def test_a_client_that_hangs_up_stops_its_turn(gateway: Gateway) -> None:
    quiet = Quiet()
    gateway.world.play(Step(chunks=("So",), quiet=quiet))
    stream = gateway.ask("long", stream=True)
    assert quiet.started.wait(TIMEOUT_S)
    turn_id = stream.response.headers["x-hermes-turn-id"]
    stream.close()
    services = gateway.runner._services
    assert services is not None
    assert gateway.call(services.ingress.wait_for_result(turn_id)).status == "interrupted"


def test_sixteen_clients_at_once_each_get_their_own_answer(gateway: Gateway) -> None:
    everybody = threading.Barrier(16, timeout=TIMEOUT_S)

    def work(number: int) -> str:
        everybody.wait()
        return gateway.ask(f"this is {number}.").choices[0].message.content or ""

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(work, range(16)))
    assert all(f"this is {number}." in text for number, text in enumerate(answers))


@pytest.mark.parametrize("name", ["", "work"], ids=["unnamed", "named"])
def test_who_gets_a_whole_answer_is_not_asked_in_between(
    gateway: Gateway, world: World, name: str
) -> None:
    headers = {"X-Hermes-Conversation": name} if name else {}
    world.play(call("clarify", question="Which one?"), say("I took the red one."))
    answer = gateway.ask("choose", extra_headers=headers)
    assert answer.choices[0].message.content == "I took the red one."
    assert "No one can answer questions here." in str(
        world.model.model_requests[-1].json["messages"][-1]
    )


def test_what_a_named_stream_asks_is_answered_by_another_request(
    gateway: Gateway, world: World
) -> None:
    headers = {"X-Hermes-Conversation": "work"}
    world.play(call("clarify", question="Which one?"))
    stream = gateway.ask("choose", stream=True, extra_headers=headers)
    text = ""
    for chunk in stream:
        text += chunk.choices[0].delta.content or ""
        if text.endswith("Which one?"):
            gateway.ask("the blue one", extra_headers=headers)
    assert "The tool says: the blue one" in text


def heard_until(stream: Any, ending: str) -> str:
    """What a stream tells until it has asked something."""
    text = ""
    for chunk in stream:
        text += chunk.choices[0].delta.content or ""
        if text.endswith(ending):
            break
    return text


def test_who_comes_back_to_a_turn_that_waits_for_an_answer_is_asked_too(world: World) -> None:
    world.configure(more=TABLE, drain=0.1)
    world.play(call("clarify", question="Which one?"))
    with Gateway(world) as gateway:
        for _ in range(2):  # the connection breaks
            stream = gateway.ask("choose", stream=True, extra_headers=keyed("k-1"))
            assert heard_until(stream, "Which one?") == "❓ Which one?"
            stream.close()
    with Gateway(world) as gateway:
        stream = gateway.ask("choose", stream=True, extra_headers=keyed("k-1"))
        assert heard_until(stream, "Which one?") == "❓ Which one?"
        gateway.ask("the blue one", extra_headers=_NOTES)
        assert text_of(stream).endswith("The tool says: the blue one")


def test_an_unnamed_stream_is_not_asked_what_it_could_not_answer(
    gateway: Gateway, world: World
) -> None:
    world.play(call("clarify", question="Which one?"), say("I took the red one."))
    assert text_of(gateway.ask("choose", stream=True)) == "I took the red one."


@pytest.mark.parametrize("has_route", [True, False])
def test_what_was_said_under_another_user_is_not_found_by_its_name(
    world: World, *, has_route: bool
) -> None:
    named = {"extra_headers": {"X-Hermes-Conversation": "work"}}
    world.configure(more=TABLE + 'user = "anna"\n')
    with Gateway(world) as gateway:
        gateway.ask("the word is apple", **named)
        store = gateway.runner.session_store
        if not has_route:
            eventually(lambda: not gateway.open_turns(), "the end of the turn")
            for entry in store.list_sessions():
                entry.updated_at -= timedelta(days=9)
            assert store.prune_old_entries(8) == 1
    world.configure(more=TABLE + 'user = "bert"\n')
    with Gateway(world) as gateway:
        for text in ("which word?", "/history"):
            with pytest.raises(openai.NotFoundError, match="another user"):
                gateway.ask(text, **named)
        gateway.ask("pear", extra_headers={"X-Hermes-Conversation": "mine"})
    assert "apple" not in str(world.model.requests[-1])
    world.configure(more=TABLE + 'user = "anna"\n')
    with Gateway(world) as gateway:
        gateway.ask("which word?", **named)
    assert "apple" in str(world.model.requests[-1])
