"""`hermes security`: what the agent may do now and why, and how to take back what you allowed."""

import hashlib
import os
from collections.abc import Iterator
from typing import Any

import click

from gateway.pairing import Pairing
from gateway.workspaces import Workspaces
from hermes_agent.approval import policy, taint
from hermes_agent.approval.danger.kinds import HOST_KEY
from hermes_agent.approval.gate import CALL_KEY
from hermes_agent.sandbox import detect, hosts
from hermes_cli.commands import table
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_cli.commands.gateway_pair import configured_people
from hermes_cli.commands.table import Column
from hermes_core import clock, config
from hermes_core.errors import HermesError, UsageError
from hermes_core.text import counted
from hermes_state import SessionDB
from hermes_state.ledger import checkpoints, questions, sessions
from hermes_state.ledger import taint as taint_ledger
from hermes_state.values import EVERYWHERE, Row

_MAX_EFFECTS = _MAX_CONVERSATIONS = 5
_ID_LENGTH = 8
_Report = dict[str, Any]


@click.group("security", invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context) -> None:
    """Show what the agent may do now, and why."""
    if ctx.invoked_subcommand is None:
        _show(ctx.ensure_object(App))


@command.command("revoke")
@click.argument("grant")
@json_option
@pass_app
def revoke(app: App, grant: str) -> None:
    """Revoke GRANT, by its id from `hermes security`, or all.

    To revoke the access of a person: hermes gateway forget PLATFORM USER
    """
    config.refuse_in_command("revoke grants")
    with app.store() as store:
        rows = store.read(questions.grants)
        chosen = [row for row in rows if grant in ("all", _id(row))]
        if not chosen and grant != "all":
            raise UsageError(f"There is no grant {grant!r}.", fix="See: hermes security")
        for row in chosen:
            store.write(questions.revoke, row["key"], row["scope"])
    if app.as_json:
        app.emit({"revoked": [_id(row) for row in chosen]})
    app.say(f"Revoked {counted(len(chosen), 'grant')}.")


def _show(app: App) -> None:
    with app.store_to_read() as store:
        report = _report(app, store)
    if app.as_json:
        app.emit(report)
    for title, body in _sections(report):
        app.heading(title)
        app.say(f"{body}\n")


def _report(app: App, store: SessionDB) -> _Report:
    settings, grants = app.settings, [_grant(store, row) for row in store.read(questions.grants)]
    rules = policy.load(app.home)
    return {
        **_sandbox(app),
        "hosts": list(_hosts(app, grants)),
        "workspaces": list(_workspaces(app)),
        "plugins": settings.plugins.enabled,
        "approvals": settings.approvals.mode,
        "edits": settings.approvals.edits,
        "rules": [
            {"effect": effect, "tool": entry.tool, "pattern": entry.text, "reason": entry.reason}
            for effect, entries in (("deny", rules.deny), ("allow", rules.allow))
            for entry in entries
        ],
        "grants": grants,
        "people": list(_people(app, store)),
        "read": [_read(store, row) for row in store.read(taint_ledger.latest, _MAX_CONVERSATIONS)],
        "effects": [
            _effect(store, row) for row in store.read(checkpoints.latest_effects, _MAX_EFFECTS)
        ],
    }


def _sandbox(app: App) -> _Report:
    tools = app.settings.tools
    try:
        chosen = detect.choose(app.settings)
    except HermesError as error:
        return {
            "sandbox": {"name": "", "setting": tools.sandbox, "detail": str(error)},
            "network": "",
        }
    detail = {
        "name": chosen.name,
        "setting": tools.sandbox,
        "detail": chosen.describe(),
        "passed_over": list(chosen.passed_over),
    }
    return {
        "sandbox": detail,
        "network": chosen.network.describe(),
        "network_setting": tools.network,
    }


def _hosts(app: App, grants: list[_Report]) -> Iterator[_Report]:
    """Yield the hosts that commands reach without a question, and where each comes from."""
    if app.settings.tools.network != "ask":
        return
    for host in app.settings.tools.allowed_hosts:
        yield {"host": host, "from": "tools.allowed_hosts"}
    for grant in grants:
        if grant["is_host"]:
            yield {"host": grant["subject"], "from": f"you, {grant['where']}"}
    for host in sorted(hosts.configured_hosts()):
        yield {"host": host, "from": "package tools of this machine"}
    for host in hosts.CODE_HOSTS:
        yield {"host": host, "from": "public hosts of source code"}


def _workspaces(app: App) -> Iterator[_Report]:
    yield {"folder": os.getcwd(), "for": "this folder, when you start Hermes here"}  # noqa: PTH109 -- as shown
    if not app.settings.gateway.platforms:
        return
    try:
        workspaces = Workspaces(app.home, app.settings)
    except HermesError as error:
        yield {"folder": "", "for": str(error)}
        return
    for whose, folder in workspaces.every().items():
        yield {"folder": str(folder), "for": whose}


