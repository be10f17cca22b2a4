"""`hermes gateway`: run the messaging gateway, see how it does, and let people in."""

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

_LEFT_WITHIN_S = 5.0


@click.group(
    "gateway",
    cls=LazyGroup,
    entries={
        "status": Entry("gateway_status", "Show how the gateway does.", "show"),
        "logs": Entry("gateway_logs", "Show the log of the gateway.", "show"),
        "pair": Entry("gateway_pair", "Let in the person who was shown a code.", "pair"),
        "people": Entry("gateway_pair", "Show who may write to the agent.", "people"),
        "role": Entry("gateway_pair", "Have somebody be owner, member or guest.", "role"),
        "forget": Entry("gateway_pair", "Let somebody in no longer.", "forget"),
        "setup": Entry("gateway_setup", "Add a platform, try it, and say hello.", "setup"),
        "platforms": Entry("gateway_setup", "Show the platforms there are.", "platforms"),
        "install": Entry("gateway_service", "Have the gateway start with your session.", "install"),
        "uninstall": Entry("gateway_service", "Have it start no longer.", "uninstall"),
    },
)
@pass_app
def command(app: App) -> None:
    """Talk with the agent in your messengers."""
    config.take_over(gateway_service.variables(app))


@command.command("run")
@click.option("--replace", is_flag=True, help="Take over from a gateway that runs.")
@click.option("--in-background", is_flag=True, hidden=True, help="Say nothing but how it started.")
@pass_app
def run(app: App, replace: bool, in_background: bool) -> int:
    """Run the gateway in the foreground until it is stopped."""
    app.home.create()
    log.set_up(app.home.logs, app.settings.log.level, is_shown=not in_background)
    plugins.load_enabled(app.home, app.settings)
    on = preflight.configured(app.settings.gateway)
    if not on:
        raise UsageError(
            "No platform is configured.", fix="Add one with: hermes gateway setup telegram"
        )
    if replace:
        # First of all, so that what is wrong with the settings is told while the other one runs.
        preflight.check_platforms(app.home, app.settings.gateway, on)
        accounts = _accounts(app, on)
        _stop(app)
        locks.take_over(accounts, _patience(app))
    code = asyncio.run(_serve(app))
    if code == RESTART_EXIT_CODE and not gateway_service.has_started_us():
        arguments = [one for one in sys.argv[1:] if one != "--replace"]
        os.execv(sys.executable, [sys.executable, "-m", "hermes_cli.main", *arguments])
    _leave_soon(code)
    return code


def _accounts(app: App, platforms: Sequence[Manifest]) -> list[locks.AccountLock]:
    """The accounts that the gateway of the home speaks for; raises ConfigError."""
    tables = app.settings.gateway.platforms
    accounts: list[locks.AccountLock] = []
    for one in platforms:
        settings = registry.settings_of(one, tables.get(one.name, {}))
        with contextlib.suppress(PlatformError):  # the gateway tells it, and goes on without
            accounts.append(locks.AccountLock(one.name, registry.account_of(one, settings)))
    return accounts


def _patience(app: App) -> float:
    """Return how long a gateway may take to stop."""
    return app.settings.gateway.drain_s + 15.0


def _leave_soon(code: int) -> None:
    """End the process even when something that runs in a thread does not end: it is all on disk."""
    timer = threading.Timer(_LEFT_WITHIN_S, lambda: os._exit(code))
    timer.daemon = True
    timer.start()


async def _serve(app: App) -> int:
    runner = GatewayRunner(app.home, app.settings)

    def ready(connected: list[str]) -> None:
        on = ", ".join(connected) or "nothing"
        app.say(f"The gateway is up: {on}. Ctrl-C ends it.")
        gateway_service.tell_not_connected()

    return await runner.run(ready)


@command.command("start")
@json_option
@pass_app
def start(app: App) -> int:
    """Start the gateway in the background.

    The exit status is 4 when it runs and a platform is not connected.
    """
    app.home.create()
    running = status.get_running_pid()
    if running is not None:
        if app.as_json:
            app.emit({"pid": running, "not_connected": status.not_connected()})
        app.say(f"It runs already, as process {running}.")
        return gateway_service.tell_not_connected()
    pid = gateway_service.started() if gateway_service.is_installed(app) else _started(app)
    if pid is None:
        app.say("It is still starting.")
    if app.as_json:
        app.emit({"pid": pid, "not_connected": status.not_connected()})
    if pid is not None:
        app.say(f"The gateway runs as process {pid}; its log is {app.home.logs}/hermes.log.")
    return gateway_service.tell_not_connected()


def _started(app: App) -> int | None:
    """The process of a gateway of our own in the background; None when it is not up yet."""
    output = app.home.logs / "gateway.out"
    child = _begin(output)

    def pid() -> int:
        if child.poll() is not None:
            raise UsageError(
                f"The gateway ended at once: {output.read_text('utf-8', 'replace').strip()}",
                fix="hermes gateway run shows it in the foreground.",
            )
        return child.pid

    return gateway_service.when_up(pid)


def _begin(output: Path) -> "subprocess.Popen[bytes]":
    """The process of a gateway in the background, whose words go to a file; raises StoreError."""
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
    """Stop the gateway; turns that run get time to end, and go on at the next start otherwise."""
    was_running = _stop(app)
    if app.as_json:
        app.emit({"was_running": was_running})
    app.say("Stopped." if was_running else "No gateway runs in this home.")
    return 0


@command.command("check")
@json_option
@pass_app
def check(app: App) -> None:
    """Tell whether a gateway can start with the settings as they are now; starts nothing."""
    preflight.check_start(app.home)
    if app.as_json:
        app.emit({"can_start": True})
    app.say("A gateway can start with these settings.")


@command.command("restart")
@click.pass_context
def restart(ctx: click.Context) -> int:
    """Stop the gateway and start it again; with settings that cannot be used it goes on as it is."""
    preflight.check_start(ctx.ensure_object(App).home)
    _stop(ctx.ensure_object(App))
    return ctx.invoke(start)


def _stop(app: App) -> bool:
    """End the gateway that runs in the home; False when none does. Raises UsageError."""
    pid = status.get_running_pid()
    if pid is None:
        return gateway_service.is_installed(app) and gateway_service.stopped()
    app.do_without_settings()
    os.kill(pid, signal.SIGTERM)
    patience = _patience(app)
    if gateway_service.wait_for(lambda: status.get_running_pid() != pid or None, patience):
        return True
    raise UsageError(
        f"Process {pid} has not ended within {patience:g} seconds.",
        fix=f"kill -9 {pid} ends it; nothing that was accepted is lost.",
    )
