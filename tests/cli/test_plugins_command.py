"""`hermes plugins`, driven as from a shell."""

import errno
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hermes_cli import plugin_template, plugins
from hermes_core.paths import Home, write_private
from tests.cli.conftest import Shell


def write_plugin(home: Home, name: str, code: str) -> None:
    folder = home.plugins / name
    folder.mkdir(parents=True)
    manifest = f'name = "{name}"\nversion = "1"\ndescription = "About {name}."\n'
    (folder / "plugin.toml").write_text(manifest)
    (folder / "__init__.py").write_text(code)


def enabled(home: Home) -> list[str]:
    return tomllib.loads(home.config.read_text("utf-8"))["plugins"]["enabled"]


def test_the_list_shows_what_is_off_on_and_failed_with_the_reason(home: Home, shell: Shell) -> None:
    write_plugin(home, "fine", "def register(ctx): pass")
    write_plugin(home, "broken", "raise RuntimeError('no luck')")
    home.config.write_text('[plugins]\nenabled = ["fine", "broken", "gone"]\n')

    lines = shell.run("plugins list").splitlines()
    states = {line.split()[0]: line.split()[3] for line in lines[1:4]}
    assert lines[0].split() == ["NAME", "VERSION", "SOURCE", "STATE", "DESCRIPTION"]
    assert states == {"broken": "failed", "crash_recovery": "off", "fine": "on"}
    assert "broken: RuntimeError: no luck" in lines
    assert shell.errors == "", "the traceback is for the log"
    assert "no luck" in (home.logs / "hermes.log").read_text("utf-8")

    rows = {row["name"]: row for row in json.loads(shell.run("plugins list --json"))}
    assert rows["broken"]["error"] == "RuntimeError: no luck"
    assert (rows["gone"]["state"], rows["gone"]["source"]) == ("failed", "missing")
    assert rows["fine"]["description"] == "About fine."


def test_the_list_says_which_plugin_is_hidden_by_another(home: Home, shell: Shell) -> None:
    write_plugin(home, "crash_recovery", "")
    assert "crash_recovery: ignored the one in bundled: " in shell.run("plugins list")


def test_enabling_and_disabling_change_the_file_and_keep_its_comments(
    home: Home, shell: Shell
) -> None:
    write_plugin(home, "fine", "def register(ctx): pass")
    before = '# mine\n[log]\nlevel = "debug"  # for now\n'
    home.config.write_text(before)

    assert shell.run("plugins enable fine") == "Enabled fine.\n"
    assert enabled(home) == ["fine"]
    assert home.config.read_text().startswith(before)
    assert shell.run("plugins enable fine") == "fine is already enabled.\n"
    assert shell.run("plugins disable fine") == "Disabled fine.\n"
    assert enabled(home) == []
    assert shell.run("plugins disable fine") == "fine is already disabled.\n"


def test_a_program_is_told_the_state_as_json(home: Home, shell: Shell) -> None:
    write_plugin(home, "fine", "def register(ctx): pass")
    assert json.loads(shell.run("plugins enable fine --json")) == {"name": "fine", "state": "on"}
    assert json.loads(shell.run("--json plugins disable fine")) == {"name": "fine", "state": "off"}


