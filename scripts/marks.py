"""Counts what may only shrink: lines per part, broad excepts, and words that english.md bans.

Size marks stand in pyproject.toml, `[tool.hermes.size]`, and are raised by hand, with a reason. Counts
stand in scripts/marks.toml; `make marks` lowers them.
"""

import argparse
import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
BASELINE = Path(__file__).parent / "marks.toml"

BANNED_NAMES = {
    "said", "told", "made", "known", "left", "taken", "lent", "one", "asked", "given", "shown",
    "heard", "gone", "kept", "begun", "wanted", "unmade", "whoever", "somebody", "nobody",
    "asleep", "asking", "attendant", "bury", "forsaken", "hear", "journey", "lane", "lanes", "mended",
    "nursery", "shelf", "undoing", "victim", "victims", "wish", "wishes", "woken",
}  # fmt: skip
"""Participles, pronouns and metaphors that stand where the name of a thing should."""

_CONSTANT = re.compile(r"(^|_)(MOST|LEAST|LONGEST|PATIENCE)(_|$)")
_IS_NO = re.compile(r"(?<!here )(?<!here\n)\b(is|are) no (?!longer\b|more\b|less\b|matter\b)\w+")
_RELATIVE = re.compile(r"(What|Whether|How|Where|Who|Whoever|Whatever|Whose|Which|Why)\b")
_CAUSATIVE = re.compile(r"Ha(ve|s|ving) (?!no\b|to\b)")

ADVICE = {
    "names": "name it for what it holds (english.md, rule 2)",
    "constants": "MAX_, MIN_, _TIMEOUT_S, _INTERVAL_S, _LIMIT (rule 5)",
    "is_no": "“is not a valid X” (rule 6)",
    "relative": "begin the docstring with a verb (rule 4)",
    "causative": "say it directly: “Run this in the background” (rule 6)",
    "broad_excepts": "catch broadly only at a real boundary; target: 1 per thousand lines",
}
"""What is counted, and what to write instead."""

Counts = dict[str, Counter[str]]


def modules() -> Iterator[tuple[Path, str]]:
    """Every module of the source, with its text."""
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE), path.read_text("utf-8")


# -- size ----------------------------------------------------------------------------------------


def part_of(module: Path) -> str:
    """The part whose mark a module counts for: its package, its platforms, or the shipped kits."""
    if "testing" in module.parts:
        return "testing"
    if module.parts[:2] == ("gateway", "platforms"):
        return "gateway.platforms"
    return module.parts[0]


def lines() -> Counter[str]:
    """Lines of every part."""
    found = Counter[str]()
    for module, text in modules():
        found[part_of(module)] += len(text.splitlines())
    return found


def marks() -> dict[str, dict[str, Any]]:
    """`[tool.hermes.size]`."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return settings["tool"]["hermes"]["size"]


def oversized() -> list[str]:
    """Parts that are larger than their mark, have none, or are above target without a reason."""
    problems: list[str] = []
    known = marks()
    for part, size in sorted(lines().items()):
        mark = known.get(part)
        if mark is None:
            problems.append(f"{part} ({size} lines) needs a mark in [tool.hermes.size]")
        elif size > mark["max"]:
            problems.append(
                f"{part} has {size} lines, its mark is {mark['max']}. Delete a duplicate, or raise the"
                " mark in pyproject.toml with the reason in the same commit."
            )
        elif mark["max"] > mark["target"] and not mark.get("reason"):
            problems.append(f"the mark of {part} is above its target and gives no reason")
    return problems


# -- words ---------------------------------------------------------------------------------------


def counted(tree: ast.Module) -> Iterator[tuple[str, int, str]]:
    """Kind, line and text of everything in a module that may only become rarer."""
    docstrings = {id(node): text for node, text in _docstrings(tree)}
    for node in ast.walk(tree):
        for name in _defined(node):
            if name.strip("_").lower() in BANNED_NAMES:
                yield "names", _line(node), name
            if _CONSTANT.search(name) and name == name.upper():
                yield "constants", _line(node), name
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = docstrings.get(id(node), "")
            if found := _IS_NO.search(node.value):
                yield "is_no", _line(node), found[0]
            if _RELATIVE.match(text):
                yield "relative", _line(node), text.splitlines()[0]
            if _CAUSATIVE.match(text):
                yield "causative", _line(node), text.splitlines()[0]
        if isinstance(node, ast.ExceptHandler) and _is_broad(node.type):
            yield "broad_excepts", _line(node), "except"


def _docstrings(tree: ast.Module) -> Iterator[tuple[ast.Constant, str]]:
    """Docstrings of the module and its classes and functions, as nodes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body:
                case [ast.Expr(ast.Constant(str(text)) as constant), *_]:
                    yield constant, text
                case _:
                    pass


