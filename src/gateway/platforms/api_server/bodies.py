"""The bodies of requests as OpenAI's clients write them, as far as they matter here.

What is not named is not looked at: how a model is to be sampled is the agent's own business.
"""

from typing import Any, Literal

import msgspec


class ImageUrl(msgspec.Struct):
    """Where a picture is."""

    url: str


class TextPart(msgspec.Struct, tag="text"):
    """Words in a chat."""

    text: str


class ImagePart(msgspec.Struct, tag="image_url"):
    """A picture in a chat."""

    image_url: ImageUrl


class RefusalPart(msgspec.Struct, tag="refusal"):
    """What an assistant said instead of an answer."""

    refusal: str


class InputTextPart(msgspec.Struct, tag="input_text"):
    """A person's words in a response's input."""

    text: str


class OutputTextPart(msgspec.Struct, tag="output_text"):
    """An assistant's words in a response's input."""

    text: str


class InputImagePart(msgspec.Struct, tag="input_image"):
    """A picture in a response's input."""

    image_url: str


Part = TextPart | ImagePart | RefusalPart | InputTextPart | OutputTextPart | InputImagePart


class Said(msgspec.Struct):
    """One message."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part] | None = None
    type: Literal["message"] = "message"


class Format(msgspec.Struct):
    """The shape that an answer is to have."""

    type: str = "text"


class StreamOptions(msgspec.Struct):
    """What else a stream is to tell."""

    include_usage: bool | None = None


class ChatBody(msgspec.Struct):
    """`POST /v1/chat/completions`."""

    messages: list[Said]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    tool_choice: Any = None
    response_format: Format | None = None


class TextOptions(msgspec.Struct):
    """How a response is to be written."""

    format: Format | None = None


class Conversation(msgspec.Struct):
    """A conversation by its name."""

    id: str


class ResponseBody(msgspec.Struct):
    """`POST /v1/responses`."""

    input: str | list[Said]
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
