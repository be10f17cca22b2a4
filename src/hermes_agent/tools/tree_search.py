"""Runs inside the child of `search_files`: walks a tree and finds a regex, which may take for ever.

Its input is a `Request` in JSON. It prints a line of JSON for every hit as soon as it has it, and in the
end an object with what it left out. Only what it needs is imported: it starts with every search.
"""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from hermes_agent.approval.danger import places
from hermes_agent.sandbox import strict_open
from hermes_agent.tools.ignored import Ignored

_MAX_BYTES = 5 * 1024 * 1024
_MAX_LINE = 2_000
_BINARY_PROBE = 8_192
_SKIPPED = frozenset({
    ".git", ".hg", ".svn", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".nox",
    ".mypy_cache", ".pytest_cache", ".ruff_cache", ".idea", ".cache", "site-packages",
})  # fmt: skip


class Request(TypedDict):
    """The search that is asked for."""

    top: str
    pattern: str
    in_names: bool
    glob: str
    place: tuple[str, ...]
    max_hits: int


class Omissions(TypedDict):
    """Facts that the hits do not show."""

    regex_error: str
    secret_files: int


class Search:
    """One walk through a tree."""

    def __init__(self, request: Request) -> None:
        self._top = Path(request["top"])
        self._place = places.Place(*request["place"])
        self._in_names = request["in_names"]
        self._glob = request["glob"]
        self._max_hits = request["max_hits"]
        self.omissions = Omissions(regex_error="", secret_files=0)
        try:
            self._pattern = re.compile(request["pattern"])
        except (re.error, RecursionError, OverflowError) as error:
            self._pattern = re.compile(re.escape(request["pattern"]))
            self.omissions["regex_error"] = str(error)

    def hits(self) -> Iterator[str]:
        """Return what is found, a line each."""
        count = 0
        for path in self._files():
            name = self._name(path)
            found = [name] if self._in_names and self._pattern.search(name) else []
            for line in found if self._in_names else self._lines(path, name):
                yield line
                count += 1
                if count >= self._max_hits:
                    return

    def _name(self, path: Path) -> str:
        return path.name if path == self._top else str(path.relative_to(self._top))

    def _files(self) -> Iterator[Path]:
        if self._top.is_file():
            yield self._top
            return
        yield from self._below(self._top, Ignored.of(self._top))

    def _below(self, folder: Path, ignored: Ignored) -> Iterator[Path]:
        try:
            fd = strict_open.read_from(str(folder), os.O_DIRECTORY)
        except OSError:
            return
        try:
            entries = sorted(os.scandir(fd), key=lambda entry: entry.name)
            kinds = {entry: entry.is_dir(follow_symlinks=False) for entry in entries}
        finally:
            os.close(fd)
        ignored = ignored.below(folder)
        for entry, is_folder in kinds.items():
            path = folder / entry.name
            if ignored.covers(path, is_folder=is_folder):
                continue
            if is_folder and entry.name not in _SKIPPED:
                yield from self._below(path, ignored)
            elif not is_folder and entry.is_file(follow_symlinks=False) and self._is_wanted(path):
                yield path

    def _is_wanted(self, path: Path) -> bool:
        if self._glob and not (path.match(self._glob) or Path(self._name(path)).match(self._glob)):
            return False
        if not self._in_names and places.is_secret(str(path), self._place):
            self.omissions["secret_files"] += 1
            return False
        return True

    def _lines(self, path: Path, name: str) -> Iterator[str]:
        try:
            with os.fdopen(strict_open.read_from(str(path)), "rb") as file:
                data = file.read(_MAX_BYTES + 1)
        except OSError:
            return
        if len(data) > _MAX_BYTES or b"\0" in data[:_BINARY_PROBE]:
            return
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            if self._pattern.search(line[:_MAX_LINE]):
                yield f"{name}:{number}: {line.strip()}"


def main() -> None:
    """Answer the request on standard input."""
    search = Search(json.loads(sys.stdin.buffer.readline()))
    for hit in search.hits():
        sys.stdout.write(f"{json.dumps(hit)}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{json.dumps(search.omissions)}\n")
