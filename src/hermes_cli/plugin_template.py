"""The plugin that `hermes plugins new` writes: small, working, and with a test."""

import shutil
from pathlib import Path
from string import Template

from hermes_core.errors import PluginError
from hermes_core.paths import write_private

_MANIFEST = """\
name = "$name"
version = "0.1"
description = "Counts started conversations."
requires_hermes = ">=$hermes"
"""

_CODE = '''\
"""Counts started conversations; `hermes $name` prints the number."""

import click

from hermes_cli.plugins import PluginContext


def register(ctx: PluginContext) -> None:
    """Register callbacks and commands; called once when Hermes loads the plugin."""
    counter = ctx.data_dir / "count"

    def count() -> int:
        return int(counter.read_text()) if counter.exists() else 0

    @ctx.hook("on_session_start")
    def add_one() -> None:
        counter.write_text(str(count() + 1))

    @click.command("$name")
    def command() -> None:
        """Print the number of started conversations."""
        click.echo(f"{count()} conversations")

    ctx.cli_command(command)
'''

_TEST = '''\
"""Loads the plugin into a separate host and home."""

from pathlib import Path

from click.testing import CliRunner

from hermes_cli.plugins import PluginHost
from hermes_core.paths import Home

PLUGIN = Path(__file__).resolve().parent.parent


def test_counts_started_conversations(tmp_path: Path) -> None:
    host = PluginHost()
    host.load_folder(PLUGIN, Home(tmp_path))

    for session_id in ("a", "b"):
        host.invoke_hook("on_session_start", session_id=session_id, model="", platform="cli")

    command = host.registered.cli_commands["$name"].command
    assert CliRunner().invoke(command).output == "2 conversations\\n"
'''

_FILES = {"plugin.toml": _MANIFEST, "__init__.py": _CODE, "tests/test_plugin.py": _TEST}


def write(folder: Path, hermes: str) -> list[Path]:
    """Write a plugin named after the folder. Raises PluginError and leaves nothing behind."""
    if folder.exists():
        raise PluginError(f"{folder} already exists.", fix="Choose another name or folder.")
    try:
        for place, content in _FILES.items():
            text = Template(content).substitute(name=folder.name, hermes=hermes)
            write_private(folder / place, text)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise PluginError(
            f"Cannot write {folder}: {error.strerror}.",
            fix="Choose another folder with --dir.",
        ) from error
    return [folder / place for place in _FILES]
