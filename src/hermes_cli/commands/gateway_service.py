"""`hermes gateway install` and `uninstall`: the gateway as a systemd service of the user."""

import shutil
import subprocess
import sys
from pathlib import Path

import click

from hermes_cli.commands.app import App, pass_app
from hermes_core import config
from hermes_core.errors import UsageError

_NAME = "hermes-gateway.service"
_UNIT = """\
[Unit]
Description=Hermes messaging gateway
After=network-online.target
Wants=network-online.target
# A gateway that cannot stay up is not started for ever.
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
ExecStart={python} -m hermes_cli.main gateway run
Environment=HERMES_HOME={home}
# {restart} is a restart that was asked for; 78 is a configuration that no restart mends.
Restart=on-failure
RestartForceExitStatus={restart}
RestartPreventExitStatus=78
RestartSec=2
# Running turns get their time; what does not end goes on at the next start.
KillMode=mixed
TimeoutStopSec={patience}

[Install]
WantedBy=default.target
"""


@click.command("install")
@click.option("--print", "only_print", is_flag=True, help="Show the unit and change nothing.")
@pass_app
def install(app: App, only_print: bool) -> int:
    """Have systemd start the gateway with your session, and again when it fails."""
    text = unit(app)
    if only_print:
        click.echo(text, nl=False)
        return 0
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    app.say(f"Written: {path}")
    _systemctl("daemon-reload")
    _systemctl("enable", "--now", _NAME)
    app.say(
        "The gateway runs, and starts with your session. To have it run without you being logged in:"
        " loginctl enable-linger"
    )
    return 0


@click.command("uninstall")
@pass_app
def uninstall(app: App) -> int:
    """Stop the service and take it out of systemd."""
    if not _path().exists():
        app.say("It is not installed.")
        return 0
    _systemctl("disable", "--now", _NAME)
    _path().unlink()
    _systemctl("daemon-reload")
    app.say("It starts no longer by itself.")
    return 0


def unit(app: App) -> str:
    """The text of the service."""
    return _UNIT.format(
        python=sys.executable,
        home=app.home.root,
        restart=75,
        patience=int(app.settings.gateway.drain_s + 15),
    )


def _path() -> Path:
    named = config.variable("XDG_CONFIG_HOME")
    return (Path(named) if named else Path.home() / ".config") / "systemd" / "user" / _NAME


def _systemctl(*arguments: str) -> None:
    program = shutil.which("systemctl")
    if program is None:
        raise UsageError(
            "There is no systemd here.",
            fix="Start the gateway with `hermes gateway start`, or from your own service manager.",
        )
    done = subprocess.run(
        [program, "--user", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UsageError(
            f"systemctl --user {' '.join(arguments)} failed: {done.stderr.strip()}",
            fix="Look at: systemctl --user status hermes-gateway",
        )
