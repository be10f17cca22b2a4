"""`write_file`: put content into a file, as a whole."""

from hermes_agent.tools import files, schema
from hermes_agent.tools.base import Args, Call, Result, Tool

_MAX_BYTES = 50 * 1024 * 1024


def _run(args: Args, call: Call) -> Result:
    path = files.path_of(call, args["path"])
    name = files.display_name(call.bench, path)
    content: str = args["content"]
    data = content.encode("utf-8", "surrogatepass")
    before = files.read_bytes(path, _MAX_BYTES) if files.exists(path) else None
    if before == data:
        return Result(f"{name} has this content already.")
    call.stop.check()
    files.replace(path, data)
    old = "" if before is None or files.is_binary(before) else before.decode("utf-8", "replace")
    lines = content.count("\n") + (not content.endswith("\n") and bool(content))
    done = "Created" if before is None else "Replaced"
    return Result(f"{done} {name}: {lines} lines.", diff=files.diff(name, old, content))


TOOL = Tool(
    name="write_file",
    description="Create or replace a file.",
    parameters=schema.of(["path", "content"], path="", content=""),
    run=_run,
    subject="path",
    is_path=True,
    writes=True,
    timeout_s=30,
    small=("path", "content"),
)
