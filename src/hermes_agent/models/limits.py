"""Limits of one model reply: bytes, calls and time, far above what any model sends.

A server that sends more is broken or hostile. The reply fails; the process and its other turns do not.
"""

from hermes_core.errors import ModelError

MIB = 1024 * 1024
MAX_HEAD_BYTES = MIB // 4
"""The status line and all headers of a response."""
MAX_STREAM_BYTES = 256 * MIB
"""A whole stream; a token in JSON takes a few hundred bytes of it, and nothing of that is kept."""
MAX_EVENT_BYTES = 8 * MIB
"""One event of a stream, or a response that is not a stream."""
MAX_TEXT_CHARS = 2 * MIB
"""The text of a reply, and its reasoning."""
MAX_ARGUMENTS_CHARS = 8 * MIB
"""The arguments of one tool call."""
MAX_REPLY_CHARS = 16 * MIB
"""Everything that is kept of one reply."""
MAX_TOOL_CALLS = 1000
MAX_REPLY_TIMEOUTS = 24
"""How many times the timeout a whole reply may take, however steadily it arrives."""
BLOCK_CHARS = 1024
"""What a tool call or a block of reasoning counts for before anything is in it."""
_PIECES_PER_BLOCK = 1000
"""A short text takes fifty bytes more than its length, so pieces are joined now and then."""


class TooLargeError(Exception):
    """A server sent more than a reply may have; the text says of what."""


def too_large(who: str, what: str) -> ModelError:
    """Return the error for a reply that passed a limit."""
    return ModelError(
        f"{who} sent {what} than a reply may have, so the reply was given up.",
        fix="Try again, or choose another model with `hermes model use`.",
    )


class Allowance:
    """The remaining allowance of one reply."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._chars_left = MAX_REPLY_CHARS
        self._calls_left = MAX_TOOL_CALLS

    def take(self, chars: int, what: str = "more") -> None:
        """Count what is kept; raises ModelError."""
        self._chars_left -= chars
        if self._chars_left < 0:
            raise too_large(self._who, what)

    def take_call(self, *names: str | None) -> None:
        """Count one more tool call; raises ModelError."""
        self._calls_left -= 1
        if self._calls_left < 0:
            raise too_large(self._who, "more tool calls")
        self.take(BLOCK_CHARS + sum(len(name or "") for name in names))

    def text(self, what: str = "more text", max_chars: int = 0) -> "GrowingText":
        """Return a text that grows within the allowance."""
        return GrowingText(self, what, max_chars or MAX_TEXT_CHARS)


class GrowingText:
    """A text that arrives in pieces. However small they are, it takes little more than its length."""

    def __init__(self, allowance: Allowance, what: str, max_chars: int) -> None:
        self._allowance = allowance
        self._what = what
        self._chars_left = max_chars
        self._blocks: list[str] = []
        self._pieces: list[str] = []

    def add(self, piece: str) -> None:
        """Append a piece; raises ModelError when the text is too long."""
        self._chars_left -= len(piece)
        self._allowance.take(
            len(piece) if self._chars_left >= 0 else MAX_REPLY_CHARS + 1, self._what
        )
        self._pieces.append(piece)
        if len(self._pieces) == _PIECES_PER_BLOCK:
            self._blocks.append("".join(self._pieces))
            self._pieces.clear()

    def __str__(self) -> str:
        return "".join(self._blocks + self._pieces)
