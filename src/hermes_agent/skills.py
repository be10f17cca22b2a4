"""Skills: instructions that a person keeps in the home and uses as a slash command.

A skill is a folder `skills/NAME` with a file SKILL.md: front matter with `name` and `description`, if
wanted, then what the model is to do. They are looked for whenever somebody asks, so that a new one works
at once; a file is read again only when it has changed.
"""

import logging
import re
import unicodedata
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from hermes_core.errors import ConfigError, UsageError
from hermes_core.paths import Home, write_private
from hermes_core.text import one_line, truncate, visible

logger = logging.getLogger(__name__)

FILE = "SKILL.md"
LARGEST = 64 * 1024
"""Bytes of a SKILL.md: what is more would crowd the conversation out of the model's window."""

_FENCE = "---"
_FOLDED = frozenset({">", ">-", "|", "|-"})
"""What stands in front of a value that follows on lines of its own."""
_COMMAND = re.compile(r"[a-z][a-z0-9-]*")
_MAX_DESCRIPTION = 200

_TEMPLATE = """---
name: {name}
description: Says in one line when to use /{name}.
---
Write here what is to be done, step by step, as you would tell a new colleague.

1. What the person writes after /{name} stands above these instructions: that is what they are for.
2. Say what a good result looks like, and what must not happen.
"""


class Skill(NamedTuple):
    """Instructions with a name."""

    name: str
    """What stands after the slash."""
    description: str
    instructions: str
    path: Path
    """Its SKILL.md."""


class SkillSet(NamedTuple):
    """The skills of a home by name, and why others cannot be used."""

    skills: Mapping[str, Skill]
    broken: list[ConfigError]


def load(home: Home) -> Mapping[str, Skill]:
    """The skills of a home by name; those that cannot be used are left out, with a warning."""
    skills, broken = load_all(home)
    for error in broken:
        _warn(str(error))
    return skills


def load_all(home: Home) -> SkillSet:
    """The skills of a home and what is wrong with others; of two with one name the first counts."""
    skills: dict[str, Skill] = {}
    broken: list[ConfigError] = []
    try:
        paths = _paths(home.skills)
    except OSError as error:
        paths = []
        broken.append(_unreadable(home.skills, error))
    for path in paths:
        skill = _load(path)
        if isinstance(skill, ConfigError):
            broken.append(skill)
        elif (other := skills.setdefault(skill.name, skill)) is not skill:
            message = f"The skill {path} has the name /{skill.name} of {other.path}."
            broken.append(ConfigError(message, fix="Give one of them another `name:`."))
    return SkillSet(dict(sorted(skills.items())), broken)


def slug(name: str) -> str:
    """The command that a name becomes: small letters, digits, and dashes between words."""
    plain = unicodedata.normalize("NFKD", name).lower()
    return re.sub(r"[^a-z0-9-]", "", re.sub(r"[\s_-]+", "-", plain)).strip("-")


def find(name: str, skills: Mapping[str, Skill], reserved: Collection[str]) -> Skill | None:
    """Return the skill that a name stands for, unless a command has the name or that of the skill.

    Some platforms have no dashes in the names of commands, so an underscore stands for one.
    """
    skill = skills.get(slug(name))
    return None if skill is None or name in reserved or skill.name in reserved else skill


def usable(skills: Mapping[str, Skill], reserved: Collection[str]) -> list[Skill]:
    """Return the skills that can be used as commands, beside the commands with the reserved names."""
    return [skill for name, skill in skills.items() if find(name, skills, reserved)]


def prompt(skill: Skill, words: str) -> str:
    """Return the message of a used skill; its name and the person's words come first, for lists."""
    request = f"[skill {skill.name}] {words}".rstrip()
    return (
        f"{request}\n\nFollow the instructions of this skill. Files that they name are in"
        f" {skill.path.parent}.\n\n{skill.instructions}"
    )


