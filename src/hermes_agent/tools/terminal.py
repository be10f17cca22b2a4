"""`terminal`: a shell command, waited for or in the background; `cd` lasts until the next one."""

import functools
import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from hermes_agent.approval import taint
from hermes_agent.approval.danger import Danger, of_command
from hermes_agent.approval.danger.kinds import UNCONFINED
from hermes_agent.sandbox.child import Child
from hermes_agent.sandbox.sandboxes import Host, Job, Sandbox
from hermes_agent.tools import output, schema
from hermes_agent.tools.base import Args, Call, Result, Tool, ToolContext
from hermes_core.errors import Interrupted, ToolError
from hermes_state.ledger import lineage

_MAX_TIMEOUT_S = 3600.0
_WRITE_HINTS = ("Read-only file system", "Permission denied", "Operation not permitted")
_HINTS = (
    "Read-only file system", "Permission denied (publickey)", "Cannot connect to the Docker daemon",
)  # fmt: skip
_NETWORK_HINTS = (
    "Could not resolve host", "Name or service not known", "name resolution", "getaddrinfo",
    "Network is unreachable", "Address family not supported", "Failed to establish a new connection",
)  # fmt: skip
_UNSET = ("BASH_ENV", "ENV", "PROMPT_COMMAND", "CDPATH")
_NOTES_ROOM = 400


def _dangers(args: Args, bench: ToolContext) -> Sequence[Danger]:
    found = of_command(args["command"], *bench.folders)
    if args.get("unsandboxed") and not isinstance(bench.processes.sandbox, Host):
        key = "terminal:unsandboxed"
        found.append(Danger("unconfined", "Runs outside the sandbox", key, UNCONFINED))
    return bench.processes.sandbox.to_ask(found)


def _run(args: Args, call: Call) -> Result:
    bench = call.bench
    if not args["command"].strip():
        raise ToolError("The command is empty.", fix="Give a shell command.")
    notes = _settle_folder(bench)
    marker = f".hermes-cwd-{os.urandom(16).hex()}"
    if args.get("background"):
        return _start(args, call)
    child = bench.processes.sandbox.spawn(call.permit, _job(args["command"], call, marker))
    return _wait(child, args, call, notes, marker)


def _start(args: Args, call: Call) -> Result:
    bench = call.bench
    conversation = bench.store.read(lineage.root, call.session_id)
    bench.processes.check_room(conversation)
    job = _job(args["command"], call, None)
    process = bench.processes.add(
        conversation, args["command"], bench.processes.sandbox.spawn(call.permit, job)
    )
    return Result(f"Started in the background as {process.id}; look after it with process.")


def _job(command: str, call: Call, marker: str | None) -> Job:
    bench, is_confined = call.bench, call.permit.is_confined
    script = 'eval "$1"'
    if marker is not None:
        sandbox = bench.processes.sandbox
        folder = sandbox.inner_private if is_confined else sandbox.private
        place = shlex.quote(str(folder / marker))
        script = f"trap {shlex.quote(f'pwd -P > {place}')} EXIT\n{script}"
    environment = {k: v for k, v in bench.environment.items() if k not in _UNSET}
    return Job(
        [*_shell(), "-c", script, "sh", command],
        cwd=bench.cwd,
        workspace=bench.workspace,
        home=bench.home.root,
        outputs=bench.outputs,
        environment=environment,
        takes_input=marker is None,
        ask_host=None if marker is None else call.ask_host,
        note_host=call.note_host,
    )


@functools.cache
def _shell() -> tuple[str, ...]:
    import shutil  # noqa: PLC0415 -- slow to load, and many conversations run no command

    bash = shutil.which("bash")
    return (bash, "--noprofile", "--norc") if bash else ("/bin/sh",)


def _wait(child: Child, args: Args, call: Call, notes: list[str], marker: str) -> Result:
    settings = call.bench.settings.tools
    seconds = min(args.get("timeout", settings.timeout_s), _MAX_TIMEOUT_S)
    child.deadline = time.monotonic() + seconds
    plain, capture, progress = output.Plain(), output.Capture(), output.Progress(call.progress)

    def take(data: bytes) -> None:
        text = plain.feed(data)
        capture.add(text)
        progress.add(text)

    ending = child.follow({child.stdout: take}, call.stop)
    capture.add(plain.end())
    notes += _keep_folder(call.bench, call.bench.processes.sandbox, marker)
    if ending == "stopped":
        raise Interrupted
    text = output.for_model(capture.text(), settings.output_limit - _NOTES_ROOM, call.bench.outputs)
    code = 0
    if ending == "timeout":
        notes.append(
            f"[ended after {seconds:g} s; give a longer timeout, or background=true for what runs on]"
        )
    elif code := child.reap():
        notes.append(f"[exit code {code}]")
        notes += _sandbox_hint(text, call)
    notes += [f"[{note}]" for note in dict.fromkeys(child.notes)]
    text = "\n".join([text.rstrip() or "(no output)", *notes])
    return Result(text, ending == "timeout", exit_code=code)


