"""Who fires which hook: read from the source, so that a hook cannot be forgotten."""

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from hermes_cli import hookspecs

SOURCE = Path(__file__).parents[2] / "src"

NOT_YET_CALLED: set[str] = set()
"""Hooks whose surface is still to come."""


@cache
def trees() -> list[tuple[Path, ast.Module]]:
    """Parse the modules in which the word stands."""
    sources = {path: path.read_text("utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    return [
        (path.relative_to(SOURCE), ast.parse(text))
        for path, text in sources.items()
        if "invoke_hook" in text
    ]


def calls() -> Iterator[tuple[Path, str, set[str]]]:
    """File, hook and keywords of every `….invoke_hook("name", key=…)`."""
    for path, tree in trees():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr == "invoke_hook" and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    yield path, first.value, {k.arg for k in node.keywords if k.arg}


def test_the_hooks_without_a_caller_are_those_that_are_listed() -> None:
    called = {hook for _, hook, _ in calls()}
    assert set(hookspecs.SPECS) - called == NOT_YET_CALLED


def test_a_caller_names_a_hook_that_exists_and_gives_all_of_its_arguments() -> None:
    wrong = [
        (str(path), hook, arguments)
        for path, hook, arguments in calls()
        if hook not in hookspecs.SPECS
        or arguments != set(inspect.signature(hookspecs.SPECS[hook]).parameters)
    ]
    assert wrong == []


def test_nobody_imports_the_name_invoke_hook_for_it_must_stay_replaceable() -> None:
    importers = [
        str(path)
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and node.module == "hermes_cli.plugins"
        and any(name.name == "invoke_hook" for name in node.names)
    ]
    assert importers == []
