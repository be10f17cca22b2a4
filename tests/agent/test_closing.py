"""Closing the conversation of an agent: the parts, once, whatever fails."""

import threading
from typing import Any

import pytest

from hermes_agent.testing.scripted import TIMEOUT_S, Quiet, silence
from hermes_state import SessionDB
from tests.agent.conftest import MakeChat, RecordingHooks, close_agent

pytestmark = pytest.mark.promise("P6")


class Remembering:
    def __init__(self) -> None:
        self.conversations: list[list[dict[str, Any]]] = []

    def on_session_end(self, messages: list[dict[str, Any]]) -> None:
        self.conversations.append(messages)


class Forgetful:
    def on_session_end(self, messages: list[dict[str, Any]]) -> None:
        raise RuntimeError("no memory")


def test_an_end_flushes_tells_and_is_recorded(make_chat: MakeChat, store: SessionDB) -> None:
    memory = Remembering()
    chat = make_chat(["hi"], memory=[Forgetful(), memory])
    chat.say()
    chat.agent._session_messages.append({"role": "user", "content": "typed, not sent"})
    close_agent(chat.agent, "cli_close")
    row = store.get_session(chat.agent.session_id)
    assert row is not None
    assert row["end_reason"] == "cli_close"
    assert chat.transcript()[-1] == ("user", "typed, not sent")
    assert len(memory.conversations) == 1
    names = [name for name in chat.hooks.names() if name.startswith("on_session")]
    assert names == ["on_session_start", "on_session_end", "on_session_finalize"]
    assert chat.hooks.of("on_session_end") == [
        {
            "session_id": chat.agent.session_id,
            "completed": False,
            "interrupted": True,
            "model": "scripted",
            "platform": "cli",
        }
    ]


def test_memory_learns_what_is_stored_when_nobody_keeps_a_transcript(make_chat: MakeChat) -> None:
    memory = Remembering()
    chat = make_chat(["hi"], memory=[memory])
    outcome = chat.agent.run(chat.agent.accept("hello").turn_id)
    assert outcome.text == "hi"
    close_agent(chat.agent, "cli_close")
    assert [message["content"] for message in memory.conversations[0]] == ["hello", "hi"]
    assert chat.hooks.of("on_turn_start")[0]["user_message"] == "hello"


def test_a_hook_that_fails_does_not_keep_the_end_away(
    make_chat: MakeChat, store: SessionDB
) -> None:
    def explode(**_: Any) -> None:
        raise RuntimeError("a broken host")

    chat = make_chat(["hi"], hooks=RecordingHooks(on_session_end=explode))
    chat.say()
    close_agent(chat.agent, "cli_close")
    row = store.get_session(chat.agent.session_id)
    assert row is not None
    assert row["end_reason"] == "cli_close"


def test_an_end_in_the_middle_of_a_turn_keeps_what_was_streamed(make_chat: MakeChat) -> None:
    quiet = Quiet()
    chat = make_chat([silence(quiet, after="I was say")])
    thread = threading.Thread(target=chat.say, daemon=True)
    thread.start()
    assert quiet.started.wait(TIMEOUT_S)
    close_agent(chat.agent, "cli_close")
    thread.join(TIMEOUT_S)
    assert chat.transcript()[-1] == ("assistant", "I was say")
    assert chat.states() == ["interrupted"]
