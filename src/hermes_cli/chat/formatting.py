"""Formats the events of a turn: tool calls, durations, sizes, diffs."""

from dataclasses import dataclass
from typing import TextIO

from hermes_agent.turn.events import Compacted, FellBack, Retrying, ToolEnded, Used
from hermes_core.text import one_line, truncate, visible

_MAX_ERROR_LENGTH = 200
_SHOWN_LINES = 40


@dataclass(frozen=True)
class Marks:
    """The symbols in front of lines; ASCII where the output is not UTF-8."""

    done: str = "✓"
    failed: str = "✗"
    note: str = "·"
    more: str = "…"

    @classmethod
    def of(cls, out: TextIO) -> "Marks":
        encoding = (getattr(out, "encoding", None) or "ascii").lower()
        return cls() if encoding.startswith("utf") else cls("+", "x", "-", "...")


@dataclass
class Totals:
    """Tokens and cost of a turn so far."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    share: float = 0.0
    """How full the window is."""

    def add(self, event: Used) -> None:
        """Count one model call."""
        self.input_tokens += event.input_tokens
        self.output_tokens += event.output_tokens
        self.cost_usd += event.cost_usd
        if event.window:
            self.share = (event.input_tokens + event.output_tokens) / event.window

    def describe(self, seconds: float) -> str:
        """Return the totals on one line; empty when no model was called."""
        if not self.input_tokens:
            return ""
        parts = [
            duration(seconds),
            f"{count(self.input_tokens)} tokens in",
            f"{count(self.output_tokens)} out",
        ]
        if self.cost_usd:
            parts.append(f"${self.cost_usd:.4f}")
        if self.share >= 0.5:
            parts.append(f"window {self.share:.0%} full")
        return ", ".join(parts)


def duration(seconds: float) -> str:
    """Format a duration for people."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def count(tokens: int) -> str:
    """Format a number of tokens: 950, 1.2k, 120k."""
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:.1f}k" if tokens < 100_000 else f"{tokens / 1000:.0f}k"


def outcome(event: ToolEnded) -> str:
    """Return the duration of a call, or its error."""
    if not event.is_error:
        return duration(event.seconds)
    first = next((line for line in event.result.splitlines() if line.strip()), "failed")
    return truncate(one_line(visible(first)), _MAX_ERROR_LENGTH)


def clipped_diff(diff: str) -> list[str]:
    """Return the first lines of a diff, and how many more there are."""
    lines = [line for line in visible(diff).splitlines() if not line.startswith(("---", "+++"))]
    if len(lines) <= _SHOWN_LINES:
        return lines
    return [*lines[: _SHOWN_LINES - 1], f"… {len(lines) - _SHOWN_LINES + 1} more lines"]


def retrying(event: Retrying) -> str:
    """Return why and when a model call is retried."""
    when = f" in {duration(event.delay_s)}" if event.delay_s >= 0.05 else ""
    return f"{one_line(event.reason)} Retrying{when}."


def fell_back(event: FellBack) -> str:
    """Return why another model is used."""
    return f"{one_line(event.reason)} Using {event.model} instead."


def compacted(event: Compacted) -> str:
    """Return the sizes before and after a compaction."""
    return (
        f"Compacted from {count(event.tokens_before)} to"
        f" {count(event.tokens_after)} tokens ({event.strategy}). Nothing is lost:"
        " /expand shows the originals, /undo compress undoes it."
    )
