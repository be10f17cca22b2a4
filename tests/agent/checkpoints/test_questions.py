"""What only destroys files that a checkpoint covers needs no question; all else still does."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_agent.testing.scripted import call
from hermes_agent.tools.registry import default_tools
from hermes_agent.turn.events import QuestionAsked
from hermes_core.settings import AgentSettings, Settings, ToolSettings
from tests.agent.conftest import MakeChat

SETTINGS = Settings(
    agent=AgentSettings(titles=False), tools=ToolSettings(sandbox="host", checkpoint_file_mb=1)
)

Asks = Callable[..., bool]


@pytest.fixture
def project(work: Path) -> Path:
    """A repository with a change, a file that git ignores, and another repository inside."""
    for folder in (work, work / "clone"):
        folder.mkdir(exist_ok=True)
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    for name in ("src/a.py", "src/deep/b.py", "logs/x.log", "data/big", "README.md"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(name)
    (work / "data/big").write_bytes(b"x" * 1_500_000)
    (work / ".gitignore").write_text("*.log\n")
    subprocess.run(["git", "add", "README.md", "src"], cwd=work, check=True)
    return work


@pytest.fixture
def asks(make_chat: MakeChat, project: Path) -> Asks:
    """Whether a command is asked about; nobody is there to say yes."""

    def ask(command: str, settings: Settings = SETTINGS, then: str = "true") -> bool:
        chat = make_chat(
            [call("terminal", command=line) for line in (command, then)] + ["Done."],
            default_tools(settings),
            settings=settings,
            can_ask=False,
        )
        chat.say("go on")
        assert not any(isinstance(event, QuestionAsked) for event in chat.sink.events)
        results = [str(text).lower() for role, text in chat.transcript() if role == "tool"]
        return any("no one" in text or "not allow" in text for text in results)

    return ask


@pytest.mark.parametrize(
    "command",
    ["rm -rf src", "rm -r src/deep", "cd src && rm -rf deep", "find src -delete",
     "find . -name '*.pyc' -delete", "dd if=/dev/zero of=README.md count=1",
     "truncate -s 0 README.md", "git checkout -- README.md", "git restore README.md",
     "git checkout .", "git -C . restore .", "python3 -c 'import shutil; shutil.rmtree(\"src\")'"],
)  # fmt: skip
def test_what_can_be_restored_needs_no_question(asks: Asks, project: Path, command: str) -> None:
    assert not asks(command)


@pytest.mark.parametrize(
    "command",
    ["rm -rf logs", "rm -rf clone", "rm -rf data", "rm -rf src logs", "rm -rf .git", "rm -rf *",
     "rm -rf .", "find . -delete", "find -L src -delete", "find / -delete", "find src logs -delete",
     "git reset --hard", "git clean -fdx", "git checkout -f", "git restore --staged --worktree .",
     "git restore --source=HEAD~1 .", "git checkout HEAD~1 -- README.md", "git stash drop",
     "git -C / checkout .", "git --git-dir=x checkout .", "git -C clone checkout .",
     "dd if=/dev/zero of=data/big", "truncate -s 0 logs/x.log", "rm -rf $X", "shred README.md"],
)  # fmt: skip
def test_what_cannot_be_restored_is_asked(asks: Asks, project: Path, command: str) -> None:
    assert asks(command)


def test_what_the_turn_itself_made_needs_no_question(asks: Asks, project: Path) -> None:
    clone = "git clone -q clone copy && touch copy/x.log"
    assert not asks(clone, then="rm -rf copy")
    assert asks(clone, then="rm -rf clone")
    assert asks("touch logs/new.log", then="rm -rf logs")


def test_a_file_that_is_tracked_and_ignored_is_not_covered(asks: Asks, project: Path) -> None:
    subprocess.run(["git", "add", "-f", "logs/x.log"], cwd=project, check=True)
    assert asks("git checkout -- .")


def test_without_a_checkpoint_all_is_asked(
    asks: Asks, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = Settings(
        agent=AgentSettings(titles=False), tools=ToolSettings(sandbox="host", checkpoints=False)
    )
    assert asks("rm -rf src", off)
    monkeypatch.setattr("hermes_agent.checkpoints.git.shutil.which", lambda _name: None)
    assert asks("rm -rf src")
    assert (project / "src/a.py").exists()
