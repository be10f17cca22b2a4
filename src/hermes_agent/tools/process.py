"""`process`: look after what runs in the background."""

from collections.abc import Sequence

from hermes_agent.approval.danger import Access, Danger, lines_of, of_code, of_command
from hermes_agent.approval.taint import Sending
from hermes_agent.tools import output, schema
from hermes_agent.tools.base import Args, Call, Tool, ToolContext
from hermes_agent.tools.processes import Process
from hermes_core import clock
from hermes_core.errors import ToolError
from hermes_core.text import truncate
from hermes_state.ledger import lineage

_MAX_WAIT_S = 600.0
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "fish"})
_OTHERS = frozenset({
    "node", "perl", "ruby", "php", "lua", "psql", "mysql", "sqlite3", "ssh", "nc", "ncat", "telnet",
    "gdb", "ftp", "sftp", "redis-cli", "mongosh", "docker", "podman", "kubectl", "vim", "ed", "irb",
})  # fmt: skip


def _dangers(args: Args, bench: ToolContext) -> Sequence[Danger]:
    """Typing into an interpreter runs what is typed."""
    process = bench.processes.find(args.get("id", "")) if args["action"] == "write" else None
    if process is None:
        return []
    return bench.processes.sandbox.to_ask(_dangers_of_text(args, bench, process))


def _dangers_of_text(args: Args, bench: ToolContext, process: Process) -> list[Danger]:
    text = args.get("text", "")
    from hermes_agent.approval.danger.rules import base_name  # noqa: PLC0415 -- only for one that listens

    names = {base_name(line.partition(" ")[0]) for line in lines_of(process.command).all}
    if names & _SHELLS:
        return of_command(text, *bench.folders)
    if names & {"python", "ipython", "pypy"}:
        return of_code(text, *bench.folders)
    if names & _OTHERS:
        program = sorted(names & _OTHERS)[0]
        reason = f"Types into {program}: {truncate(text.strip(), 200)}"
        return [Danger("remote_code", reason, f"process:{program}")]
    return []


def _sends(args: Args, _bench: ToolContext, _access: Access) -> Sending | None:
    is_typed = args["action"] == "write"
    return Sending("Types into a command that may reach hosts") if is_typed else None


def _run(args: Args, call: Call) -> str:
    action = args["action"]
    conversation = call.bench.store.read(lineage.root, call.session_id)
    processes = call.bench.processes
    if action == "list":
        return (
            "\n".join(map(_line, processes.of(conversation))) or "Nothing runs in the background."
        )
    if "id" not in args:
        raise ToolError(f"{action} needs the id of a process.", fix="Use list to see them.")
    process = processes.get(conversation, args["id"])
    if action == "write":
        process.write(args.get("text", ""))
        return f"Written to {process.id}."
    if action == "kill":
        process.kill()
    if action == "wait":
        process.wait(min(args.get("seconds", 30.0), _MAX_WAIT_S), call.stop)
    return _news(process, call.bench)


def _line(process: Process) -> str:
    age = clock.now() - process.started_at
    return f"{process.id} ({process.state}, {age:.0f} s old): {truncate(process.command, 100)}"


def _news(process: Process, bench: ToolContext) -> str:
    text = output.for_model(process.read(), bench.settings.tools.output_limit - 100, bench.outputs)
    return f"{text.rstrip() or '(no new output)'}\n[{process.id} {process.state}]"


TOOL = Tool(
    name="process",
    description="Background processes: list, poll new output, wait, write to stdin, kill.",
    parameters=schema.of(
        ["action"],
        action={"type": "string", "enum": ["list", "poll", "wait", "write", "kill"]},
        id="",
        text="",
        seconds={"type": "number"},
    ),
    run=_run,
    dangers=_dangers,
    sends=_sends,
    timeout_s=_MAX_WAIT_S + 30,
)
