"""The gateway as a systemd service of the user: `hermes gateway install`, `uninstall`, its start."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click

from gateway import house
from hermes_cli import plugins
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
{home}
# What only the environment says, such as a bot's token: lines of NAME=value. It need not be there.
EnvironmentFile=-{variables}
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
    for name in _unseen(app):
        click.echo(
            f"{name} is set here, but systemd will not see it. Write the line {name}=... to"
            f" {variables(app)} and keep that file to yourself (chmod 600), or put the value into"
            f" {app.home.config}.",
            err=True,
        )
    if only_print:
        click.echo(unit(app), nl=False)
    else:
        _install(app)
    return 0


def _install(app: App) -> None:
    path = _path()
    before = path.read_text("utf-8") if path.exists() else None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(unit(app), "utf-8")
    try:
        _systemctl("daemon-reload")
    except UsageError:  # nobody is there to start it: what is written would only mislead
        if before is None:
            path.unlink()
        else:
            path.write_text(before, "utf-8")
        raise
    app.say(f"Written: {path}")
    _systemctl("enable", "--now", _NAME)
    app.say(
        "The gateway runs, and starts with your session. To have it run without you being logged in:"
        " loginctl enable-linger"
    )


@click.command("uninstall")
@pass_app
def uninstall(app: App) -> int:
    """Stop the service and take it out of systemd."""
    if not _path().exists():
        app.say("It is not installed.")
        return 0
    untold = [_trouble("disable", "--now", _NAME)]
    for one in (_path(), _path().parent / "default.target.wants" / _NAME):
        one.unlink(missing_ok=True)
    untold.append(_trouble("daemon-reload"))
    app.say("It starts no longer by itself.")
    if any(untold):
        why = next(one for one in untold if one)
        click.echo(f"The files are gone; a gateway that runs was not stopped. {why}", err=True)
    return 0


def unit(app: App) -> str:
    """The text of the service."""
    return _UNIT.format(
        python=_quoted(sys.executable.replace("$", "$$")),
        home=_home(app),
        variables=str(variables(app)).replace("%", "%%"),
        restart=75,
        patience=int(app.settings.gateway.drain_s + 15),
    )


def is_installed(app: App) -> bool:
    """Whether the gateway of this home is a service."""
    try:
        return _home(app) in _path().read_text("utf-8").splitlines()
    except OSError:
        return False


def begin() -> None:
    """Have systemd start the service; raises UsageError."""
    _systemctl("start", _NAME)


def has_started_us() -> bool:
    """Whether systemd runs this very process, and so starts it again.

    Its variable alone says nothing: terminals that systemd has started pass it on to all in them.
    """
    try:
        parent = Path(f"/proc/{os.getppid()}/comm").read_text("utf-8").strip()
    except OSError:
        return False
    return parent == "systemd" and bool(config.variable("INVOCATION_ID"))


def _home(app: App) -> str:
    """The line of the service that says which home it is for."""
    return f"Environment={_quoted(f'HERMES_HOME={app.home.root}')}"


def _quoted(word: str) -> str:
    """A word as systemd reads it back: blanks, quotes, backslashes and percent signs as they are."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if re.search(r"[^\w/.=:@%+-]", word) else escaped


def variables(app: App) -> Path:
    """The file with the variables of the gateway, whoever starts it."""
    return app.home.root / "gateway.env"


def _unseen(app: App) -> list[str]:
    """The variables that the gateway would use if it were started here, and the service lacks."""
    plugins.load_enabled(app.home, app.settings)
    tables = app.settings.gateway.platforms
    found = [name for name in config.variables() if name != "HERMES_HOME"]
    for manifest in house.configured(app.settings.gateway):
        table = tables.get(manifest.name, {})
        found += [
            name
            for name, key in manifest.variables.items()
            if config.variable(name) and key not in table
        ]
    with contextlib.suppress(OSError):
        written = variables(app).read_text("utf-8", "replace")
        found = [name for name in found if not re.search(rf"(?m)^\s*{name}\s*=", written)]
    return found


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


def _trouble(*arguments: str) -> str:
    """The same, for what is done whether or not systemd listens; tells why it did not."""
    try:
        _systemctl(*arguments)
    except UsageError as error:
        return error.message
    return ""
