"""`memory`: short notes that last beyond a conversation, one a line, in two files of the home."""

from pathlib import Path

from hermes_agent.approval import taint
from hermes_agent.permissions import has_notes
from hermes_agent.tools import schema
from hermes_agent.tools.base import Args, Call, Result, Tool
from hermes_agent.tools.files import diff
from hermes_core.errors import ToolDeniedError, ToolError
from hermes_core.paths import folder_lock, make_folder, write_private
from hermes_core.text import one_line, visible

_FILES = {"memory": ("MEMORY.md", 4_000), "user": ("USER.md", 2_000)}
"""Name and most characters of each: they are part of every new prompt."""
_MAX_NOTE = 500


def _run(args: Args, call: Call) -> Result:
    if not has_notes(call.bench.permissions):
        raise ToolDeniedError("The notes belong to the owner, and this chat is not theirs alone.")
    name, most = _FILES[args.get("about", "memory")]
    path = call.bench.home.memories / name
    if args["action"] == "show":
        return Result(_read(path).strip() or "There are no notes.")
    with folder_lock(make_folder(call.bench.home.memories)):
        before = _read(path)
        notes = _notes(before)
        _ACTIONS[args["action"]](notes, args)
        after = "".join(f"- {note}\n" for note in notes)
        if len(after) > most:
            raise ToolError(
                f"{name} would have {len(after)} characters; the maximum is {most}.",
                fix="Remove or shorten notes first; show lists them.",
            )
        write_private(path, after)
    used = f"{len(after)} of {most} characters used"
    return Result(f"Noted in {name}: {len(notes)} notes, {used}.", diff=diff(name, before, after))


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ToolError(f"{path} cannot be read: {error.strerror}.") from error


def _notes(text: str) -> list[str]:
    """One a line; what a person wrote there by hand is kept as notes too."""
    lines = (line.strip().removeprefix("- ").strip() for line in text.splitlines())
    return [line for line in lines if line]


def _add(notes: list[str], args: Args) -> None:
    note = _text(args)
    if note in notes:
        raise ToolError("This is noted already.")
    notes.append(note)


def _replace(notes: list[str], args: Args) -> None:
    notes[_position(notes, args)] = _text(args)


def _remove(notes: list[str], args: Args) -> None:
    del notes[_position(notes, args)]


_ACTIONS = {"add": _add, "replace": _replace, "remove": _remove}


def _text(args: Args) -> str:
    note = one_line(visible(args.get("text", "")))
    if not note:
        raise ToolError("The note is empty.", fix="Give it in text.")
    if len(note) > _MAX_NOTE:
        raise ToolError(
            f"The note has {len(note)} characters.", fix=f"Keep it to {_MAX_NOTE}, or make two."
        )
    return note


def _position(notes: list[str], args: Args) -> int:
    """The one note that has the words of `old` in it."""
    words = one_line(args.get("old", ""))
    if not words:
        raise ToolError("No note is named.", fix="Give words of it in old.")
    found = [at for at, note in enumerate(notes) if words in note]
    if len(found) != 1:
        what = f"{len(found)} notes have" if found else "No note has"
        raise ToolError(
            f"{what} {words!r}.", fix="Give words that only the one has; show lists them."
        )
    return found[0]


TOOL = Tool(
    name="memory",
    description="Lasting notes, in every new prompt: about your work (memory) or the user (user).",
    parameters=schema.of(
        ["action"],
        action={"type": "string", "enum": ["add", "replace", "remove", "show"]},
        about={"type": "string", "enum": ["memory", "user"]},
        text="",
        old="words of the note to change",
    ),
    run=_run,
    reads=lambda _args, _bench, _access: [taint.NOTES],
    persists=lambda args: args["action"] != "show",
    timeout_s=15,
    reads_notes=True,
    small=("action", "text"),
    one_line="Note something for later conversations.",
)
