"""`hermes gateway`: run and stop the messaging gateway."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import click

from gateway import locks, preflight, status
from gateway.platforms import registry
from gateway.platforms.base import Manifest, PlatformError
from gateway.run import RESTART_EXIT_CODE, GatewayRunner
from hermes_cli import plugins
from hermes_cli.commands import gateway_service
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_cli.commands.group import Entry, LazyGroup
from hermes_core import config, log
from hermes_core.errors import UsageError
from hermes_core.paths import make_folder, open_private

_EXIT_TIMEOUT_S = 5.0


@click.group(
    "gateway",
    cls=LazyGroup,
    entries={
        "status": Entry("gateway_status", "Show the status of the gateway.", "show"),
        "logs": Entry("gateway_logs", "Show the log of the gateway.", "show"),
        "pair": Entry("gateway_pair", "Let in a person by their pairing code.", "pair"),
        "people": Entry("gateway_pair", "List the people with access.", "people_"),
        "role": Entry("gateway_pair", "Change a person's role.", "role"),
        "forget": Entry("gateway_pair", "Revoke a person's access.", "forget"),
        "setup": Entry("gateway_setup", "Set up a platform and test it.", "setup"),
        "platforms": Entry("gateway_setup", "List the platforms.", "platforms"),
        "install": Entry(
            "gateway_service", "Start the gateway automatically (systemd).", "install"
        ),
        "uninstall": Entry("gateway_service", "Stop starting it automatically.", "uninstall"),
    },
)
@pass_app
def command(app: App) -> None:
    """Run the agent in your messengers."""
    config.load_variables(gateway_service.variables(app))


@command.command("run")
@click.option("--replace", is_flag=True, help="Replace a running gateway.")
@click.option(
    "--in-background", is_flag=True, hidden=True, help="Print only the result of the start."
)
@pass_app
def run(app: App, replace: bool, in_background: bool) -> int:
    """Run the gateway in the foreground until it is stopped."""
    app.home.create()
    log.set_up(app.home.logs, app.settings.log.level, is_shown=not in_background)
    plugins.load_enabled(app.home, app.settings)
    on = preflight.configured(app.settings.gateway)
    if not on:
        raise UsageError("No platform is configured.", fix="Add one: hermes gateway setup telegram")
    if replace:
        # First, so that a mistake in the settings is reported while the old gateway still runs.
        preflight.check_platforms(app.home, app.settings.gateway, on)
        accounts = _accounts(app, on)
        stop_running(app)
        locks.take_over(accounts, _stop_timeout(app))
    code = asyncio.run(_serve(app))
    if code == RESTART_EXIT_CODE and not gateway_service.is_run_by_systemd():
        arguments = [argument for argument in sys.argv[1:] if argument != "--replace"]
        os.execv(sys.executable, [sys.executable, "-m", "hermes_cli.main", *arguments])
    _exit_soon(code)
    return code


def _accounts(app: App, platforms: Sequence[Manifest]) -> list[locks.AccountLock]:
    """Return the locks of the accounts that the gateway uses. Raises ConfigError."""
    tables = app.settings.gateway.platforms
    accounts: list[locks.AccountLock] = []
    for manifest in platforms:
        settings = registry.settings_of(manifest, tables.get(manifest.name, {}))
        with contextlib.suppress(PlatformError):  # the gateway reports it and runs without
            account = registry.account_of(manifest, settings)
            accounts.append(locks.AccountLock(manifest.name, account))
    return accounts


def _stop_timeout(app: App) -> float:
    """Return the seconds that a gateway may take to stop."""
    return app.settings.gateway.drain_s + 15.0


def _exit_soon(code: int) -> None:
    """Exit even if a thread does not end; everything is on disk."""
    timer = threading.Timer(_EXIT_TIMEOUT_S, lambda: os._exit(code))
    timer.daemon = True
    timer.start()


async def _serve(app: App) -> int:
    runner = GatewayRunner(app.home, app.settings)

    def ready(connected: list[str]) -> None:
        on = ", ".join(connected) or "nothing"
        app.say(f"The gateway is running: {on}. Ctrl-C stops it.")
        gateway_service.report_not_connected()

    return await runner.run(ready)


@command.command("start")
@json_option
@pass_app
def start(app: App) -> int:
    """Start the gateway in the background.

    Exit status 4: it runs, but a platform is not connected.
    """
    app.home.create()
    running = status.get_running_pid()
    if running is not None:
        if app.as_json:
            app.emit({"pid": running, "not_connected": status.not_connected()})
        app.say(f"Already running as process {running}.")
        return gateway_service.report_not_connected()
    pid = gateway_service.start() if gateway_service.is_installed(app) else _start(app)
    if pid is None:
        app.say("It is still starting.")
    if app.as_json:
        app.emit({"pid": pid, "not_connected": status.not_connected()})
    if pid is not None:
        app.say(f"The gateway runs as process {pid}; its log is {app.home.logs}/hermes.log.")
    return gateway_service.report_not_connected()


def _start(app: App) -> int | None:
    """Start a gateway in the background; return its process id, or None if it is still starting."""
    output = app.home.logs / "gateway.out"
    child = _spawn(output)

    def pid() -> int:
        if child.poll() is not None:
            raise UsageError(
                f"The gateway failed to start: {output.read_text('utf-8', 'replace').strip()}",
                fix="To see it in the foreground: hermes gateway run",
            )
        return child.pid

    return gateway_service.wait_until_up(pid)


def _spawn(output: Path) -> "subprocess.Popen[bytes]":
    """Start the process with its output in a file. Raises StoreError."""
    make_folder(output.parent)
    try:
        sink = open_private(output)
    except OSError as error:
        raise status.unwritable(output, error) from error
    with sink:
        return subprocess.Popen(
            [sys.executable, "-m", "hermes_cli.main", "gateway", "run", "--in-background"],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )


@command.command("stop")
@json_option
@pass_app
def stop(app: App) -> int:
    """Stop the gateway; running turns finish, or resume at the next start."""
    was_running = stop_running(app)
    if app.as_json:
        app.emit({"was_running": was_running})
    app.say("Stopped." if was_running else "The gateway is not running.")
    return 0


@command.command("check")
@json_option
@pass_app
def check(app: App) -> None:
    """Check that the gateway could start with the current settings."""
    preflight.check_start(app.home)
    if app.as_json:
        app.emit({"can_start": True})
    app.say("The gateway can start with these settings.")


@command.command("restart")
@click.pass_context
def restart(ctx: click.Context) -> int:
    """Restart the gateway; if the settings are not valid, it keeps running."""
    preflight.check_start(ctx.ensure_object(App).home)
    stop_running(ctx.ensure_object(App))
    return ctx.invoke(start)


def stop_running(app: App) -> bool:
    """Stop the gateway of the home; return False when none runs. Raises UsageError."""
    pid = status.get_running_pid()
    if pid is None:
        return gateway_service.is_installed(app) and gateway_service.stop()
    app.fall_back_to_defaults()
    os.kill(pid, signal.SIGTERM)
    timeout_s = _stop_timeout(app)
    if gateway_service.wait_for(lambda: status.get_running_pid() != pid or None, timeout_s):
        return True
    raise UsageError(
        f"Process {pid} has not ended within {timeout_s:g} seconds.",
        fix=f"kill -9 {pid} ends it; no accepted message is lost.",
    )
