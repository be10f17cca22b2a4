"""`hermes gateway status`: whether it runs, how its platforms do, what waits and what was given up."""

from datetime import UTC, datetime
from typing import Any

import click

from gateway import status
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_core import clock
from hermes_core.text import counted
from hermes_state.ledger import inbox, outbox, turns

_LATELY_S = 86_400.0
_SHOWN = 3
"""How many of the replies that were given up are shown to a person."""
_NOT_RUNNING = 3


@click.command("status")
@json_option
@pass_app
def show(app: App) -> int:
    """Show whether the gateway runs, how its platforms do, what waits and what was given up.

    The exit status is 0 when it runs with all its platforms, 4 when one of them is not connected, and
    3 when it does not run.
    """
    unreadable = app.do_without_settings()
    said: dict[str, Any] = {**_status(app), "config_error": unreadable}
    if unreadable:
        click.echo(f"A gateway could not start now. {unreadable}", err=True)
    if app.as_json:
        app.emit(said)
    if said["pid"]:
        state = said["state"] or "running (how it does is not known: gateway_state.json is lost)"
        app.say(f"The gateway is {state}, process {said['pid']}.{_busy(said)}")
    else:
        app.say(f"No gateway runs in this home (last: {said['state'] or 'never started'}).")
    for name, one in said["platforms"].items():
        error = f": {one['error_message']}" if one.get("error_message") else ""
        app.say(f"  {name}: {one['state'] if said['pid'] else 'off'}{error}")
    app.say(f"Messages without an answer yet: {said['unanswered']}.")
    app.say(f"Replies waiting to be sent: {said['to_send']}{_oldest(said['oldest'])}.")
    last = said["failures"][-_SHOWN:]
    more = ", the last ones:" if last else "."
    app.say(f"Replies given up in the last day: {said['given_up']}{more}")
    for one in last:
        app.say(f"  {_moment(one['at'])} {one['platform']} {one['chat_id']}: {one['reason']}")
    if not said["pid"]:
        return _NOT_RUNNING
    return status.DEGRADED if status.not_connected() else 0


def _status(app: App) -> dict[str, Any]:
    runtime = status.read_runtime_status()
    with app.store(read_only=app.home.database.exists()) as store:
        waiting = store.read(outbox.waiting)
        failed = store.read(outbox.failed, since=clock.now() - _LATELY_S)
        unfinished = [t for t in store.read(turns.still_open) if store.read(inbox.of_turn, t["id"])]
    return {
        "pid": status.get_running_pid(),
        "state": runtime.get("gateway_state"),
        "running_turns": runtime.get("active_agents", 0),
        "platforms": runtime.get("platforms", {}),
        "unanswered": len(unfinished),
        "to_send": len(waiting),
        "oldest": _piece(waiting[0], "created_at") if waiting else None,
        "given_up": len(failed),
        "failures": [_piece(row, "ended_at") for row in failed],
    }


def _piece(row: dict[str, Any], moment: str) -> dict[str, Any]:
    """A piece of a reply without its words."""
    told = {"platform": row["platform"], "chat_id": row["chat_id"]}
    return told | {"at": row[moment], "reason": row["error"]}


def _busy(said: dict[str, Any]) -> str:
    number = said["running_turns"]
    return f" {counted(number, 'turn')} {'runs' if number == 1 else 'run'} now." if number else ""


def _oldest(piece: dict[str, Any] | None) -> str:
    if piece is None:
        return ""
    reason = f" ({piece['platform']}: {piece['reason'].rstrip('.')})" if piece["reason"] else ""
    return f", the oldest since {_moment(piece['at'])}{reason}"


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC).astimezone():%Y-%m-%d %H:%M}"
