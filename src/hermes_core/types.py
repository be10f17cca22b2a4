"""Types of tool calls, shared by models, agent and store."""

from typing import NotRequired, TypedDict


class FunctionCall(TypedDict):
    """Name and arguments as JSON text, as models send them."""

    name: str
    arguments: str


class ToolCall(TypedDict):
    """One tool call of an assistant message."""

    id: str
    type: NotRequired[str]
    function: FunctionCall
