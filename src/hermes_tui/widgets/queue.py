"""Prompts that wait until the running turn has ended."""

from collections.abc import Sequence
from dataclasses import dataclass

from textual import events
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from hermes_core.text import one_line, truncate
from hermes_tui import keymap

_MAX_LINES = 3


class WaitingPrompt(Static):
    """A queued prompt; a click edits it."""

    DEFAULT_CSS = """
    WaitingPrompt {
        height: 1;
        text-wrap: nowrap;
        text-overflow: ellipsis;
        &:hover {
            background: $surface;
        }
    }
    """
    ALLOW_SELECT = False

    @dataclass
    class TakeBackRequested(Message):
        """Somebody wants it back in the composer, to change it or to drop it."""

        place: int

    def __init__(self, place: int, text: str) -> None:
        when = "next  " if not place else "then  "
        what = truncate(one_line(text), 400)
        super().__init__(Content.assemble((when, "bold"), what), markup=False)
        self._place = place

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(self.TakeBackRequested(self._place))


class WaitingPrompts(Vertical):
    """A line each, above the composer; nothing when none waits."""

    def __init__(self) -> None:
        super().__init__(id="waiting")

    def on_mount(self) -> None:
        self.display = False

    async def show(self, prompts: Sequence[str], *, can_be_taken: bool) -> None:
        """Show what waits, the next one first."""
        self.display = bool(prompts)
        await self.remove_children()
        await self.mount_all(
            WaitingPrompt(place, prompt) for place, prompt in enumerate(prompts[:_MAX_LINES])
        )
        hints = [f"and {len(prompts) - _MAX_LINES} more"] if len(prompts) > _MAX_LINES else []
        if prompts and can_be_taken:
            hints.append(f"{keymap.keys_of('take_back')} or a click edits one")
        if hints:
            hint = f"      {' · '.join(hints)}"
            await self.mount(Static(Content.styled(hint, "dim"), markup=False))
