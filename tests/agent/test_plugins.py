"""What plugins answer and raise in the middle of a turn, with the host that every surface uses."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hermes_agent.testing.scripted import TIMEOUT_S, Quiet, call, silence
from hermes_agent.tools import schema
from hermes_agent.tools.registry import plugin_tools
from hermes_agent.turn.events import ToolEnded
from hermes_cli.plugins import PluginContext, PluginHost
from hermes_core.paths import Home
from hermes_state import SessionDB
from tests.agent.conftest import Counting, MakeChat, RecordingHooks, close_agent
from tests.agent.test_loop import in_background, joined

pytestmark = pytest.mark.promise("P8")

CHANGE_TO_ONE = {"action": "change", "arguments": {"n": 1}}
CHANGE_TO_TWO = {"action": "change", "arguments": {"n": 2}}
CHANGE_TO_NONSENSE = {"action": "change", "arguments": {"nope": 1}}
BLOCK = {"action": "block", "message": "NO!"}


def host_answering(hook: str, *answers: Any) -> PluginHost:
    """A host with one plugin for each answer; one that is an error is raised."""
    host = PluginHost()
    for answer in answers:
        host.register_hook(hook, giving(answer))
    return host


def giving(answer: Any) -> Callable[[], Any]:
    def give() -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return give


@pytest.mark.parametrize(
    ("answers", "ran_with", "expected"),
    [
        (["block", True, {"action": "change"}], [{"n": 5}], "counted"),
        ([asyncio.CancelledError(), CHANGE_TO_ONE], [{"n": 1}], "counted"),
        ([CHANGE_TO_ONE, CHANGE_TO_TWO], [{"n": 1}], "counted"),
        ([CHANGE_TO_NONSENSE, BLOCK], [], "NO!"),
        ([CHANGE_TO_ONE, {"action": "block"}], [], "A plugin blocked this call."),
        ([CHANGE_TO_NONSENSE], [], "There is no argument 'nope'"),
    ],
)
def test_a_call_goes_on_with_what_counts_of_all_that_plugins_answer(
    make_chat: MakeChat, answers: list[Any], ran_with: list[Any], expected: str
) -> None:
    tool = Counting()
    hooks: Any = host_answering("pre_tool_call", *answers)
    chat = make_chat([call("count", n=5), "ok"], [tool.tool()], hooks=hooks)
    assert chat.say()["final_response"] == "ok"
    assert tool.runs == ran_with
    assert expected in chat.transcript()[2][1]


def test_a_tool_behind_another_is_blocked_in_the_plugins_words_and_told_like_any_other(
    make_chat: MakeChat,
) -> None:
    def decide(tool_name: str, **_: Any) -> Any:
        return BLOCK if tool_name == "count" else None

    tool = Counting(options={"toolset": "further"})
    hooks = RecordingHooks(pre_tool_call=decide)
    steps = [call("call_tool", name="count", arguments={"n": 3}), "ok"]
    chat = make_chat(steps, [tool.tool()], hooks=hooks)
    chat.say()
    assert tool.runs == []
    assert chat.transcript()[2][1] == "NO!"
    assert chat.sink.of(ToolEnded)[0].result == "NO!"
    inner, outer = hooks.of("post_tool_call")
    assert (inner["tool_name"], inner["status"], inner["result"]) == ("count", "blocked", "NO!")
    assert (outer["tool_name"], outer["status"], outer["result"]) == ("call_tool", "blocked", "NO!")
    assert inner["arguments"] == {"n": 3}
    assert inner["tool_call_id"] == outer["tool_call_id"]


@pytest.mark.parametrize("is_well", [True, False])
def test_a_tool_behind_another_is_told_once_before_and_once_after(
    make_chat: MakeChat, is_well: bool
) -> None:
    def run(_args: Any, _call: Any) -> str:
        if not is_well:
            raise ValueError("boom")
        return "counted"

    tool = Counting(then=run, options={"toolset": "further"})
    chat = make_chat([call("call_tool", name="count", arguments={"n": 3}), "ok"], [tool.tool()])
    chat.say()
    before = [call_["tool_name"] for call_ in chat.hooks.of("pre_tool_call")]
    after = [(call_["tool_name"], call_["status"]) for call_ in chat.hooks.of("post_tool_call")]
    status = "done" if is_well else "failed"
    assert before == ["call_tool", "count"]
    assert after == [("count", status), ("call_tool", status)]


@pytest.mark.parametrize(
    "error", [SystemExit(4), asyncio.CancelledError(), KeyboardInterrupt(), BaseException("all")]
)
def test_a_tool_of_a_plugin_that_raises_anything_fails_at_once(
    make_chat: MakeChat, home: Home, error: BaseException
) -> None:
    context = PluginContext("garden", home, {})
    handler = giving(error)
    context.tool("greet", handler, description="", parameters=schema.of([]), read_only=True)
    chat = make_chat(
        [call("call_tool", name="greet", arguments={}), "I see."],
        plugin_tools(context.registered.tools),
    )
    thread, results = in_background(chat)
    joined(thread)
    assert results[0]["final_response"] == "I see."
    message = chat.transcript()[2][1]
    assert "The plugin garden failed in the tool greet" in message
    assert type(error).__name__ in message


def test_the_end_of_a_turn_is_told_before_the_end_of_its_conversation(make_chat: MakeChat) -> None:
    quiet = Quiet()
    chat = make_chat([silence(quiet)])
    thread, _ = in_background(chat)
    assert quiet.started.wait(TIMEOUT_S)
    close_agent(chat.agent, "cli_close")
    joined(thread)
    ends = [name for name in chat.hooks.names() if name.startswith(("on_turn", "on_session"))]
    assert ends[-3:] == ["on_turn_end", "on_session_end", "on_session_finalize"]


def test_an_end_is_on_record_before_any_plugin_is_told(
    make_chat: MakeChat, store: SessionDB
) -> None:
    seen: list[Any] = []

    def look(session_id: str, **_: Any) -> None:
        row = store.get_session(session_id)
        seen.append(row and row["end_reason"])

    chat = make_chat(["hi"], hooks=RecordingHooks(on_session_end=look))
    chat.say()
    close_agent(chat.agent, "cli_close")
    assert seen == ["cli_close"]
