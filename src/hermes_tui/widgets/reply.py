"""A reply: Markdown that grows while it streams, with code that can be copied.

Loaded when the first reply is shown: the parser costs as much as all the rest of the interface.
"""

import asyncio
import time
from typing import Any, ClassVar

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from textual import on
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownFence

from hermes_core import gc_tuning
from hermes_tui.entries import Reply
from hermes_tui.host import app_of
from hermes_tui.widgets import diff
from hermes_tui.widgets.plain import TAB
from hermes_tui.widgets.table import TableBlock

_DRAW_EVERY_S = 0.035
"""Every drawing moves all that is on the screen, so a fast stream is drawn in steps."""
_TASKS = {"[ ] ": "○ ", "[x] ": "✓ "}
_DIFFS = ("diff", "patch", "udiff")
_REST = 0.75
"""On a slow machine it rests after a drawing for so many times as long as the drawing took."""


def _parser() -> MarkdownIt:
    # What looks like HTML is something the model wrote, and would vanish if it were taken as such.
    parser = MarkdownIt("gfm-like", {"html": False})
    if parser.linkify is not None:  # app.py and main.rs are files, not hosts
        parser.linkify.set(  # pyright: ignore[reportUnknownMemberType] -- without types
            {"fuzzy_link": False, "fuzzy_email": False, "fuzzy_ip": False}
        )
    parser.core.ruler.push("tabs", _space)
    parser.core.ruler.push("tasks", _mark_tasks)
    return parser


def _space(state: StateCore) -> None:
    """Make blanks of the tabs outside of code blocks: what is selected is what is seen."""
    for token in state.tokens:
        for part in token.children or ():
            part.content = part.content.expandtabs(TAB)


def _mark_tasks(state: StateCore) -> None:
    """Give the items of a task list marks instead of bullets."""
    for item, _, inline in zip(state.tokens, state.tokens[1:], state.tokens[2:], strict=False):
        first = inline.children[0] if inline.children else None
        if item.type != "list_item_open" or item.info or first is None:
            continue
        if (mark := _TASKS.get(first.content[:4].lower())) is not None:
            item.info, first.content = mark, first.content[4:]


def code_of(text: str) -> list[str]:
    """The code of a reply, each block as its *copy* button copies it."""
    tokens = _parser().parse(text)
    return [token.content.rstrip() for token in tokens if token.type in ("fence", "code_block")]


class CodeBlock(MarkdownFence, can_focus=True):
    """Code with its language on top and a copy button below."""

    DEFAULT_CSS = """
    CodeBlock {
        border: round $panel-lighten-1;
        border-title-color: $text-muted;
        border-subtitle-color: $text-muted;
        background: $surface;
        margin: 0 0 1 0;
        padding: 0;
        overflow: hidden;
        & > Label {
            width: 1fr;
            padding: 0 1;
        }
        &:focus {
            border: round $primary;
        }
    }
    """

    BINDINGS = [  # noqa: RUF012 -- Textual's
        Binding("enter", "copy", "Copy the code", show=False),
    ]

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 -- the base's
        super().__init__(*args, **kwargs)
        self._label()

    def _label(self) -> None:
        words = self.lexer.split()
        # What a model wrote is no markup.
        self.border_title = Content(words[0] if words else "text")  # type: ignore[assignment]
        self.border_subtitle = "[@click='copy']copy[/]"

    def action_copy(self) -> None:
        """Put the code into the clipboard of the terminal."""
        app_of(self).copy_to_clipboard(self.code)
        lines = self.code.count("\n") + 1
        self.notify(f"Copied {lines} line{'s' if lines > 1 else ''}.", timeout=2)

    @classmethod
    def highlight(cls, code: str, *args: Any, **kwargs: Any) -> Content:  # noqa: ANN401 -- the base's
        """Color what is seen, in which tabs are blanks; what is copied has them."""
        language = str(args[0] if args else kwargs.get("language", ""))
        if language.partition(" ")[0].lower() in _DIFFS:
            return diff.colored(code.expandtabs(TAB))
        return super().highlight(code.expandtabs(TAB), *args, **kwargs)

    async def _update_from_block(self, block: Any) -> None:  # noqa: ANN401 -- the base's
        await super()._update_from_block(block)
        self._label()


class ReplyView(Markdown):
    """A reply of the model; more may come."""

    DEFAULT_CSS = """
    ReplyView {
        padding: 0 1;
        margin: 1 0 0 0;
        background: transparent;
        &.continued {
            margin: 0;
        }
        MarkdownH1, MarkdownH2, MarkdownH3, MarkdownH4, MarkdownH5, MarkdownH6 {
            content-align: left top;
            margin: 1 0;
            text-style: bold;
            color: $text-primary;
            background: transparent;
        }
        MarkdownH1 {
            text-style: bold underline;
        }
        MarkdownHorizontalRule {
            border-bottom: solid $panel-lighten-2;
            height: 1;
            padding: 0;
            margin: 0 0 1 0;
        }
    }
    """

    BLOCKS = {  # noqa: RUF012 -- Textual's
        **Markdown.BLOCKS,
        "fence": CodeBlock,
        "code_block": CodeBlock,
        "table_open": TableBlock,
    }

    cost_s: ClassVar[float] = 0.0
    """What the last drawing of any reply took."""

    def __init__(self, entry: Reply) -> None:
        # What grows begins empty: Textual takes the first piece after a given text for its last block.
        text = entry.text if entry.is_done else None
        super().__init__(text, parser_factory=_parser, open_links=False)
        self.set_class(entry.is_continued, "continued")
        self.entry = entry
        self._is_waiting = False
        self._drawing = asyncio.Lock()
        """Held while blocks are made: Textual makes them twice for two who add to a text at once."""

    def on_mount(self) -> None:
        self.call_later(self.follow_soon)  # after the base has shown the text that it was given

    def follow_soon(self) -> None:
        """Show what has come; what comes faster than the eye reads is drawn together."""
        if self._is_waiting or self.source == self.entry.text:
            return
        self._is_waiting = True
        rest_s = max(_DRAW_EVERY_S, _REST * ReplyView.cost_s)
        self.set_timer(rest_s, self._draw)
        if gc_tuning.full_collection_due():
            # Not at once: the thread that writes to the terminal would have to wait.
            self.set_timer(rest_s / 3, gc_tuning.collect)

    async def _draw(self) -> None:
        began = time.thread_time()
        await self.follow()
        self.call_after_refresh(self._drawn, began)

    def _drawn(self, began: float) -> None:
        ReplyView.cost_s = time.thread_time() - began
        self._is_waiting = False
        self.follow_soon()

    async def follow(self) -> None:
        """Show the reply as it is now, whatever was drawn."""
        async with self._drawing:
            drawn, text = self.source, self.entry.text
            if not text.startswith(drawn):
                await self.update(text)
            elif drawn != text:
                # Only what is new is parsed and only the last block is made anew; `update` does all.
                await self.append(text.removeprefix(drawn))

    @on(Markdown.LinkClicked)
    def _copy_link(self, event: Markdown.LinkClicked) -> None:
        # A browser started here would run on the far side of an ssh connection.
        event.stop()
        app_of(self).copy_to_clipboard(event.href)
        self.notify(event.href, title="Copied the address", timeout=4, markup=False)
