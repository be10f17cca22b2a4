"""The entries of a transcript as plain values; widgets are made of them when they are seen."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hermes_core import markdown
from hermes_core.text import one_line
from hermes_protocol import results
from hermes_tui import wire

_KEPT_OUTPUT = 200_000
_REMARK = re.compile(r"\[.*\]")
"""What Hermes adds to the output of a command, such as its exit code."""
_DENIED = "The user did not allow this call."
_ITEM = re.compile(r"^- \[([ x~])\] (.*)$", re.MULTILINE)
STOPPED = "Stopped."
_PART = 1500
"""Characters of a reply from which on it is parted."""


@dataclass(eq=False)
class UserMessage:
    """A message of a person."""

    text: str
    images: list[str] = field(default_factory=list)
    is_sent: bool = True
    """False until the server has it on disk."""
    whole: str = ""
    """What the server was told, when that is more than is shown."""
    pastes: dict[str, str] = field(default_factory=dict)
    """What is shown of pasted texts, and those texts."""
    mentions: list[str] = field(default_factory=list)
    """The names of files that go along."""
    files: list[str] = field(default_factory=list)
    """What is shown of them: their names with their sizes."""
    busy: str = ""
    """What becomes of it while a turn runs; empty: what the settings say."""

    @classmethod
    def of(cls, whole: str, busy: str = "", images: Sequence[str] = ()) -> "UserMessage":
        """A message that was made elsewhere: said as it is, and shown as it may be."""
        return cls(wire.clean(whole), list(images), whole=whole, busy=busy)

    def matches(self, text: str) -> bool:
        """Return whether the server knows this message as `text`."""
        return wire.clean(self.whole or self.text).strip() == wire.clean(text).strip()


@dataclass(eq=False)
class Reply:
    """Text of the model between two tool calls, or a part of it when it is long."""

    text: str = ""
    is_done: bool = True
    is_continued: bool = False
    """Whether the entry before is the part before."""


@dataclass(eq=False)
class Thought:
    """Reasoning of the model."""

    text: str = ""
    is_done: bool = True
    seconds: float | None = None


CallState = Literal["running", "done", "failed", "denied"]


@dataclass(eq=False)
class Call:
    """A tool call with what it shows while it runs and what came of it."""

    tool_id: str
    name: str
    context: str = ""
    arguments: str = ""
    output: str = ""
    result: str = ""
    diff: str = ""
    summary: str = ""
    seconds: float | None = None
    state: CallState = "running"

    def end(self, *, is_error: bool, exit_code: int | None, refusal: str | None = None) -> None:
        """Mark the call as ended; a command with an exit code other than 0 has failed."""
        self.state = "denied" if refusal else "failed" if is_error or exit_code else "done"
        self.summary = refusal or (f"exit code {exit_code}" if exit_code else "")

    def stop(self) -> None:
        """Mark a call that runs as stopped with its turn."""
        self.state, self.summary = "failed", "stopped"

    @property
    def reason(self) -> str:
        """Return in one line why it failed: how an error begins, or how a command's output ends."""
        if self.state not in ("failed", "denied"):
            return ""
        lines = [line for line in self.result.splitlines() if line.strip()]
        lines = [line for line in lines if not _REMARK.fullmatch(line.strip())]
        if not lines or lines[0] == _DENIED:
            return ""
        return one_line(lines[-1 if self.summary.startswith("exit") else 0])

    @property
    def checklist(self) -> list[tuple[str, str]]:
        """The items of the list that `todo` keeps, each with its mark: done, being done, or open."""
        if self.name != "todo":
            return []
        return [(found[1], found[2]) for found in _ITEM.finditer(self.result)]

    def add_output(self, text: str) -> None:
        self.output = (self.output + text)[-_KEPT_OUTPUT:]


Tone = Literal["info", "warning", "error", "command"]
"""How something is said; a command is what the person typed."""


@dataclass(eq=False)
class Note:
    """Something the interface or the server has to say."""

    text: str
    tone: Tone = "info"
    fix: str = ""


@dataclass(eq=False)
class Welcome:
    """The first words in a new conversation: who answers, and where it works."""

    model: str = ""
    cwd: str = ""
    unanswered: int = 0
    """How many other conversations were left in the middle."""


@dataclass(eq=False)
class Divider:
    """A line between two parts, such as before and after a compaction."""

    text: str
    detail: str = ""


Entry = UserMessage | Reply | Thought | Call | Note | Divider | Welcome


def from_messages(messages: Iterable[results.Message]) -> list[Entry]:
    """The entries that stored messages are shown as."""
    return [entry for message in messages for entry in _entries_of(message)]


def _entries_of(message: results.Message) -> list[Entry]:
    return [*_content_of(message), *_end_of_turn(message)]


def _end_of_turn(message: results.Message) -> list[Note]:
    """Return the note for a turn that ended without an answer."""
    if message.status == "error":
        return [Note(message.error or "The turn failed.", "error")]
    if message.status == "interrupted":
        return [Note(STOPPED)]
    return [Note("Stopped here.")] if message.kind == "partial" else []


def _content_of(message: results.Message) -> Sequence[Entry]:
    text = message.text or ""
    if message.kind == "summary":
        return [Divider("earlier messages were compacted", text)]
    if message.role == "user":
        return [UserMessage(text, list(message.images or ()), files=list(message.files or ()))]
    if message.role == "assistant":
        thought: list[Entry] = [Thought(message.reasoning)] if message.reasoning else []
        return [*thought, *replies_of(text)]
    if message.role == "tool":
        return [_call_of(message)]
    return [Note(text)] if text.strip() else []


def replies_of(text: str) -> list[Reply]:
    """A text of the model in parts that are quick to draw."""
    replies: list[Reply] = []
    while text.strip():
        place = split_point(text) or len(text)
        replies.append(Reply(text[:place], is_continued=bool(replies)))
        text = text[place:]
    return replies


def last_reply(entries: Sequence[Entry]) -> list[Reply]:
    """The last reply, in its parts; empty when there is none."""
    parts: list[Reply] = []
    for entry in reversed(entries):
        if isinstance(entry, Reply):
            parts.insert(0, entry)
            if not entry.is_continued:
                break
    return parts


def split_point(text: str) -> int | None:
    """Return where a long text can be parted: before a paragraph at the margin."""
    if len(text) < _PART:
        return None
    for place in markdown.breaks(text):
        if place >= _PART and text[place : place + 1].strip():
            return place
    return None


def lines_of(entry: Entry, columns: int) -> int:
    """About how many lines of the screen an entry takes."""
    if isinstance(entry, UserMessage | Reply | Note):
        lines = entry.text.split("\n")
        return 2 + sum(1 + len(line) // max(columns, 20) for line in lines)
    if isinstance(entry, Call):
        return 1 + min(entry.diff.count("\n"), 20) + bool(entry.reason) + len(entry.checklist)
    return 8 if isinstance(entry, Welcome) else 2


def _call_of(message: results.Message) -> Call:
    call = Call(
        "",
        message.name or "tool",
        message.context or "",
        result=message.result_text or message.text or "",
        diff=message.inline_diff or "",
        seconds=message.duration_s,
    )
    call.end(is_error=bool(message.is_error), exit_code=message.exit_code, refusal=message.refusal)
    return call
