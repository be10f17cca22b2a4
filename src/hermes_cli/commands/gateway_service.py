"""The gateway as a systemd user service, and waiting for a gateway to start."""

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

_START_TIMEOUT_S = 30.0
_POLL_INTERVAL_S = 0.1
_NAME = "hermes-gateway.service"
_ENDED = ("failed", "dead")
"""States in which systemd does not start the service again."""
_RESTARTING = "auto-restart"
_UNIT = """\
[Unit]
Description=Hermes messaging gateway
After=network-online.target
Wants=network-online.target
# Give up on a gateway that keeps failing.
StartLimitIntervalSec=300
StartLimitBurst=10

[Service]
ExecStart={python} -m hermes_cli.main gateway run
{home}
# Environment variables, such as a bot's token: lines of NAME=value. The file may be missing.
EnvironmentFile=-{variables}
# {restart} is a requested restart; 78 is a configuration error, which no restart fixes.
Restart=on-failure
RestartForceExitStatus={restart}
RestartPreventExitStatus=78
RestartSec=2
# Running turns get time to finish; the others resume at the next start.
KillMode=mixed
TimeoutStopSec={stop_timeout}

[Install]
WantedBy=default.target
"""


@click.command("install")
@click.option("--print", "only_print", is_flag=True, help="Print the unit file only.")
@pass_app
def install(app: App, only_print: bool) -> int:
    """Let systemd start the gateway with your session, and restart it when it fails."""
    for name in _missing_variables(app):
        click.echo(
            f"{name} is set in this shell only; systemd will not see it. Add a line {name}=... to"
            f" {variables(app)} (chmod 600), or put the value into {app.home.config}.",
            err=True,
        )
    if only_print:
        click.echo(unit(app), nl=False)
        return 0
    preflight.check_start(app.home)
    _install(app)
    if running := status.get_running_pid():
        app.say(
            f"A gateway is already running as process {running}."
            " To let systemd run it: hermes gateway restart"
        )
        return 0
    if (pid := start()) is not None:
        app.say(f"The gateway runs as process {pid}.")
    return report_not_connected()


def _install(app: App) -> None:
    file = path()
    before = file.read_text("utf-8") if file.exists() else None
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(unit(app), "utf-8")
    try:
        _systemctl("daemon-reload")
    except UsageError:  # no systemd: do not leave a useless file
        if before is None:
            file.unlink()
        else:
            file.write_text(before, "utf-8")
        raise
    app.say(f"Wrote {file}")
    _systemctl("enable", _NAME)
    app.say(
        "The gateway starts with your session. To run it also while you are logged out:"
        " loginctl enable-linger"
    )


@click.command("uninstall")
@pass_app
def uninstall(app: App) -> int:
    """Stop the systemd service and remove it."""
    if not path().exists():
        app.say("The service is not installed.")
        return 0
    reason = remove()
    app.say("Removed the service; the gateway no longer starts by itself.")
    if reason:
        click.echo(f"A running gateway was not stopped. {reason}", err=True)
    return 0


def remove() -> str:
    """Stop the service and delete its unit file; return why systemd did not stop it, or nothing."""
    problems = [_try_systemctl("disable", "--now", _NAME)]
    for file in (path(), path().parent / "default.target.wants" / _NAME):
        file.unlink(missing_ok=True)
    problems.append(_try_systemctl("daemon-reload"))
    return next(filter(None, problems), "")


def unit(app: App) -> str:
    """Return the text of the unit file."""
    return _UNIT.format(
        python=_quoted_python(),
        home=_home(app),
        variables=str(variables(app)).replace("%", "%%"),
        restart=75,
        stop_timeout=int(app.settings.gateway.drain_s + 15),
    )


def is_installed(app: App) -> bool:
    """Return whether the gateway of this home is installed as a service."""
    try:
        return _home(app) in path().read_text("utf-8").splitlines()
    except OSError:
        return False


def runs_this_program() -> bool:
    """Return whether the unit file starts the program of this environment."""
    try:
        return f"ExecStart={_quoted_python()} " in path().read_text("utf-8")
    except OSError:
        return False


def is_available() -> bool:
    """Return whether systemd runs services of this user."""
    return not _try_systemctl("show-environment")


