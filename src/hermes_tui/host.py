"""The application that a widget lives in, with its type."""

from textual.app import App
from textual.message_pump import MessagePump


def app_of(node: MessagePump) -> App[object]:
    """The application; Textual's own property leaves its type open."""
    return node.app  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
