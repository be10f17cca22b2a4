"""`write_file`: put content into a file, as a whole."""

from pathlib import Path

from hermes_agent.tools import files, schema
from hermes_agent.tools.base import Args, Call, Preview, Result, Tool, ToolContext
from hermes_core.errors import ToolDeniedError

_MAX_BYTES = 50 * 1024 * 1024


def _run(args: Args, call: Call) -> Result:
    path = files.path_of(call, args["path"])
    name = files.display_name(call.bench, path)
    content: str = args["content"]
    data = content.encode("utf-8", "surrogatepass")
    before = _content(path)
    files.check_basis(call, before)
    if before == data:
        return Result(f"{name} has this content already.")
    call.stop.check()
    files.replace(path, data)
    old = "" if before is None or files.is_binary(before) else before.decode("utf-8", "replace")
    lines = content.count("\n") + (not content.endswith("\n") and bool(content))
    done = "Created" if before is None else "Replaced"
    return Result(f"{done} {name}: {lines} lines.", diff=files.diff(name, old, content))


def _content(path: Path) -> bytes | None:
    return files.read_bytes(path, _MAX_BYTES) if files.exists(path) else None


def _preview(args: Args, bench: ToolContext, path: str) -> Preview:
    content: str = args["content"]
    before = _content(files.real_path(bench, path))
    basis = files.digest(before)
    if before is None or files.is_hidden(bench, path):
        note = "" if before is None else "(replaces all that is in it, which is not shown here)\n"
        return Preview(note + (files.whole_diff(path, "", content)), basis)
    if files.is_binary(before):
        raise ToolDeniedError(
            f"{path} is a binary file: its change cannot be shown, so nobody can allow it.",
            fix="Write to another file.",
        )
    return Preview(files.whole_diff(path, before.decode("utf-8", "replace"), content), basis)


TOOL = Tool(
    name="write_file",
    description="Create or replace a file.",
    parameters=schema.of(["path", "content"], path="", content=""),
    run=_run,
    subject="path",
    is_path=True,
    writes=True,
    preview=_preview,
    reads="",
    timeout_s=30,
    small=("path", "content"),
)
