"""Complete the typed text: file names and slash commands."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from hermes_agent import commands, skills
from hermes_cli import plugins
from hermes_core.paths import Home
from hermes_core.text import human_size
from hermes_protocol.results import Item, Items
from hermes_state.ledger import listing
from hermes_state.values import Filter
from tui_gateway import folder
from tui_gateway.methods.commands import COMMANDS
from tui_gateway.params import Params, says
from tui_gateway.runtime import Runtime
from tui_gateway.skill_commands import usable

_MAX_ITEMS = 30
_MAX_ENTRIES = 20_000
_DEEPEST = 12
_LEFT_OUT = frozenset(
    {".git", ".venv", "node_modules", "__pycache__", ".mypy_cache", ".ruff_cache"}
)


class PathWord(Params, frozen=True):
    """A word that may be a file."""

    word: Annotated[
        str, says("The typed text; with @ in front, a file anywhere in the folder.")
    ] = ""
    cwd: Annotated[str, says("The folder; the default is that of the session or the server.")] = ""
    session_id: Annotated[str, says("The open session, for its folder.")] = ""


def path(rt: Runtime, params: PathWord) -> Items:
    """Complete a word to files: by their path, or after an @ by any part of their name."""
    cwd = _folder(rt, params)
    if not params.word.startswith("@"):
        return Items(list(_by_path(params.word, cwd, "")))
    word = params.word[1:].removeprefix("file:")
    if "/" in word or word.startswith(("~", ".")):
        return Items(list(_by_path(word, cwd, "@")))
    return Items(_by_name(word, cwd))


def _folder(rt: Runtime, params: PathWord) -> Path:
    session = rt.sessions.get(params.session_id)
    own = rt.live(session).cwd if session is not None else folder.current()
    named = (own / Path(params.cwd).expanduser()) if params.cwd else own
    return named if _is_folder(named) else own


def _is_folder(place: Path) -> bool:
    try:
        return place.is_dir()
    except (OSError, ValueError):
        return False


def _by_path(word: str, cwd: Path, sign: str) -> Iterator[Item]:
    head, slash, start = word.rpartition("/")
    try:
        folder = cwd / Path(head + slash).expanduser() if head + slash else cwd
        entries = sorted(os.scandir(folder), key=lambda e: (not e.is_dir(), e.name))
    except (OSError, ValueError, RuntimeError):
        return
    found = [e for e in entries if e.name.startswith(start) and (start or e.name[0] != ".")]
    for entry in found[:_MAX_ITEMS]:
        name = entry.name + ("/" if entry.is_dir() else "")
        meta = "folder" if entry.is_dir() else _size(entry)
        yield Item(f"{sign}{head}{slash}{name}", name, meta)


def _size(entry: os.DirEntry[str]) -> str:
    try:
        size = entry.stat().st_size
    except OSError:
        return ""
    return human_size(size)


def _by_name(word: str, cwd: Path) -> list[Item]:
    """Return files and folders in the folder and below, best match of the name first."""
    ranked: list[tuple[int, int, str]] = []
    for relative in _below(cwd):
        rank = _rank(relative.rstrip("/").lower(), word.lower())
        if rank is not None:
            ranked.append((rank, len(relative), relative))
    ranked.sort()
    return [_named(name) for _, _, name in ranked[:_MAX_ITEMS]]


def _named(name: str) -> Item:
    """Return the item of a file, or of a folder, whose name ends with a slash."""
    parent, _, own = name.rstrip("/").rpartition("/")
    return Item(f"@{name}", f"{own}{'/' * name.endswith('/')}", parent)


def _rank(name: str, word: str) -> int | None:
    """Rank a name for a word; None when its letters are not in it in this order."""
    own = name.rpartition("/")[2]
    for rank, fits in enumerate((own.startswith(word), word in own, word in name)):
        if fits:
            return rank
    letters = iter(name)
    return 3 if all(letter in letters for letter in word) else None


def _below(cwd: Path) -> Iterator[str]:
    looked_at = 0
    for place, folders, files in os.walk(cwd):
        relative = os.path.relpath(place, cwd)
        folders[:] = sorted(
            name for name in folders if name not in _LEFT_OUT and not name.startswith(".")
        )
        if relative.count(os.sep) >= _DEEPEST:
            folders.clear()
        for name in (*(f"{name}/" for name in folders), *sorted(files)):
            looked_at += 1
            if looked_at > _MAX_ENTRIES:
                return
            yield name if relative == "." else f"{relative}/{name}"


class SlashText(Params, frozen=True):
    """A line that begins with a slash."""

    text: Annotated[str, says("The typed text.")] = ""


def slash(rt: Runtime, params: SlashText) -> Items:
    """Complete a line to commands; after /resume, to conversations."""
    rt.assembly()  # loads the plugins, which may have commands
    text = params.text
    if not text.startswith("/"):
        return Items([], len(text))
    name, blank, argument = text[1:].partition(" ")
    if blank:
        return Items(_arguments(rt, name, argument), len(name) + 2)
    return Items(list(_commands(name, rt.home)), 1)


def _commands(start: str, home: Home) -> Iterator[Item]:
    helps = {command.name: command.help for command in COMMANDS}
    helps |= {alias: f"/{row.name}" for row in COMMANDS for alias in row.aliases}
    helps |= {row.name: row.description for row in plugins.commands("rpc").values()}
    helps |= {skill.name: skill.description for skill in usable(skills.load(home))}
    for name in sorted(helps):
        if name.startswith(start.lower()):
            yield Item(name, f"/{name}", helps[name])


def _arguments(rt: Runtime, name: str, start: str) -> list[Item]:
    command = commands.find(name)
    if command is None or command.name != "resume":
        return []
    rows = rt.db().read(listing.select, Filter(search_query=start or None), limit=_MAX_ITEMS)
    return [Item(row["id"], row["title"] or row["preview"] or row["id"], row["id"]) for row in rows]
