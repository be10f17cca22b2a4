"""What a person is shown before they allow a call: all of it, as it is, or the call is refused."""

from pathlib import Path
from typing import Any

import pytest

from hermes_agent.approval import display
from hermes_agent.approval.danger import Danger
from hermes_agent.sandbox import detect
from hermes_agent.sandbox.hosts import HostGrants
from hermes_agent.sandbox.sandboxes import Host
from hermes_agent.testing.scripted import call
from hermes_agent.tools import patch, terminal, write_file
from hermes_agent.tools.base import Args, Tool, ToolContext
from hermes_agent.tools.registry import default_tools
from hermes_agent.turn.events import QuestionAsked
from hermes_core.settings import AgentSettings, ApprovalSettings, Settings
from hermes_core.text import escaped
from hermes_state import SessionDB
from hermes_state.ledger import questions
from tests.agent.conftest import Chat, MakeChat, Person

ASK = Settings(agent=AgentSettings(titles=False), approvals=ApprovalSettings(edits="ask"))


def results(chat: Chat) -> list[str]:
    return [content for role, content in chat.transcript() if role == "tool"]


def test_a_change_of_a_file_is_shown_as_its_whole_diff(
    make_chat: MakeChat, store: SessionDB, tmp_path: Path
) -> None:
    path = tmp_path / "notes"
    path.write_text("one\ntwo\n")
    lines = "".join(f"line {number}\n" for number in range(2_000))
    chat = make_chat(
        [
            call("patch", path=str(path), old="two", new="three"),
            call("write_file", path=str(tmp_path / "new"), content=lines),
            "ok",
        ],
        [patch.TOOL, write_file.TOOL],
        can_ask=True,
    )
    person = Person(chat, store, "once")
    chat.say()
    patched, written = (question.detail for question in person.questions)
    assert patched == f"--- {path}\n+++ {path}\n@@ -1,2 +1,2 @@\n one\n-two\n+three"
    assert written.splitlines()[3:] == [f"+{line}" for line in lines.splitlines()]
    assert path.read_text() == "one\nthree\n"


def test_a_command_is_shown_whole(make_chat: MakeChat, store: SessionDB) -> None:
    command = "\n".join(["rm -rf ../precious", *(f": {number}" for number in range(3_000))])
    chat = make_chat([call("terminal", command=command), "ok"], [terminal.TOOL], can_ask=True)
    person = Person(chat, store, "deny")
    chat.say()
    assert person.questions[0].detail == command


def test_the_other_arguments_of_a_call_are_shown_too(make_chat: MakeChat, store: SessionDB) -> None:
    def risky(_args: Args, _bench: ToolContext) -> list[Danger]:
        return [Danger("exfiltration", "Sends mail", "mail")]

    schema = {
        "type": "object",
        "properties": {"to": {"type": "string"}, "body": {"type": "string"}},
    }
    mail = Tool("mail", "Send mail.", schema, lambda _a, _c: "", subject="to", dangers=risky)
    chat = make_chat([call("mail", to="a@b.example", body="The key."), "ok"], [mail], can_ask=True)
    person = Person(chat, store, "deny")
    chat.say()
    assert person.questions[0].detail == "a@b.example\n\nbody: The key."


def test_what_is_too_large_to_be_shown_is_refused_unasked(
    make_chat: MakeChat, store: SessionDB, tmp_path: Path
) -> None:
    path = tmp_path / "large"
    large = "x" * display.MAX_BYTES
    steps = [
        call("write_file", path=str(path), content=large),
        call("terminal", command=f"rm -rf ../precious # {large}"),
        call("write_file", path=str(path), content="\n" * 30_000),
    ]
    chat = make_chat([*steps, "ok"], [write_file.TOOL, terminal.TOOL], can_ask=True)
    person = Person(chat, store, "once")
    chat.say()
    assert person.questions == []
    for text, fix in zip(results(chat), ("smaller steps", "smaller steps", "smaller"), strict=True):
        assert "too large to be shown" in text and fix in text
    assert not path.exists()


def test_the_change_of_a_binary_file_is_refused(
    make_chat: MakeChat, store: SessionDB, tmp_path: Path
) -> None:
    path = tmp_path / "picture"
    path.write_bytes(b"\x89PNG\0")
    write = call("write_file", path=str(path), content="text")
    chat = make_chat([write, "ok"], [write_file.TOOL], can_ask=True)
    person = Person(chat, store, "once")
    chat.say()
    assert person.questions == []
    assert "cannot be shown" in results(chat)[0]
    assert path.read_bytes() == b"\x89PNG\0"


