"""Commands of the agent cannot change what the agent may do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_core import config, own_commands
from hermes_core.errors import ConfigError
from hermes_core.paths import Home
from hermes_state import SessionDB
from hermes_state.ledger import questions
from hermes_state.testing.rules.setup import accepted
from hermes_state.values import Question

pytestmark = pytest.mark.promise("P7")

BIN = Path(sys.executable).parent
CHANGE = "from hermes_core import config; config.change(config.home(), 'approvals.mode', 'allow')"
REFUSED = [
    "hermes config set approvals.mode allow",
    "hermes config unset approvals.mode",
    "hermes plugins enable crash_recovery",
    "hermes config set model.base_url http://127.0.0.1:9",
    "hermes gateway pair ABCDEFGH",
    "hermes gateway role telegram 1 owner",
    "hermes gateway forget telegram 1",
    "hermes attach",
    "hermes update --yes",
    "hermes uninstall --yes",
    "hermes security revoke all",
    "hermes --set approvals.mode=allow chat -q hello",
    "hermes --set tools.sandbox=host chat -q hello",
    "HERMES_YOLO_MODE=1 hermes chat -q hello",
    "HERMES_APPROVALS_MODE=allow hermes chat -q hello",
    f'python -c "{CHANGE}"',
    f'python -c "import os; os.environ.clear(); {CHANGE}"',
    "env -u HERMES_IN_COMMAND hermes config set approvals.mode allow",
    "unset HERMES_IN_COMMAND; hermes config set approvals.mode allow",
    'unset HERMES_IN_COMMAND; sh -c "hermes config set approvals.mode allow || exit 3"',
]


def run(home: Home, command: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a line of shell as the agent's tools start it: below a shell that stays."""
    path = f"{BIN}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(home.root), "HERMES_HOME": str(home.root), **more}
    return subprocess.run(
        ["/bin/sh", "-c", '"$@"; exit $?', "sh", "/bin/sh", "-c", command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", REFUSED)
def test_a_command_of_the_agent_cannot_loosen_its_own_bounds(home: Home, command: str) -> None:
    home.create().config.write_text('[approvals]\nmode = "ask"\n')
    if "env -u" in command or "unset" in command or "environ" in command:
        needs_proc()
    done = run(home, command, **{own_commands.MARKER: "1"})
    assert done.returncode != 0
    assert "A command of the agent may not" in done.stderr
    assert home.config.read_text() == '[approvals]\nmode = "ask"\n'


def needs_proc() -> None:
    if not Path("/proc/self/environ").exists():
        pytest.skip("ancestors are found in /proc")


@pytest.mark.parametrize("command", ["hermes config show", "hermes doctor", "hermes plugins list"])
def test_a_command_of_the_agent_may_ask(home: Home, command: str) -> None:
    done = run(home, command, **{own_commands.MARKER: "1"})
    assert "A command of the agent may not" not in done.stderr
    assert done.stdout


def test_a_person_may_do_it(home: Home) -> None:
    assert run(home, "hermes config set approvals.mode allow").returncode == 0
    assert config.load(home, environment={}).approvals.mode == "allow"


def test_a_command_of_the_agent_cannot_answer_an_approval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SessionDB(tmp_path / "state.db") as store:
        store.create_session("s", "cli")
        turn = accepted(store, "s")
        question_ids = {
            kind: store.write(
                questions.ask, Question(turn, kind, kind, "terminal", "?", "rm", ("once",))
            )["id"]
            for kind in ("approval", "clarify")
        }
        monkeypatch.setenv(own_commands.MARKER, "1")
        with pytest.raises(ConfigError, match="may not answer an approval"):
            store.write(questions.answer, question_ids["approval"], "once")
        store.write(questions.answer, question_ids["clarify"], "blue")
        assert store.read(questions.fetch, question_ids["approval"])["state"] == "pending"
        assert store.read(questions.fetch, question_ids["clarify"])["state"] == "answered"
