"""Bold, underlined and colored text for stdout, as far as its terminal allows it."""

import sys
from collections.abc import Iterable

import click

from hermes_core import config

Span = tuple[int, int]


def is_allowed() -> bool:
    """Return whether stdout is a terminal that shows bold text."""
    return sys.stdout.isatty() and not config.is_dumb_terminal()


def heading(text: str) -> str:
    """Return a heading in bold."""
    return click.style(text, bold=True) if is_allowed() else text


def dim(text: str) -> str:
    """Return a remark, less bright than the rest."""
    return click.style(text, dim=True) if is_allowed() else text


def colored(text: str, color: str) -> str:
    """Return colored text; NO_COLOR leaves it as it is."""
    return click.style(text, fg=color) if color and is_allowed() and config.has_color() else text


def highlighted(text: str, spans: Iterable[Span]) -> str:
    """Return text with bold and underlined parts."""
    if not is_allowed():
        return text
    for begin, end in sorted(spans, reverse=True):
        part = click.style(text[begin:end], bold=True, underline=True)
        text = f"{text[:begin]}{part}{text[end:]}"
    return text
