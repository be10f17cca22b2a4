"""The gateway as a systemd service of the user, and how the start of any gateway is waited for."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gateway import preflight, status
from hermes_agent.models.providers import Providers
from hermes_cli import plugins
from hermes_cli.commands.app import App, pass_app
from hermes_core import config
from hermes_core.errors import UsageError

T = TypeVar("T")

_STARTED_WITHIN_S = 30.0
_LOOK_EVERY_S = 0.1
_NAME = "hermes-gateway.service"
_OVER = ("failed", "dead")
"""How systemd calls a service that it does not start again."""
_BETWEEN_STARTS = "auto-restart"
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
        return 0
    preflight.check_start(app.home)
    _install(app)
    if running := status.get_running_pid():
        app.say(
            f"A gateway runs already, as process {running}."
            " To have systemd run it from now on: hermes gateway restart"
        )
        return 0
    if (pid := started()) is not None:
        app.say(f"The gateway runs as process {pid}.")
    return tell_not_connected()


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
    _systemctl("enable", _NAME)
    app.say(
        "The gateway starts with your session. To have it run without you being logged in:"
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
    """Return whether the gateway of this home is a service."""
    try:
        return _home(app) in _path().read_text("utf-8").splitlines()
    except OSError:
        return False


def started() -> int | None:
    """Have systemd start the service; its process, None when it is not up yet. Raises UsageError."""
    before = status.read_runtime_status()
    # While the process before is still ending, systemd starts nothing.
    wait_for(lambda: _state() in ("", _BETWEEN_STARTS, *_OVER) or status.get_running_pid())
    _trouble("reset-failed", _NAME)  # one that has ended too often is not started for minutes else
    _systemctl("start", _NAME)

    def pid() -> int | None:
        if _state() in (_BETWEEN_STARTS, *_OVER):
            raise UsageError(
                f"The gateway ended at once{_why(before)}",
                fix="hermes gateway run shows it in the foreground. systemd may try it a few times"
                " more; hermes gateway stop ends that.",
            )
        return status.get_running_pid()

    return when_up(pid)


def _why(before: dict[str, Any]) -> str:
    """Why a start failed, when the gateway came as far as to say so."""
    said = status.read_runtime_status()
    is_told = said != before and said.get("gateway_state") == "startup_failed"
    return f": {said['exit_reason']}" if is_told else "."


def stopped() -> bool:
    """End a service that systemd starts just now, or again in a moment; tells whether it was so."""
    if _state() in ("", *_OVER):
        return False
    _systemctl("stop", _NAME)
    return True


def when_up(find: Callable[[], int | None]) -> int | None:
    """The process that is found, as soon as it is a gateway that is up; None if that takes long."""
    return wait_for(lambda: pid if (pid := find()) is not None and _is_up(pid) else None)


def wait_for(find: Callable[[], T | None], seconds: float = _STARTED_WITHIN_S) -> T | None:
    """Return what is found within some seconds, else None."""
    deadline = time.monotonic() + seconds
    while (found := find()) is None and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_S)
    return found


def _is_up(pid: int) -> bool:
    """Return whether a process is a gateway that has come up, with all its platforms or not."""
    said = status.read_runtime_status()
    return said.get("pid") == pid and said.get("gateway_state") in ("running", "degraded")


def tell_not_connected() -> int:
    """Say which platforms of the gateway are not connected and why; returns the exit status for it."""
    reasons = status.not_connected()
    for name, why in reasons.items():
        click.echo(f"{name} is not connected: {why}", err=True)
    return status.DEGRADED if reasons else 0


def has_started_us() -> bool:
    """Return whether systemd runs this very process, and so starts it again.

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


def _providers() -> Providers:
    return Providers(record.provider for record in plugins.providers().values())


def _unseen(app: App) -> list[str]:
    """The variables that the gateway would use if it were started here, and the service lacks."""
    plugins.load_enabled(app.home, app.settings)
    tables = app.settings.gateway.platforms
    found = [name for name in config.variables(_providers().variables()) if name != "HERMES_HOME"]
    for manifest in preflight.configured(app.settings.gateway):
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


def _state() -> str:
    """Return what systemd says of the service; empty when it says nothing."""
    with contextlib.suppress(UsageError):
        return _systemctl("show", "--property=SubState", "--value", _NAME)
    return ""


def _systemctl(*arguments: str) -> str:
    """Tell systemd something; returns what it answers. Raises UsageError."""
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
    return done.stdout.strip()


def _trouble(*arguments: str) -> str:
    """The same, for what is done whether or not systemd listens; tells why it did not."""
    try:
        _systemctl(*arguments)
    except UsageError as error:
        return error.message
    return ""
