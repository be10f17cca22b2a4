"""Replies as text for a terminal, for clients that cannot render Markdown themselves."""

import io

from rich.console import Console
from rich.markdown import Markdown

_FENCES = ("```", "~~~")
_NARROWEST = 20


def rendered(text: str, cols: int) -> str:
    """Markdown with the sequences that colour it, for so many columns."""
    out = io.StringIO()
    console = Console(
        file=out, width=max(cols, _NARROWEST), force_terminal=True, color_system="standard"
    )
    console.print(Markdown(text))
    return out.getvalue()


class StreamRenderer:
    """Renders a reply that comes in pieces, paragraph by paragraph."""

    def __init__(self, cols: int) -> None:
        self._cols = cols
        self._text = ""

    def feed(self, text: str) -> str | None:
        """The paragraphs that are complete by now; None when there are none."""
        self._text += text
        end = _last_break(self._text)
        if not end:
            return None
        complete, self._text = self._text[:end], self._text[end:]
        return rendered(complete, self._cols)


def _last_break(text: str) -> int:
    """Where the last complete paragraph ends; a block of code is one paragraph."""
    position = end = 0
    is_code = False
    for line in text.splitlines(keepends=True):
        position += len(line)
        if line.lstrip().startswith(_FENCES):
            is_code = not is_code
        if not is_code and not line.strip() and line.endswith("\n"):
            end = position
    return end
