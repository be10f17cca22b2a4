"""A tool carries its facts: one file of a plugin, and everything treats it like one of ours."""

from pathlib import Path

import pytest

from hermes_agent.approval import policy
from hermes_agent.models.base import Request
from hermes_agent.models.small import SmallModel
from hermes_agent.testing.scripted import ScriptedModel, call, say
from hermes_agent.tools import registry
from hermes_agent.tools.base import Tool
from hermes_agent.tools.registry import Toolbox, default_tools, plugin_tools
from hermes_agent.turn.events import Event, QuestionAsked
from hermes_agent.turn.stop import Stop
from hermes_cli.plugins import PluginError, PluginHost
from hermes_core.paths import Home
from hermes_core.settings import Settings
from hermes_state import SessionDB
from hermes_state.ledger import questions
from tests.agent.conftest import MakeChat
from tests.agent.test_permissions import BOB
from tests.support.plugins import enable

PLUGIN = '''
"""Plants trees into files."""

def register(ctx):
    ctx.tool(
        "plant",
        lambda where, tree="oak": f"a {tree} in {where}",
        description="Plant a tree into a file.",
        parameters={
            "type": "object",
            "properties": {"where": {"type": "string"}, "tree": {"type": "string"}},
            "required": ["where"],
        },
        subject="where",
        is_path=True,
        writes=True,
        small=("where",),
    )
'''


@pytest.fixture
def plant(home: Home) -> Tool:
    home.create()
    host = PluginHost()
    host.load_folder(enable(home, "garden", PLUGIN), home)
    (tool,) = plugin_tools(host.registered.tools)
    return tool


def test_the_policy_compares_its_patterns_with_the_subject(plant: Tool, home: Home) -> None:
    home.policy.write_text('[[deny]]\ntool = "plant"\npattern = "*/payroll/*"\n')
    subject = policy.subject(plant, {"where": "payroll/x", "tree": "elm"}, "/srv/payroll/x")
    assert subject == "/srv/payroll/x"
    assert policy.decide(policy.load(home), plant, subject) == "deny"


def test_the_gate_asks_about_a_path_outside_the_workspace(
    make_chat: MakeChat, plant: Tool, store: SessionDB, tmp_path: Path
) -> None:
    inside = call("call_tool", name="plant", arguments={"where": "x"})
    outside = call("call_tool", name="plant", arguments={"where": str(tmp_path / "other" / "x")})
    chat = make_chat([inside, outside, "ok"], [plant], can_ask=True)
    record = chat.agent.sink
    remembered: list[str] = []

    def answer(event: Event) -> None:
        record(event)
        if isinstance(event, QuestionAsked):
            row = store.read(questions.fetch, event.question_id)
            dangers = plant.dangers_of({"where": row["detail"]}, chat.agent.tool_context)
            remembered.extend(danger.key for danger in dangers)
            store.write(questions.answer, event.question_id, "once", by="tester")

    chat.agent.sink = answer
    chat.say()
    (question,) = chat.sink.of(QuestionAsked)
    assert question.tool_name == "plant"
    assert remembered == [f"write:{tmp_path / 'other' / 'x'}"]


def test_a_small_model_is_offered_it_and_not_when_it_is_only_asked(plant: Tool) -> None:
    toolbox = Toolbox([*default_tools(Settings()), plant])
    (spec,) = [spec for spec in toolbox.small if spec.name == "plant"]
    assert list(spec.parameters["properties"]) == ["where"]
    assert len(toolbox.small) == 8
    for text, is_offered in (("Plant a tree in x: add it", True), ("What is in x?", False)):
        inner = ScriptedModel([say('{"name": "reply", "arguments": {"text": "Well."}}')])
        request = Request("", toolbox.small, [{"role": "user", "content": text}])
        SmallModel(inner).ask(request, Stop(), lambda _event: None)
        names = str(inner.requests[0].json_schema)
        assert ("'plant'" in names) == is_offered


def test_what_reads_the_notes_is_withheld_by_its_fact(plant: Tool) -> None:
    notes = Tool("diary", "Read it.", {"type": "object"}, lambda _a, _c: "", reads_notes=True)
    toolbox = Toolbox([plant, notes]).restricted_to(BOB)
    assert toolbox.get("diary") is None
    assert toolbox.get("plant") is not None


def test_our_names_are_known_without_loading_the_tools() -> None:
    tools = default_tools(Settings())
    assert {tool.name for tool in tools} | {"more_tools", "call_tool"} == registry.names()


def test_a_tool_with_one_of_our_names_is_not_loaded(home: Home) -> None:
    home.create()
    code = PLUGIN.replace('"plant"', '"terminal"')
    with pytest.raises(PluginError, match="'terminal' is a built-in"):
        PluginHost().load_folder(enable(home, "thief", code), home)
