"""What one reply of a model server may take: bytes, calls and time, far above what any model sends.

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
MAX_TEXT_CHARS = 4 * MIB
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


class TooLargeError(Exception):
    """A server sent more than a reply may have; the text says of what."""


def too_large(who: str, error: Exception) -> ModelError:
    """Return the error for a reply that passed a limit."""
    what = str(error) if isinstance(error, TooLargeError) and str(error) else "more bytes"
    return ModelError(
        f"{who} sent {what} than any reply has, so the reply was given up.",
        fix="Ask again, or choose another model with `hermes model use`.",
    )
