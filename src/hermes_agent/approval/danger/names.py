"""Resolve names in Python code: through imports, and through texts that are set once."""

import ast
from collections import Counter

from hermes_agent.approval.danger.run import UNKNOWN, Value

_MAKES_PATH = frozenset(
    {"pathlib.Path", "Path", "pathlib.PosixPath", "os.path.join", "os.fspath", "str"}
)
IMPORTS = frozenset({"__import__", "importlib.import_module", "builtins.__import__"})


class Names:
    """The names of one module."""

    def __init__(self, tree: ast.AST) -> None:
        self.modules: dict[str, str] = {}
        """Names that imports made, and what they are in full."""
        self._texts = _texts(tree)

    def dotted(self, node: ast.AST) -> str:
        """The full name of what is referred to; empty when that is not known."""
        if isinstance(node, ast.Name):
            return self.modules.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            owner = self.dotted(node.value)
            owner = "Path" if owner in ("pathlib.Path", "pathlib.PosixPath") else owner
            return f"{owner}.{node.attr}" if owner else ""
        if isinstance(node, ast.Call):
            return self.made_by(node)
        return ""

    def made_by(self, node: ast.Call) -> str:
        """Return what a call gives: a module that is imported, an attribute, an object of a class."""
        name = self.dotted(node.func)
        if name in IMPORTS and node.args:
            module = self.text(node.args[0])
            return "" if UNKNOWN in module else module
        if name == "getattr" and len(node.args) > 1:
            attribute = self.text(node.args[1])
            return "" if UNKNOWN in attribute else f"{self.dotted(node.args[0])}.{attribute}"
        if self.path(node) is not None:
            return "Path"
        return name if "." in name else ""

    def text(self, node: ast.AST | None) -> str:
        """The text that an expression gives, with UNKNOWN for what is not known."""
        if isinstance(node, ast.Constant):
            value = node.value
            return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        if isinstance(node, ast.Name):
            return self._texts.get(node.id, UNKNOWN)
        if isinstance(node, ast.JoinedStr):
            return "".join(map(self.text, node.values))
        if isinstance(node, ast.FormattedValue):
            return self.text(node.value)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.text(node.left) + self.text(node.right)
        path = None if node is None else self.path(node)
        return UNKNOWN if path is None else path

    def value(self, node: ast.AST | None) -> Value:
        """The same as a word of a command line."""
        return Value(self.text(node))

    def path(self, node: ast.AST) -> str | None:
        """The path that an expression builds; None when it does not build one."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            parent = self.path(node.left)
            return None if parent is None else f"{parent}/{self.text(node.right)}"
        if isinstance(node, ast.Name):
            return self._texts.get(node.id)
        return self._called_path(node) if isinstance(node, ast.Call) else None

    def _called_path(self, node: ast.Call) -> str | None:
        name = self.dotted(node.func)
        if name in _MAKES_PATH:
            return "/".join(map(self.text, node.args)) or "."
        if name == "Path.home":
            return "~"
        if name == "os.path.expanduser" and node.args:
            return self.text(node.args[0])
        if name in ("Path.cwd", "os.getcwd"):
            return "."
        path_preserving = ("resolve", "absolute", "expanduser")
        if isinstance(node.func, ast.Attribute) and node.func.attr in path_preserving:
            return self.path(node.func.value)
        return None


def _texts(tree: ast.AST) -> dict[str, str]:
    """Names that are set once, to a text."""
    counts: Counter[str] = Counter()
    values: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            counts[node.id] += 1
        elif isinstance(node, ast.arg):
            counts[node.arg] += 2  # a parameter may be anything
        elif isinstance(node, ast.Assign):
            values |= _assigned(node)
    return {name: value for name, value in values.items() if counts[name] == 1}


def _assigned(node: ast.Assign) -> dict[str, str]:
    target, value = node.targets[0], node.value
    if (
        isinstance(target, ast.Name)
        and isinstance(value, ast.Constant)
        and isinstance(value.value, str)
    ):
        return {target.id: value.value}
    return {}
