"""What git would not look at: the rules of .gitignore files, as far as everyday ones go."""

import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple


class Rule(NamedTuple):
    """One line of a .gitignore."""

    pattern: re.Pattern[str]
    """Compared with the path relative to the folder of the file it stands in."""
    only_folders: bool
    brings_back: bool


class Ignored(NamedTuple):
    """The rules that hold in a folder: its own and those of the folders above."""

    rules: tuple[tuple[Path, Rule], ...] = ()

    @classmethod
    def of(cls, top: Path) -> "Ignored":
        """The rules of the folders above, up to the one with the repository."""
        above: list[Path] = []
        for folder in (top, *top.parents):
            if folder != top:
                above.append(folder)
            if (folder / ".git").exists():
                break
        else:
            above = []
        ignored = cls()
        for folder in reversed(above):
            ignored = ignored.below(folder)
        return ignored

    def below(self, folder: Path) -> "Ignored":
        """With the rules of this folder's own file."""
        try:
            text = (folder / ".gitignore").read_text("utf-8", "replace")
        except OSError:
            return self
        rules = (rule for line in text.splitlines() if (rule := _rule(line)) is not None)
        return Ignored((*self.rules, *((folder, rule) for rule in rules)))

    def covers(self, path: Path, *, is_folder: bool) -> bool:
        """Return whether git would pass it by; the last rule that fits decides."""
        for folder, rule in reversed(self.rules):
            if rule.only_folders and not is_folder:
                continue
            if rule.pattern.fullmatch(path.relative_to(folder).as_posix()):
                return not rule.brings_back
        return False


def _rule(line: str) -> Rule | None:
    text = line.rstrip("\n").rstrip()
    if not text or text.startswith("#"):
        return None
    brings_back = text.startswith("!")
    text = text[1:] if brings_back else text
    only_folders = text.endswith("/")
    text = text.rstrip("/")
    if not text:
        return None
    return Rule(_compiled(text), only_folders, brings_back)


@lru_cache(maxsize=512)
def _compiled(text: str) -> re.Pattern[str]:
    """A rule with a slash is anchored to its folder; without one it holds at any depth."""
    anchored = "/" in text
    text = text.lstrip("/")
    source = "" if anchored else "(?:.*/)?"
    at = 0
    while at < len(text):
        if text.startswith("**/", at):
            source += "(?:.*/)?"
            at += 3
        elif text.startswith("**", at):
            source += ".*"
            at += 2
        else:
            piece, at = _piece(text, at)
            source += piece
    return re.compile(source)


def _piece(text: str, at: int) -> tuple[str, int]:
    character = text[at]
    if character == "*":
        return "[^/]*", at + 1
    if character == "?":
        return "[^/]", at + 1
    end = text.find("]", at + 2) if character == "[" else -1
    if end > 0:
        inner = text[at + 1 : end].replace("\\", "\\\\")
        return f"[{'^' + inner[1:] if inner[0] in '!^' else inner}]", end + 1
    if character == "\\" and at + 1 < len(text):
        return re.escape(text[at + 1]), at + 2
    return re.escape(character), at + 1