def create(home: Home, name: str) -> Path:
    """Write a skill to begin with; returns its file. Raises UsageError when it cannot be."""
    command = slug(name)
    if not _COMMAND.fullmatch(command):
        raise UsageError(
            f"{name!r} is not a valid name for a skill.", fix="Begin it with a letter, a to z."
        )
    path = home.skills / command / FILE
    existing = load_all(home).skills.get(command)
    if existing is not None or path.exists():
        raise UsageError(
            f"There is a skill /{command} already.",
            fix=f"Edit {existing.path if existing else path}.",
        )
    write_private(path, _TEMPLATE.format(name=command))
    return path


def _paths(folder: Path) -> list[Path]:
    try:
        inside = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    return [
        folder / FILE for folder in inside if not folder.name.startswith(".") and folder.is_dir()
    ]


def _load(path: Path) -> Skill | ConfigError:
    try:
        facts = path.stat()
    except FileNotFoundError:
        fix = f"Write one, or take the folder out of {path.parents[1]}."
        return ConfigError(f"The skill {path.parent} has no {FILE}.", fix=fix)
    except OSError as error:
        return _unreadable(path, error)
    return _read(path, facts.st_ctime_ns, facts.st_size)  # the time of any change, of the mode too


@lru_cache(maxsize=1024)
def _read(path: Path, _changed: int, size: int) -> Skill | ConfigError:
    try:
        if not path.is_file():  # a pipe would be waited for
            raise ConfigError(
                f"The skill {path} is not a file.", fix="Put a text file at that path."
            )
        if size > LARGEST:
            raise ConfigError(
                f"The skill {path} has {size:,} bytes; the maximum is {LARGEST:,}.",
                fix="Keep the instructions, and move the rest into files beside it that they name.",
            )
        return _parsed(path, path.read_text("utf-8-sig"))
    except ConfigError as error:
        return error.with_traceback(None)
    except UnicodeDecodeError:
        return ConfigError(f"The skill {path} is not UTF-8 text.", fix="Save it as UTF-8.")
    except OSError as error:
        return _unreadable(path, error)


def _parsed(path: Path, text: str) -> Skill:
    fields, instructions = _split(path, text)
    name = fields.get("name") or path.parent.name
    command = slug(name)
    if not _COMMAND.fullmatch(command):
        raise ConfigError(
            f"The skill {path} has a name that cannot be typed as a command: {name!r}.",
            fix="Give it a `name:` that begins with a letter, a to z.",
        )
    if not instructions:
        raise ConfigError(f"The skill {path} is empty.", fix="Write instructions into it.")
    described = one_line(visible(fields.get("description") or instructions.partition("\n")[0]))
    return Skill(command, truncate(described.lstrip("# "), _MAX_DESCRIPTION), instructions, path)


def _split(path: Path, text: str) -> tuple[dict[str, str], str]:
    """The front matter, as far as it is lines of `key: value`, and what follows it."""
    first, *lines = text.split("\n")
    if first.rstrip() != _FENCE:
        return {}, text.strip()
    fields: dict[str, str] = {}
    key = ""
    for number, line in enumerate(lines):
        if line.rstrip() == _FENCE:
            return fields, "\n".join(lines[number + 1 :]).strip()
        if line[:1].isspace():  # goes on with the value, or is inside of it
            fields[key] = f"{fields.get(key, '')} {line.strip()}".strip()
            continue
        key, _, value = (part.strip() for part in line.partition(":"))
        fields[key] = "" if value in _FOLDED else value.strip("\"'")
    raise ConfigError(
        f"The skill {path} begins with {_FENCE}, and this front matter has no end.",
        fix=f"Put a line {_FENCE} after it.",
    )


def _unreadable(path: Path, error: OSError) -> ConfigError:
    message = f"The skill {path} cannot be read: {error.strerror}."
    return ConfigError(message, fix="Make it readable for you, or move it away.")


@lru_cache(maxsize=256)
def _warn(text: str) -> None:
    """Say it once, though it is found each time somebody looks."""
    logger.warning("%s", text)
