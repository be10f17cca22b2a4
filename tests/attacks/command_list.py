"""Lists of commands that somebody else keeps: plain lines, or the `code` fields of YAML or JSON.

GTFOBins, for one, has a file for each program, with YAML of which some fields are named `code`. That
much is read here without a library: a field's text behind the colon, or the indented block below it.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

_FIELD = re.compile(r"^(?P<indent>[\s-]*)code:\s*(?P<text>.*)$")


def commands_of(path: Path) -> list[str]:
    """Return the commands of a file, or of all files of a folder, each once."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return list(dict.fromkeys(command for file in files for command in commands_of(file)))
    text = path.read_text("utf-8", "replace")
    try:
        found = list(_fields(json.loads(text)))
    except json.JSONDecodeError:
        found = list(_blocks(text.splitlines()))
        if not found and path.suffix not in (".yml", ".yaml", ".md", ".json"):
            found = [line.strip() for line in text.splitlines() if not line.startswith("#")]
    return list(dict.fromkeys(filter(None, found)))


def _fields(value: Any) -> Iterator[str]:
    """Yield texts of a list, and of all fields named `code`, however deep."""
    for item in cast("list[Any]", value) if isinstance(value, list) else ():
        if isinstance(item, str):
            yield item
        else:
            yield from _fields(item)
    for name, item in cast("dict[str, Any]", value).items() if isinstance(value, dict) else ():
        if name == "code" and isinstance(item, str):
            yield item.strip()
        else:
            yield from _fields(item)


def _blocks(lines: list[str]) -> Iterator[str]:
    """Yield the `code` fields of YAML: one line, or a block of deeper lines."""
    for number, line in enumerate(lines):
        found = _FIELD.match(line)
        if found is None:
            continue
        text = found["text"].strip()
        if text[:1] in ("|", ">"):
            yield _block(lines[number + 1 :], len(found["indent"]), ">" in text[:1])
        elif text[:1] in ("'", '"'):
            yield json.loads(text) if text[0] == '"' else text[1:-1].replace("''", "'")
        else:
            yield text


def _block(lines: list[str], indent: int, is_folded: bool) -> str:
    inside: list[str] = []
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) <= indent:
            break
        inside.append(line)
    depth = min((len(line) - len(line.lstrip()) for line in inside if line.strip()), default=0)
    return (" " if is_folded else "\n").join(line[depth:] for line in inside).strip()
