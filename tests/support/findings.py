"""What a kill test counts: what happened, what is wrong, and the table of both."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar


@dataclass
class Findings:
    """Counts by name; a subclass adds its own as fields. All but `harmless` ones are errors."""

    harmless: ClassVar[frozenset[str]] = frozenset()
    notes: list[str] = field(default_factory=list[str], kw_only=True)

    @classmethod
    def names(cls) -> list[str]:
        """The names of the counts."""
        return [count.name for count in fields(cls) if count.name != "notes"]

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        counted = [name for name in self.names() if name not in self.harmless]
        return not self.notes and not any(getattr(self, name) for name in counted)

    def add(self, other: Self) -> None:
        """Add the counts and notes of another part of the run."""
        for name in (*self.names(), "notes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def note(self, kind: str, text: str) -> None:
        """Count an error and keep a sentence about it."""
        setattr(self, kind, getattr(self, kind) + 1)
        self.notes.append(f"{kind}: {text}")


F = TypeVar("F", bound=Findings)


class Row(NamedTuple, Generic[F]):
    """One line of the table."""

    name: str
    kills: int
    found: F
    points: Counter[str]
    """How often a worker was killed at each point."""


def table(rows: Sequence[Row[Any]]) -> str:
    """The counts as text: one line per way of killing, and one for all."""
    total = type(rows[0].found)()
    for row in rows:
        total.add(row.found)
    lines = [*rows, Row("all", sum(row.kills for row in rows), total, Counter())]
    columns = total.names()
    width = max(len(row.name) for row in lines)
    text = [" " * width + "".join(f"{name:>15}" for name in ("kills", *columns))]
    for row in lines:
        numbers = [row.kills, *(getattr(row.found, name) for name in columns)]
        text.append(f"{row.name:<{width}}" + "".join(f"{number:>15,}" for number in numbers))
    return "\n".join(text).replace("_", " ")
