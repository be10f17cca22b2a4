"""Prints what is unusually large: modules, functions, classes, parameter lists. A reader judges."""

import ast
import sys
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parent.parent / "src"
LIMITS = {"module": 500, "function": 50, "class": 400, "parameters": 8}


class Size(NamedTuple):
    """One measured thing."""

    kind: str
    size: int
    name: str


def code_lines(node: ast.AST, lines: list[str]) -> int:
    """Lines of a function or class without its docstring, blanks and comments."""
    body = lines[node.lineno - 1 : node.end_lineno]  # type: ignore[attr-defined]
    docstring = ast.get_docstring(node, clean=False) if hasattr(node, "body") else None  # type: ignore[arg-type]
    skipped = docstring.count("\n") + 1 if docstring else 0
    return sum(1 for line in body if line.strip() and not line.strip().startswith("#")) - skipped


def sizes(path: Path) -> list[Size]:
    """Everything measured in one module."""
    text = path.read_text("utf-8")
    lines = text.splitlines()
    name = str(path.relative_to(SOURCE))
    found = [Size("module", len(lines), name)]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            count = len(arguments.args) + len(arguments.posonlyargs) + len(arguments.kwonlyargs)
            found.append(Size("function", code_lines(node, lines), f"{name}:{node.name}"))
            found.append(Size("parameters", count, f"{name}:{node.name}"))
        elif isinstance(node, ast.ClassDef):
            found.append(Size("class", code_lines(node, lines), f"{name}:{node.name}"))
    return found


def main() -> None:
    """Print outliers, the largest first, and the totals."""
    measured = [size for path in sorted(SOURCE.rglob("*.py")) for size in sizes(path)]
    for kind, limit in LIMITS.items():
        every = sorted((s for s in measured if s.kind == kind), key=lambda s: -s.size)
        over = [s for s in every if s.size > limit]
        middle = every[len(every) // 2].size if every else 0
        print(f"{kind}: {len(every)}, median {middle}, {len(over)} over {limit}")
        for size in over:
            print(f"  {size.size:>5}  {size.name}")
    total = sum(s.size for s in measured if s.kind == "module")
    print(f"lines in all: {total}")


if __name__ == "__main__":
    sys.exit(main())
