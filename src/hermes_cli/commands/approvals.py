"""`hermes approvals check`: explain what the gate says to a call, without running it."""

from pathlib import Path
from typing import Any

import click
import msgspec

from hermes_agent.approval import display, gate, policy, taint
from hermes_agent.approval.gate import CallRef, Verdict
from hermes_agent.approval.policy import Entry
from hermes_agent.sandbox import detect, hosts
from hermes_agent.tools.base import Args, Tool, ToolContext
from hermes_agent.tools.processes import Processes
from hermes_agent.tools.registry import default_tools, plugin_tools
from hermes_cli import plugins
from hermes_cli.commands.app import App, json_option, pass_app
from hermes_cli.commands.group import CommandGroup
from hermes_cli.commands.sessions import find_session
from hermes_core import clock
from hermes_core.errors import UsageError
from hermes_state import SessionDB
from hermes_state.ledger import lineage, questions
from hermes_state.values import EVERYWHERE, Row

_STATUS = {"allow": 0, "ask": 3, "deny": 4}
_HEADLINES = {
    "allow": "It runs without a question.",
    "ask": "It asks you first.",
    "deny": "It is denied without a question.",
}


@click.group("approvals", cls=CommandGroup)
def command() -> None:
    """Explain what the agent may do without a question."""


@command.command("check")
@click.argument("what", metavar="COMMAND")
@click.option(
    "--tool", "tool_name", default="terminal", help="Another tool; COMMAND is its path or URL."
)
@click.option(
    "-w",
    "--workspace",
    type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True),
    help="Folder that the agent works in; the default is this one.",
)
@click.option(
    "--conversation", metavar="ID", help="Count what you allowed in this conversation too."
)
@json_option
@pass_app
def check(
    app: App, what: str, tool_name: str, workspace: Path | None, conversation: str | None
) -> int:
    """Explain what would happen with COMMAND, without running it.

    For a tool with other arguments, COMMAND is a JSON object of them.

    Exit status 0: it runs. 3: it asks first. 4: it is denied.
    """
    tool = _tool(app, tool_name)
    place = workspace or Path.cwd()
    with app.store_to_read() as store:
        session_id = find_session(store, conversation) if conversation else ""
        root = store.read(lineage.root, session_id) if conversation else ""
        who = CallRef(root, session_id, "", "")
        processes = Processes(choose=lambda: detect.choose(app.settings))
        bench = ToolContext(
            app.home, app.settings, store, processes, place, place, conversation_id=root
        )
        rules = policy.load(app.home)
        verdict = gate.judge(
            rules, app.settings.approvals, tool, _arguments(tool, what), bench, who
        )
        grant = _grant(store, verdict, root)
        reached = _hosts(app, store, tool, what, root)
    if app.as_json:
        app.emit({**_as_json(app, tool, verdict, grant), "hosts": reached})
    app.say("\n".join([_HEADLINES[verdict.decision], *_reasons(app, verdict, grant)]))
    if reached:
        app.say("Hosts that it names, when it connects:")
    for host in reached:
        app.say(f"  {host['host']}: {'asks you' if host['asks'] else 'no question'}")
    app.say(detect.summary(app.settings) if tool.is_command else "")
    return _STATUS[verdict.decision]


def _tool(app: App, name: str) -> Tool:
    tools = {tool.name: tool for tool in default_tools(app.settings)}
    if name not in tools and app.settings.plugins.enabled:
        plugins.load_enabled(app.home, app.settings)
        tools |= {tool.name: tool for tool in plugin_tools(plugins.tools())}
    if name not in tools:
        raise UsageError(f"There is no tool {name!r}.", fix=f"Tools: {', '.join(sorted(tools))}.")
    return tools[name]


def _arguments(tool: Tool, text: str) -> Args:
    if tool.subject and not (text.startswith("{") and not tool.is_command):
        return {tool.subject: text}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        fix = f"""Write for example: '{{"{next(iter(tool.spec.parameters["properties"]), "a")}": …}}'."""
        raise UsageError(f"The arguments of {tool.name} are a JSON object.", fix=fix) from error


def _grant(store: SessionDB, verdict: Verdict, conversation_id: str) -> Row | None:
    """Return the lasting yes that lets a call through."""
    scopes = (EVERYWHERE, conversation_id)
    found = [
        row
        for row in store.read(questions.grants)
        if row["scope"] in scopes and any(row["key"] == grant.key for grant in verdict.grants)
    ]
    return found[0] if found and verdict.decision == "allow" else None


def _hosts(
    app: App, store: SessionDB, tool: Tool, command: str, conversation_id: str
) -> list[dict[str, object]]:
    """Return the hosts that a command is likely to reach, where the network asks for them."""
    if not tool.is_command or detect.choose(app.settings).network.rules is None:
        return []
    allowed = app.settings.tools.allowed_hosts
    grants = taint.host_grants(store, conversation_id, None)
    return [
        {"host": host, "asks": not hosts.passes(*hosts.split(host), allowed, grants)}
        for host in hosts.named_by(command)
    ]


def _reasons(app: App, verdict: Verdict, grant: Row | None) -> list[str]:
    """Say why, line by line."""
    dangers = display.question(verdict.dangers, "").splitlines()
    mode = app.settings.approvals.mode
    if verdict.rules:
        verb = "denies" if verdict.decision == "deny" else "allows"
        return [f"policy.toml {verb} it: {_rule(entry)}" for entry in verdict.rules]
    if verdict.decision == "ask":
        if app.settings.tools.checkpoints and any(danger.loss for danger in verdict.dangers):
            dangers.append("A turn does not ask about losses that its checkpoint can bring back.")
        return [*dangers, f"Answers: {', '.join(verdict.choices)}."]
    if verdict.decision == "deny":
        return [*dangers, "Nobody is asked: approvals.mode is deny."]
    if grant is not None:
        where = "always" if grant["scope"] == EVERYWHERE else "for this conversation"
        is_call = grant["key"].startswith(gate.CALL_KEY)
        what = "exactly this call" if is_call else grant["subject"]
        return [*dangers, f"You allowed {what} {where}, {clock.ago(grant['granted_at'])}."]
    if dangers and mode == "allow":
        return [*dangers, "Nobody is asked: approvals.mode is allow."]
    return ["Nothing about it needs an approval."]


def _rule(entry: Entry) -> str:
    reason = f" ({entry.reason})" if entry.reason else ""
    return f'tool = "{entry.tool}", "{entry.text}"{reason}'


def _as_json(app: App, tool: Tool, verdict: Verdict, grant: Row | None) -> dict[str, object]:
    return {
        "decision": verdict.decision,
        "tool": tool.name,
        "subject": verdict.subject,
        "path": verdict.path,
        "rules": [
            {"tool": entry.tool, "pattern": entry.text, "reason": entry.reason}
            for entry in verdict.rules
        ],
        "reasons": [{"kind": d.kind, "reason": d.reason} for d in verdict.dangers],
        "access": verdict.access._asdict(),
        "choices": list(verdict.choices) if verdict.decision == "ask" else [],
        "grant": grant,
        "mode": app.settings.approvals.mode,
    }
