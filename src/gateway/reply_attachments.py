"""ReplyAttachments: the files that a reply names, each in a line of its own.

A line `MEDIA:/absolute/path` becomes a file; it is removed from the text, or replaced by the reason why
nothing is sent. A file leaves the machine only for people who may read files, and only out of the
workspace; received attachments go to an owner in private only. Anywhere else than to an owner in private
a person is asked first, unless it lies in `outputs` of the workspace.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from gateway.source import SessionSource
from gateway.workspaces import Workspaces
from hermes_agent.approval.danger import Access, Danger, places
from hermes_agent.approval.taint import Sending
from hermes_agent.permissions import Permissions
from hermes_agent.tools import read_file
from hermes_agent.tools.base import Args, Tool, ToolContext
from hermes_agent.turn.events import QuestionAsked
from hermes_core import markdown
from hermes_core.paths import Home, make_folder

MARK = "MEDIA:"
"""Prefix of a line that names a file."""
MAX_FILES = 10
MANNER = (
    "To send the user a file of the workspace, put a line MEDIA:/absolute/path, alone, into your final"
    " reply, one for each file."
)
_OUTPUTS = "outputs"
"""The folder of a workspace for what is to be sent."""
Allow = Callable[[str, bool], bool]
"""Returns whether a file may be sent, by its path and whether it is the turn's own; may ask a person."""


def only_own(_path: str, is_own: bool) -> bool:
    """Allow the files that a turn made or put into `outputs`."""
    return is_own


class ReplyWithFiles(NamedTuple):
    """A reply without its file lines, and its files."""

    text: str
    files: list[str]


class ReplyAttachments:
    """Decides which files are sent."""

    def __init__(
        self,
        home: Home,
        limit_bytes: int,
        permissions_of: Callable[[SessionSource], Permissions],
        workspaces: Workspaces,
    ) -> None:
        self._home = home
        self._limit = limit_bytes
        self._permissions_of = permissions_of
        self._workspaces = workspaces

    def of(
        self,
        text: str,
        place: SessionSource,
        stored: str | None = None,
        allow: Allow = only_own,
    ) -> ReplyWithFiles:
        """Return the text of a reply and the files that may be sent.

        `stored` is the folder that the conversation itself has.
        """
        if MARK not in text:
            return ReplyWithFiles(text, [])
        permissions = self._permissions_of(place)
        workspace = self._workspaces.of(place, permissions.role, stored)
        lines: list[str] = []
        files: list[str] = []
        for line, path in _read(text):
            if path is None:
                lines.append(line)
            elif refusal := self._refusal(path, permissions, workspace, len(files)):
                lines.append(f"[{Path(path).name or path} is not sent: {refusal}.]")
            else:
                real = os.path.realpath(path)
                if permissions.has_notes or allow(real, _is_output(real, workspace)):
                    files.append(real)
                else:
                    lines.append(f"[{Path(path).name} is not sent: it was not approved.]")
        names = ", ".join(Path(file).name for file in files)
        return ReplyWithFiles("\n".join(lines).strip() or (names and f"📎 {names}"), files)

    def save_detail(self, question: QuestionAsked) -> Path:
        """Write what a question is about into a file to send, and return its path."""
        kind = "diff" if question.detail.startswith("--- ") else "txt"
        path = make_folder(self._home.cache / "questions") / f"{question.question_id}.{kind}"
        path.write_text(question.detail, "utf-8")
        return path

    def delete_detail(self, question_id: str) -> None:
        """Delete the file of a question that is closed."""
        for path in (self._home.cache / "questions").glob(f"{question_id}.*"):
            path.unlink(missing_ok=True)

    def _refusal(self, path: str, permissions: Permissions, workspace: Path, so_far: int) -> str:
        """Return why a file is not sent; empty when it is."""
        if not may_send(permissions):
            return "the person who asked may not read files here"
        real = os.path.realpath(path)
        if not Path(path).is_absolute() or not self._is_open(real, permissions, workspace):
            return "only files of the workspace that are not hidden can be sent"
        if not Path(real).is_file():
            return "there is no such file"
        if (size := Path(real).stat().st_size) > self._limit:
            return f"it has {size >> 20} MB, and the limit is {self._limit >> 20} MB"
        return f"{MAX_FILES} files are the limit" if so_far >= MAX_FILES else ""

    def _is_open(self, path: str, permissions: Permissions, workspace: Path) -> bool:
        """Return whether a file may be sent, by its path with every link resolved."""
        place = places.place_of(workspace, self._home.root)
        if places.is_under(path, os.path.realpath(self._home.attachments)):
            return permissions.is_owner and permissions.is_private  # others may have sent it
        if not places.is_under(path, place.workspace) or places.is_of_hermes(path, place):
            return False
        inside = Path(path).relative_to(place.workspace).parts
        is_hidden = any(part.startswith(".") for part in inside)
        return not is_hidden and not places.is_secret(path, place)


def _is_output(path: str, workspace: Path) -> bool:
    return places.is_under(path, str(Path(os.path.realpath(workspace)) / _OUTPUTS))


def _dangers(args: Args, _bench: ToolContext) -> list[Danger]:
    if args["is_own"]:
        return []
    key = f"send_file:{args['chat_id']}:{args['path']}"
    return [Danger("exfiltration", _reason(args), key)]


def _sends(args: Args, _bench: ToolContext, _access: Access) -> Sending | None:
    return Sending(_reason(args), f"chat {args['chat_id']}") if args["is_own"] else None


def _reason(args: Args) -> str:
    return f"Sends {args['path']} to {args['chat_name']}"


SEND_FILE = Tool(
    name="send_file",
    description="Send a file with a reply.",
    parameters={},
    run=lambda _args, _call: "",
    subject="path",
    is_path=True,
    dangers=_dangers,
    reads="",
    sends=_sends,
)
"""Names the sending of a file at the gate and in the policy; no model is offered it."""


def may_send(permissions: Permissions) -> bool:
    """Return whether files of the machine may be sent to a person."""
    return permissions.tools is None or read_file.TOOL.name in permissions.tools


def without(text: str) -> str:
    """Return a reply without its file lines, as a draft shows it."""
    if MARK not in text:
        return text
    return "\n".join(line for line, path in _read(text) if path is None)


def _read(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield the lines of a text, each with the file that it names; code names none."""
    code = markdown.code_lines(text)
    for number, line in enumerate(text.split("\n")):
        words = line.strip()
        is_named = words.startswith(MARK) and number not in code
        yield line, words.removeprefix(MARK).strip().strip("`") if is_named else None
