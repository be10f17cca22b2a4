"""Short words for what happens in a turn: calls of tools, times, sizes, differences."""

from dataclasses import dataclass
from typing import TextIO

from hermes_agent.turn.events import Compacted, FellBack, Retrying, ToolEnded, Used
from hermes_core.text import one_line, truncate, visible

_LONGEST = 200
_SHOWN_LINES = 40


@dataclass(frozen=True)
class Marks:
    """The signs in front of lines; plain ones where the output has no others."""

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
    """What a turn has cost so far."""

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

    def in_words(self, seconds: float) -> str:
        """All of it on one line; nothing when no model was asked."""
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
    """A time as a person says it."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def count(tokens: int) -> str:
    """A number of tokens in few characters."""
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:.1f}k" if tokens < 100_000 else f"{tokens / 1000:.0f}k"


def outcome(event: ToolEnded) -> str:
    """Return how a call came out, after its name and arguments: the time, or what went wrong."""
    if not event.is_error:
        return duration(event.seconds)
    first = next((line for line in event.result.splitlines() if line.strip()), "failed")
    return truncate(one_line(visible(first)), _LONGEST)


def clipped_diff(diff: str) -> list[str]:
    """The lines of a difference that are shown, and how many are not."""
    lines = [line for line in visible(diff).splitlines() if not line.startswith(("---", "+++"))]
    if len(lines) <= _SHOWN_LINES:
        return lines
    return [*lines[: _SHOWN_LINES - 1], f"… {len(lines) - _SHOWN_LINES + 1} more lines"]


def retrying(event: Retrying) -> str:
    """Why a call is made again, and when."""
    when = f"again in {duration(event.delay_s)}" if event.delay_s >= 0.05 else "again"
    return f"{one_line(event.reason)} Trying {when}."


def fell_back(event: FellBack) -> str:
    """Return who is asked instead."""
    return f"{one_line(event.reason)} Asking {event.model} instead."


def compacted(event: Compacted) -> str:
    """Return what a compaction brought."""
    return (
        f"The conversation was shortened from {count(event.tokens_before)} to"
        f" {count(event.tokens_after)} tokens ({event.strategy}). Nothing is lost:"
        " /expand shows the originals, /undo compress takes it back."
    )