def _defined(node: ast.AST) -> Iterator[str]:
    """Names that a node gives to something."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.arg(arg=name):
            yield name
        case _:
            pass


def _is_broad(kind: ast.expr | None) -> bool:
    match kind:
        case None:
            return True
        case ast.Name(id=name):
            return name in ("Exception", "BaseException")
        case ast.Tuple(elts=kinds):
            return any(map(_is_broad, kinds))
        case _:
            return False


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def findings() -> Iterator[tuple[str, str, str]]:
    """Package, kind, and a line of text for everything that is counted."""
    for module, text in modules():
        for kind, line, what in counted(ast.parse(text)):
            yield module.parts[0], kind, f"src/{module}:{line}: {what}"
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for kind, line, what in counted(ast.parse(path.read_text("utf-8"))):
            if kind in ("names", "constants"):
                yield "tests", kind, f"{path.relative_to(ROOT)}:{line}: {what}"


def counts() -> Counts:
    """How often each kind occurs in each package."""
    found: Counts = {}
    for package, kind, _ in findings():
        found.setdefault(package, Counter())[kind] += 1
    return found


def baseline() -> Counts:
    """How often each kind may occur in each package."""
    stored = tomllib.loads(BASELINE.read_text("utf-8"))
    return {package: Counter(kinds) for package, kinds in stored.items()}


def risen(found: Counts, allowed: Counts) -> list[str]:
    """Numbers above the baseline, with what to do about each."""
    return [
        f"{package}: {kind} rose from {allowed.get(package, Counter())[kind]} to {number}:"
        f" {ADVICE[kind]}. See: python scripts/marks.py --show {kind} {package}"
        for package, kinds in sorted(found.items())
        for kind, number in sorted(kinds.items())
        if number > allowed.get(package, Counter())[kind]
    ]


def fallen(found: Counts, allowed: Counts) -> list[str]:
    """Numbers below the baseline."""
    return [
        f"{package}: {kind} fell from {number} to {found.get(package, Counter())[kind]}"
        for package, kinds in sorted(allowed.items())
        for kind, number in sorted(kinds.items())
        if found.get(package, Counter())[kind] < number
    ]


def write(found: Counts, allowed: Counts) -> list[str]:
    """Write the counts as the new baseline; return the kinds whose sum would rise, which refuse it.

    What one package gains another may lose: code moves.
    """
    new, old = sum(found.values(), Counter[str]()), sum(allowed.values(), Counter[str]())
    if refused := [
        f"{kind}: {old[kind]} to {new[kind]}" for kind in ADVICE if new[kind] > old[kind]
    ]:
        return refused
    rows = [
        f"{package} = {{ {', '.join(f'{kind} = {kinds[kind]}' for kind in ADVICE)} }}\n"
        for package, kinds in sorted(found.items())
    ]
    heading = "# May only fall; see scripts/marks.py. Lower it with: make marks\n"
    BASELINE.write_text(heading + "".join(rows), "utf-8")
    return []


# -- the command -----------------------------------------------------------------------------------


def _report(found: Counts) -> None:
    for part, size in sorted(lines().items()):
        mark = marks().get(part, {"max": 0, "target": 0})
        print(f"{part:18} {size:6} lines  mark {mark['max']:6}  target {mark['target']:6}")
    sizes = Counter[str]()
    for module, text in modules():
        sizes[module.parts[0]] += len(text.splitlines())
    print(f"\n{'':18} " + " ".join(f"{kind:>13}" for kind in ADVICE))
    for package, kinds in sorted(found.items()):
        print(f"{package:18} " + " ".join(f"{kinds[kind]:13}" for kind in ADVICE))
    total = sum(found.values(), Counter[str]())
    print(f"{'all':18} " + " ".join(f"{total[kind]:13}" for kind in ADVICE))
    rate = total["broad_excepts"] * 1_000 / sizes.total()
    print(f"broad excepts per thousand lines: {rate:.2f} (target 1)\n")


def main() -> int:
    """Check, show or lower the marks; the exit status says whether something is above its mark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="lower the counts to what they are")
    parser.add_argument("--show", nargs="+", metavar="KIND [PACKAGE]", help="list the places")
    chosen = parser.parse_args()
    if chosen.show:
        kind, package = (*chosen.show, "")[:2]
        places = [text for p, k, text in findings() if k == kind and p.startswith(package)]
        print("\n".join(places))
        return 0
    found = counts()
    _report(found)
    if chosen.write:
        if refused := write(found, baseline()):
            print("not written, these rose in sum:", "; ".join(refused))
        return bool(refused)
    for text in fallen(found, baseline()):
        print(f"hint: {text}; make marks lowers it")
    problems = oversized() + risen(found, baseline())
    print("\n".join(problems) or "no mark is passed")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
