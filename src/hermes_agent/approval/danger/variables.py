"""Values of a script's variables, where they are certain before it runs."""

import contextlib
import re
from collections import Counter
from collections.abc import Generator, Sequence

from hermes_agent.approval.danger import places, syntax
from hermes_agent.approval.danger.run import UNKNOWN, Value

_SETTERS = frozenset({
    "read", "printf", "mapfile", "readarray", "unset", "getopts", "let", "export", "declare", "local",
    "readonly", "typeset",
})  # fmt: skip
_BLINDERS = frozenset({"eval", "source", "."})
"""After these, any variable may hold anything."""
_MAX_ITEMS = 50


class Variables:
    """Values by name. A name that is set twice, or in ways that are not followed, is never known."""

    def __init__(self, script: syntax.Script) -> None:
        self._values: dict[str, Value] = {}
        counts = Counter(_set_names(script))
        self._once = {name for name, count in counts.items() if count == 1}
        if "IFS" in counts or UNKNOWN in counts:
            self._once.clear()
        if "HOME" not in counts:
            self._values["HOME"] = Value(places.own_home())
        if "PWD" not in counts:
            self._values["PWD"] = Value(".")

    def learn(self, name: str, value: Value) -> None:
        """An assignment that will certainly have been made before what follows."""
        if name in self._once and not value.is_open:
            self._values[name] = value

    @contextlib.contextmanager
    def looping(self, name: str, items: Sequence[Value]) -> Generator[None]:
        """Inside a loop its variable is one of the items."""
        is_constant = name in self._once and not any(item.is_open for item in items)
        if is_constant and items and len(items) <= _MAX_ITEMS:
            joined = ",".join(item.text for item in items)
            several = len(items) > 1
            self._values[name] = Value(
                f"{{{joined}}}" if several else joined, several or items[0].is_pattern
            )
        yield
        if name:
            self._values.pop(name, None)

    def value(self, variable: syntax.Variable) -> Value:
        """Return what stands where the variable stood; UNKNOWN when that is not certain."""
        value = self._values.get(variable.name)
        if value is None or not variable.plain:
            return Value(UNKNOWN)
        if not variable.quoted and re.search(r"\s", value.text):
            return Value(UNKNOWN)  # it will be several words
        return value


def _set_names(script: syntax.Script) -> list[str]:
    names: list[str] = []
    for command in syntax.walk(script):
        if isinstance(command, syntax.Compound):
            names += [command.name] if command.kind == "for" and command.name else []
            continue
        names += [name for name, _ in command.assignments]
        words = [_literal(word) for word in command.words]
        if words and words[0] in _BLINDERS:
            names.append(UNKNOWN)
        elif words and words[0] in _SETTERS:
            for word in words[1:]:
                found = re.match(r"[A-Za-z_]\w*", word)
                names += [found[0]] * 2 if found else []
    return names


def _literal(word: syntax.Word) -> str:
    return "".join(part.text if isinstance(part, syntax.Text) else UNKNOWN for part in word)