@pytest.mark.parametrize(
    "step",
    [{"tool": "write_file", "content": "new"}, {"tool": "patch", "old": "one", "new": "new"}],
)
def test_a_file_that_changed_after_the_question_is_not_written(
    make_chat: MakeChat, store: SessionDB, tmp_path: Path, step: dict[str, str]
) -> None:
    path = tmp_path / "file"
    path.write_text("one\n")
    arguments = {name: value for name, value in step.items() if name != "tool"}
    write = call(step["tool"], path=str(path), **arguments)
    chat = make_chat([write, "ok"], [write_file.TOOL, patch.TOOL], can_ask=True)
    record = chat.agent.sink

    def change_and_allow(event: Any) -> None:
        record(event)
        if isinstance(event, QuestionAsked):
            path.write_text("one, by somebody else\n")
            store.write(questions.answer, event.question_id, "once")

    chat.agent.sink = change_and_allow
    chat.say()
    assert "has changed since the question" in results(chat)[0]
    assert path.read_text() == "one, by somebody else\n"


def test_invisible_characters_are_shown_escaped(make_chat: MakeChat, store: SessionDB) -> None:
    command = "rm -rf ../a\u202eb # \u200b\x1b[2Ktag\U000e0041\ufe0f\u00a0\u3164\r"
    chat = make_chat([call("terminal", command=command), "ok"], [terminal.TOOL], can_ask=True)
    person = Person(chat, store, "deny")
    chat.say()
    detail = person.questions[0].detail
    assert detail.startswith("rm -rf ../a<U+202E>b # <U+200B><U+001B>[2Ktag<U+E0041><U+FE0F>")
    assert detail.endswith("<U+00A0><U+3164><U+000D>")
    assert person.questions[0].text.isprintable() or "\n" in person.questions[0].text
    assert "\u202e" not in person.questions[0].text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("Füße 漢字 🎉", "Füße 漢字 🎉"),
        ("a\u2066b\u2069", "a<U+2066>b<U+2069>"),
        ("\udc80", "<U+DC80>"),
        ("a\u2028b\u2800", "a<U+2028>b<U+2800>"),
    ],
)
def test_what_can_be_seen_stays_and_what_cannot_is_escaped(text: str, expected: str) -> None:
    assert escaped(text) == expected


def test_a_question_shows_nothing_of_a_file_that_may_hold_secrets(
    make_chat: MakeChat, store: SessionDB
) -> None:
    steps = [
        call("write_file", path=".env", content="PASSWORD=new\n"),
        call("patch", path=".env", old="PASSWORD=", new="PASS="),
        call("patch", path=".env", old="PASSWORDS", new="x"),
    ]
    chat = make_chat([*steps, "ok"], [write_file.TOOL, patch.TOOL], can_ask=True)
    env = chat.agent.tool_context.workspace / ".env"
    env.write_text("PASSWORD=old-one\n")
    person = Person(chat, store, "once")
    chat.say()
    assert len(person.questions) == 3, "also where the passage is not there"
    assert not any("old-one" in question.detail for question in person.questions)
    assert "old-one" not in str(results(chat))
    assert "+PASSWORD=new" in person.questions[0].detail
    assert env.read_text() == "PASS=new\n"


