"""The engine of one chat: stops, a store that is full, and what other processes left."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_agent.testing.scripted import TIMEOUT_S, Quiet, Script, ScriptedModel, silence
from hermes_agent.turn.events import Event, Notice, TextDelta
from hermes_agent.turn.stop import Stop
from hermes_cli.chat.resources import ChatOptions, ChatResources
from hermes_cli.chat.surface import ChatSurface, status_of
from hermes_core.errors import StoreError
from hermes_core.paths import Home
from hermes_state import SessionDB
from hermes_state.ledger import turns
from hermes_state.ledger.turns import TurnSource
from tests.agent.test_assembly import Host
from tests.engine.conftest import make_assembly
from tests.support.faults import disk_full_at, eventually


class Chat:
    """An exchange, and what it showed."""

    def __init__(
        self, home: Home, store: SessionDB, script: Script, session_id: str | None
    ) -> None:
        self.model = ScriptedModel(script)
        assembly = make_assembly(home, store, Host(self.model))
        app: Any = SimpleNamespace(home=home)
        parts = ChatResources(app, ChatOptions(workspace=home.root), store, assembly, "")
        self.events: list[Event] = []
        self.exchange = ChatSurface(parts, session_id, self.events.append, can_ask=False)

    def ask(self, text: str, stop: Stop | None = None) -> dict[str, Any]:
        return self.exchange.answer(text, stop=stop or Stop())

    def ask_beside(self, text: str, stop: Stop) -> tuple[threading.Thread, list[dict[str, Any]]]:
        results: list[dict[str, Any]] = []
        thread = threading.Thread(target=lambda: results.append(self.ask(text, stop)), daemon=True)
        thread.start()
        return thread, results

    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))


MakeChat = Callable[..., Chat]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionDB]:
    with SessionDB(tmp_path / "state.db") as opened:
        yield opened


@pytest.fixture
def make_chat(home: Home, store: SessionDB) -> Iterator[MakeChat]:
    chats: list[Chat] = []

    def make(script: Script, session_id: str | None = None) -> Chat:
        chats.append(Chat(home, store, script, session_id))
        return chats[-1]

    yield make
    for chat in chats:
        chat.exchange.engine.close()


def leave(store: SessionDB, text: str, session_id: str = "s") -> str:
    """Accept a message in the name of a process that is gone."""
    message = {"role": "user", "content": text}
    source = TurnSource("tui", "gone")
    store.write(lambda tx: turns.accept(tx, session_id, message, source=source))
    store.write(lambda tx: tx.run("DELETE FROM workers"))
    return session_id


def test_a_stop_while_an_earlier_turn_runs_stops_both(
    make_chat: MakeChat, store: SessionDB
) -> None:
    store.create_session("s", "tui")
    leave(store, "the first")
    quiet, stop = Quiet(), Stop()
    chat = make_chat([silence(quiet)], "s")
    thread, results = chat.ask_beside("the second", stop)
    assert quiet.started.wait(TIMEOUT_S)
    stop.set()
    thread.join(TIMEOUT_S)
    assert status_of(results[0]) == 130
    eventually(lambda: not chat.exchange.is_unfinished())
    states = [row["state"] for row in store.read(turns.of_session, "s")]
    assert states == ["interrupted", "interrupted"]
    assert len(chat.model.requests) == 1


def test_the_reply_of_an_earlier_turn_is_not_shown_as_the_answer(
    make_chat: MakeChat, store: SessionDB
) -> None:
    store.create_session("s", "tui")
    leave(store, "the first")
    chat = make_chat(["the first answer", "the second answer"], "s")
    assert chat.ask("the second")["final_response"] == "the second answer"
    assert chat.text() == "the second answer"
    assert any("no answer yet" in event.text for event in chat.events if isinstance(event, Notice))


def test_what_other_processes_left_is_completed_and_shown(
    make_chat: MakeChat, store: SessionDB
) -> None:
    store.create_session("s", "tui")
    store.create_session("other", "tui")
    for text, session_id in (("one", "s"), ("two", "s"), ("elsewhere", "other")):
        leave(store, text, session_id)
    chat = make_chat(["first.", "second."], "s")
    assert chat.exchange.is_unfinished()
    chat.exchange.recover(Stop())
    assert not chat.exchange.is_unfinished()
    assert chat.text() == "first.second."
    assert [row["state"] for row in store.read(turns.of_session, "other")] == ["accepted"]


def test_a_stop_ends_the_recovery_at_once_and_the_turn_with_it(
    make_chat: MakeChat, store: SessionDB
) -> None:
    store.create_session("s", "tui")
    leave(store, "one")
    quiet, stop = Quiet(), Stop()
    chat = make_chat([silence(quiet)], "s")
    thread = threading.Thread(target=lambda: chat.exchange.recover(stop), daemon=True)
    thread.start()
    assert quiet.started.wait(TIMEOUT_S)
    stop.set()
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()
    assert [row["state"] for row in store.read(turns.of_session, "s")] == ["interrupted"]


def test_a_full_store_is_reported_and_the_message_is_answered_later(
    make_chat: MakeChat, store: SessionDB
) -> None:
    chat = make_chat(["an answer", "an answer"])
    with (
        disk_full_at(store, "UPDATE ON turns"),
        pytest.raises(StoreError, match="Your message is stored"),
    ):
        chat.ask("hello")
    (row,) = store.read(turns.of_session, chat.exchange.session_id)
    assert row["ended_at"] is None
    eventually(lambda: not chat.exchange.is_unfinished())
    (row,) = store.read(turns.of_session, chat.exchange.session_id)
    assert row["state"] == "answered"
