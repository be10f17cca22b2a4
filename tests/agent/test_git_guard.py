"""Settings that commands write into `.git/config`: everyday ones stay, ones that run programs do not."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.approval.danger import git_settings
from hermes_agent.approval.danger.kinds import NO_ACCESS, Access
from hermes_agent.approval.gate import Permit
from hermes_agent.sandbox import detect, git_guard
from hermes_agent.sandbox.sandboxes import Job, Sandbox
from hermes_agent.testing.scripted import call
from hermes_agent.tools.terminal import TOOL as TERMINAL
from hermes_core.errors import ConfigError
from hermes_core.settings import AgentSettings, Settings, ToolSettings
from tests.agent.conftest import MakeChat, Person

pytestmark = [
    pytest.mark.promise("P7"),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]

PLANT = "git config core.fsmonitor ./evil.sh"


def git(folder: Path, *words: str) -> str:
    """Run git as the person does, after the command."""
    done = subprocess.run(
        ["git", *words], cwd=folder, capture_output=True, text=True, timeout=20, check=False
    )
    return done.stdout.strip()


@pytest.fixture(params=["bubblewrap", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    try:
        chosen = detect.choose(Settings(tools=ToolSettings(sandbox=request.param, network="open")))
    except ConfigError as error:
        pytest.skip(str(error))
    yield chosen
    chosen.close()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    git(work, "init", "-q", "-b", "main")
    (work / "evil.sh").write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    (work / "evil.sh").chmod(0o755)
    return work


Run = Callable[..., list[str]]


@pytest.fixture
def run(sandbox: Sandbox, work: Path) -> Run:
    """Run a script in the sandbox, and return what is noted of it."""

    def run(script: str, access: Access = NO_ACCESS) -> list[str]:
        environment = {**os.environ, "HOME": str(work)}
        job = Job(["/bin/sh", "-c", script], work, work, work.parent / "hermes", environment)
        child = sandbox.spawn(Permit._for_tests(access), job)
        pieces: list[bytes] = []
        child.follow({child.stdout: pieces.append})
        assert child.reap() == 0, b"".join(pieces)
        return child.notes

    return run


def settings_of(work: Path) -> str:
    return git(work, "config", "--local", "--list")


def test_everyday_commands_change_the_configuration(run: Run, work: Path) -> None:
    notes = run("""
        git config user.name Ada && git config user.email ada@example.invalid &&
        git commit -q --allow-empty -m one && git init -q --bare up.git &&
        git remote add origin ./up.git && git push -q -u origin main &&
        git checkout -q -b feature --track origin/main && git branch -m feature better &&
        git checkout -q main && git branch -q -d better && git fetch -q &&
        git remote rename origin upstream && git remote set-url upstream ./up.git &&
        git config pull.rebase true && git clone -q up.git copy && git stash list &&
        git sparse-checkout set src && git sparse-checkout disable && git worktree list
    """)
    assert notes == []
    found = settings_of(work)
    for line in ("user.name=Ada", "remote.upstream.url=./up.git", "branch.main.remote=upstream"):
        assert line in found
    assert git(work, "status", "--short", "--untracked-files=no") == ""


@pytest.mark.parametrize(
    "script",
    [
        PLANT,
        "printf '[core]\\n\\tfsmonitor = ./evil.sh\\n' >> .git/config",
        "printf '[include]\\n\\tpath = ../more\\n' >> .git/config;"
        " printf '[core]\\n\\tfsmonitor = ./evil.sh\\n' > more",
        "git config extensions.worktreeConfig true; git config --worktree core.fsmonitor ./evil.sh",
        "mkdir -p other/hooks && cp .git/config other/ && cp -r .git/objects .git/refs other/ &&"
        " git config -f other/config core.fsmonitor ./evil.sh && echo ../other > .git/commondir",
        "git config remote.x.url y && rm .git/config && printf '[core]\\nfsmonitor=./evil.sh\\n' > c"
        " && ln -s ../c .git/config",
        "rm -f .git/config; mkfifo .git/config",
        "echo '[core' > .git/config",
        "echo '[hook \"x\"]\n\tcommand = ./evil.sh' >> .git/config",
        "echo '[alias]\n\tst = !./evil.sh\n[core]\n\tfsmonitor = ./evil.sh' >> .git/config",
    ],
)
def test_settings_that_run_programs_do_not_stay(run: Run, work: Path, script: str) -> None:
    (note,) = run(script)
    assert ".git/" in note
    assert "evil" not in settings_of(work).replace("turned this off", "")
    git(work, "status")
    git(work, "st")
    assert not (work.parent / "was-run").exists()
    assert git(work, "rev-parse", "--is-inside-work-tree") == "true"


def test_what_was_there_before_stays(run: Run, work: Path) -> None:
    for name, value in (
        ("core.hooksPath", ".husky/_"), ("alias.x", "!echo \"a\\b\" ; # c"), ("diff.o'k.textconv", "\t"),
        ('url.a"b.insteadOf', "x\ny"),
    ):  # fmt: skip
        git(work, "config", name, value)
    with (work / ".git" / "config").open("a") as file:
        file.write("[core]\n\tsparseCheckout\n")
    before = settings_of(work)
    (note,) = run(f"{PLANT}; git config remote.r.url z; git config alias.y '!x'")
    assert "alias.y, core.fsmonitor" in note
    assert sorted(settings_of(work).splitlines()) == sorted(
        before.splitlines() + ["remote.r.url=z"]
    )
    text = (work / ".git" / "config").read_text()
    assert "# Hermes turned this off: core.fsmonitor = ./evil.sh" in text


def test_what_a_person_allowed_stays(run: Run, work: Path) -> None:
    assert run(PLANT, Access(writes=(str(work / ".git"),))) == []
    assert "core.fsmonitor=./evil.sh" in settings_of(work)
    assert run("git config user.name Ada") == []
    assert "core.fsmonitor=./evil.sh" in settings_of(work)


def test_a_new_repository_is_watched_too(run: Run, work: Path) -> None:
    shutil.rmtree(work / ".git")
    notes = run(f"git init -q; {PLANT}")
    assert [note for note in notes if "core.fsmonitor" in note]
    assert "fsmonitor" not in settings_of(work)
    shutil.rmtree(work / ".git")
    notes = run("git init -q inner && git -C inner config core.fsmonitor ../evil.sh;"
                " echo 'gitdir: inner/.git' > .git")  # fmt: skip
    assert [note for note in notes if "another repository" in note]
    assert not (work / ".git").exists()


def test_the_agent_asks_before_it_sets_one(make_chat: MakeChat, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    git(folder, "init", "-q")
    commands = [
        "git config user.name Ada",
        "git config --get core.editor vi",
        "git config core.hooksPath .husky",
        "git config difftool.x.cmd y",
        "printf 'git co%sig alias.x !y' nf | sh",
    ]
    settings = Settings(agent=AgentSettings(titles=False))
    if not detect.choose(settings).is_confining:
        pytest.skip("no sandbox works here")
    script = [*(call("terminal", command=command) for command in commands), "ok"]
    chat = make_chat(script, [TERMINAL], settings=settings, can_ask=True)
    person = Person(chat, chat.store, "once")
    chat.say()
    assert [question.detail for question in person.questions] == commands[2:4]
    assert f"it may also write {folder}/.git." in person.questions[0].text
    found = settings_of(folder)
    for line in ("user.name=Ada", "core.hookspath=.husky", "difftool.x.cmd=y"):
        assert line in found
    assert "alias.x" not in found
    outputs = [text for role, text in chat.transcript() if role == "tool"]
    assert "alias.x in .git/config, by which git may run a program" in outputs[-1]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["core.bare", "remote.o.url", 'branch.a"b.c\\d.merge', "x.y-z"]),
            st.one_of(st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\0\r"))),
        ),
        max_size=5,
    )
)
def test_what_is_written_is_read_as_it_was(settings: list[git_guard.Setting]) -> None:
    assert (
        git_guard._settings(git_guard._text_of(settings, [("alias.x", "!y\n[core]")])) == settings
    )


@pytest.mark.parametrize(
    ("name", "value", "is_everyday"),
    [
        ("submodule.lib.update", "merge", True),
        ("submodule.lib.update", "!evil", False),
        ("core.pager", "less", True),
        ("core.pager", "evil", False),
        ("branch.main.mergeoptions", "-s evil", False),
        ("filter.x.clean", "evil", False),
        ("gpg.ssh.program", "evil", False),
        ("something.new", "1", False),
    ],
)
def test_settings_are_told_apart(name: str, value: str, is_everyday: bool) -> None:
    assert git_settings.is_everyday(name, value) is is_everyday
