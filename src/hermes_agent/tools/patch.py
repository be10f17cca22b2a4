"""`patch`: replace a passage of a file; one that is not there to the letter is looked for loosely."""

from pathlib import Path
from typing import NamedTuple

from hermes_agent.tools import files, schema
from hermes_agent.tools.base import Args, Call, Preview, Result, Tool, ToolContext
from hermes_agent.tools.passage import Found, closest, find_loosely
from hermes_core.errors import ToolError

_MAX_BYTES = 10 * 1024 * 1024


class _Change(NamedTuple):
    """A file before and after, and how the passage was found."""

    data: bytes
    before: str
    after: str
    note: str
    has_crlf: bool


def _run(args: Args, call: Call) -> Result:
    path = files.path_of(call, args["path"])
    name = files.display_name(call.bench, path)
    is_exact = files.is_hidden(call.bench, call.permit.path)
    change = _change(args, path, name, is_exact=is_exact)
    files.check_basis(call, change.data)
    call.stop.check()
    after = change.after.replace("\n", "\r\n") if change.has_crlf else change.after
    files.replace(path, after.encode("utf-8", "surrogateescape"))
    diff = files.diff(name, _clean(change.before), _clean(change.after))
    return Result(f"Patched {name}{change.note}.", diff=diff)


def _change(args: Args, path: Path, name: str, *, is_exact: bool) -> _Change:
    data = files.read_bytes(path, _MAX_BYTES)
    if files.is_binary(data):
        raise ToolError(f"{name} is not a text file.", fix="Change it with terminal.")
    # Bytes that are not UTF-8 pass through unharmed.
    text = data.decode("utf-8", "surrogateescape")
    has_crlf = "\r\n" in text and "\n" not in text.replace("\r\n", "")
    before = text.replace("\r\n", "\n") if has_crlf else text
    if is_exact and args["old"].replace("\r\n", "\n") not in before:
        # What is close to it would tell of a file that may hold secrets.
        raise ToolError(f"The passage is not in {name} to the letter.")
    after, note = _patched(before, args, name)
    return _Change(data, before, after, note, has_crlf)


def _preview(args: Args, bench: ToolContext, path: str) -> Preview:
    if files.is_hidden(bench, path):
        # Whether the passage is there is not told before somebody said yes.
        where = "each time it is there" if args.get("replace_all") else "where it is there once"
        passage = files.whole_diff(path, args["old"], args["new"])
        return Preview(
            f"(this passage, {where}; the rest of the file is not shown here)\n{passage}"
        )
    real = files.real_path(bench, path)
    change = _change(args, real, files.display_name(bench, real), is_exact=False)
    text = files.whole_diff(path, _clean(change.before), _clean(change.after))
    return Preview(text, files.digest(change.data))


def _clean(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _patched(text: str, args: Args, name: str) -> tuple[str, str]:
    """The new text, and what is to be said about how it was found."""
    old, new = args["old"].replace("\r\n", "\n"), args["new"].replace("\r\n", "\n")
    if not old:
        raise ToolError("The passage to replace is empty.", fix="Use write_file for a whole file.")
    if old == new:
        raise ToolError("The passage would stay the same.", fix="Give a different new text.")
    count = text.count(old)
    if count > 1 and not args.get("replace_all"):
        lines = ", ".join(map(str, _line_numbers(text, old)))
        raise ToolError(
            f"The passage is in {name} {count} times, in lines {lines}.",
            fix="Give more of what stands around it, or replace_all=true.",
        )
    if count:
        return text.replace(old, new), f" in {count} places" if count > 1 else ""
    return _patched_loosely(text, old, new, name)


def _patched_loosely(text: str, old: str, new: str, name: str) -> tuple[str, str]:
    found = find_loosely(text, old, new)
    if isinstance(found, Found):
        after = text[: found.begin] + found.replacement + text[found.end :]
        if after == text:
            raise ToolError(f"{name} has the new text already.")
        return after, f"; the passage was found loosely ({found.how}), check the result"
    if found > 1:
        raise ToolError(
            f"The passage is not in {name} to the letter, and {found} places are like it.",
            fix="Give the exact text, with more of what stands around it.",
        )
    hint = closest(text, old)
    raise ToolError(f"The passage is not in {name}.", fix=f"Read the file again.{hint}")


def _line_numbers(text: str, old: str, most: int = 5) -> list[int]:
    numbers: list[int] = []
    at = text.find(old)
    while at >= 0 and len(numbers) < most:
        numbers.append(text.count("\n", 0, at) + 1)
        at = text.find(old, at + len(old))
    return numbers


TOOL = Tool(
    name="patch",
    description="Replace a passage of a file; old must occur once, to the letter.",
    parameters=schema.of(
        ["path", "old", "new"], path="", old="", new="", replace_all={"type": "boolean"}
    ),
    run=_run,
    subject="path",
    is_path=True,
    writes=True,
    preview=_preview,
    timeout_s=60,
    small=("path", "old", "new"),
    one_line="Replace the text old by new in a file.",
)
