"""Every promise whose part exists has a marked test and a row in docs/explanation/guarantees.md."""

import ast
import importlib.util
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROMISES = tomllib.loads((Path(__file__).parent / "promises.toml").read_text("utf-8"))


def exists(part: str) -> bool:
    try:
        return importlib.util.find_spec(part) is not None
    except ModuleNotFoundError:
        return False


def due() -> set[str]:
    """Promises that somebody can rely on today."""
    return {name for name, row in PROMISES.items() if "part" not in row or exists(row["part"])}


def marked(tree: ast.AST) -> Iterator[str]:
    """The promises named by every `promise(…)` mark in a module."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="promise"), args=arguments):
                yield from (a.value for a in arguments if isinstance(a, ast.Constant))  # type: ignore[misc]
            case _:
                pass


@cache
def proofs() -> dict[str, set[str]]:
    """Promise to the test files with a test of it."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name in marked(ast.parse(path.read_text("utf-8"))):
            found.setdefault(name, set()).add(path.relative_to(ROOT).as_posix())
    return found


def test_every_promise_that_is_due_has_a_test() -> None:
    missing = due() - proofs().keys()
    assert not missing, f"mark a test with @pytest.mark.promise({min(missing)!r})"


def test_a_mark_names_a_promise() -> None:
    assert proofs().keys() <= PROMISES.keys()


def test_the_guarantees_list_every_promise_that_is_due_with_its_tests() -> None:
    text = (ROOT / "docs" / "explanation" / "guarantees.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| (P\d+) \| (.+) \|$", text, re.MULTILINE))
    assert rows.keys() == due()
    for name, row in rows.items():
        promise, _, links = row.partition(" | ")
        assert promise == PROMISES[name]["promise"]
        linked = set(re.findall(r"\]\(\.\./\.\./(tests/[^)]+)\)", links))
        assert linked and linked <= proofs()[name], f"{name} links a test that is not marked"
