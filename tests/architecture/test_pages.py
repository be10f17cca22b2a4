"""The pages name only what there is: modules, files, classes and functions between backticks."""

import pkgutil
import re
import shlex
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from hermes_cli.commands.root import hermes

ROOT = Path(__file__).parents[2]
FOR_MAINTAINERS = [
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs" / "adr").glob("*.md")),
]
OTHERS = [
    ROOT / "README.md",
    *sorted(
        page
        for page in (ROOT / "docs").rglob("*.md")
        if page.parent.name not in ("reference", "adr") and page.name != "benchmarks.md"
    ),
]
"""The pages of docs/reference are generated, or compared with the code by another test."""

_DEFINITION = re.compile(
    r"^\s*(?:(?:async )?def|class) (\w+)|^\s*(?:self\.)?(\w+)(?: = |: \w)|^from \S+ import (\w+)$",
    re.MULTILINE,
)


@cache
def texts() -> dict[str, str]:
    """The modules of src, by their paths without the suffix."""
    return {
        "/" + path.relative_to(ROOT / "src").with_suffix("").as_posix(): path.read_text("utf-8")
        for path in sorted((ROOT / "src").rglob("*.py"))
    }


@cache
def definitions() -> dict[str, set[str]]:
    """The names that each module defines or passes on."""
    return {
        path.removesuffix("/__init__"): {
            name for names in _DEFINITION.findall(text) for name in names
        }
        for path, text in texts().items()
    }


def quoted(page: Path) -> Iterator[str]:
    """The pieces of code in the prose of a page, without the arguments of a call."""
    prose = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for code in re.findall(r"`([^`\n]+)`", prose):
        yield code.partition("(")[0]


def is_defined(code: str) -> bool:
    """Return whether there is such a module, a name in it, or a class with that attribute.

    `ledger.turns`, `turns.finish` and `telegram/polling._poll` leave out the folders above.
    """
    parts = code.split(".")
    for length in range(1, len(parts) + 1):
        owner, names = "/".join(["", *parts[:length]]), set(parts[length:])
        if any(path.endswith(owner) and names <= found for path, found in definitions().items()):
            return True
    is_class = parts[0].lstrip("_")[:1].isupper()
    return is_class and any(set(parts) <= found for found in definitions().values())


def is_file(code: str) -> bool:
    """Return whether a file or a folder is at this path, or at the end of one of src."""
    stem = "/" + code.removesuffix(".py")
    return (ROOT / code).exists() or any(path.endswith(stem) for path in texts())


def is_in_messages(code: str) -> bool:
    """Return whether a name with a point is one of the data: an event, a setting, a file."""
    return any(f'"{code}"' in text for text in texts().values())


def is_of_python(code: str) -> bool:
    """Return whether the standard library has it; a class may leave out its module."""
    names = [code, f"builtins.{code}", f"asyncio.{code}", f"logging.handlers.{code}"]
    return any(_resolves(name) for name in names if name.split(".")[0] in sys.stdlib_module_names)


def _resolves(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (AttributeError, ImportError):
        return False
    return True


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [*FOR_MAINTAINERS, *OTHERS], ids=name_of)
def test_modules_and_files_that_a_page_names_exist(page: Path) -> None:
    missing: list[str] = []
    for code in quoted(page):
        if re.fullmatch(r"(hermes_[a-z]+|tui_gateway)(\.\w+)+", code) and not code.endswith(
            ".json"
        ):
            missing += [] if is_defined(code) else [code]
        elif re.fullmatch(r"(src|tests|scripts|bench|docs)/[\w./-]+", code):
            missing += [] if (ROOT / code).exists() else [code]
    assert missing == []


@pytest.mark.parametrize("page", FOR_MAINTAINERS, ids=name_of)
def test_classes_and_functions_that_a_maintainer_reads_about_exist(page: Path) -> None:
    missing: list[str] = []
    for code in quoted(page):
        is_class = re.fullmatch(r"_?[A-Z]\w*[a-z]\w*(\.\w+)*", code)
        is_member = re.fullmatch(r"([a-z_]+/)*[a-z_]+(\.\w+)+", code)
        if is_class or is_member:
            is_known = is_defined(code) or is_file(code) or is_in_messages(code)
            missing += [] if is_known or is_of_python(code) else [code]
    assert missing == []


OF_PLUGINS = {"dice", "my-plugin", "recovery"}
"""Commands of the plugins that pages write or enable."""


def shown_commands(page: Path) -> Iterator[list[str]]:
    """The words after `hermes` in the blocks of a page that a reader types into a shell."""
    for block in re.findall(
        r"^```(?:sh|console)\n(.*?)^```$", page.read_text("utf-8"), re.S | re.M
    ):
        for line in re.findall(r"^(?:\$ )?(.*\bhermes\b.*)$", block, re.M):
            lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
            lexer.wordchars += "$…:%,@+[]{}!"
            words = list(lexer)
            while "hermes" in words:
                words = words[words.index("hermes") + 1 :]
                end = (
                    n for n, word in enumerate(words) if word in ("|", "||", "&&", ";", "<", ">")
                )
                yield words[: next(end, len(words))]


def misused(words: list[str]) -> str:
    """Return the first word that is not a command or an option, empty when all are."""
    command: click.Command = hermes
    context = click.Context(command, info_name="hermes", **command.context_settings)
    rest = iter(words)
    for word in rest:
        if word.startswith("-") and word != "-":
            name, _, value = word.partition("=")
            params = [
                p for p in command.get_params(context) if name in (*p.opts, *p.secondary_opts)
            ]
            if not params:
                return word
            if not value and not getattr(params[0], "is_flag", False):
                next(rest, "")
        elif isinstance(command, click.Group):
            inner = command.get_command(context, word)
            if inner is None:
                return "" if " " in word or word in OF_PLUGINS else word
            command, context = inner, click.Context(inner, info_name=word, parent=context)
    return ""


@pytest.mark.parametrize("page", [*FOR_MAINTAINERS, *OTHERS], ids=name_of)
def test_commands_and_options_that_a_page_shows_exist(page: Path) -> None:
    assert [words for words in shown_commands(page) if misused(words)] == []


@pytest.mark.parametrize(
    "line", ["sesions list", "sessions lst", "backup --encrypted", "--contineu"]
)
def test_a_command_that_does_not_exist_is_found(line: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```sh\nhermes {line}    # look\n```\n")
    assert [misused(words) for words in shown_commands(page)] != [""]
