"""What is shown of tool calls and of turns without an answer when a conversation is opened again."""

from typing import Any

from hermes_agent.testing.faults import wrong_key
from hermes_agent.testing.scripted import Quiet, call, say, silence, together
from hermes_agent.testing.server import ScriptedServer
from tests.rpc.harness import TIMEOUT_S, Inside


def shown_again(client: Inside, sid: str) -> list[list[dict[str, Any]]]:
    """What a client is shown that opens a conversation again, and one that opens a copy of it."""
    client.event("session.info", running=False)
    branch = client.call("session.branch", session_id=sid)["session_id"]
    ways = [("session.history", sid), ("session.activate", sid), ("session.activate", branch)]
    return [client.call(method, session_id=name)["messages"] for method, name in ways]


def test_failed_calls_and_diffs_are_shown_again_and_the_model_is_not_told(
    client: Inside, model: ScriptedServer
) -> None:
    sid = client.open()
    model.add(
        call("write_file", path="a.txt", content="one\n"),
        call("read_file", path="missing.txt"),
        say("Done."),
    )
    client.say(sid)
    live = client.events("tool.complete")
    assert [event["is_error"] for event in live] == [False, True]
    for messages in shown_again(client, sid):
        tools = [message for message in messages if message["role"] == "tool"]
        assert [message["is_error"] for message in tools] == [False, True]
        assert tools[0]["inline_diff"] == live[0]["inline_diff"]
        assert "inline_diff" not in tools[1]
        assert [m["duration_s"] for m in tools] == [event["duration_s"] for event in live]
    for request in model.model_requests:
        results = [message for message in request.json["messages"] if message["role"] == "tool"]
        assert all(set(message) == {"role", "tool_call_id", "content"} for message in results)


def test_of_a_large_diff_the_beginning_is_kept(client: Inside, model: ScriptedServer) -> None:
    sid = client.open()
    model.add(call("write_file", path="a.txt", content="a line of text\n" * 2000), say("Done."))
    client.say(sid)
    [live] = client.events("tool.complete")
    tool = client.call("session.history", session_id=sid)["messages"][1]
    assert tool["inline_diff"] == live["inline_diff"]
    *_, last_line, remark = tool["inline_diff"].splitlines()
    assert (last_line, remark) == ("+a line of text", "(the rest of the comparison is left out)")
    assert 19_000 < len(tool["inline_diff"]) < 21_000


def test_a_result_at_the_top_of_a_page_says_what_it_is_about(
    client: Inside, model: ScriptedServer
) -> None:
    sid = client.open()
    model.add(together(call("read_file", path="a"), call("read_file", path="b")), say("No."))
    client.say(sid)
    for limit, about in ((3, ["a", "b"]), (2, ["b"])):
        page = client.call("session.history", session_id=sid, limit=limit)["messages"]
        assert [message["context"] for message in page if message["role"] == "tool"] == about


def test_a_denied_call_and_one_that_never_ran_are_told_with_what_they_were_about(
    client: Inside, model: ScriptedServer
) -> None:
    sid = client.open()
    model.add(call("terminal", command="rm -rf ../precious"), say("All right."))
    client.call("prompt.submit", session_id=sid, text="clean up")
    client.event("approval.request")
    client.call("approval.respond", session_id=sid, choice="deny")
    client.event("message.complete")
    [live] = client.events("tool.complete")
    assert (live["context"], live["is_error"]) == ("rm -rf ../precious", True)
    assert live["refusal"] == "denied"
    model.add(
        together(call("terminal", command="rm -rf ../x"), call("write_file", path="b", content=""))
    )
    client.call("prompt.submit", session_id=sid, text="again")
    client.event("approval.request")
    client.call("session.interrupt", session_id=sid)
    client.event("message.complete")
    for messages in shown_again(client, sid):
        tools = [message for message in messages if message["role"] == "tool"]
        assert [(message["context"], message["is_error"]) for message in tools] == [
            ("rm -rf ../precious", True),
            ("rm -rf ../x", True),
            ("b", True),
        ]
        assert [message.get("refusal") for message in tools] == ["denied", None, None]
        assert messages[-1]["status"] == "interrupted"


def test_how_a_turn_ended_that_was_not_answered_is_told_with_its_last_message(
    client: Inside, model: ScriptedServer
) -> None:
    sid = client.open()
    for after in ("", "I was say"):
        quiet = Quiet()
        model.add(silence(quiet, after=after))
        client.call("prompt.submit", session_id=sid, text="go")
        assert quiet.started.wait(TIMEOUT_S)
        client.wait_for_text(after)
        client.call("session.interrupt", session_id=sid)
        client.event("message.complete", status="interrupted")
    model.add(wrong_key())
    error = client.say(sid)["error"]
    model.add("fine")
    client.say(sid)
    for messages in shown_again(client, sid):
        ends = [(m["role"], m.get("status"), m.get("error")) for m in messages]
        assert ends == [
            ("user", "interrupted", None),
            ("user", None, None),
            ("assistant", "interrupted", None),
            ("user", "error", error),
            ("user", None, None),
            ("assistant", None, None),
        ]


def test_page_by_page_the_end_of_a_turn_is_told_once(client: Inside, model: ScriptedServer) -> None:
    sid = client.open()
    quiet = Quiet()
    model.add(call("read_file", path="missing.txt"), silence(quiet, after="Hm"))
    client.call("prompt.submit", session_id=sid, text="look")
    assert quiet.started.wait(TIMEOUT_S)
    client.wait_for_text("Hm")
    client.call("session.interrupt", session_id=sid)
    client.event("message.complete")
    page = client.call("session.history", session_id=sid, limit=1)["messages"]
    assert [(message["text"], message["status"]) for message in page] == [("Hm", "interrupted")]
    earlier = client.call("session.history", session_id=sid, before=page[0]["id"])["messages"]
    assert [message["role"] for message in earlier] == ["user", "tool"]
    assert not any("status" in message for message in earlier)