def _people(app: App, store: SessionDB) -> Iterator[_Report]:
    roles = app.settings.roles
    tools = {"owner": roles.owner_tools, "member": roles.member_tools, "guest": roles.guest_tools}
    for person in Pairing(store, app.settings).people():
        yield {
            "platform": person.platform, "user": person.user_id, "name": person.name,
            "role": person.role, "since": person.added_at, "from": f"paired by {person.added_by}",
            "tools": tools[person.role],
        }  # fmt: skip
    for platform, user, role in configured_people(app.settings.gateway):
        yield {
            "platform": platform, "user": user, "name": "", "role": role, "since": None,
            "from": "config.toml", "tools": tools[role],
        }  # fmt: skip


def _id(row: Row) -> str:
    """Return what a person calls a grant: its host, or the beginning of its hash."""
    key: str = row["key"]
    if key.startswith(HOST_KEY):
        return key.removeprefix(HOST_KEY)
    digest = key.rpartition(":")[2] if key.startswith(CALL_KEY) else _digest(key)
    return digest[:_ID_LENGTH]


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _grant(store: SessionDB, row: Row) -> _Report:
    is_everywhere = row["scope"] == EVERYWHERE
    where = "always" if is_everywhere else f"in {_title(store, row['scope'])}"
    is_host = row["key"].startswith(HOST_KEY)
    subject = row["subject"] or _id(row)
    return {**row, "id": _id(row), "where": where, "is_host": is_host, "subject": subject}


def _read(store: SessionDB, row: Row) -> _Report:
    """Return what a conversation has read, and whether it asks for that reason."""
    found = taint.of(store, row["conversation_id"])
    return {
        "conversation": _title(store, row["conversation_id"]),
        **row,
        "outside": found.outside,
        "private": found.private,
        "asks": found.is_mixed,
    }


def _effect(store: SessionDB, row: Row) -> _Report:
    return {**row, "conversation": _title(store, row["conversation_id"])}


def _title(store: SessionDB, conversation_id: str) -> str:
    row = store.read(sessions.find, conversation_id)
    return str(row["title"] or row["preview"] or conversation_id) if row else conversation_id


def _sections(report: _Report) -> Iterator[tuple[str, str]]:
    """Yield the headings of the report, each with its text."""
    sandbox = report["sandbox"]
    unused = "".join(f"\n  not used: {problem}" for problem in sandbox.get("passed_over", ()))
    yield f"Sandbox (tools.sandbox = {sandbox['setting']})", f"  {sandbox['detail']}{unused}"
    network = [report["network"] or "none"]
    for source in dict.fromkeys(entry["from"] for entry in report["hosts"]):
        names = [entry["host"] for entry in report["hosts"] if entry["from"] == source]
        network.append(f"{source}: {', '.join(names)}")
    setting = report.get("network_setting", "")
    yield f"Network of commands (tools.network = {setting})", "\n".join(f"  {n}" for n in network)
    folders = _table(report["workspaces"], "folder", "for")
    yield "Folders that the agent changes without a question", folders
    if report["plugins"]:
        yield "Plugins, which run with your rights", f"  {', '.join(report['plugins'])}"
    yield (
        f"Approvals (approvals.mode = {report['approvals']},"
        f" approvals.edits = {report['edits']} for changes in the workspace)",
        _table(report["rules"], "effect", "tool", "pattern") or "  no rules in policy.toml",
    )
    grants = [{**row, "age": clock.ago(row["granted_at"])} for row in report["grants"]]
    yield (
        "What you allowed for longer (revoke: hermes security revoke ID)",
        _table(grants, "id", "where", "age", "tool_name", "subject") or "  nothing",
    )
    yield (
        "People (change: hermes gateway role, forget)",
        _table(report["people"], "platform", "user", "role", "name", "from") or "  only you, here",
    )
    if report["read"]:
        yield "What the latest conversations have read", "\n".join(_read_lines(report["read"]))
    if report["effects"]:
        effects = [{**row, "age": clock.ago(row["noted_at"])} for row in report["effects"]]
        yield (
            "What last left this machine",
            _table(effects, "age", "kind", "detail", "conversation"),
        )


_HEADS = {
    "tool_name": Column("TOOL"),
    "where": Column("WHERE", wraps=True),
    "detail": Column("DETAIL", wraps=True),
    "folder": Column("FOLDER", wraps=True),
}


def _read_lines(rows: list[_Report]) -> Iterator[str]:
    for row in rows:
        asks = ": asks before it sends or keeps anything" if row["asks"] else ""
        yield f"  {row['conversation']} ({clock.ago(row['noted_at'])}){asks}"
        for kind, sources in (("outside text", row["outside"]), ("private data", row["private"])):
            if sources:
                yield f"    {kind}: {taint.listed(sources)}"


def _table(rows: list[_Report], *columns: str) -> str:
    if not rows:
        return ""
    heads = [_HEADS.get(column, column) for column in columns]
    return table.render(heads, [[row[c] for c in columns] for row in rows], indent=2)
