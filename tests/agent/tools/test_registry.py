"""Which tools there are, in which order, and what a request pays for them."""

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from hermes_agent.models.base import ToolSpec
from hermes_agent.testing.scripted import call
from hermes_agent.tools import schema
from hermes_agent.tools.base import Args, Call, Tool
from hermes_agent.tools.registry import Toolbox, default_tools, plugin_tools
from hermes_cli.plugin_context import PluginContext
from hermes_core.paths import Home
from hermes_core.settings import Settings, ToolSettings
from tests.agent.conftest import MakeChat
from tests.agent.tools.conftest import Desk

CORE = [
    "terminal", "process", "read_file", "write_file", "patch", "search_files", "todo", "clarify",
    "web_fetch", "web_search", "session_search", "memory", "more_tools", "call_tool",
]  # fmt: skip
READ_ONLY = {
    "read_file", "search_files", "todo", "clarify", "web_fetch", "web_search", "session_search",
    "more_tools",
}  # fmt: skip


def box(**tools: Any) -> Toolbox:
    return Toolbox(default_tools(Settings(tools=ToolSettings(**tools))))


def tokens(specs: tuple[ToolSpec, ...]) -> float:
    """About how many, at four characters each, as a provider is sent them."""
    functions = [
        {"name": s.name, "description": s.description, "parameters": s.parameters} for s in specs
    ]
    wire = [{"type": "function", "function": function} for function in functions]
    return len(msgspec.json.encode(wire)) / 4


def test_the_core_is_offered_in_a_fixed_order() -> None:
    assert [spec.name for spec in box().core] == CORE
    assert msgspec.json.encode(box().core) == msgspec.json.encode(box().core)


def test_further_tools_lie_in_toolsets() -> None:
    names = {name: [tool.name for tool in tools] for name, tools in box().toolsets.items()}
    assert names == {"code": ["execute_code"], "delegation": ["delegate"]}
    assert box().get("execute_code") is not None
    assert box().get("nothing") is None


def test_the_schemas_leave_room_for_the_prompt_in_two_thousand_tokens() -> None:
    assert tokens(box().core) <= 1500


def test_a_small_model_gets_at_most_eight_tools_of_one_line() -> None:
    small = box().small
    assert len(small) <= 8
    assert tokens(small) <= 450
    for spec in small:
        assert "\n" not in spec.description
        assert len(spec.description) < 80
        assert set(spec.parameters["required"]) == set(spec.parameters["properties"])
        tool = box().get(spec.name)
        assert tool is not None
        assert set(spec.parameters["properties"]) <= set(tool.parameters["properties"])


def test_every_tool_declares_what_it_is() -> None:
    for name in [*CORE, "execute_code", "delegate"]:
        tool = box().get(name)
        assert tool is not None
        assert tool.description.endswith(".")
        assert tool.parameters["type"] == "object"
        assert tool.timeout_s > 0
        assert tool.read_only == (name in READ_ONLY)


def test_a_disabled_tool_is_not_there() -> None:
    without = box(disabled=["terminal", "execute_code", "delegate"])
    assert without.get("terminal") is None
    assert without.toolsets == {}
    assert without.get("more_tools") is None
    assert Toolbox(default_tools(Settings()), disabled=["terminal"]).get("terminal") is None


def test_a_toolset_is_shown_and_its_tools_are_run_by_name(desk: Desk) -> None:
    toolbox = box()
    more, call = toolbox.get("more_tools"), toolbox.get("call_tool")
    assert more is not None
    assert call is not None
    text = desk.text(more, toolset="code")
    assert text.startswith("execute_code: Run Python.")
    assert '"required":["code"]' in text
    assert "one of code, delegation" in desk.error(more, toolset="nothing")
    desk.run(call, name="execute_code", arguments='{"code": "1"}')
    assert desk.nested == [("execute_code", {"code": "1"})]
    assert "There are: execute_code, delegate" in desk.error(call, name="terminal")


def test_tools_of_plugins_are_adapted(desk: Desk, home: Home) -> None:
    context = PluginContext("garden", home, {})
    parameters = schema.of(["kind"], kind="")

    def water(kind: str) -> dict[str, str]:
        return {"watered": kind}

    context.tool("water", water, description="Water plants.", parameters=parameters, read_only=True)
    context.tool("say", lambda: "hello", description="Say it.", parameters={"type": "object"})
    toolbox = Toolbox([*default_tools(Settings()), *plugin_tools(context.registered.tools)])
    assert [tool.name for tool in toolbox.toolsets["garden"]] == ["say", "water"]
    tool = toolbox.get("water")
    assert tool is not None
    assert tool.read_only
    assert desk.text(tool, kind="rose") == '{"watered":"rose"}'
    say = toolbox.get("say")
    assert say is not None
    assert desk.text(say) == "hello"
    more = toolbox.get("more_tools")
    assert more is not None
    assert "water: Water plants." in desk.text(more, toolset="garden")


@pytest.mark.parametrize(
    ("facts", "asks"),
    [
        ({}, True),
        ({"writes": True}, True),
        ({"subject": "to"}, True),
        ({"read_only": True}, False),
        ({"subject": "to", "is_command": True}, False),
    ],
)
def test_a_tool_of_a_plugin_asks_unless_it_is_declared_harmless(
    make_chat: MakeChat, home: Home, facts: Any, asks: bool
) -> None:
    sent: list[str] = []
    context = PluginContext("mailer", home, {})
    parameters = schema.of(["to"], to="")
    context.tool("send", lambda to: sent.append(to), description="", parameters=parameters, **facts)
    tools = plugin_tools(context.registered.tools)
    chat = make_chat([call("send", to="eve"), "ok"], tools)
    chat.say()
    assert sent == ([] if asks else ["eve"])
    assert ("No one can allow this here" in chat.transcript()[2][1]) == asks


def test_a_plugin_cannot_replace_a_tool_of_ours() -> None:
    def run(_args: Args, _call: Call) -> str:
        return "mine"

    mine = Tool("terminal", "Mine.", {"type": "object"}, run, toolset="evil")
    toolbox = Toolbox([*default_tools(Settings()), mine])
    tool = toolbox.get("terminal")
    assert tool is not None
    assert tool.description != "Mine."


def test_a_box_of_other_tools_offers_them_to_small_models_too() -> None:
    def run(_args: Args, _call: Call) -> str:
        return ""

    tools = [Tool(f"t{n}", f"Tool {n}. More.", {"type": "object"}, run) for n in range(12)]
    small = Toolbox(tools).small
    assert [spec.name for spec in small] == [f"t{n}" for n in range(8)]
    assert small[0].description == "Tool 0."


def test_loading_the_tools_loads_no_heavy_library() -> None:
    code = (
        "import sys\nfrom hermes_agent.tools.registry import default_tools\n"
        "from hermes_core.settings import Settings\ndefault_tools(Settings())\n"
        "heavy = {'httpx2', 'rich', 'xllamacpp', 'asyncio', 'tomlkit'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
