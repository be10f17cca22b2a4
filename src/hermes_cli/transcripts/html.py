"""Conversations as one HTML file that needs nothing else and runs nothing."""

import base64
import hashlib
import html
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from hermes_cli.transcripts.transcript import Call, Entry, Picture, Transcript
from hermes_core import clock
from hermes_core.markdown import MAX_NESTING
from hermes_core.text import human_size, one_line, truncate

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

_MAX_PICTURES_BYTES = 25_000_000
"""Size of all pictures in one file."""
_MAX_LINE = 140
_NAMES = {"user": "You", "assistant": "Hermes", "system": "System"}

_STYLE = """
:root { color-scheme: light dark; --text: #1c1e21; --page: #ffffff; --soft: #f3f4f6; --line: #d9dce1;
  --quiet: #5f6672; --accent: #2456c7; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e4e6ea; --page: #16181c; --soft: #202329; --line: #363b44; --quiet: #9aa2ae;
    --accent: #8ab0ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 52rem; padding: 2rem 1rem 4rem; color: var(--text);
  background: var(--page); font: 16px/1.55 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 2.5rem 0 .25rem; }
.about, time, .note { color: var(--quiet); font-size: .85rem; }
article { margin: 1.25rem 0; }
article > header { font-weight: 600; margin-bottom: .25rem; }
article > header time { font-weight: 400; margin-left: .5rem; }
.user > .text { background: var(--soft); border-radius: .6rem; padding: .6rem .9rem;
  white-space: pre-wrap; }
.text > :first-child { margin-top: 0; } .text > :last-child { margin-bottom: 0; }
.text h1, .text h2, .text h3, .text h4, .text h5, .text h6 {
  font-size: 1.05rem; margin: 1.2em 0 .4em; }
a { color: var(--accent); }
pre { background: var(--soft); border: 1px solid var(--line); border-radius: .4rem; padding: .7rem;
  overflow-x: auto; font-size: .85rem; line-height: 1.45; overflow-wrap: normal; }
code { font-family: ui-monospace, monospace; font-size: .9em; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid var(--line); padding: .3rem .6rem; text-align: left; }
blockquote { margin-left: 0; padding-left: 1rem; border-left: 3px solid var(--line);
  color: var(--quiet); }
details { margin: .4rem 0; border-left: 3px solid var(--line); padding-left: .7rem; }
summary { cursor: pointer; color: var(--quiet); font-size: .9rem; }
details pre { white-space: pre-wrap; max-height: 30rem; overflow-y: auto; }
img { max-width: 100%; height: auto; border-radius: .4rem; margin: .4rem 0; }
nav ol { padding-left: 1.4rem; }
@media print { details pre { max-height: none; } }
"""


def render(transcripts: Iterable[Transcript], *, full: bool) -> Iterator[str]:
    """Yield the file: one part per conversation. `full` opens the tool calls."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'"
    yield (
        '<!DOCTYPE html>\n<html lang="und">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Conversations</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
    )
    room = _Room(_MAX_PICTURES_BYTES)
    for transcript in transcripts:
        yield from _conversation(transcript, room, full=full)
    yield "</body>\n</html>\n"


class _Room:
    """The bytes of pictures that the file may still take."""

    def __init__(self, size: int) -> None:
        self._size = size

    def takes(self, picture: Picture) -> bool:
        fits = len(picture.data) <= self._size
        self._size -= len(picture.data) * fits
        return fits


def _conversation(transcript: Transcript, room: _Room, *, full: bool) -> Iterator[str]:
    facts = [*transcript.facts, str(transcript.session["id"])]
    yield f"<main>\n<h1>{html.escape(transcript.title)}</h1>\n"
    yield f'<p class="about">{html.escape(" · ".join(facts))}</p>\n'
    for entry in transcript.entries:
        yield from _entry(entry, room, full=full)
    yield "</main>\n"


def _entry(entry: Entry, room: _Room, *, full: bool) -> Iterator[str]:
    name = _NAMES.get(entry.role, entry.role)
    side = "user" if entry.role == "user" else "reply"
    cut = " · cut off" if entry.is_partial else ""
    moment = f"{clock.date(entry.at):%Y-%m-%dT%H:%M:%SZ}"
    yield f'<article class="{side}">\n<header>{html.escape(name)}'
    yield f'<time datetime="{moment}">{clock.local(entry.at)}{cut}</time></header>\n'
    if entry.reasoning:
        yield _details("Reasoning", [entry.reasoning], is_open=full)
    if entry.text.strip():
        text = html.escape(entry.text.strip()) if side == "user" else _markdown(entry.text)
        yield f'<div class="text">{text}</div>\n'
    for picture in entry.pictures:
        yield _picture(picture, room)
    for call in entry.calls:
        yield _details(_line(call), [call.arguments_text(), call.result], is_open=full)
    yield "</article>\n"


def _line(call: Call) -> str:
    """Return a call and the beginning of its result on one line."""
    result = one_line(call.result) if call.is_answered else "no result"
    return truncate(f"{call.name} {truncate(call.summary(), _MAX_LINE // 2)} → {result}", _MAX_LINE)


def _details(summary: str, parts: list[str], *, is_open: bool) -> str:
    texts = "".join(f"<pre>{html.escape(part)}</pre>\n" for part in parts if part)
    mark = " open" if is_open else ""
    return f"<details{mark}><summary>{html.escape(summary)}</summary>\n{texts}</details>\n"


def _picture(picture: Picture, room: _Room) -> str:
    if not room.takes(picture):
        size = human_size(len(picture.data))
        return f'<p class="note">[Picture that is not included: {picture.media_type}, {size}]</p>\n'
    data = base64.b64encode(picture.data).decode()
    return f'<p><img alt="" src="data:{picture.media_type};base64,{data}"></p>\n'


def _markdown(text: str) -> str:
    return _parser().render(text)


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt  # noqa: PLC0415 -- slow to load

    # Pictures of a text are addresses of other machines, which would learn who reads it.
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_NESTING})
    return parser.enable(["table", "strikethrough"]).disable("image")
