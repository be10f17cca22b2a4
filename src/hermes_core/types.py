"""The shapes of tool calls as they travel between models, agent and store."""

from typing import NotRequired, TypedDict


class FunctionCall(TypedDict):
    """The name and the JSON text of the arguments, as models send them."""

    name: str
    arguments: str


class ToolCall(TypedDict):
    """One call that an assistant message asks for."""

    id: str
    type: NotRequired[str]
    function: FunctionCall
