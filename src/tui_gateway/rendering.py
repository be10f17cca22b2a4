"""Replies as text for a terminal, for clients that cannot render Markdown themselves."""

import io

from rich.console import Console
from rich.markdown import Markdown

from hermes_core import markdown

_MIN_COLUMNS = 20


def rendered(text: str, cols: int) -> str:
    """Render Markdown for a terminal of so many columns."""
    out = io.StringIO()
    console = Console(
        file=out, width=max(cols, _MIN_COLUMNS), force_terminal=True, color_system="standard"
    )
    console.print(Markdown(text))
    return out.getvalue()


class StreamRenderer:
    """Renders a reply that comes in pieces, paragraph by paragraph."""

    def __init__(self, cols: int) -> None:
        self._cols = cols
        self._text = ""

    def feed(self, text: str) -> str | None:
        """Render the paragraphs that are complete by now; None when there are none."""
        self._text += text
        breaks = markdown.breaks(self._text)
        if not breaks:
            return None
        end = breaks[-1]
        complete, self._text = self._text[:end], self._text[end:]
        return rendered(complete, self._cols)
