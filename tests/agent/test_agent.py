"""What surrounds a turn: titles, what a surface brings along, compaction at a person's wish."""

from pathlib import Path
from typing import Any

import pytest

from hermes_agent.testing.scripted import TIMEOUT_S, Quiet, silence
from hermes_agent.turn.events import ignore
from hermes_core.errors import StoreFullError
from hermes_core.settings import AgentSettings, Settings
from hermes_state import SessionDB
from hermes_state.ledger import titles
from tests.agent.conftest import MakeChat
from tests.support.faults import disk_full_at


def test_a_conversation_is_named_after_its_first_exchange_and_no_reply_waits_for_it(
    make_chat: MakeChat, store: SessionDB
) -> None:
    quiet = Quiet()

    def script(request: Any) -> Any:
        if request.system:
            return "Paris."
        return silence(quiet, then='"Capital of France."')

    chat = make_chat(script, settings=Settings(agent=AgentSettings(titles=True)))
    assert chat.say("capital of France?")["final_response"] == "Paris."
    assert quiet.started.wait(TIMEOUT_S)
    assert store.read(titles.title_of, chat.agent.session_id) is None
    quiet.release()
    chat.agent._titler.close(wait_s=TIMEOUT_S)
    assert store.read(titles.title_of, chat.agent.session_id) == "Capital of France"
    chat.say("and of Spain?")
    assert len(chat.model.requests) == 3, "one title is enough"


def test_a_title_that_is_given_up_is_one_line_of_the_log(
    make_chat: MakeChat, caplog: pytest.LogCaptureFixture
) -> None:
    quiet = Quiet()
    chat = make_chat(
        lambda request: "Paris." if request.system else silence(quiet),
        settings=Settings(agent=AgentSettings(titles=True)),
    )
    with caplog.at_level("INFO", logger="hermes_agent.titles"):
        chat.say("capital of France?")
        assert quiet.started.wait(TIMEOUT_S)
        chat.agent._titler.close()
        titling = chat.agent._titler._thread
        assert titling is not None
        titling.join(TIMEOUT_S)
    (line,) = caplog.records
    assert (line.getMessage().endswith("it was stopped"), line.exc_info) == (True, None)


def test_a_title_that_a_person_gave_stays(make_chat: MakeChat, store: SessionDB) -> None:
    chat = make_chat(lambda _r: "Some words", settings=Settings(agent=AgentSettings(titles=True)))
    accepted = chat.agent.accept("hello")
    store.set_session_title(chat.agent.session_id, "Mine")
    chat.agent.run_turn(accepted.turn_id)
    assert store.read(titles.title_of, chat.agent.session_id) == "Mine"
    assert len(chat.model.requests) == 1


def test_what_a_surface_brings_along_is_stored_when_the_store_does_not_know_it(
    make_chat: MakeChat,
) -> None:
    chat = make_chat(["yes", "again"])
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    chat.say("c", conversation_history=history)
    assert [content for _, content in chat.transcript()] == ["a", "b", "c", "yes"]
    chat.say("d", conversation_history=chat.agent._session_messages)
    assert [content for _, content in chat.transcript()] == ["a", "b", "c", "yes", "d", "again"]
    chat.agent._persist_session(chat.agent._session_messages, conversation_history=history)
    assert len(chat.transcript()) == 6, "what is stored is not stored again"


def test_a_history_and_its_first_message_are_stored_together(
    make_chat: MakeChat, store: SessionDB
) -> None:
    chat = make_chat(["yes"])
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    with disk_full_at(store, "INSERT ON turns"), pytest.raises(StoreFullError):
        chat.say("c", conversation_history=history)
    assert store.get_session(chat.agent.session_id) is None
    assert chat.say("c", conversation_history=history)["completed"]
    assert [content for _, content in chat.transcript()] == ["a", "b", "c", "yes"]


def test_a_person_can_have_a_conversation_shortened(make_chat: MakeChat) -> None:
    def script(request: Any) -> Any:
        return "reply " * 200 if request.tools or request.system else "## Goal\nTalk."

    chat = make_chat(script)
    for n in range(6):
        chat.say(f"question {n} " * 100)
    before = chat.agent.session_id
    result = chat.agent.compress("the questions")
    assert result["compressed"]
    assert result["session_id"] == chat.agent.session_id != before
    assert result["tokens_after"] < result["tokens_before"]
    assert chat.say("go on")["completed"]


def test_a_sub_agent_works_in_the_folder_of_its_agent(make_chat: MakeChat) -> None:
    agent = make_chat(["Done."]).agent
    sub_agent = agent.sub_agent("part", "turn", ignore)
    assert sub_agent.tool_context.workspace == agent.tool_context.workspace != Path.cwd()
