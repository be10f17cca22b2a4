"""Conversations as Markdown for people."""

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from hermes_cli.transcripts.transcript import Call, Entry, Transcript
from hermes_core import clock
from hermes_core.markdown import MAX_NESTING, blocks, code_lines, fenced
from hermes_core.text import human_size, one_line, truncate

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_NAMES = {"user": "You", "assistant": "Hermes", "system": "System"}
_MAX_CALL = 100
_MAX_RESULT = 120
_HEADING = re.compile(r"^( {0,3})(#{1,6})(?=\s|$)")
_TAG = re.compile(r"(?<!\\)<(?=[a-zA-Z/!?])")
_MAX_ROUNDS = 5
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|])")


def render(transcript: Transcript, *, full: bool) -> Iterator[str]:
    """Yield a conversation as Markdown; tool calls take one line each unless `full`."""
    row = transcript.session
    yield f"# {escaped(transcript.title)}\n"
    yield f"\n{about(transcript)}  \nSession `{row['id']}`\n"
    for entry in transcript.entries:
        cut = ", cut off" if entry.is_partial else ""
        name = escaped(_NAMES.get(entry.role, entry.role))
        yield f"\n## {name} · {clock.local(entry.at)}{cut}\n"
        yield from _body(entry, full=full)


def about(transcript: Transcript) -> str:
    """Return the facts about a conversation on one line."""
    return " · ".join(map(escaped, transcript.facts))


def _body(entry: Entry, *, full: bool) -> Iterator[str]:
    if full and entry.reasoning:
        yield f"\n*Reasoning*\n\n{fenced(entry.reasoning)}\n"
    if entry.text.strip():
        yield f"\n{contained(entry.text.strip())}\n"
    for picture in entry.pictures:
        yield f"\n*[Picture: {picture.media_type}, {human_size(len(picture.data))}]*\n"
    if full:
        yield from map(_whole, entry.calls)
    elif entry.calls:
        yield "\n" + "".join(f"- {_folded(call)}\n" for call in entry.calls)


def _folded(call: Call) -> str:
    arguments = truncate(call.summary(), _MAX_CALL)
    result = truncate(one_line(call.result), _MAX_RESULT) if call.is_answered else "no result"
    return f"**{escaped(call.name)}** {code(arguments)}{f' → {code(result)}' if result else ''}"


def _whole(call: Call) -> str:
    result = fenced(call.result) if call.is_answered else "No result."
    return f"\n**{escaped(call.name)}**\n\n{fenced(call.arguments_text())}\n\n{result}\n"


def escaped(text: str) -> str:
    """Return a text on one line in which nothing is markup."""
    return _SPECIAL.sub(r"\\\1", one_line(text))


def code(text: str) -> str:
    """Return a text as a code span that nothing in it can end."""
    if not text:
        return "` `"
    marks = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    blank = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{marks}{blank}{text}{blank}{marks}"


def contained(text: str) -> str:
    """Return the Markdown of a message so that it cannot change what surrounds it.

    Its headings become smaller than those of the transcript, HTML becomes text, and an open block of
    code is closed.
    """
    lines = _without_html(text).split("\n")
    code_at = code_lines("\n".join(lines))
    found = blocks("\n".join(lines))
    for number, line in enumerate(lines):
        if number not in code_at:
            lines[number] = _HEADING.sub(_smaller, line)
    for block in found:
        if block.kind == "heading" and block.end - block.start > 1:  # with a line below
            lines[block.end - 1] = ""
            lines[block.start] = f"### {lines[block.start].lstrip()}"
    whole = "\n".join(lines)
    choices = (whole, f"{whole}\n{found[-1].marks if found else ''}", fenced(text))
    return next(choice for choice in choices if _ends(choice))


def _without_html(text: str) -> str:
    """Escape the HTML of a message; code stays as it is, unless HTML is beside it."""
    for _ in range(_MAX_ROUNDS):
        lines = text.split("\n")
        places = _html_lines(text)
        if not places:
            return text
        for number in places & set(range(len(lines))):
            lines[number] = _TAG.sub(r"\\<", lines[number])
        text = "\n".join(lines)
    return fenced(text)


def _html_lines(text: str) -> set[int]:
    """Return the numbers of the lines of all paragraphs and blocks with HTML."""
    found: set[int] = set()
    for token in _parser().parse(text):
        kinds = {token.type, *(child.type for child in token.children or ())}
        if kinds & {"html_block", "html_inline"}:
            begin, end = token.map or (0, text.count("\n") + 1)
            found |= set(range(begin, end))
    return found


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # noqa: PLC0415 -- slow to load

    return MarkdownIt("commonmark", {"html": True, "maxNesting": MAX_NESTING}).enable("table")


def _ends(text: str) -> bool:
    """Return whether a heading behind this text is one."""
    last = blocks(f"{text}\n\n## End")[-1]
    return last.kind == "heading" and last.start == text.count("\n") + 2


def _smaller(match: re.Match[str]) -> str:
    return match[1] + "#" * min(len(match[2]) + 2, 6)
