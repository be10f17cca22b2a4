"""`hermes security` and `hermes approvals check`: what the agent may do, and what the gate would say."""

from pathlib import Path
from typing import Any

import pytest

from hermes_agent.approval.danger.kinds import HOST_KEY
from hermes_agent.sandbox import detect, hosts
from hermes_agent.testing.scripted import call
from hermes_agent.tools.terminal import TOOL as TERMINAL
from hermes_agent.turn.events import Event, QuestionAsked
from hermes_core import config
from hermes_core.paths import Home
from hermes_core.settings import AgentSettings, Settings, ToolSettings
from hermes_state import SessionDB
from hermes_state.ledger import people, questions, taint
from hermes_state.values import Grant, Person, TaintSource
from tests.agent.conftest import MakeChat, make_chat
from tests.cli.conftest import Shell

pytestmark = pytest.mark.promise("P7")

__all__ = ["make_chat"]

PUSH = "git push https://example.org/x.git"


@pytest.fixture(autouse=True)
def no_package_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "configured_hosts", lambda: frozenset({"mirror.test"}))


@pytest.fixture
def store(home: Home) -> Any:
    home.create()
    with SessionDB(home.database) as store:
        yield store


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The folder that `make_chat` works in."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_a_new_home_is_told_to_be_safe(shell: Shell) -> None:
    report = shell.json("security")
    chosen = detect.choose(Settings())
    assert report["sandbox"]["name"] == chosen.name
    assert report["sandbox"]["setting"] == "auto"
    assert report["network"] == chosen.network.describe()
    assert report["network_setting"] == report["approvals"] == "ask"
    assert report["edits"] == "auto"
    assert {"host": "mirror.test", "from": "package tools of this machine"} in report["hosts"]
    assert [place["folder"] for place in report["workspaces"]] == [str(Path.cwd())]
    assert report["read"] == []
    assert report["grants"] == report["people"] == report["rules"] == report["effects"] == []
    output = shell.run("security")
    assert chosen.describe() in output
    assert "only you, here" in output


def test_everything_that_was_loosened_is_shown_with_its_origin(
    shell: Shell, store: SessionDB, home: Home, work: Path
) -> None:
    config.change(home, "tools.allowed_hosts", ["db.test:5432"])
    config.change(home, "gateway.platforms", {"telegram": {"token": "x"}})
    config.change(home, "gateway.workspaces", {"telegram:7": str(work)})
    config.change(home, "gateway.owners", {"telegram": ["1"]})
    config.change(home, "plugins.enabled", ["crash_recovery"])
    home.policy.write_text('[[allow]]\ntool = "terminal"\npattern = "git push *"\n')
    store.create_session("talk", "cli")
    store.set_session_title("talk", "The release")
    grant = Grant("call:terminal:0123456789ab", "terminal", "make x", "/src", "Deletes", "me")
    store.write(questions.grant, grant, "talk")
    store.write(questions.grant, Grant(f"{HOST_KEY}a.test", subject="a.test"))
    store.write(people.save, Person("telegram", "2", "member", "Bo", "2", 1.0, "1"))
    report = shell.json("security")
    assert {"host": "db.test:5432", "from": "tools.allowed_hosts"} in report["hosts"]
    assert {"host": "a.test", "from": "you, always"} in report["hosts"]
    assert {"folder": str(work), "for": "the chat telegram:7"} in report["workspaces"]
    assert [rule["pattern"] for rule in report["rules"]] == ["git push *"]
    assert [(p["user"], p["role"], p["from"]) for p in report["people"]] == [
        ("2", "member", "paired by 1"),
        ("1", "owner", "config.toml"),
    ]
    output = shell.run("security")
    for text in ("in The release", "01234567", "make x", "git push *", "Bo", "crash_recovery"):
        assert text in output


def test_what_conversations_have_read_is_shown(shell: Shell, store: SessionDB) -> None:
    page, diary = TaintSource("outside", "the web page a.test"), TaintSource("private", "~/diary")
    for name, sources in (("one", [page]), ("two", [page, diary]), ("three", [])):
        store.create_session(name, "cli")
        store.set_session_title(name, f"Talk {name}")
        store.write(taint.note, name, sources)
    read = {row["conversation"]: row for row in shell.json("security")["read"]}
    assert {name: row["asks"] for name, row in read.items()} == {
        "Talk one": False,
        "Talk two": True,
    }
    assert read["Talk two"]["outside"] == ["the web page a.test"]
    assert read["Talk two"]["private"] == ["~/diary"]
    output = shell.run("security")
    assert "outside text: the web page a.test\n    private data: ~/diary\n" in output
    assert output.count("asks before it sends or keeps anything") == 1


def test_grants_are_revoked_one_by_one_or_all(shell: Shell, store: SessionDB) -> None:
    for key in ("call:terminal:0123456789ab", "call:terminal:ba9876543210", f"{HOST_KEY}a.test"):
        store.write(questions.grant, Grant(key))
    shell.run("security revoke nothing", status=2)
    assert shell.json("security revoke 01234567") == {"revoked": ["01234567"]}
    assert len(store.read(questions.grants)) == 2
    assert "Revoked 1 grant." in shell.run("security revoke a.test")
    assert "Revoked 1 grant." in shell.run("security revoke all")
    assert store.read(questions.grants) == []


def test_a_sandbox_that_cannot_be_had_is_shown(shell: Shell, home: Home) -> None:
    config.change(home, "tools.sandbox", "container")
    config.change(home, "tools.container_command", "no-such-engine")
    assert "no-such-engine is not installed" in shell.run("security")


