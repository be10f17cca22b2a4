"""The policy file: patterns of calls that always may run, and of calls that never may.

    [[allow]]
    tool = "terminal"
    pattern = "git push origin *"

    [[deny]]
    tool = "*"
    regex = ".*/payroll/.*"
    reason = "Not for programs."

A deny wins. A pattern for commands is compared with each command of a line by itself: `git *` allows
`git log && git push`, not `git log && rm -r x`, and not a line that writes to a file beside it.
"""

import fnmatch
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import msgspec

from hermes_agent.approval.danger import lines_of
from hermes_agent.tools.base import Tool
from hermes_core.errors import ConfigError
from hermes_core.paths import Home

Verdict = Literal["allow", "deny"]

_KEYS = ("tool", "pattern", "regex", "reason")


class Entry(NamedTuple):
    """One pattern."""

    tool: str
    """Name of a tool; `*` stands for any characters."""
    pattern: re.Pattern[str]
    text: str
    reason: str = ""

    def is_for(self, tool_name: str) -> bool:
        return fnmatch.fnmatchcase(tool_name, self.tool)

    def fits(self, subject: str) -> bool:
        return subject == self.text or self.pattern.fullmatch(subject) is not None


class Policy(NamedTuple):
    """The rules of the policy file; empty without a file."""

    allow: tuple[Entry, ...] = ()
    deny: tuple[Entry, ...] = ()


def load(home: Home) -> Policy:
    """Read policy.toml in the home; raises ConfigError that names the line."""
    path = home.policy
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return Policy()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from error
    return _Reader(path, text).policy()


def subject(tool: Tool, args: Mapping[str, Any], path: str = "") -> str:
    """Return the text that patterns are compared with: the tool's subject, or all arguments.

    Instead of a path stands where it leads, if that is given, so that there is one way to name it.
    """
    if not tool.subject or tool.subject not in args:
        return msgspec.json.encode(dict(args), order="sorted").decode()
    return path or str(args[tool.subject])


def decide(policy: Policy, tool: Tool, subject: str) -> Verdict | None:
    """Return whether the policy allows or denies a call; None when it does not say."""
    denials = [entry for entry in policy.deny if entry.is_for(tool.name)]
    permissions = [entry for entry in policy.allow if entry.is_for(tool.name)]
    if not denials and not permissions:
        return None
    if tool.is_command:
        return _decide_command(denials, permissions, subject)
    if any(entry.fits(subject) for entry in denials):
        return "deny"
    return "allow" if any(entry.fits(subject) for entry in permissions) else None


def entries(policy: Policy, tool: Tool, subject: str) -> list[Entry]:
    """Return the entries that deny a call; if none does, those that allow it or a part of it."""
    texts = _texts(tool, subject)
    for kind in (policy.deny, policy.allow):
        found = [e for e in kind if e.is_for(tool.name) and any(map(e.fits, texts))]
        if found:
            return found
    return []


def _texts(tool: Tool, subject: str) -> list[str]:
    return [subject, *lines_of(subject).all] if tool.is_command else [subject]


def _decide_command(denials: list[Entry], permissions: list[Entry], command: str) -> Verdict | None:
    lines = lines_of(command)
    if any(entry.fits(text) for entry in denials for text in (command, *lines.all)):
        return "deny"
    if any(entry.text == command for entry in permissions):
        return "allow"
    if lines.is_plain and lines.own:
        covered = all(any(entry.fits(line) for entry in permissions) for line in lines.own)
        return "allow" if covered else None
    return None


class _Reader:
    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._text = text

    def policy(self) -> Policy:
        import tomllib  # noqa: PLC0415 -- most homes have no policy and do not pay for the parser

        try:
            document = tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(
                f"{self._path} is not valid TOML: {error}.", fix="Correct that line."
            ) from error
        for name in document:
            if name not in ("allow", "deny"):
                raise ConfigError(
                    f"{self._path}: there is no table {name!r} in a policy.",
                    fix="Use [[allow]] and [[deny]].",
                )
        return Policy(self._entries(document, "allow"), self._entries(document, "deny"))

    def _entries(self, document: Mapping[str, Any], kind: str) -> tuple[Entry, ...]:
        tables = document.get(kind, [])
        if not isinstance(tables, list):
            raise self._error(kind, 0, f"{kind} is not a list of tables", f"Write [[{kind}]].")
        members = cast("list[Any]", tables)
        return tuple(self._entry(kind, number, table) for number, table in enumerate(members))

    def _entry(self, kind: str, number: int, table: object) -> Entry:
        if not isinstance(table, dict):
            raise self._error(kind, number, "this is not a table", f"Write [[{kind}]].")
        fields = cast("dict[str, Any]", table)
        for key, value in fields.items():
            if key not in _KEYS:
                keys = ", ".join(_KEYS)
                raise self._error(kind, number, f"there is no key {key!r}", f"Use one of: {keys}.")
            if not isinstance(value, str):
                raise self._error(kind, number, f"{key} is not a text", "Put it into quotes.")
        patterns = [key for key in ("pattern", "regex") if fields.get(key)]
        if len(patterns) != 1 or not fields.get("tool"):
            fix = 'Give tool = "…" and one of pattern = "…" or regex = "…".'
            raise self._error(kind, number, "it does not say what it is about", fix)
        text = fields[patterns[0]]
        source = text if patterns[0] == "regex" else fnmatch.translate(text)
        try:
            pattern = re.compile(source, re.DOTALL)
        except re.error as error:
            raise self._error(kind, number, f"{text!r}: {error}", "Correct the regex.") from error
        return Entry(fields["tool"], pattern, text, fields.get("reason", ""))

    def _error(self, kind: str, number: int, what: str, fix: str) -> ConfigError:
        """Names the line that the entry begins in."""
        starts = [
            position
            for position, line in enumerate(self._text.splitlines(), 1)
            if re.match(rf"\s*(?:\[\[\s*{kind}\s*\]\]|{kind}\s*=|\[\s*{kind}\s*\])", line)
        ]
        line = starts[number] if number < len(starts) else starts[0] if starts else 1
        return ConfigError(f"{self._path}, line {line}: {what}.", fix=fix)
