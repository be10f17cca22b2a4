"""Questions to a person on a terminal: a choice from a list, a line of text, a secret."""

import getpass
import shutil
from collections.abc import Sequence
from typing import NamedTuple

import click

from hermes_cli.commands.app import is_interactive
from hermes_core.errors import UsageError
from hermes_core.text import fit, one_line, truncate, visible, width

_MAX_ROWS = 15
_MAX_LABEL = 44
_SHOWN_OF_KEY = 4
_MIN_KEY_TO_SHOW = 20


class Row(NamedTuple):
    """A line to choose, and what it means."""

    label: str
    detail: str = ""


def require_terminal(fix: str) -> None:
    """Raise UsageError if nobody can answer here; `fix` names the options to use instead."""
    if not is_interactive():
        raise UsageError("There is no terminal to ask on.", fix=fix)


def say(text: str) -> None:
    """Print lines of the dialogue, wrapped at their own indentation."""
    columns = shutil.get_terminal_size().columns
    for text_line in visible(text).replace("\r", "").split("\n"):
        indent = text_line[: len(text_line) - len(text_line.lstrip())]
        click.echo(
            click.wrap_text(
                text_line.strip(), columns - 1, initial_indent=indent, subsequent_indent=indent
            ),
            err=True,
        )


def confirm(question: str, *, default: bool) -> bool:
    """Ask a yes-or-no question."""
    return click.confirm(question, default=default, err=True)


def line(question: str, default: str = "") -> str:
    """Ask for a line of text; empty if Enter alone means the empty default."""
    answer: str = click.prompt(question, default=default, show_default=bool(default), err=True)
    return answer.strip()


def secret(question: str) -> str:
    """Ask for a secret without showing it; empty if the person enters nothing."""
    try:
        # click's own prompt would come before the terminal stops to show what is typed
        key = getpass.getpass(f"{question}: ").strip().strip("\"'")
    except (KeyboardInterrupt, EOFError):
        click.echo(err=True)
        raise click.Abort from None
    if len(key) >= _MIN_KEY_TO_SHOW:
        say(f"  Got {len(key)} characters, ending in {key[-_SHOWN_OF_KEY:]}.")
    return key


def choose(question: str, rows: Sequence[Row], default: int | None = 0) -> int:
    """Ask for one of the rows, by number or by a part of its label; return its place.

    Of a long list only the first rows are printed until the person types what to look for.
    """
    places = list(range(len(rows)))
    _print(rows, places)
    while True:
        number = str(places.index(default) + 1) if default in places else None
        answer: str = click.prompt(question, default=number, type=str, err=True)
        answer = answer.strip()
        if answer.isdecimal() and 0 < int(answer) <= len(places):
            return places[int(answer) - 1]
        found = [p for p in range(len(rows)) if answer.lower() in rows[p].label.lower()]
        exact = [p for p in found if rows[p].label.lower() == answer.lower()]
        if len(exact) == 1 or len(found) == 1:
            return (exact or found)[0]
        if found:
            places = found
            _print(rows, places)
        else:
            say(f"  Type a number from 1 to {len(places)}, or a part of a name.")


def _print(rows: Sequence[Row], places: Sequence[int]) -> None:
    first = places[:_MAX_ROWS]
    columns = shutil.get_terminal_size().columns
    limit = _MAX_LABEL if any(rows[place].detail for place in first) else columns - 6
    labels = [truncate(visible(one_line(rows[place].label)), limit) for place in first]
    widest = max(map(width, labels))
    for number, (place, label) in enumerate(zip(first, labels, strict=True), 1):
        detail = visible(one_line(rows[place].detail))
        room = columns - widest - 8
        text = f"{fit(label, widest)}  {truncate(detail, max(room, 8))}" if detail else label
        click.echo(f"  {number:>2}  {text}".rstrip(), err=True)
    if len(places) > len(first):
        click.echo(f"      and {len(places) - len(first)} more: type a part of the name", err=True)
