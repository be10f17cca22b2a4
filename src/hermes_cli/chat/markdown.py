"""Blocks of Markdown as a terminal shows them; the one module that knows rich."""

import re
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console, RenderableType
from rich.markdown import Heading, Markdown
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from hermes_cli.chat.blocks import Block

_THEME = "ansi_dark"
"""The terminal's own sixteen colours, which its owner has chosen to be readable."""
_STYLES = {
    "markdown.code": "cyan",
    "markdown.h1": "bold underline",
    "markdown.h2": "bold underline",
}
_BLANK_END = re.compile(r"[ \t]+((?:\x1b\[0m)?)$", re.MULTILINE)
_EMPTY_EDGES = re.compile(r"\A(?:(?:\x1b\[[0-9;]*m)*\n)+|(?:\n(?:\x1b\[[0-9;]*m)*)+\Z")


class _LeftHeading(Heading):
    """A heading that stands where the text does."""

    LEVEL_ALIGN = dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), "left")


class _Markdown(Markdown):
    elements = {**Markdown.elements, "heading_open": _LeftHeading}  # noqa: RUF012 -- as in the base


class Painter:
    """Turns blocks and words into text for one terminal, with its colours or without."""

    def __init__(self, out: TextIO) -> None:
        self._console = Console(
            file=out, highlight=False, markup=False, emoji=False, theme=Theme(_STYLES)
        )

    @property
    def is_dumb(self) -> bool:
        """Whether the terminal can only write on."""
        return self._console.is_dumb_terminal or not self._console.is_terminal

    def block(self, block: Block, columns: int) -> str:
        """A block, each line ended."""
        if block.kind != "code":
            # Not every terminal shows where a hidden link leads, so the address is written out.
            text = _Markdown(block.text, code_theme=_THEME, hyperlinks=False)
            return _EMPTY_EDGES.sub("", self._paint(text, columns)) + "\n"
        code = Syntax(
            block.text, block.language or "text", theme=_THEME, background_color="default",
            word_wrap=True,
        )  # fmt: skip
        return self._paint(Padding(code, (0, 0, 0, 2), expand=False), columns)

    def styled(self, parts: Sequence[tuple[str, str]], columns: int) -> str:
        """One line of words, each with its style; what does not fit goes on below."""
        text = Text(no_wrap=False, overflow="fold")
        for words, style in parts:
            text.append(words, style)
        return self._paint(text, columns)

    def diff(self, lines: Sequence[str], columns: int) -> str:
        """The lines of a difference in the colours people know."""
        styles = {"+": "green", "-": "red", "@": "cyan"}
        text = Text("\n", no_wrap=True, overflow="ellipsis").join(
            Text(line.expandtabs(4), styles.get(line[:1], "dim")) for line in lines
        )
        return self._paint(Padding(text, (0, 0, 0, 4), expand=False), columns)

    def _paint(self, what: RenderableType, columns: int) -> str:
        with self._console.capture() as captured:
            self._console.print(what, width=columns)
        return _BLANK_END.sub(r"\1", captured.get())
