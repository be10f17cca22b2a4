"""`search_files`: find lines or names in a tree of files, past what git ignores.

The search runs in a process of its own: a regex, or the rules of a hostile .gitignore, can take for ever
and would hold all threads of ours meanwhile.
"""

import json
import os
import sys
import time
from typing import Any, cast

from hermes_agent.sandbox.child import Child
from hermes_agent.sandbox.sandboxes import Host, Job
from hermes_agent.tools import files, schema
from hermes_agent.tools.base import Args, Call, Result, Tool
from hermes_agent.tools.tree_search import Omissions, Request
from hermes_core.errors import Interrupted, ToolError
from hermes_core.text import truncate

_MAX_HITS = 100
_SNIPPET_LENGTH = 240
_TIMEOUT_S = 30.0
_SOURCE = """import sys
sys.path[:] = sys.argv[1:]
from hermes_agent.tools.tree_search import main
main()"""


def _run(args: Args, call: Call) -> Result:
    top = files.path_of(call, args.get("path", "."))
    if not files.exists(top):
        raise ToolError(f"There is no {top}.", fix="Give a folder or a file that exists.")
    request = Request(
        top=str(top),
        pattern=args["pattern"],
        in_names=bool(args.get("names")),
        glob=args.get("glob", ""),
        place=call.bench.place,
        max_hits=_MAX_HITS + 1,  # one more than is shown, to know that there are more
    )
    job = Job(
        [sys.executable, "-I", "-c", _SOURCE, *filter(os.path.isabs, sys.path)],
        cwd=call.bench.workspace,
        workspace=call.bench.workspace,
        home=call.bench.home.root,
        environment=call.bench.environment,
        takes_input=True,
        splits_errors=True,
    )
    lines, notes = _follow(Host().spawn(call.permit, job), request, call)
    shown_lines = [truncate(line, _SNIPPET_LENGTH) for line in lines[:_MAX_HITS]]
    room = call.bench.settings.tools.output_limit - 300
    while sum(map(len, shown_lines)) + len(shown_lines) > room:
        shown_lines.pop()
    if len(lines) > len(shown_lines):
        notes.append(f"[only the first {len(shown_lines)} are shown; narrow the search]")
    return Result("\n".join([*(shown_lines or ["Nothing found."]), *notes]))


def _follow(child: Child, request: Request, call: Call) -> tuple[list[str], list[str]]:
    """Return the hits, and notes on what they do not tell; raises ToolError."""
    child.deadline = time.monotonic() + _TIMEOUT_S
    output, errors = bytearray(), bytearray()
    child.send(json.dumps(request).encode() + b"\n")
    streams = {child.stdout: output.extend, child.stderr: errors.extend}
    ending = child.follow(streams, call.stop)
    if ending == "stopped":
        raise Interrupted
    hits: list[Any] = [json.loads(line) for line in output.split(b"\n")[:-1]]
    if hits and isinstance(hits[-1], dict):
        return hits[:-1], _notes(cast("Omissions", hits[-1]))
    if ending == "exited":
        raise ToolError(f"The search failed: {errors.decode('utf-8', 'replace')[-500:]}")
    fix = f"Simplify the pattern {truncate(request['pattern'], 100)}, or search a smaller folder."
    if not hits:
        raise ToolError(f"The search did not end in {_TIMEOUT_S:g} s.", fix=fix)
    return hits, [f"[the search was given up after {_TIMEOUT_S:g} s. {fix}]"]


def _notes(omissions: Omissions) -> list[str]:
    error, secret_files = omissions["regex_error"], omissions["secret_files"]
    notes = [f"[searched as plain text, because as a regex: {error}]"] if error else []
    if secret_files:
        notes.append(f"[{secret_files} files that may hold secrets were not searched]")
    return notes


TOOL = Tool(
    name="search_files",
    description="Find a regex in files, or in file names (names=true).",
    parameters=schema.of(
        ["pattern"], pattern="", path="", glob="such as *.py", names={"type": "boolean"}
    ),
    run=_run,
    subject="path",
    is_path=True,
    read_only=True,
    timeout_s=60,
    small=("pattern", "path"),
    one_line="Find a regex in files.",
)
