"""Commands over the API: each is about the conversation that its request names, as words are."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from hermes_agent.testing.scripted import Quiet, call, say, silence
from hermes_state import SessionDB
from hermes_state.ledger import messages as message_ledger
from hermes_state.ledger import titles
from tests.gateway.harness import TIMEOUT_S, World
from tests.gateway.platforms.test_api_server_gateway import TABLE, Gateway, model_messages
from tests.support.clients import openai
from tests.support.faults import eventually

SESSION = "X-Hermes-Session-Id"


@pytest.fixture
def gateway(world: World) -> Iterator[Gateway]:
    world.configure(more=TABLE)
    with Gateway(world) as running_gateway:
        yield running_gateway


class Answer(NamedTuple):
    text: str
    session_id: str


def ask(gateway: Gateway, text: str, session_id: str = "", name: str = "", key: str = "") -> Answer:
    headers = {SESSION: session_id, "X-Hermes-Conversation": name, "Idempotency-Key": key}
    raw = gateway.client.chat.completions.with_raw_response.create(
        model="hermes",
        messages=[{"role": "user", "content": text}],
        extra_headers={header: value for header, value in headers.items() if value},
    )
    return Answer(raw.parse().choices[0].message.content or "", raw.headers.get(SESSION, ""))


def respond(gateway: Gateway, text: str, after: str = "", **options: Any) -> Any:
    if after:
        options["previous_response_id"] = after
    return gateway.client.responses.create(model="hermes", input=text, **options)


def test_a_command_is_about_the_session_that_its_request_names(gateway: Gateway) -> None:
    session_id = ask(gateway, "one").session_id
    ask(gateway, "two", session_id)
    status = ask(gateway, "/status", session_id)
    assert session_id in status.text and "Messages: 4" in status.text
    assert status.session_id == session_id
    assert "'two'" in ask(gateway, "/undo", session_id).text
    assert "Tea" in ask(gateway, "/title Tea", session_id).text
    assert gateway.store.read(titles.title_of, session_id) == "Tea"
    assert ask(gateway, "/retry", session_id).session_id == session_id
    assert model_messages(gateway) == ["one"]
    assert ask(gateway, "/queue three", session_id).session_id == session_id
    assert ask(gateway, "/steer four", session_id).session_id == session_id
    assert [text for text in model_messages(gateway) if not text.startswith("You said")] == [
        "one",
        "three",
        "four",
    ]


def test_a_command_is_about_the_conversation_of_the_response_that_it_follows(
    gateway: Gateway,
) -> None:
    first = respond(gateway, "one")
    second = respond(gateway, "two", first.id)
    undone = respond(gateway, "/undo", second.id)
    assert "'two'" in undone.output_text
    for follows in (undone.id, second.id):  # what was taken back is still a way into it
        respond(gateway, "three", follows)
        assert "one" in model_messages(gateway) and "two" not in model_messages(gateway)


@pytest.mark.parametrize("text", ["/status", "/title Mine", "/new", "/queue words", "words"])
def test_a_session_that_there_is_not_is_not_found_by_words_or_commands(
    gateway: Gateway, text: str
) -> None:
    with pytest.raises(openai.NotFoundError):
        ask(gateway, text, "20260101_000000_abcdef")
    assert gateway.store.list_sessions_rich() == []


@pytest.mark.parametrize("text", ["/status", "/title Mine", "/new", "/undo", "/stop", "words"])
def test_a_session_of_somebody_else_is_not_found_by_words_or_commands(
    gateway: Gateway, text: str
) -> None:
    gateway.world.platform.say("a", "a secret")
    gateway.world.wait_for_replies("a", 1)
    (theirs,) = gateway.store.list_sessions_rich()
    with pytest.raises(openai.NotFoundError):
        ask(gateway, text, theirs["id"])
    assert [row["title"] for row in gateway.store.list_sessions_rich()] == [theirs["title"]]
    assert len(gateway.store.read(message_ledger.of_session, theirs["id"])) == 2


@pytest.mark.parametrize("command", ["/new", "/new Tea", "/branch Tea"])
def test_what_a_command_opens_is_the_session_of_its_answer_and_the_named_one_stays(
    gateway: Gateway, command: str
) -> None:
    session_id = ask(gateway, "one").session_id
    opened = ask(gateway, command, session_id)
    assert opened.session_id and opened.session_id != session_id
    assert opened.session_id in opened.text
    ask(gateway, "there", opened.session_id)
    assert ("one" in model_messages(gateway)) == command.startswith("/branch")
    assert ask(gateway, "here", session_id).session_id == session_id
    assert "one" in model_messages(gateway) and "there" not in model_messages(gateway)


def test_a_model_that_is_chosen_in_a_session_answers_in_it_and_in_its_branch(
    gateway: Gateway,
) -> None:
    gateway.world.model.models = {"scripted": {}, "other": {}}
    session_id = ask(gateway, "one").session_id
    ask(gateway, "/model other", session_id)
    ask(gateway, "two", session_id)
    assert gateway.world.model.model_requests[-1].json["model"] == "other"
    shorter = ask(gateway, "/compress", session_id).session_id
    branch = ask(gateway, "/branch Tea", shorter).session_id
    for where in (session_id, shorter, branch):
        ask(gateway, "three", where)
        assert gateway.world.model.model_requests[-1].json["model"] == "other"
    ask(gateway, "four", ask(gateway, "/new", session_id).session_id)
    assert gateway.world.model.model_requests[-1].json["model"] == "scripted"


def test_a_session_that_is_named_by_its_id_does_not_end_by_silence(gateway: Gateway) -> None:
    routes = gateway.runner.session_store
    session_id = ask(gateway, "one").session_id
    ask(gateway, "/status", session_id)
    assert routes.list_sessions() == []  # who looks at it is in nobody's way
    ask(gateway, "/model scripted", session_id)
    (entry,) = routes.list_sessions()
    entry.updated_at -= timedelta(days=3)
    assert not routes._is_session_expired(entry)
    assert ask(gateway, "/status", session_id).session_id == session_id


@pytest.mark.parametrize("command", ["/title Tea", "/status", "/help", "/nonsense"])
def test_the_answer_to_a_command_can_be_followed(gateway: Gateway, command: str) -> None:
    first = respond(gateway, "one")
    after = respond(gateway, command, first.id)
    respond(gateway, "two", after.id)
    assert model_messages(gateway)[0] == "one" and model_messages(gateway)[-1] == "two"


def test_the_answer_to_a_command_that_opens_another_conversation_leads_to_it(
    gateway: Gateway,
) -> None:
    named = {"X-Hermes-Conversation": "notes"}
    respond(gateway, "one", extra_headers=named)
    new = respond(gateway, "/new", extra_headers=named)
    respond(gateway, "two", new.id)
    assert model_messages(gateway) == ["two"]
    respond(gateway, "three", extra_headers=named)
    assert model_messages(gateway)[0] == "two" and model_messages(gateway)[-1] == "three"


def test_the_answers_to_two_commands_have_two_names_and_a_repeat_has_the_same(
    gateway: Gateway,
) -> None:
    keys = ("k-1", "k-2", "k-1")
    first, second, again = (
        respond(gateway, "/status", conversation="notes", extra_headers={"Idempotency-Key": key})
        for key in keys
    )
    assert first.id == again.id != second.id


def test_the_answer_to_a_first_command_can_be_followed(gateway: Gateway) -> None:
    respond(gateway, "two", respond(gateway, "/help").id)
    assert model_messages(gateway) == ["two"]


@pytest.mark.parametrize(
    "command", ["/help", "/status", "/sessions", "/stop", "/undo", "/nonsense"]
)
def test_a_command_that_is_about_no_conversation_leaves_none_behind(
    gateway: Gateway, command: str
) -> None:
    answer = ask(gateway, command)
    assert answer.text and not answer.session_id
    assert gateway.store.list_sessions_rich() == []
    assert gateway.runner.session_store.list_sessions() == []


@pytest.mark.parametrize("command", ["/new", "/title Tea", "/model scripted"])
def test_a_command_that_begins_a_conversation_names_it(gateway: Gateway, command: str) -> None:
    answer = ask(gateway, command)
    assert gateway.store.get_session(answer.session_id) is not None
    assert ask(gateway, "one", answer.session_id).session_id == answer.session_id


def test_a_model_that_is_chosen_before_anything_is_said_answers_whoever_goes_on_there(
    gateway: Gateway,
) -> None:
    gateway.world.model.models = {"scripted": {}, "other": {}}
    respond(gateway, "one", respond(gateway, "/model other").id)
    assert gateway.world.model.model_requests[-1].json["model"] == "other"


def test_a_conversation_that_is_opened_without_a_name_does_not_end_by_silence(
    gateway: Gateway,
) -> None:
    session_id = ask(gateway, "one").session_id
    assert ask(gateway, f"/resume {session_id}").session_id == session_id
    assert gateway.runner.session_store.list_sessions() == []


@pytest.mark.parametrize(
    ("command", "expected"),
    [("/retry", ["one", "two", "three"]), ("/queue five", ["one", "two", "three", "four", "five"])],
)
def test_a_command_is_about_the_history_that_its_request_brings(
    gateway: Gateway, command: str, expected: list[str]
) -> None:
    turns = [("user", "one"), ("assistant", "two"), ("user", "three"), ("assistant", "four")]
    messages: Any = [{"role": role, "content": text} for role, text in (*turns, ("user", command))]
    gateway.client.chat.completions.create(model="hermes", messages=messages)
    assert model_messages(gateway) == expected


def test_the_answer_to_a_question_leads_to_the_conversation_that_asked(gateway: Gateway) -> None:
    gateway.world.play(call("clarify", question="Which one?"))
    notes: Any = {"conversation": "notes", "extra_headers": {"Idempotency-Key": "k-1"}}
    text, answers = "", list[Any]()
    for event in respond(gateway, "choose", conversation="notes", stream=True):
        text += getattr(event, "delta", "")
        if text.endswith("Which one?") and not answers:
            answers = [respond(gateway, "the blue one", **notes) for _ in range(2)]
    assert answers[0].id == answers[1].id
    respond(gateway, "and now?", answers[1].id)
    (notes,) = gateway.store.list_sessions_rich()
    words = [
        message["content"] for message in gateway.store.read(message_ledger.of_session, notes["id"])
    ]
    assert words[0] == "choose" and "and now?" in words


def test_a_command_that_is_repeated_leads_where_it_led(world: World) -> None:
    world.configure(more=TABLE)
    with Gateway(world) as gateway:
        session_id = ask(gateway, "one").session_id
        new = ask(gateway, "/new", session_id, key="k-1")
        assert ask(gateway, "/new", session_id, key="k-1") == new
    with Gateway(world) as gateway:
        assert ask(gateway, "/new", session_id, key="k-1") == new
        assert ask(gateway, "two", new.session_id).session_id == new.session_id


@pytest.mark.parametrize("is_named", [True, False], ids=["by its name", "by its id"])
def test_a_command_that_was_cut_off_leads_to_the_conversation_it_was_about(
    world: World, is_named: bool
) -> None:
    world.configure(more=TABLE)
    with Gateway(world) as gateway:
        first = ask(gateway, "one", name="A")
        where = {"name": "A"} if is_named else {"session_id": first.session_id}
        ask(gateway, "/undo", **where, key="k-1")
    _begin_again(world)
    with Gateway(world) as gateway:
        again = ask(gateway, "/undo", **where, key="k-2")
        assert "The process ended while /undo" in again.text
        assert again.session_id == first.session_id


def _begin_again(world: World) -> None:
    """Have the store know of one more such command that it was begun, and nothing of its end."""
    with SessionDB(world.home.database) as store:
        store.write(
            lambda conn: conn.run(
                "INSERT INTO inbox (platform, chat_id, message_id, payload, received_at)"
                " SELECT platform, chat_id, 'k-2', payload, 1.0 FROM inbox WHERE message_id = 'k-1'"
            )
        )


@pytest.mark.parametrize("small", ["on", "off"])
def test_instructions_count_from_the_request_that_brings_them(world: World, small: str) -> None:
    world.configure(more=TABLE)
    settings = world.home.config.read_text()
    world.home.config.write_text(settings.replace("retries = 1", f'retries = 1\nsmall = "{small}"'))
    with Gateway(world) as gateway:
        _check_instructions(gateway)


def _check_instructions(gateway: Gateway) -> None:
    def instructed() -> str:
        system = gateway.world.model.requests[-1].json["messages"][0]
        return system["content"] if isinstance(system["content"], str) else str(system["content"])

    first = respond(gateway, "one", instructions="Speak Dutch")
    assert "Speak Dutch" in instructed()
    second = respond(gateway, "two", first.id, instructions="Speak Czech")
    assert second.instructions == "Speak Czech"
    changed = instructed()
    assert "Speak Czech" in changed and "Speak Dutch" not in changed
    third = respond(gateway, "three", second.id)
    assert instructed() == changed
    respond(gateway, "four", third.id, instructions="Speak Czech")
    assert instructed() == changed
    assert respond(gateway, "/status", third.id, instructions="Speak Latin").instructions is None


def test_instructions_of_a_named_conversation_may_come_later(gateway: Gateway) -> None:
    ask(gateway, "one", name="notes")
    gateway.client.chat.completions.create(
        model="hermes",
        messages=[{"role": "system", "content": "Speak Latin"}, {"role": "user", "content": "two"}],
        extra_headers={"X-Hermes-Conversation": "notes"},
    )
    assert "Speak Latin" in str(gateway.world.model.requests[-1].json["messages"][0])


def test_what_runs_in_a_conversation_is_seen_and_stopped_from_every_chat_in_it(
    gateway: Gateway,
) -> None:
    session_id = ask(gateway, "one", name="A").session_id
    ask(gateway, f"/resume {session_id}", name="B")
    for where in ({"name": "B"}, {"session_id": session_id}):
        quiet = Quiet()
        gateway.world.play(silence(quiet, after="Half ", then="of it"))
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(ask, gateway, "two", name="A")
            assert quiet.started.wait(TIMEOUT_S)
            assert "A turn is running" in ask(gateway, "/status", **where).text
            assert "/undo has to wait" in ask(gateway, "/undo", **where).text
            assert "Stopping" in ask(gateway, "/stop", **where).text
            with pytest.raises(openai.ConflictError):
                running.result(TIMEOUT_S)


def test_words_that_were_taken_along_to_a_new_conversation_name_that_one(gateway: Gateway) -> None:
    quiet = Quiet()
    gateway.world.play(silence(quiet, after="Half ", then="of it"), say("two"))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ask, gateway, "one", name="A")
        assert quiet.started.wait(TIMEOUT_S)
        second = pool.submit(ask, gateway, "two", name="A")
        eventually(lambda: gateway.services.queued_count() == 1, "the second waits")
        new = ask(gateway, "/new", name="A")
        assert second.result(TIMEOUT_S) == ("two", new.session_id)
        with pytest.raises(openai.ConflictError):
            first.result(TIMEOUT_S)


def test_a_response_that_is_being_given_can_be_followed_by_the_command_that_stops_it(
    gateway: Gateway,
) -> None:
    quiet = Quiet()
    gateway.world.play(silence(quiet, after="Half ", then="of it"))
    stream = respond(gateway, "one", stream=True)
    running = next(iter(stream)).response
    assert quiet.started.wait(TIMEOUT_S)
    assert "Stopping" in respond(gateway, "/stop", running.id).output_text
    assert [event.type for event in stream][-1] == "response.failed"


def test_a_response_that_is_being_given_can_be_followed_by_what_is_said_to_it(
    gateway: Gateway,
) -> None:
    quiet = Quiet()
    step = replace(call("terminal", command="true"), quiet=quiet)
    gateway.world.play(step, say("so be it"))
    stream = respond(gateway, "one", stream=True)
    running = next(iter(stream)).response
    assert quiet.started.wait(TIMEOUT_S)
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(respond, gateway, "/steer two", running.id)
        agents = gateway.services.turns.running_agents()
        eventually(
            lambda: any(agent._runner._steers for agent in list(agents.values())),
            "what is to be said",
        )
        quiet.release()
        assert [event.type for event in stream][-1] == "response.completed"
        assert second.result(TIMEOUT_S).output_text == "The running turn includes this message."
    assert gateway.world.model.model_requests[-1].json["messages"][-1]["content"] == "two"


def test_who_shares_a_conversation_may_leave_it_while_it_is_at_work(gateway: Gateway) -> None:
    gateway.world.play(say("1"), say("2"))
    session_id = ask(gateway, "one", name="A").session_id
    other = ask(gateway, "else", name="C").session_id
    ask(gateway, f"/resume {session_id}", name="B")
    quiet = Quiet()
    gateway.world.play(silence(quiet, then="done"))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(ask, gateway, "two", name="A")
        assert quiet.started.wait(TIMEOUT_S)
        assert ask(gateway, f"/resume {other}", name="B").session_id == other
        assert "/resume has to wait" in ask(gateway, f"/resume {other}", name="A").text
        quiet.release()
        assert running.result(TIMEOUT_S).text == "done"