def _sandbox_hint(text: str, call: Call) -> list[str]:
    """Say what of a failure is the sandbox's doing, and the way out."""
    sandbox = call.bench.processes.sandbox
    if isinstance(sandbox, Host):
        return []
    if call.permit.access.keeps_workspace and any(hint in text for hint in _WRITE_HINTS):
        return [
            "[commands only read the workspace; edits=true asks the user to let this one write]"
        ]
    if not sandbox.network.is_open and any(hint in text for hint in _NETWORK_HINTS):
        about = "the network is " + sandbox.network.describe()
        if sandbox.network.rules is not None:
            about = "only programs that use the proxy in HTTPS_PROXY have a network"
    elif any(hint in text for hint in _HINTS):
        about = ""
    else:
        return []
    where = f"this ran in a sandbox; {about}; " if about else "this ran in a sandbox; "
    return [f"[{where}unsandboxed=true asks the user to run it outside]"]


def _settle_folder(bench: ToolContext) -> list[str]:
    """Start in the workspace when the folder of the last command is gone."""
    real = bench.processes.sandbox.real(bench.cwd, bench.workspace)
    if real.is_dir():
        return []
    missing, bench.cwd = bench.cwd, bench.workspace
    return [f"[{missing} is gone; this ran in {bench.workspace}]"]


def _keep_folder(bench: ToolContext, sandbox: Sandbox, marker: str) -> list[str]:
    """Remember where the command ended up, and say so when that is elsewhere."""
    place = sandbox.private / marker
    try:
        folder = Path(place.read_text("utf-8").rstrip("\n"))
    except (OSError, UnicodeDecodeError):
        return []
    place.unlink(missing_ok=True)
    is_there = folder.is_absolute() and sandbox.real(folder, bench.workspace).is_dir()
    if folder == bench.cwd or not is_there:
        return []
    if sandbox.hides(folder, bench.workspace):
        return [f"[the sandbox does not show {folder}; still in {bench.cwd}]"]
    bench.cwd = folder
    return [f"[now in {folder}]"]


_SMALL_ADVICE = """\
To list, count, copy, move, delete, append, replace everywhere, use terminal: ls, wc -l, grep -c, cp, \
mv, rm, echo >>, sed -i."""

_SMALL_EXAMPLES = """\
User: Who wrote Hamlet?
{"name": "reply", "arguments": {"text": "William Shakespeare."}}
User: How many words has memo.txt, and what does it say?
{"name": "terminal", "arguments": {"command": "wc -w memo.txt"}}
Result of terminal: 5 memo.txt
{"name": "read_file", "arguments": {"path": "memo.txt"}}
Result of read_file: The office moves to Oslo.
{"name": "reply", "arguments": {"text": "It has 5 words: the office moves to Oslo."}}
User: Put logo.png into images.
{"name": "terminal", "arguments": {"command": "mv logo.png images/"}}
Result of terminal: mv: images/: Not a directory
{"name": "terminal", "arguments": {"command": "mkdir -p images && mv logo.png images/"}}
Result of terminal: (no output)
{"name": "reply", "arguments": {"text": "I made images and moved logo.png there."}}"""

TOOL = Tool(
    name="terminal",
    description="Run a shell command; the working directory is kept. background=true for servers.",
    parameters=schema.of(
        ["command"],
        command="",
        timeout={"type": "number", "description": "seconds"},
        background={"type": "boolean"},
        unsandboxed={"type": "boolean", "description": "asks the user"},
    ),
    run=_run,
    subject="command",
    is_command=True,
    dangers=_dangers,
    runs_commands=True,
    reads=taint.of_command,
    sends=taint.sending_of_command,
    timeout_s=_MAX_TIMEOUT_S + 60,
    small=("command",),
    one_line="Run a shell command.",
    small_advice=_SMALL_ADVICE,
    small_examples=_SMALL_EXAMPLES,
)
