"""One program that a command line would run, its words worked out as far as they can be."""

import os
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, Protocol

from hermes_agent.approval.danger.kinds import NO_ACCESS, Access, Kind, Loss

UNKNOWN = "\0"
"""Stands in a text for what only the running shell will know."""


class Value(NamedTuple):
    """A word after expansion."""

    text: str
    is_pattern: bool = False
    """Unquoted `*`, `?`, `[…]` or `{…}`: it may become other words, or several."""
    runs: bool = False
    """Part of it is the output of another command."""

    @property
    def is_open(self) -> bool:
        """Return whether the running shell decides what it becomes."""
        return UNKNOWN in self.text

    @property
    def display_text(self) -> str:
        return self.text.replace(UNKNOWN, "…")


class Run(NamedTuple):
    """A program and its words."""

    name: str
    """Without its folder: `/bin/rm` is rm."""
    args: tuple[Value, ...]
    is_fed: bool = False
    """Its input comes from another command or from the script itself."""
    document: Value | None = None
    """The text of a here-document or here-string that it reads."""

    @property
    def line(self) -> str:
        return " ".join((self.name, *(value.display_text for value in self.args)))

    def options(self) -> Iterator[str]:
        """Long options by name, short ones letter by letter; up to `--`."""
        for value in self.args:
            text = value.text
            if text == "--":
                return
            if text.startswith("--"):
                yield text.partition("=")[0]
            elif text.startswith("-") and len(text) > 1:
                yield from (f"-{letter}" for letter in text[1:])
                yield text

    def has(self, *names: str) -> bool:
        """Return whether one of these options is given."""
        options = set(self.options())
        return any(name in options for name in names)

    def value_of(self, *names: str) -> Value | None:
        """The value of an option: its own word's rest, or the next word."""
        return next(iter(self.values_of(*names)), None)

    def values_of(self, *names: str) -> list[Value]:
        """Every value of an option that may be given more than once."""
        found: list[Value] = []
        for position, value in enumerate(self.args):
            for name in names:
                rest = _attached(value.text, name)
                if rest is not None:
                    found.append(value._replace(text=rest))
                elif value.text == name and position + 1 < len(self.args):
                    found.append(self.args[position + 1])
        return found

    def operands(self, valued: Collection[str] = ()) -> list[Value]:
        """Return the words that are not options; `valued` options take the next word as a value."""
        found: list[Value] = []
        skip = ended = False
        for value in self.args:
            if skip:
                skip = False
            elif ended or not value.text.startswith("-") or value.text == "-":
                found.append(value)
            elif value.text == "--":
                ended = True
            else:
                skip = value.text in valued
        return found

    def after(self, count: int) -> "Run":
        """The program that the words from there on name."""
        return run_of(self.args[count:], is_fed=self.is_fed, document=self.document)


def _attached(text: str, name: str) -> str | None:
    if name.startswith("--"):
        return text[len(name) + 1 :] if text.startswith(name + "=") else None
    short = len(name) == len("-x")
    attached = short and text.startswith(name) and len(text) > len(name)
    return text[len(name) :].removeprefix("=") if attached else None


def run_of(words: Sequence[Value], *, is_fed: bool = False, document: Value | None = None) -> Run:
    """The run of these words; the first is the program."""
    name = os.path.basename(words[0].text) if words else ""  # noqa: PTH119 -- a word, not a file
    return Run(name, tuple(words[1:]), is_fed, document)


class Report(Protocol):
    """The dangers that a rule finds in a run."""

    @property
    def folders(self) -> Sequence[str]:
        """Every folder that the run may be in."""
        ...

    def danger(
        self,
        kind: Kind,
        reason: str,
        key: str,
        access: Access = NO_ACCESS,
        loss: Loss | None = None,
    ) -> None:
        """There is a reason to ask; dangers of one key are told once. `access` is what it takes."""
        ...

    def loss_of(self, value: Value, *, is_tracked: bool = False) -> Loss | None:
        """Return what is lost with all at and below a path; None when that is not known."""
        ...

    def doubt(self, reason: str, *, certain: bool = False) -> None:
        """It cannot be told what would happen; a yes holds for this very command only.

        Inside script files only what is certain to hide something counts.
        """
        ...

    def assigns(self, value: Value) -> None:
        """A variable is set for what follows: NAME=value."""
        ...

    def writes(self, value: Value, *, removes: bool = False) -> None:
        """A file is changed or made, or goes away."""
        ...

    def reads(self, value: Value) -> None:
        """A file's content is shown or copied."""
        ...

    def deletes(self, value: Value, *, recursively: bool) -> None:
        """A file, or a folder with all below it, is deleted."""
        ...

    def runs(self, words: Sequence[Value], *, is_fed: bool = False) -> None:
        """These words are a command in their turn."""
        ...

    def runs_script(self, value: Value) -> None:
        """This text is a shell script in its turn."""
        ...

    def runs_file(self, value: Value) -> None:
        """This file is a shell script that is run."""
        ...

    def runs_python(self, value: Value) -> None:
        """This text is Python that is run."""
        ...

    def runs_python_file(self, value: Value) -> None:
        """This file is Python that is run."""
        ...
