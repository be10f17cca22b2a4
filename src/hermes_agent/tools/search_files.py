"""`search_files`: find lines or names in a tree of files, past what git ignores."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from hermes_agent.approval.danger import places
from hermes_agent.tools import files, schema
from hermes_agent.tools.base import Args, Call, Result, Tool
from hermes_agent.tools.ignored import Ignored
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ToolError
from hermes_core.text import truncate

_MAX_HITS = 100
_MAX_BYTES = 5 * 1024 * 1024
_MAX_LINE = 2_000
_SNIPPET_LENGTH = 240
_SKIPPED = frozenset({
    ".git", ".hg", ".svn", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".nox",
    ".mypy_cache", ".pytest_cache", ".ruff_cache", ".idea", ".cache", "site-packages",
})  # fmt: skip


def _run(args: Args, call: Call) -> Result:
    top = files.resolve(call.bench, args.get("path", "."))
    if not top.exists():
        raise ToolError(f"There is no {top}.", fix="Give a folder or a file that exists.")
    place = places.place_of(call.bench.workspace, call.bench.home.root)
    search = _Search(top, args, place, call.stop)
    lines = list(search.hits())
    shown_lines = [truncate(line, _SNIPPET_LENGTH) for line in lines[:_MAX_HITS]]
    room = call.bench.settings.tools.output_limit - 200
    while sum(map(len, shown_lines)) + len(shown_lines) > room:
        shown_lines.pop()
    notes = search.notes()
    if len(lines) > len(shown_lines):
        notes.append(f"[only the first {len(shown_lines)} are shown; narrow the search]")
    return Result("\n".join([*(shown_lines or ["Nothing found."]), *notes]))


class _Search:
    def __init__(self, top: Path, args: Args, place: places.Place, stop: Stop) -> None:
        self._top = top
        self._place = place
        self._stop = stop
        self._in_names = bool(args.get("names"))
        self._glob = args.get("glob", "")
        self._secret = 0
        try:
            self._pattern = re.compile(args["pattern"])
            self._note = ""
        except re.error as error:
            self._pattern = re.compile(re.escape(args["pattern"]))
            self._note = f"[searched as plain text, because as a regex: {error}]"

    def hits(self) -> Iterator[str]:
        """Return what was found, a line each, and one more than is shown to know that there are more."""
        count = 0
        for path in self._files():
            name = self._name(path)
            found = [name] if self._in_names and self._pattern.search(name) else []
            for line in found if self._in_names else self._lines(path, name):
                yield line
                count += 1
                if count > _MAX_HITS:
                    return

    def notes(self) -> list[str]:
        notes = [self._note] if self._note else []
        if self._secret:
            notes.append(f"[{self._secret} files that may hold secrets were not searched]")
        return notes

    def _name(self, path: Path) -> str:
        return path.name if path == self._top else str(path.relative_to(self._top))

    def _files(self) -> Iterator[Path]:
        if self._top.is_file():
            yield self._top
            return
        yield from self._below(self._top, Ignored.of(self._top))

    def _below(self, folder: Path, ignored: Ignored) -> Iterator[Path]:
        self._stop.check()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            return
        ignored = ignored.below(folder)
        for entry in entries:
            path = Path(entry.path)
            is_folder = entry.is_dir(follow_symlinks=False)
            if ignored.covers(path, is_folder=is_folder):
                continue
            if is_folder and entry.name not in _SKIPPED:
                yield from self._below(path, ignored)
            elif entry.is_file(follow_symlinks=False) and self._is_wanted(path):
                yield path

    def _is_wanted(self, path: Path) -> bool:
        if self._glob and not (path.match(self._glob) or Path(self._name(path)).match(self._glob)):
            return False
        if not self._in_names and places.is_secret(str(path), self._place):
            self._secret += 1
            return False
        return True

    def _lines(self, path: Path, name: str) -> Iterator[str]:
        self._stop.check()
        try:
            if path.stat().st_size > _MAX_BYTES:
                return
            data = path.read_bytes()
        except OSError:
            return
        if files.is_binary(data):
            return
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            if self._pattern.search(line[:_MAX_LINE]):
                yield f"{name}:{number}: {line.strip()}"


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