def test_a_lasting_yes_says_what_it_is_for(
    make_chat: MakeChat, store: SessionDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write = call("write_file", path=str(tmp_path / "x"), content="x")
    chat = make_chat([write, "ok"], [write_file.TOOL], can_ask=True)
    person = Person(chat, store, "deny")
    chat.say()
    assert person.questions[0].text.splitlines()[-1] == (
        '"For this conversation" and "always" cover exactly this change in ~/work,'
        " for the same reasons."
    )


def test_what_is_asked_every_time_says_nothing_of_a_lasting_yes(
    make_chat: MakeChat, store: SessionDB
) -> None:
    sudo = call("terminal", command="sudo -n no-such-program")
    chat = make_chat([sudo, "ok"], [terminal.TOOL], can_ask=True)
    person = Person(chat, store, "deny")
    chat.say()
    assert person.questions[0].choices == ["once", "deny"]
    assert "always" not in person.questions[0].text


# -- approvals.edits ------------------------------------------------------------------------------


def test_edits_in_the_workspace_are_not_asked_about_by_default(make_chat: MakeChat) -> None:
    write = call("write_file", path="a", content="x")
    chat = make_chat([write, "ok"], [write_file.TOOL], can_ask=True)
    chat.say()
    assert chat.sink.of(QuestionAsked) == []
    assert not any("edits" in tool.parameters["properties"] for tool in default_tools(Settings()))


def test_each_edit_is_asked_about_with_its_diff(make_chat: MakeChat, store: SessionDB) -> None:
    steps = [call("write_file", path=name, content="x") for name in ("a", "b")]
    chat = make_chat([*steps, "ok"], [write_file.TOOL], can_ask=True, settings=ASK)
    workspace = chat.agent.tool_context.workspace
    person = Person(chat, store, "once")
    chat.say()
    assert [question.detail.splitlines()[1] for question in person.questions] == [
        f"+++ {workspace / name}" for name in ("a", "b")
    ]
    assert (workspace / "b").read_text() == "x"


def test_a_lasting_yes_is_for_all_edits_of_a_workspace_and_nothing_else(
    make_chat: MakeChat, store: SessionDB, tmp_path: Path
) -> None:
    outside = str(tmp_path / "outside")
    steps = [call("write_file", path=path, content="x") for path in ("a", "b", outside)]
    chat = make_chat([*steps, "ok"], [write_file.TOOL], can_ask=True, settings=ASK)
    workspace = chat.agent.tool_context.workspace
    person = Person(chat, store, "session")
    chat.say()
    assert len(person.questions) == 2
    assert person.questions[0].text == (
        f"Changes {workspace / 'a'}\n"
        '"For this conversation" and "always" cover all changes of files in'
        f" {workspace}, by any tool or command."
    )
    assert "exactly this change" in person.questions[1].text
    edits = next(row for row in store.read(questions.grants) if row["key"].startswith("edits:"))
    assert (edits["subject"], edits["folder"]) == (
        "changes of files in the workspace",
        str(workspace),
    )


def test_a_yes_to_a_protected_file_is_not_one_for_all_edits(
    make_chat: MakeChat, store: SessionDB
) -> None:
    steps = [call("write_file", path=path, content="x") for path in ("AGENTS.md", "a")]
    chat = make_chat([*steps, "ok"], [write_file.TOOL], can_ask=True, settings=ASK)
    person = Person(chat, store, "session")
    chat.say()
    assert len(person.questions) == 2
    assert "exactly this change" in person.questions[0].text


def test_a_denied_edit_is_not_made(make_chat: MakeChat, store: SessionDB) -> None:
    write = call("write_file", path="a", content="x")
    chat = make_chat([write, "ok"], [write_file.TOOL], can_ask=True, settings=ASK)
    Person(chat, store, "deny")
    chat.say()
    assert not (chat.agent.tool_context.workspace / "a").exists()


@pytest.mark.parametrize("name", ["bubblewrap", "landlock"])
def test_commands_write_to_the_workspace_only_after_a_yes(
    make_chat: MakeChat, store: SessionDB, name: Any
) -> None:
    tools = [tool for tool in default_tools(ASK) if tool.runs_commands]
    code = call("execute_code", code="open('d', 'w').write('x')")
    steps = [
        call("terminal", command="cat seen; echo x > a"),
        call("terminal", command="echo x > b", edits=True),
        call("terminal", command="echo x > c"),
        code,
    ]
    chat = make_chat([*steps, "ok"], tools, can_ask=True, settings=ASK)
    sandbox = detect._try(name, ASK.tools, HostGrants)
    if isinstance(sandbox, str):
        pytest.skip(sandbox)
    chat.agent.tool_context.processes.sandbox = sandbox
    workspace = chat.agent.tool_context.workspace
    (workspace / "seen").write_text("it is read")
    person = Person(chat, store, "session")
    chat.say()
    first, *rest = results(chat)
    assert "it is read" in first and "edits=true" in first
    assert [question.detail for question in person.questions] == ["echo x > b\n\nedits: true"]
    assert sorted(path.name for path in workspace.iterdir()) == ["b", "c", "d", "seen"], rest


def test_without_a_sandbox_every_command_is_asked_about_as_an_edit(
    make_chat: MakeChat, store: SessionDB
) -> None:
    commands = [call("terminal", command=f"echo {number}") for number in range(2)]
    chat = make_chat([*commands, "ok"], [terminal.TOOL], can_ask=True, settings=ASK)
    chat.agent.tool_context.processes.sandbox = Host()
    person = Person(chat, store, "session")
    chat.say()
    (question,) = person.questions
    assert question.text.startswith("May change any file in the workspace, as no sandbox holds it")