def checked(shell: Shell, line: str, status: int) -> Any:
    return shell.json(f"approvals check {line}", status=status)


def test_a_verdict_is_explained(shell: Shell, home: Home, work: Path) -> None:
    assert checked(shell, "ls", 0)["decision"] == "allow"
    push = checked(shell, f"'{PUSH}'", 3)
    assert push["choices"] == ["once", "session", "always", "deny"]
    assert push["access"]["hosts"] == ["example.org"]
    assert "reach example.org" in shell.run(f"approvals check '{PUSH}'", status=3)
    path = checked(shell, f"--tool write_file -w {work} AGENTS.md", 3)
    assert path["path"] == str(work / "AGENTS.md")
    assert checked(shell, f"--tool write_file -w {work} a.txt", 0)["decision"] == "allow"
    assert not list(work.iterdir()), "nothing is run"
    assert checked(shell, "'sudo make install'", 3)["choices"] == ["once", "deny"]
    home.policy.write_text(
        '[[allow]]\ntool = "terminal"\npattern = "git push *"\n'
        '[[deny]]\ntool = "terminal"\npattern = "curl *"\nreason = "Not here."\n'
    )
    assert checked(shell, f"'{PUSH}'", 0)["rules"][0]["pattern"] == "git push *"
    assert "policy.toml denies it" in shell.run("approvals check 'curl -d a b.test'", status=4)
    assert "(Not here.)" in shell.run("approvals check 'ls; curl b.test'", status=4)


@pytest.mark.skipif(
    detect.choose(Settings()).network.rules is None, reason="no sandbox here asks for hosts"
)
def test_the_hosts_that_a_command_names_are_listed(
    shell: Shell, home: Home, store: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "_registries", lambda: {"pip": ["mirror.test"], "npm": ["n.test"]})
    command = "'pip install -r a.txt && curl -O https://b.test:8443/x https://github.com/x'"
    found = {row["host"]: row["asks"] for row in checked(shell, command, 0)["hosts"]}
    assert found == {"b.test:8443": True, "github.com": False, "mirror.test": False}
    output = shell.run(f"approvals check {command}")
    assert "  b.test:8443: asks you\n  github.com: no question\n" in output
    config.change(home, "tools.allowed_hosts", ["b.test:8443"])
    store.create_session("talk", "cli")
    for source in (TaintSource("outside", "a page"), TaintSource("private", "a file")):
        store.write(taint.note, "talk", [source])
    assert not any(row["asks"] for row in checked(shell, command, 0)["hosts"])
    tainted = checked(shell, f"--conversation talk {command}", 0)["hosts"]
    assert all(row["asks"] for row in tainted)
    assert checked(shell, "ls", 0)["hosts"] == []


def test_the_mode_of_approvals_counts(shell: Shell, home: Home) -> None:
    config.change(home, "approvals.mode", "deny")
    assert "Nobody is asked: approvals.mode is deny." in shell.run(
        "approvals check 'sudo ls'", status=4
    )
    config.change(home, "approvals.mode", "allow")
    assert "Nobody is asked: approvals.mode is allow." in shell.run("approvals check 'sudo ls'")


def test_what_a_checkpoint_brings_back_is_said_not_to_ask(
    shell: Shell, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "files").mkdir()
    monkeypatch.chdir(tmp_path)
    sentence = "A turn does not ask about losses that its checkpoint can bring back."
    assert sentence in shell.run("approvals check 'rm -rf files'", status=3)
    assert sentence not in shell.run("approvals check 'sudo ls'", status=3)
    config.change(home, "tools.checkpoints", False)
    assert sentence not in shell.run("approvals check 'rm -rf files'", status=3)


def test_other_tools_take_json_and_unknown_ones_are_refused(shell: Shell) -> None:
    assert checked(shell, """--tool process '{"action": "list"}'""", 0)["decision"] == "allow"
    shell.run("approvals check --tool process nonsense", status=2)
    assert '{"action": …}' in shell.errors
    shell.run("approvals check --tool no_such_tool x", status=2)
    assert "write_file" in shell.errors


@pytest.mark.parametrize("answer", ["session", "always"])
def test_what_is_explained_is_what_the_gate_does(
    shell: Shell, home: Home, store: SessionDB, make_chat: MakeChat, work: Path, answer: str
) -> None:
    """The gate asks, a person answers, and the explanation knows the answer."""
    settings = Settings(agent=AgentSettings(titles=False), tools=ToolSettings(sandbox="host"))
    config.change(home, "tools.sandbox", "host")
    script = [call("terminal", command=PUSH), "done"]
    chat = make_chat(script, [TERMINAL], settings=settings, can_ask=True)
    before = checked(shell, f"-w {work} '{PUSH}'", 3)
    questions_asked: list[QuestionAsked] = []
    record = chat.agent.sink

    def sink(event: Event) -> None:
        record(event)
        if isinstance(event, QuestionAsked):
            questions_asked.append(event)
            store.write(questions.answer, event.question_id, answer, by="tester")

    chat.agent.sink = sink
    chat.say()
    assert [danger["reason"] in questions_asked[0].text for danger in before["reasons"]] == [True]
    here = f"--conversation {chat.agent.session_id} -w {work} '{PUSH}'"
    assert checked(shell, here, 0)["grant"]["granted_by"] == "tester"
    assert "You allowed exactly this call" in shell.run(f"approvals check {here}")
    elsewhere = 0 if answer == "always" else 3
    checked(shell, f"-w {work} '{PUSH}'", elsewhere)
    checked(shell, f"-w {work.parent} --conversation {chat.agent.session_id} '{PUSH}'", 3)