def start() -> int | None:
    """Start the service; return its process id, or None if it is still starting. Raises UsageError."""
    before = status.read_runtime_status()
    # systemd starts nothing while the previous process is still ending.
    wait_for(lambda: _state() in ("", _RESTARTING, *_ENDED) or status.get_running_pid())
    _try_systemctl("reset-failed", _NAME)  # otherwise StartLimitBurst may block the start
    _systemctl("start", _NAME)

    def pid() -> int | None:
        if _state() in (_RESTARTING, *_ENDED):
            raise UsageError(
                f"The gateway failed to start{_reason(before)}",
                fix="To see it in the foreground: hermes gateway run. systemd may retry a few times;"
                " hermes gateway stop ends that.",
            )
        return status.get_running_pid()

    return wait_until_up(pid)


def _reason(before: dict[str, Any]) -> str:
    """Return why the start failed, if the gateway reported it."""
    now = status.read_runtime_status()
    is_new = now != before and now.get("gateway_state") == "startup_failed"
    return f": {now['exit_reason']}" if is_new else "."


def stop() -> bool:
    """Stop a service that is starting or about to restart; return whether it was."""
    if _state() in ("", *_ENDED):
        return False
    _systemctl("stop", _NAME)
    return True


def wait_until_up(find: Callable[[], int | None]) -> int | None:
    """Wait until the found process is a running gateway; return its id, or None at the timeout."""
    return wait_for(lambda: pid if (pid := find()) is not None and _is_up(pid) else None)


def wait_for(find: Callable[[], T | None], timeout_s: float = _START_TIMEOUT_S) -> T | None:
    """Poll a function until it returns a value; return None at the timeout."""
    deadline = time.monotonic() + timeout_s
    while (found := find()) is None and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL_S)
    return found


def _is_up(pid: int) -> bool:
    """Return whether a process is a gateway that has started, with or without all its platforms."""
    now = status.read_runtime_status()
    return now.get("pid") == pid and now.get("gateway_state") in ("running", "degraded")


def report_not_connected() -> int:
    """Print the platforms that are not connected; return the exit status."""
    reasons = status.not_connected()
    for name, reason in reasons.items():
        click.echo(f"{name} is not connected: {reason}", err=True)
    return status.DEGRADED if reasons else 0


def is_run_by_systemd() -> bool:
    """Return whether systemd runs this process, and so restarts it.

    INVOCATION_ID alone does not tell: terminals started by systemd pass it on.
    """
    try:
        parent = Path(f"/proc/{os.getppid()}/comm").read_text("utf-8").strip()
    except OSError:
        return False
    return parent == "systemd" and bool(config.variable("INVOCATION_ID"))


def _home(app: App) -> str:
    """Return the line of the unit file with the home."""
    return f"Environment={_quoted(f'HERMES_HOME={app.home.root}')}"


def _quoted(word: str) -> str:
    """Quote a word for a unit file."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if re.search(r"[^\w/.=:@%+-]", word) else escaped


def _quoted_python() -> str:
    return _quoted(sys.executable.replace("$", "$$"))


def variables(app: App) -> Path:
    """Return the file with environment variables of the gateway."""
    return app.home.root / "gateway.env"


def _missing_variables(app: App) -> list[str]:
    """Return variables of this shell that the gateway would use and the service lacks."""
    plugins.load_enabled(app.home, app.settings)
    tables = app.settings.gateway.platforms
    providers = Providers(record.provider for record in plugins.providers().values())
    found = [name for name in config.variables(providers.variables()) if name != "HERMES_HOME"]
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


def path() -> Path:
    """Return the unit file; it may be missing."""
    named = config.variable("XDG_CONFIG_HOME")
    return (Path(named) if named else Path.home() / ".config") / "systemd" / "user" / _NAME


def _state() -> str:
    """Return the state of the service, or an empty string if unknown."""
    with contextlib.suppress(UsageError):
        return _systemctl("show", "--property=SubState", "--value", _NAME)
    return ""


def _systemctl(*arguments: str) -> str:
    """Run `systemctl --user`; return its output. Raises UsageError."""
    program = shutil.which("systemctl")
    if program is None:
        raise UsageError(
            "systemd is not available.",
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


def _try_systemctl(*arguments: str) -> str:
    """Run `systemctl --user`; return the message of an error, or an empty string."""
    try:
        _systemctl(*arguments)
    except UsageError as error:
        return error.message
    return ""
