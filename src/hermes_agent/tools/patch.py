"""`patch`: replace a passage of a file; one that is not there to the letter is looked for loosely."""

from hermes_agent.tools import files, schema
from hermes_agent.tools.base import Args, Call, Result, Tool
from hermes_agent.tools.passage import Found, closest, find_loosely
from hermes_core.errors import ToolError

_MAX_BYTES = 10 * 1024 * 1024


def _run(args: Args, call: Call) -> Result:
    path = files.path_of(call, args["path"])
    name = files.display_name(call.bench, path)
    data = files.read_bytes(path, _MAX_BYTES)
    if files.is_binary(data):
        raise ToolError(f"{name} is not a text file.", fix="Change it with terminal.")
    # Bytes that are not UTF-8 pass through unharmed.
    text = data.decode("utf-8", "surrogateescape")
    has_crlf = "\r\n" in text and "\n" not in text.replace("\r\n", "")
    before = text.replace("\r\n", "\n") if has_crlf else text
    after, note = _patched(before, args, name)
    call.stop.check()
    written = after.replace("\n", "\r\n") if has_crlf else after
    files.replace(path, written.encode("utf-8", "surrogateescape"))
    return Result(f"Patched {name}{note}.", diff=files.diff(name, _clean(before), _clean(after)))


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
    timeout_s=60,
    small=("path", "old", "new"),
    one_line="Replace the text old by new in a file.",
)
