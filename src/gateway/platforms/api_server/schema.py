"""The request bodies that OpenAI's clients send, as far as they matter here.

Fields that are not named are ignored: how a model samples is a setting of the agent.
"""

from typing import Any, Literal

import msgspec


class ImageUrl(msgspec.Struct):
    """The address of a picture."""

    url: str


class TextPart(msgspec.Struct, tag="text"):
    """Text in a chat."""

    text: str


class ImagePart(msgspec.Struct, tag="image_url"):
    """A picture in a chat."""

    image_url: ImageUrl


class RefusalPart(msgspec.Struct, tag="refusal"):
    """The words with which an assistant declined to answer."""

    refusal: str


class InputTextPart(msgspec.Struct, tag="input_text"):
    """A user's text in the input of a response."""

    text: str


class OutputTextPart(msgspec.Struct, tag="output_text"):
    """An assistant's text in the input of a response."""

    text: str


class InputImagePart(msgspec.Struct, tag="input_image"):
    """A picture in the input of a response."""

    image_url: str


Part = TextPart | ImagePart | RefusalPart | InputTextPart | OutputTextPart | InputImagePart


class Message(msgspec.Struct):
    """One message."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part] | None = None
    type: Literal["message"] = "message"


class JsonSchema(msgspec.Struct):
    """The schema of a reply, in a chat."""

    name: str = ""
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class Format(msgspec.Struct):
    """The format that a reply must have; a response has the fields of the schema in it."""

    type: str = "text"
    json_schema: JsonSchema | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class StreamOptions(msgspec.Struct):
    """Options of a stream."""

    include_usage: bool | None = None


class ChatBody(msgspec.Struct):
    """`POST /v1/chat/completions`."""

    messages: list[Message]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    tool_choice: Any = None
    response_format: Format | None = None


class TextOptions(msgspec.Struct):
    """Options for the text of a response."""

    format: Format | None = None


class Conversation(msgspec.Struct):
    """A conversation by its name."""

    id: str


class ResponseBody(msgspec.Struct):
    """`POST /v1/responses`."""

    input: str | list[Message]
    model: str | None = None
    stream: bool | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | Conversation | None = None
    background: bool | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    text: TextOptions | None = None
    metadata: dict[str, str] | None = None
