"""What the specification's scenarios demand of the pinned names, in our words.

Scenarios hand over sessions that are dictionaries with few keys and agents of all kinds.
"""

import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from hermes_cli import plugins
from hermes_core.errors import TitleError
from hermes_core.paths import Home
from hermes_state import SessionDB
from hermes_state.ledger import turns
from tui_gateway import server
from tui_gateway.resources import Resources
from tui_gateway.runtime import LiveSession


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_resources", Resources())


@pytest.fixture
def store(home: Home) -> SessionDB:
    store = server._get_db()
    assert isinstance(store, SessionDB)
    assert store.path == home.database
    return store


def session(agent: Any = None, key: str = "key", **more: Any) -> Any:
    return {
        "agent": agent,
        "session_key": key,
        "history": [],
        "history_lock": threading.Lock(),
        "history_version": 0,
        "running": False,
        "attached_images": [],
        "cols": 80,
        "pending_title": None,
        **more,
    }


class Answering:
    """An agent that knows nothing of turns."""

    def __init__(self, moves_to: str = "") -> None:
        self.session_id = "key"
        self._moves_to = moves_to

    def run_conversation(self, prompt: str, **how: Any) -> dict[str, Any]:
        how["stream_callback"]("do")
        how["stream_callback"]("ne")
        self.session_id = self._moves_to or self.session_id
        messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": "done"}]
        return {"final_response": "done", "messages": messages}


def submit(live: Any, text: str = "hello") -> None:
    """Have a prompt answered, and wait until the turn is over."""
    server._sessions["sid"] = live
    try:
        answer = server.handle_request(
            {"id": 1, "method": "prompt.submit", "params": {"session_id": "sid", "text": text}}
        )
        assert answer is not None
        assert answer["result"]["status"] == "streaming"
        assert _over(live).wait(30)
    finally:
        del server._sessions["sid"]


def _over(live: Any) -> threading.Event:
    over = threading.Event()

    def look() -> None:
        while live["running"]:
            threading.Event().wait(0.01)
        over.set()

    threading.Thread(target=look, daemon=True).start()
    return over


def test_the_session_that_is_ended_is_the_one_the_agent_is_in_now(store: SessionDB) -> None:
    for name in ("old", "new"):
        store.create_session(name, "tui")
    server._finalize_session(session(SimpleNamespace(session_id="new"), "old"), "tui_close")
    ended = {name: (store.get_session(name) or {})["end_reason"] for name in ("old", "new")}
    assert ended == {"old": None, "new": "tui_close"}


def test_without_an_agent_the_key_is_ended(store: SessionDB) -> None:
    store.create_session("key", "tui")
    server._finalize_session(session(), "tui_close")
    assert (store.get_session("key") or {})["end_reason"] == "tui_close"


def test_nothing_is_done_for_no_session_and_for_one_that_was_ended() -> None:
    agent = MagicMock(session_id="key")
    server._finalize_session(None)
    server._finalize_session(session(agent, _finalized=True, history=[{"role": "user"}]))
    agent._persist_session.assert_not_called()


@pytest.mark.parametrize("fails", ["_persist_session", "commit_memory_session", "close", "none"])
def test_every_part_of_the_end_is_tried_whatever_fails(
    store: SessionDB, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_session("key", "tui")
    hooks: list[str] = []

    def record(name: str, **kwargs: Any) -> None:
        hooks.append(name)
        raise RuntimeError("a broken plugin")

    monkeypatch.setattr(plugins, "invoke_hook", record)
    agent = MagicMock(session_id="key", model="m", platform="tui", _session_messages=None)
    getattr(agent, fails).side_effect = RuntimeError("broken")
    history = [{"role": "user", "content": "x"}]
    live = session(agent, history=history)
    server._finalize_session(live)
    server._finalize_session(live)
    agent._persist_session.assert_called_once_with(history, conversation_history=history)
    agent.commit_memory_session.assert_called_once_with(history)
    agent.close.assert_called_once()
    assert hooks == ["on_session_end", "on_session_finalize"]
    assert (store.get_session("key") or {})["end_reason"] == "tui_close"


def test_what_the_agent_has_is_fresher_than_the_history() -> None:
    fresh = [{"role": "user", "content": "newer"}]
    agent = MagicMock(session_id="key", _session_messages=fresh)
    server._finalize_session(session(agent, history=[{"role": "user", "content": "old"}]))
    assert agent._persist_session.call_args[0][0] is fresh


def test_a_store_that_cannot_be_opened_does_not_keep_the_rest_from_being_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken() -> None:
        raise RuntimeError("no store")

    monkeypatch.setattr(server, "_get_db", broken)
    agent = MagicMock(session_id="key", _session_messages=None)
    with pytest.raises(RuntimeError):
        server._get_db()
    server._finalize_session(session(agent, history=[{"role": "user", "content": "x"}]))
    agent.commit_memory_session.assert_called_once()


def test_after_a_turn_the_key_follows_the_agent_and_a_pending_title_stays(
    store: SessionDB,
) -> None:
    live = session(Answering(moves_to="moved"), pending_title=None)
    submit(live)
    assert live["session_key"] == "moved"
    live["pending_title"] = "wanted"
    live["agent"].session_id = "again"
    server._sync_session_key_after_compress("sid", live, clear_pending_title=False)
    assert (live["session_key"], live["pending_title"]) == ("again", "wanted")
    live["agent"].session_id = "and again"
    server._sync_session_key_after_compress("sid", live)
    assert live["pending_title"] is None


def test_an_agent_that_knows_nothing_of_turns_still_has_its_turns_stored(store: SessionDB) -> None:
    live = session(Answering())
    submit(live)
    assert [turn["state"] for turn in store.read(turns.of_session, "key")] == ["answered"]
    texts = [message["content"] for message in store.get_messages_as_conversation("key")]
    assert texts == ["hello", "done"]
    assert live["history"][-1]["content"] == "done"
    assert live["history_version"] == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [(TitleError("taken"), None), (ValueError("bad"), None), (RuntimeError("busy"), "My Title")],
)
def test_a_title_that_cannot_be_is_dropped_and_one_that_may_work_later_is_kept(
    monkeypatch: pytest.MonkeyPatch, error: Exception, expected: str | None
) -> None:
    db = MagicMock()
    db.set_session_title.side_effect = error
    monkeypatch.setattr(server, "_get_db", lambda: db)
    live = session(Answering(), pending_title="My Title")
    submit(live)
    assert live["pending_title"] == expected


def test_methods_can_be_called_and_replaced_by_their_name(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = server._methods["session.active_list"](7, {})
    assert answer == {"jsonrpc": "2.0", "id": 7, "result": {"sessions": []}}
    monkeypatch.setitem(server._methods, "session.active_list", lambda rid, params: {"id": rid})
    assert server.handle_request({"id": 3, "method": "session.active_list"}) == {"id": 3}


def test_a_replaced_registry_is_seen_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    mine: dict[str, Any] = {"mine": session()}
    monkeypatch.setattr(server, "_sessions", mine)
    answer = server.handle_request({"id": 1, "method": "session.active_list"})
    assert answer is not None
    assert [row["id"] for row in answer["result"]["sessions"]] == ["mine"]


def test_a_live_session_has_few_keys_and_each_is_explained() -> None:
    assert len(LiveSession.__annotations__) <= 15
