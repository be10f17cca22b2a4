"""What a person may want of a conversation beside talking in it: a copy, and what fills the window."""

import json
from pathlib import Path

import pytest

from hermes_agent.testing.server import ScriptedServer
from tests.rpc.harness import Inside, RefusedError


def test_a_conversation_is_saved_into_a_private_file(client: Inside, model: ScriptedServer) -> None:
    sid = client.open(title="Kept")
    with pytest.raises(RefusedError) as refused:
        client.call("session.save", session_id=sid)
    assert refused.value.number == 4008
    model.add("hi")
    client.say(sid)
    files = [Path(client.call("session.save", session_id=sid)["file"]) for _ in range(2)]
    assert files[0] != files[1]
    saved = json.loads(files[0].read_text())
    assert saved["title"] == "Kept"
    assert [message["content"] for message in saved["messages"]] == ["hello", "hi"]
    assert files[0].stat().st_mode & 0o077 == 0


def test_what_fills_the_window_is_told_by_parts(client: Inside, model: ScriptedServer) -> None:
    sid = client.open()
    model.add("hi " * 100)
    client.say(sid)
    result = client.call("session.context_breakdown", session_id=sid)
    parts = {part["name"]: part["tokens"] for part in result["categories"]}
    assert set(parts) == {"system prompt", "tools", "messages"}
    assert parts["messages"] >= 100
    assert sum(parts.values()) == result["estimated_total"]
    assert (result["model"], result["context_max"]) == ("scripted", 32000)
    assert 0 < result["context_percent"] < 100
    assert result["context_used"] > 0
