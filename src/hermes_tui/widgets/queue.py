"""Prompts that wait until the running turn has ended."""

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from hermes_core.text import one_line, truncate

_SHOWN = 3


class WaitingPrompts(Static):
    """A line each, above the composer; nothing when none waits."""

    def __init__(self) -> None:
        super().__init__(id="waiting", markup=False)

    def on_mount(self) -> None:
        self.display = False

    def show(self, prompts: Sequence[str]) -> None:
        """Show what waits, the next one first."""
        self.display = bool(prompts)
        lines = [
            Content.assemble(("next  " if not number else "then  ", "bold"), _short(prompt))
            for number, prompt in enumerate(prompts[:_SHOWN])
        ]
        if len(prompts) > _SHOWN:
            lines.append(Content.styled(f"      and {len(prompts) - _SHOWN} more", "dim"))
        self.update(Content("\n").join(lines))


def _short(prompt: str) -> str:
    return truncate(one_line(prompt), 200)