def test_enabling_what_does_not_exist_names_what_does(home: Home, shell: Shell) -> None:
    shell.run("plugins enable nothing", status=1)
    assert "There is no plugin nothing." in shell.errors
    assert "crash_recovery" in shell.errors
    shell.run("plugins disable nothing", status=1)
    assert not home.config.exists()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
        (
            "import click\ndef register(ctx): ctx.cli_command(click.Command('sessions'))",
            "'sessions' is a built-in sub-command",
        ),
        ("def register(ctx): ctx.model('taken', print)", "The plugin first already has a"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_not_enabled(
    home: Home, shell: Shell, code: str, reason: str
) -> None:
    write_plugin(home, "first", "def register(ctx): ctx.model('taken', print)")
    write_plugin(home, "second", code)
    shell.run("plugins enable first")
    shell.run("plugins enable second", status=1)
    assert "Cannot enable second" in shell.errors
    assert reason in shell.errors
    assert enabled(home) == ["first"]


def test_several_processes_may_enable_and_disable_at_once(home: Home) -> None:
    names = ["one", "two", "three", "four"]
    for name in names:
        write_plugin(home, name, "def register(ctx): pass")

    def all_at_once(verb: str) -> None:
        command = [sys.executable, "-m", "hermes_cli.main", "plugins", verb]
        running = [subprocess.Popen([*command, name]) for name in names]
        assert [child.wait() for child in running] == [0, 0, 0, 0]

    all_at_once("enable")
    assert sorted(enabled(home)) == sorted(names)
    all_at_once("disable")
    assert enabled(home) == []


def test_a_folder_whose_name_is_no_text_is_listed_with_the_reason(home: Home, shell: Shell) -> None:
    home.plugins.mkdir(parents=True)
    os.mkdir(os.fsencode(home.plugins) + b"/bad\xff")  # noqa: PTH102 -- a name in bytes
    rows = {row["name"]: row for row in json.loads(shell.run("plugins list --json"))}
    assert "Invalid plugin name" in rows["bad?"]["error"]
    assert "bad?" in shell.run("plugins list")


def test_a_plugins_command_may_raise_anything(home: Home, shell: Shell) -> None:
    code = """
import asyncio, click
def register(ctx):
    @click.command("gone")
    def gone():
        raise asyncio.CancelledError
    ctx.cli_command(gone)
"""
    write_plugin(home, "gone", code)
    shell.run("plugins enable gone")
    shell.run("gone", status=1)
    assert "Unexpected error: CancelledError." in shell.errors


def test_a_plugin_that_is_gone_can_still_be_disabled(home: Home, shell: Shell) -> None:
    home.create().config.write_text('[plugins]\nenabled = ["gone"]\n')
    shell.run("plugins disable gone")
    assert enabled(home) == []


def test_what_the_environment_enables_does_not_leak_into_the_file(
    home: Home, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugin(home, "fine", "def register(ctx): pass")
    monkeypatch.setenv("HERMES_PLUGINS_ENABLED", "crash_recovery")
    shell.run("plugins enable fine")
    assert enabled(home) == ["fine"]
    assert "HERMES_PLUGINS_ENABLED" in shell.errors


def test_a_new_plugin_works_as_a_command_and_listens(home: Home, shell: Shell) -> None:
    shell.run("plugins new my-counter")
    shell.run("plugins enable my-counter")
    assert shell.run("my-counter") == "0 conversations\n"
    plugins.invoke_hook("on_session_start", session_id="s", model="", platform="cli")
    assert shell.run("my-counter") == "1 conversations\n"


def test_commands_that_are_shown_can_be_copied_whatever_the_folder_is_called(
    tmp_path: Path, shell: Shell
) -> None:
    output = shell.run(f"plugins new my-counter --dir '{tmp_path}/my plugins'")
    assert f"python -m pytest '{tmp_path}/my plugins/my-counter'\n" in output


def test_the_test_of_a_new_plugin_passes(tmp_path: Path, shell: Shell) -> None:
    created = json.loads(shell.run(f"plugins new my-counter --dir {tmp_path / 'work'} --json"))
    folder = tmp_path / "work" / "my-counter"
    assert created["files"] == [
        str(folder / name) for name in ("plugin.toml", "__init__.py", "tests/test_plugin.py")
    ]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert run.returncode == 0, run.stdout
    assert "1 passed" in run.stdout


def test_the_way_to_install_a_new_plugin_works_in_a_fresh_home(
    home: Home, tmp_path: Path, shell: Shell
) -> None:
    lines = shell.run(f"plugins new elsewhere --dir {tmp_path / 'work'}").splitlines()
    [advice] = [line for line in lines if "ln -s" in line]
    subprocess.run(advice.partition("install it")[2].split(), check=True)
    assert shell.run("plugins enable elsewhere") == "Enabled elsewhere.\n"
    assert enabled(home) == ["elsewhere"]


def test_a_new_plugin_takes_no_folder_no_command_and_no_path_that_is_there(
    home: Home, shell: Shell
) -> None:
    shell.run("plugins new mine")
    shell.run("plugins new mine", status=1)
    assert "already exists" in shell.errors
    shell.run("plugins new sessions", status=2)
    assert "is already a command" in shell.errors
    shell.run("plugins new crash_recovery", status=2)
    assert "which this one would replace" in shell.errors
    shell.run("plugins new ../mine", status=2)
    assert "Invalid plugin name" in shell.errors
    assert sorted(path.name for path in home.plugins.iterdir()) == ["mine"]


def test_a_plugin_that_there_is_no_room_for_leaves_nothing_behind(
    home: Home, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        if path.name != "plugin.toml":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_private(path, text)

    with monkeypatch.context() as patched:
        patched.setattr(plugin_template, "write_private", full)
        shell.run("plugins new abc", status=1)
    assert "No space left on device" in shell.errors
    assert not (home.plugins / "abc").exists()
    shell.run("plugins new abc")
