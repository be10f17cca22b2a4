"""The command as a whole: version, help, errors, completion, and what it imports."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_agent.testing.scripted import say
from hermes_agent.testing.server import ScriptedServer
from hermes_cli.commands.root import COMMANDS
from hermes_core.errors import UsageError
from hermes_core.paths import Home
from hermes_core.version import VERSION
from tests.cli.chat_process import HERMES
from tests.cli.conftest import Shell, on_terminal
from tests.support.faults import needs_dev_full


def hermes(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HERMES, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        env={"PATH": "/usr/bin:/bin", **environment},
    )


def test_the_version_is_printed_without_loading_anything() -> None:
    code = (
        "import sys; sys.argv = ['hermes', '--version']; from hermes_cli.main import main; main();"
        "heavy = {'click', 'apsw', 'msgspec', 'hermes_state', 'logging'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert done.stdout == f"hermes {VERSION}\n", done.stderr


@needs_dev_full
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_version_without_room_is_one_line_of_trouble(unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [HERMES, "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
            env={"PATH": "/usr/bin:/bin", "PYTHONUNBUFFERED": unbuffered},
        )
    assert (done.returncode, done.stderr) == (1, "hermes: No space left on device.\n")


@pytest.mark.parametrize(
    ("command", "unneeded"),
    [
        ("sessions list", {"tomlkit", "importlib.metadata", "asyncio", "sqlite3"}),
        ("config show", {"tomlkit", "importlib.metadata", "asyncio"}),
    ],
)
def test_a_command_imports_only_what_it_needs(
    command: str, unneeded: set[str], tmp_path: Path
) -> None:
    code = (
        f"import sys; from hermes_cli.commands.root import run; run({command.split()!r});"
        f"heavy = {unneeded!r} & set(sys.modules); assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=30,
        env={"HERMES_HOME": str(tmp_path / "home")},
    )
    assert done.returncode == 0, done.stderr


def test_help_names_every_command(shell: Shell) -> None:
    overview = shell.run("--help")
    for name in COMMANDS:
        assert f"  {name}" in overview
        assert "Usage: hermes" in shell.run(f"{name} --help")


def test_an_unknown_command_is_a_usage_error(shell: Shell) -> None:
    shell.run("fly", status=2)
    assert "No such command" in shell.errors and "hermes --help" in shell.errors


def test_an_unknown_command_gets_the_nearest_one(shell: Shell) -> None:
    shell.run("session list", status=2)
    assert "Did you mean: hermes sessions?" in shell.errors
    shell.run("sessions lst", status=2)
    assert "Did you mean: hermes sessions list?" in shell.errors
    shell.run("elephants", status=2)
    assert "hermes -q elephants" in shell.errors


@pytest.mark.parametrize(
    "line", ["-h", "--help", "help", "sessions", "config", "gateway", "plugins", "approvals"]
)
def test_help_is_no_error(shell: Shell, line: str) -> None:
    assert shell.run(line).startswith("Usage: hermes")


def test_help_is_shown_for_a_command_of_a_group(shell: Shell) -> None:
    assert shell.run("help sessions list") == shell.run("sessions list -h")
    shell.run("help sessions frob", status=2)
    shell.run("help version frob", status=2)


def test_the_version_has_a_command(shell: Shell) -> None:
    assert shell.run("version") == shell.run("-V") == shell.run("--version")
    assert shell.json("version") == {"version": VERSION}


@pytest.mark.parametrize(
    "line", ['"why is it blue?"', '-q "why is it blue?"', "-q sky -w .", '"is it blue" -w .']
)
def test_a_question_on_the_command_line_is_answered(tmp_path: Path, line: str) -> None:
    with ScriptedServer([say("Because of Rayleigh.")]) as server:
        environment = {
            "PATH": os.defpath, "HOME": str(tmp_path), "HERMES_HOME": str(tmp_path / "home"),
            "OPENAI_API_KEY": "sk-scripted-key", "OPENAI_BASE_URL": server.openai_url,
            "HERMES_MODEL": "scripted", "HERMES_AGENT_TITLES": "false",
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "hermes_cli.main", *shlex.split(line)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, cwd=tmp_path,
            timeout=20, check=True,
        )  # fmt: skip
    assert done.stdout == "Because of Rayleigh.\n"


def test_the_program_alone_is_a_chat_which_needs_a_question_or_a_terminal(tmp_path: Path) -> None:
    done = hermes(HERMES_HOME=str(tmp_path / "home"))
    assert done.returncode == 2
    assert "There is no question" in done.stderr and "hermes chat -q" in done.stderr


def test_a_wrong_setting_names_file_key_and_fix(home: Home, shell: Shell) -> None:
    home.create()
    home.config.write_text("[store]\nbusy_timeout_s = 'soon'\n")
    shell.run("sessions list", status=78)
    for part in ("config.toml", "store.busy_timeout_s", "Use a number"):
        assert part in shell.errors


def test_a_setting_on_the_command_line_is_checked_too(shell: Shell) -> None:
    shell.run("--set store.speed=9 sessions list", status=78)
    assert "Unknown setting store.speed" in shell.errors


def test_config_is_changed_and_shown(home: Home, shell: Shell) -> None:
    shell.run("config set sessions.retention_days 30")
    assert shell.json("config show")["sessions.retention_days"] == 30
    assert "30" in shell.run("config show")
    shell.run("config unset sessions.retention_days")
    assert shell.json("config show")["sessions.retention_days"] == 90
    assert shell.json("config path") == {"path": str(home.config)}
    shell.run("config set sessions.retention_days soon", status=78)


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_completion_script(shell: Shell, name: str) -> None:
    assert "_HERMES_COMPLETE" in shell.run(f"completion {name}")


def test_completion_knows_commands_and_their_options(tmp_path: Path) -> None:
    done = hermes(
        _HERMES_COMPLETE="bash_complete",
        COMP_WORDS="hermes sessions ",
        COMP_CWORD="2",
        HERMES_HOME=str(tmp_path / "home"),
    )
    assert "plain,list" in done.stdout.split()


def test_an_unexpected_error_goes_to_the_log_and_not_over_the_screen(
    home: Home, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_state.SessionDB", None)
    shell.run("sessions list", status=1)
    assert "Traceback" not in shell.errors and "hermes.log" in shell.errors
    assert "Traceback" in (home.logs / "hermes.log").read_text()


def test_a_closed_pipe_is_no_error_worth_a_traceback(tmp_path: Path) -> None:
    command = f"{HERMES} config show | head -n 1"
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        capture_output=True,
        text=True,
        timeout=30,
        env={"PATH": "/usr/bin:/bin", "HERMES_HOME": str(tmp_path)},
    )
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("--json sessions show nobody", 4),
        ("sessions list --limit many --json", 2),
        ("sessions serch blue --json", 2),
        ("fly --json", 2),
    ],
)
def test_errors_are_json_when_the_output_is(shell: Shell, line: str, status: int) -> None:
    shell.run(line, status=status)
    assert json.loads(shell.errors)["error"]["fix"]


def test_the_version_is_json_when_that_is_asked_for(shell: Shell) -> None:
    for line in ("--version --json", "--json --version"):
        assert json.loads(shell.run(line)) == {"version": VERSION}
    assert shell.run("--version") == shell.run("--version sessions list") == f"hermes {VERSION}\n"


@pytest.mark.parametrize("command", ["show", "tree", "export", "rename"])
def test_an_argument_that_is_no_text_names_no_conversation(tmp_path: Path, command: str) -> None:
    more = ["a title"] if command == "rename" else []
    done = hermes("sessions", command, "\udcff", *more, HERMES_HOME=str(tmp_path / "home"))
    assert done.returncode == 4 and "No conversation" in done.stderr, done.stderr


@needs_dev_full
def test_a_full_disk_under_the_output_is_told_in_words(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [HERMES, "config", "show"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
            env={"PATH": "/usr/bin:/bin", "HERMES_HOME": str(tmp_path / "home")},
        )
    assert done.returncode == 1
    assert done.stderr == "hermes: No space left on device.\n"


@pytest.mark.parametrize(
    ("home", "status"), [("~nobody-of-this-name", 78), ("/proc/no-home", 78), ("/dev/null", 78)]
)
@pytest.mark.parametrize("command", ["sessions list", "config set sessions.retention_days 3"])
def test_a_home_that_cannot_be_used_gives_no_traceback(
    home: str, status: int, command: str
) -> None:
    done = hermes(*command.split(), HERMES_HOME=home)
    assert done.returncode == status and "HERMES_HOME" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_an_unexpected_error_is_told_also_where_no_log_can_be_written(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", "/proc/no-home")
    monkeypatch.setattr("hermes_core.config.load", None)
    shell.run("config show", status=1)
    assert "Unexpected error" in shell.errors and "Could not write the log" in shell.errors


def test_settings_that_begin_with_a_mark_of_an_editor_are_read_and_changed(
    home: Home, shell: Shell
) -> None:
    home.create().config.write_text("\ufeff[log]\nlevel = 'debug'\n", "utf-8")
    assert "debug" in shell.run("config show")
    shell.run("config set log.level warning")
    assert home.config.read_text("utf-8") == '[log]\nlevel = "warning"\n'


def test_the_settings_are_shown_and_set_without_their_secrets(home: Home, shell: Shell) -> None:
    home.create().config.write_text(
        '[gateway.platforms.telegram]\ntoken = "4242:AAE"\napi_url = "https://example.org"\n',
        "utf-8",
    )
    assert "sk-1234" not in shell.run("config set model.api_key sk-1234")
    for output in (shell.run("config show"), str(shell.json("config show"))):
        assert "sk-1234" not in output and "4242:AAE" not in output and "********" in output
        assert "https://example.org" in output


ODD_SECRETS = """
[model]
base_url = "https://ann:pw-AAAA@127.0.0.1:9/v1"
[agent]
max_tokens = 5000
[gateway.platforms.telegram]
botToken = "x-BBBB"
bot = "123456789:CCCC-a-token-of-a-bot-123"
[gateway.platforms.webhook]
hooks = [{name = "deploy", secret = "DDDD-secret"}]
[plugins.settings.mailer]
authorization = "Bearer EEEE"
keys = ["FFFF"]
author = "Ann"
passphrase_2 = "GGGG"
extra = "sk-HHHH-0123456789"
"""


def test_secrets_of_any_spelling_are_masked(home: Home, shell: Shell) -> None:
    home.create().config.write_text(ODD_SECRETS, "utf-8")
    output = shell.run("config set model.base_url https://ann:pw-IIII@127.0.0.1:9/v1")
    output += shell.run("config show") + str(shell.json("config show"))
    output += shell.run("model", status=3) + shell.errors
    assert re.findall(r"([A-Z])\1{3}", output) == []
    assert "https://ann:********@127.0.0.1:9/v1" in output
    assert "5000" in output and "Ann" in output and "deploy" in output


def test_secrets_are_revealed_on_a_terminal_only(home: Home, shell: Shell) -> None:
    home.create().config.write_text(ODD_SECRETS, "utf-8")
    shell.run("config show --reveal", status=UsageError.exit_status)
    assert "on a terminal only" in shell.errors
    assert "x-BBBB" in on_terminal("config show --reveal", home)
