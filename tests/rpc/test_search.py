"""Searching conversations: one row each, with what a list says about it."""

from hermes_agent.testing.scripted import say
from hermes_agent.testing.server import ScriptedServer
from tests.rpc.harness import Inside, World


def test_an_original_and_its_branch_are_both_found_once(
    client: Inside, model: ScriptedServer
) -> None:
    model.add("a blue one", "a blue one again")
    opened = client.call("session.create", title="Houses")
    client.say(opened["session_id"], "which house is blue?")
    client.say(opened["session_id"], "the blue house, which is it?")
    branched = client.call("session.branch", session_id=opened["session_id"], name="Copies")
    model.add("fine")
    client.say(branched["session_id"], "I take the blue one")
    hits = client.call("session.search", query="blue")["hits"]
    assert {hit["session_id"]: (hit["title"], hit["message_count"]) for hit in hits} == {
        branched["stored_session_id"]: ("Copies", 6),
        opened["stored_session_id"]: ("Houses", 4),
    }
    assert [hit["session_id"] for hit in hits][0] == branched["stored_session_id"], "newest first"
    assert len(client.call("session.search", query="blue", limit=1)["hits"]) == 1


def test_a_shortened_conversation_is_found_where_it_is_now(
    client: Inside, world: World, model: ScriptedServer
) -> None:
    for _ in range(6):
        model.add(say("reply " * 300))
    sid = client.open()
    for n in range(6):
        client.say(sid, f"needle{n} " * 150)
    model.add(say("## Goal\nTalk about it.\n## Next step\nGo on."))
    now = client.call("session.compress", session_id=sid)["info"]["stored_session_id"]
    [hit] = client.call("session.search", query="needle0")["hits"]
    assert hit["session_id"] == now
    assert hit["message_count"] == world.row(now)["message_count"]
    assert "message_id" not in hit, "it is a copy"


def test_what_was_said_before_the_message_that_is_found_can_be_read(
    client: Inside, model: ScriptedServer
) -> None:
    model.add("one", "two", "three")
    sid = client.open()
    for text in ("first", "needle", "last"):
        client.say(sid, text)
    [hit] = client.call("session.search", query="needle")["hits"]
    read = client.call(
        "session.history", session_id=hit["session_id"], before=hit["message_id"], limit=2
    )
    assert [message["text"] for message in read["messages"]] == ["first", "one"]
