"""Shortening a conversation on request: by method and by slash command, done, needless and stopped."""

import pytest

from hermes_agent.testing.scripted import Quiet, say, silence
from hermes_agent.testing.server import ScriptedServer
from tests.rpc.harness import TIMEOUT_S, Client, Inside, RefusedError, World

SUMMARY = "## Goal\nTalk about questions.\n## Next step\nGo on."
STOPPED = "Stopped; nothing was compacted."


def talk(client: Client, model: ScriptedServer) -> str:
    """A conversation that is worth shortening."""
    sid = client.open()
    for n in range(6):
        model.add(say("reply " * 300))
        client.say(sid, f"question {n} " * 150)
        client.event("session.info", running=False)
    return sid


def statuses(client: Client) -> list[str]:
    return [status["kind"] for status in client.events("status.update")]


def test_the_command_ends_with_a_ready_session_and_follows_the_conversation(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    sid = talk(client, model)
    model.add(say(SUMMARY))
    result = client.call("slash.exec", session_id=sid, command="/compress")
    assert "continues in" in result["output"]
    assert statuses(client)[-2:] == ["compacted", "ready"]
    new = client.call("session.activate", session_id=sid)["session_key"]
    assert new in result["output"]
    assert world.row(new)["parent_session_id"] is not None
    assert world.row(new)["end_reason"] is None


def test_a_shortened_conversation_fills_less_of_the_window_at_once(
    client: Inside, model: ScriptedServer
) -> None:
    sid = talk(client, model)
    before = client.call("session.usage", session_id=sid)["context_used"]
    model.add(say(SUMMARY))
    result = client.call("session.compress", session_id=sid)
    assert result["usage"]["context_used"] == result["after_tokens"] < before
    assert client.events("usage.update")[-1]["context_used"] == result["after_tokens"]


def test_how_full_the_window_is_is_known_again_when_the_conversation_is_opened_again(
    client: Inside, model: ScriptedServer
) -> None:
    sid = talk(client, model)
    before = client.call("session.usage", session_id=sid)["context_used"]
    key = client.call("session.activate", session_id=sid)["session_key"]
    client.call("session.close", session_id=sid)
    sid = client.call("session.resume", session_id=key)["session_id"]
    client.event("session.info", lazy=None)
    assert client.call("session.usage", session_id=sid)["context_used"] == before
    client.call("session.undo", session_id=sid)
    assert 0 < client.call("session.usage", session_id=sid)["context_used"] < before


def test_nothing_that_was_summed_up_is_taken_back(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    sid = talk(client, model)
    model.add(say(SUMMARY))
    client.call("session.compress", session_id=sid)
    key = client.call("session.activate", session_id=sid)["session_key"]
    with pytest.raises(RefusedError) as refused:
        for _ in range(6):
            client.call("session.undo", session_id=sid)
    before = world.transcript(key)
    assert "were compacted" in str(refused.value)
    assert "/undo compress" in refused.value.data["fix"]
    instead = {"text": "instead", "truncate_before_user_ordinal": 0}
    with pytest.raises(RefusedError, match="compacted"):
        client.call("prompt.submit", session_id=sid, **instead)
    for command in ("/undo", "/retry"):
        with pytest.raises(RefusedError, match="compacted"):
            client.call("slash.exec", session_id=sid, command=command)
    assert world.transcript(key) == before
    client.call("slash.exec", session_id=sid, command="/undo compress")
    client.call("session.undo", session_id=sid)


def test_a_needless_shortening_tells_the_real_size(client: Inside, model: ScriptedServer) -> None:
    sid = client.open()
    assert client.call("session.compress", session_id=sid)["before_tokens"] == 0, "nothing is said"
    model.add("hi")
    client.say(sid, "a question of a few words")
    client.event("session.info", running=False)
    result = client.call("session.compress", session_id=sid)
    assert result["summary"]["headline"] == "Nothing to compact yet."
    assert result["before_tokens"] == result["after_tokens"] > 0
    result = client.call("slash.exec", session_id=sid, command="/compact")
    assert result["output"] == "There is nothing to compact yet."
    assert statuses(client) == ["compressing", "ready"] * 3


@pytest.mark.parametrize("by_command", [False, True])
def test_a_stopped_shortening_says_so_and_leaves_all_as_it_was(
    client: Inside, world: World, model: ScriptedServer, by_command: bool
) -> None:
    sid = talk(client, model)
    key = client.call("session.activate", session_id=sid)["session_key"]
    quiet = Quiet()
    model.add(silence(quiet))
    if by_command:
        number = client.post("slash.exec", session_id=sid, command="/compress")
    else:
        number = client.post("session.compress", session_id=sid)
    assert quiet.started.wait(TIMEOUT_S)
    client.call("session.interrupt", session_id=sid)
    result = client.answer(number)
    quiet.release()
    if by_command:
        assert result["output"] == STOPPED
    else:
        assert result["summary"]["headline"] == STOPPED
        assert result["before_tokens"] == result["after_tokens"] > 1000
    assert statuses(client)[-1] == "ready"
    assert world.row(key)["ended_at"] is None
    model.add("on it goes")
    assert client.say(sid, "go on")["text"] == "on it goes"
