"""The tree of a shell script: what runs, in which order, with which words."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Text(NamedTuple):
    """Characters that stand for themselves; unquoted ones may still be a pattern."""

    text: str
    quoted: bool


class Variable(NamedTuple):
    """A parameter; `plain` when nothing is done to its value."""

    name: str
    plain: bool
    quoted: bool


class Substitution(NamedTuple):
    """A script whose output, or whose file, stands here."""

    script: "Script"


class Opaque(NamedTuple):
    """A number or something else that only the shell can work out."""


Part = Text | Variable | Substitution | Opaque
Word = tuple[Part, ...]


@dataclass
class Redirect:
    """The source or target of a stream; `body` is the text of a here-document."""

    operator: str
    target: Word
    body: Word | None = None
    delimiter: str = ""
    literal: bool = False


class Simple(NamedTuple):
    """A program with its words."""

    assignments: tuple[tuple[str, Word], ...]
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]


class Compound(NamedTuple):
    """A group, a condition, a loop or a function: scripts that may run, and words around them."""

    kind: str
    bodies: tuple["Script", ...]
    redirects: tuple[Redirect, ...] = ()
    words: tuple[Word, ...] = ()
    name: str = ""
    """The variable of a loop or the name of a function."""


Command = Simple | Compound


class Pipeline(NamedTuple):
    """Commands, each fed by the one before."""

    commands: tuple[Command, ...]


class Chain(NamedTuple):
    """Pipelines of which each may run or not, depending on the one before."""

    pipelines: tuple[Pipeline, ...]
    background: bool


Script = tuple[Chain, ...]


def walk(script: Script) -> Iterator[Command]:
    """Every command of a script, also those in groups, functions and substitutions."""
    for chain in script:
        for pipeline in chain.pipelines:
            for command in pipeline.commands:
                yield from _walk_command(command)


def _walk_command(command: Command) -> Iterator[Command]:
    yield command
    words = [*command.words, *(redirect.target for redirect in command.redirects)]
    words += [redirect.body for redirect in command.redirects if redirect.body]
    if isinstance(command, Simple):
        words += [word for _, word in command.assignments]
    else:
        for body in command.bodies:
            yield from walk(body)
    for word in words:
        for part in word:
            if isinstance(part, Substitution):
                yield from walk(part.script)
