"""The shapes that travel between parts: identities and messages."""

from typing import Any, Literal, NewType, NotRequired, TypedDict

SessionId = NewType("SessionId", str)
"""A row of the store. Compaction moves a conversation to a new one."""

SessionKey = NewType("SessionKey", str)
"""Where an answer goes: platform, chat, thread, user."""

Role = Literal["system", "user", "assistant", "tool"]


class FunctionCall(TypedDict):
    """The name and the JSON text of the arguments, as models send them."""

    name: str
    arguments: str


class ToolCall(TypedDict):
    """One call that an assistant message asks for."""

    id: str
    type: NotRequired[str]
    function: FunctionCall


Content = str | list[Any] | dict[str, Any] | None
"""Text, or the parts of a message that has more than text."""


class Message(TypedDict):
    """A message as models and clients see it; absent keys mean "not said"."""

    role: str
    content: Content
    tool_calls: NotRequired[list[ToolCall]]
    tool_call_id: NotRequired[str]
    tool_name: NotRequired[str]
    timestamp: NotRequired[float]
