"""`execute_code`: Python in a process of its own, which may call tools; each call passes the gate."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from hermes_agent.approval import taint
from hermes_agent.approval.danger import Danger, of_code
from hermes_agent.sandbox.child import Child
from hermes_agent.sandbox.sandboxes import Job
from hermes_agent.tools import code_runner, output, schema
from hermes_agent.tools.base import Args, Call, Result, Tool, ToolContext
from hermes_core.errors import Interrupted, ToolError

_MAX_TIMEOUT_S = 3600.0
_MAX_CALLS = 200
_NOTES_ROOM = 300


def _dangers(args: Args, bench: ToolContext) -> Sequence[Danger]:
    return bench.processes.sandbox.to_ask(of_code(args["code"], *bench.folders))


def _run(args: Args, call: Call) -> Result:
    bench = call.bench
    if not args["code"].strip():
        raise ToolError("There is no code.", fix="Give Python in code.")
    sandbox = bench.processes.sandbox
    source = Path(code_runner.__file__).read_text("utf-8")
    job = Job(
        [sandbox.python, "-I", "-u", "-c", source],
        cwd=bench.cwd if sandbox.real(bench.cwd, bench.workspace).is_dir() else bench.workspace,
        workspace=bench.workspace,
        home=bench.home.root,
        outputs=bench.outputs,
        environment=bench.environment,
        takes_input=True,
        splits_errors=True,
        ask_host=call.ask_host,
        note_host=call.note_host,
    )
    seconds = min(args.get("timeout", bench.settings.tools.timeout_s), _MAX_TIMEOUT_S)
    return _follow(sandbox.spawn(call.permit, job), args["code"], seconds, call)


def _follow(child: Child, code: str, seconds: float, call: Call) -> Result:
    child.deadline = time.monotonic() + seconds
    plain, capture, progress = output.Plain(), output.Capture(), output.Progress(call.progress)

    def take(data: bytes) -> None:
        text = plain.feed(data)
        capture.add(text)
        progress.add(text)

    calls = Calls(child, call)
    calls.send({"code": code})
    ending = child.follow({child.stderr: take, child.stdout: calls.take}, call.stop)
    capture.add(plain.end())
    if ending == "stopped":
        raise Interrupted
    limit = call.bench.settings.tools.output_limit - _NOTES_ROOM
    text = output.for_model(capture.text(), limit, call.bench.outputs).rstrip() or "(no output)"
    status = child.reap()
    text = "\n".join([text, *(f"[{note}]" for note in dict.fromkeys(child.notes))])
    if ending == "timeout":
        return Result(f"{text}\n[ended after {seconds:g} s]", is_error=True)
    if status:
        return Result(f"{text}\n[exit code {status}]", is_error=True, exit_code=status)
    return Result(text)


class Listener(Protocol):
    """The receiver of the answers, and the time limit."""

    deadline: float | None

    def send(self, data: bytes) -> None: ...


class Calls:
    """Calls of tools that come from the code."""

    def __init__(self, child: Listener, call: Call) -> None:
        self._child = child
        self._call = call
        self._rest = b""
        self._count = 0

    def take(self, data: bytes) -> None:
        """Answer the calls that are complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            began = time.monotonic()
            self.send(self._answer(line))
            if self._child.deadline is not None:  # a tool's time, or a person's, is not the code's
                self._child.deadline += time.monotonic() - began

    def _answer(self, line: bytes) -> dict[str, Any]:
        self._count += 1
        try:
            if self._count > _MAX_CALLS:
                raise ToolError(f"More than {_MAX_CALLS} tool calls.")
            question = msgspec.json.decode(line, type=_Question)
            result = self._call.run_tool(question.tool, question.arguments)
        except msgspec.MsgspecError as error:
            return {"text": f"This is not a tool call: {error}", "is_error": True}
        except ToolError as error:
            return {"text": str(error), "is_error": True}
        return {"text": result.text, "is_error": result.is_error}

    def send(self, message: dict[str, Any]) -> None:
        try:
            self._child.send(msgspec.json.encode(message) + b"\n")
        except (OSError, ValueError):
            return  # it has ended; how, its exit code says


class _Question(msgspec.Struct):
    tool: str
    arguments: dict[str, Any] = {}


TOOL = Tool(
    name="execute_code",
    description=(
        "Run Python. Tools are functions in it: from hermes import read_file, terminal;"
        " read_file(path='a.txt') returns text. Print what you want to see."
    ),
    parameters=schema.of(["code"], code="", timeout={"type": "number", "description": "seconds"}),
    run=_run,
    subject="code",
    dangers=_dangers,
    runs_commands=True,
    reads=taint.of_command,
    sends=taint.sending_of_command,
    timeout_s=_MAX_TIMEOUT_S + 60,
    toolset="code",
)
