"""The catalog: which models can be fetched by name, and what their bytes must be."""

from functools import cache
from importlib import resources

import msgspec

from hermes_core.errors import UsageError


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model."""

    name: str
    title: str
    authors: str
    license: str
    summary: str
    """What it is good for."""
    repository: str
    """On the model hub, by its authors."""
    file: str
    sha256: str
    """Of the file as its authors published it."""
    bytes: int
    context: int
    memory_bytes: int
    """What it takes to run it with the usual window."""

    @property
    def notice(self) -> str:
        """The author."""
        return f"{self.title}, by {self.authors}, licence {self.license}."


@cache
def entries() -> tuple[Entry, ...]:
    """Every model, the default first and the lighter ones after it."""
    text = resources.files("hermes_agent.models.embedded").joinpath("catalog.json").read_bytes()
    return tuple(msgspec.json.decode(text, type=list[Entry]))


def find(name: str) -> Entry | None:
    """The model of that name, or of that file name."""
    lowered = name.lower()
    return next((entry for entry in entries() if lowered in (entry.name, entry.file)), None)


def get(name: str) -> Entry:
    """The model of that name; raises UsageError with the names there are."""
    entry = find(name)
    if entry is None:
        names = ", ".join(entry.name for entry in entries())
        raise UsageError(
            f"There is no model {name!r} to download.",
            fix=f"Use one of: {names}; or give a file of your own: hermes model pull --gguf PATH.",
        )
    return entry
