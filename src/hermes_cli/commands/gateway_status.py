"""`hermes gateway status`: process, platforms, and messages not yet answered or delivered."""

from typing import Any

import click

from gateway import status
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_core import clock
from hermes_core.text import counted
from hermes_state.ledger import inbox, outbox, turns

_FAILURES_PERIOD_S = 86_400.0
_MAX_FAILURES = 3
_NOT_RUNNING = 3


@click.command("status")
@json_option
@pass_app
def show(app: App) -> int:
    """Show whether the gateway runs, its platforms, and messages in flight.

    Exit status 0: it runs with all platforms. 3: it does not run. 4: a platform is not connected.
    """
    config_error = app.fall_back_to_defaults()
    report: dict[str, Any] = {**_status(app), "config_error": config_error}
    if config_error:
        click.echo(f"The gateway could not start with these settings. {config_error}", err=True)
    if app.as_json:
        app.emit(report)
    if report["pid"]:
        state = report["state"] or "running (details unknown: gateway_state.json is missing)"
        app.say(f"The gateway is {state}, process {report['pid']}.{_busy(report)}")
    else:
        app.say(f"The gateway is not running (last: {report['state'] or 'never started'}).")
    for name, platform in report["platforms"].items():
        error = f": {platform['error_message']}" if platform.get("error_message") else ""
        app.say(f"  {name}: {platform['state'] if report['pid'] else 'off'}{error}")
    if report["sandbox"]:
        app.say(report["sandbox"])
    app.say(f"Unanswered messages: {report['unanswered']}.")
    app.say(f"Replies to send: {report['to_send']}{_oldest(report['oldest'])}.")
    failures = report["failures"][-_MAX_FAILURES:]
    app.say(f"Undelivered replies in the last day: {report['given_up']}{':' if failures else '.'}")
    for row in failures:
        app.say(f"  {clock.local(row['at'])} {row['platform']} {row['chat_id']}: {row['reason']}")
    if not report["pid"]:
        return _NOT_RUNNING
    return status.DEGRADED if status.not_connected() else 0


def _status(app: App) -> dict[str, Any]:
    runtime = status.read_runtime_status()
    with app.store(read_only=app.home.database.exists()) as store:
        pending = store.read(outbox.waiting)
        failed = store.read(outbox.failed, since=clock.now() - _FAILURES_PERIOD_S)
        unfinished = [t for t in store.read(turns.all_open) if store.read(inbox.of_turn, t["id"])]
    return {
        "pid": status.get_running_pid(),
        "state": runtime.get("gateway_state"),
        "running_turns": runtime.get("active_agents", 0),
        "platforms": runtime.get("platforms", {}),
        "sandbox": runtime.get("sandbox", ""),
        "unanswered": len(unfinished),
        "to_send": len(pending),
        "oldest": _summary(pending[0], "created_at") if pending else None,
        "given_up": len(failed),
        "failures": [_summary(row, "ended_at") for row in failed],
    }


def _summary(row: dict[str, Any], time_column: str) -> dict[str, Any]:
    """Return an outbox row without its text."""
    keys = {"platform": "platform", "chat_id": "chat_id", "at": time_column, "reason": "error"}
    return {key: row[column] for key, column in keys.items()}


def _busy(report: dict[str, Any]) -> str:
    number = report["running_turns"]
    return f" {counted(number, 'turn')} running." if number else ""


def _oldest(part: dict[str, Any] | None) -> str:
    if part is None:
        return ""
    reason = f" ({part['platform']}: {part['reason'].rstrip('.')})" if part["reason"] else ""
    return f", the oldest since {clock.local(part['at'])}{reason}"
