"""The status line: what is going on, who answers, what protects, how full the window is, costs."""

import time

from textual.content import Content
from textual.widgets import Static

from hermes_core.text import one_line, truncate, width
from hermes_protocol.results import Info
from hermes_tui import keymap
from hermes_tui.conversation import Conversation
from hermes_tui.tabs import Tabs

_STATES = {
    "starting": ("○", "starting", "$text-muted"),
    "ready": ("●", "ready", "$text-success"),
    "working": ("●", "working", "$text-warning"),
    "waiting": ("▲", "waiting for your answer", "$text-accent"),
    "stopping": ("■", "stopping", "$text-warning"),
    "lost": ("✗", "server gone", "$text-error"),
}
_NO_SANDBOX = {"host": "no sandbox", "none": "no sandbox, every command asks"}
_HINT = "F1 help"
_STOP_HINT = "Esc interrupts"
_MAX_MODEL = 26
_FULL = 80.0
_MIN_WORDS = 24
_MIN_STOP_HINT = 60
"""Columns from which on a running turn says how it is interrupted."""


class StatusLine(Static):
    """One line at the bottom; what does not fit is left out, the least important first."""

    def __init__(self, tabs: Tabs) -> None:
        super().__init__(id="status", markup=False)
        self._tabs = tabs
        self.hint = ""
        """Something to say instead of the usual hint, such as that Ctrl-C again leaves."""

    def on_mount(self) -> None:
        self.set_interval(1.0, self._tick)

    def _tick(self) -> None:
        if self._tabs.current.conversation.began_at is not None:
            self.tell()

    def on_resize(self) -> None:
        self.tell()

    def tell(self) -> None:
        """Show how things are now."""
        conversation = self._tabs.current.conversation
        self.update(line(conversation, self.size.width, time.monotonic(), self.hint))


def line(conversation: Conversation, columns: int, now: float, hint: str = "") -> Content:
    """The status in one line of so many columns."""
    mark, word, style = _STATES[conversation.state]
    if conversation.state == "ready" and conversation.info.credential_warning:
        mark, word, style = "▲", f"no model, {keymap.keys_of('model')} gets one", "$text-warning"
    word = truncate(one_line(conversation.activity), max(_MIN_WORDS, columns // 3)) or word
    if conversation.began_at is not None and now - conversation.began_at >= 1:
        word += f" {now - conversation.began_at:.0f}s"
    activity = f"{mark} {word}"
    facts = _facts(conversation)
    is_running = conversation.state in ("working", "waiting") and columns >= _MIN_STOP_HINT
    right = hint or (_STOP_HINT if is_running else _HINT)
    while (
        facts
        and width(activity) + sum(width(fact) + 3 for fact, _ in facts) + width(right) + 2 > columns
    ):
        facts.pop()
    start = Content.assemble((activity, style), *((f" · {fact}", how) for fact, how in facts))
    gap = max(1, columns - width(start.plain) - width(right))
    return Content.assemble(start, " " * gap, (right, "bold" if hint else "dim"))


def _facts(conversation: Conversation) -> list[tuple[str, str]]:
    """Return the facts for the line, the most important first."""
    info = conversation.info
    usage = info.usage
    facts: list[tuple[str, str]] = []
    if info.model:
        facts.append((truncate(info.model, _MAX_MODEL), ""))
    facts += _freedoms(info)
    if (share := share_of(conversation)) is not None:
        facts.append((f"context {share:.0f}% of {short_count(usage.context_max)}", _warmth(share)))
    if usage.cost_usd:
        facts.append(
            (f"${usage.cost_usd:.4f}" if usage.cost_usd < 1 else f"${usage.cost_usd:.2f}", "")
        )
    if conversation.waiting:
        facts.append((f"{len(conversation.waiting)} waiting", ""))
    if info.sandbox not in ("", *_NO_SANDBOX):
        facts.append((f"{info.sandbox}, network {info.network.partition(' (')[0]}", "dim"))
    if info.title:
        facts.append((truncate(one_line(info.title), 40), "dim"))
    return facts


def _freedoms(info: Info) -> list[tuple[str, str]]:
    """Return what of the usual protection is missing."""
    facts: list[tuple[str, str]] = []
    if info.sandbox in _NO_SANDBOX:
        facts.append((_NO_SANDBOX[info.sandbox], "$text-error"))
    elif info.network == "on":
        facts.append(("network open", "$text-warning"))
    if info.yolo:
        facts.append(("nothing is asked", "$text-error"))
    return facts


def share_of(conversation: Conversation) -> float | None:
    """Return how much of the window is in use, in percent."""
    usage = conversation.info.usage
    if usage.context_percent is not None:
        return usage.context_percent
    if usage.context_used is not None and usage.context_max:
        return 100 * usage.context_used / usage.context_max
    return None


def short_count(tokens: int | None) -> str:
    """Format a number of tokens in thousands or millions."""
    if not tokens:
        return "it"
    return f"{tokens / 1e6:.3g}M" if tokens >= 999_500 else f"{tokens / 1000:.0f}k"


def _warmth(share: float) -> str:
    return "$text-error" if share >= _FULL else ""
