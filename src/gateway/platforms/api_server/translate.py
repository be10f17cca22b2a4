"""From the body of a request to the message that the gateway takes in. No I/O."""

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from gateway.config import Platform
from gateway.platforms.api_server.bodies import (
    ChatBody,
    Conversation,
    Format,
    ImagePart,
    InputImagePart,
    Part,
    RefusalPart,
    ResponseBody,
    Said,
)
from gateway.platforms.api_server.place import Place
from gateway.platforms.base import IncomingFile, MessageEvent, MessageType, at_hand
from gateway.platforms.refusal import RefusedRequest
from gateway.source import SessionSource

T = TypeVar("T")

_DATA_URL = re.compile(r"data:image/([\w.+-]{1,40});base64,")
_OWN_TOOLS = 'The agent has tools of its own: leave `{}` out, or set client_tools = "ignore".'


@dataclass
class Picture:
    """A picture that came with the message."""

    content: bytes
    name: str


@dataclass
class Asked:
    """What a request asks for, whichever of the two kinds it is."""

    text: str
    pictures: list[Picture] = field(default_factory=list[Picture])
    history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """What was said before, as the client tells it."""
    instructions: str = ""
    model: str = ""
    is_stream: bool = False
    wants_usage: bool = False
    previous: str = ""
    """The response that this one follows."""
    conversation: str = ""
    metadata: dict[str, str] = field(default_factory=dict[str, str])


def chat(body: bytes, *, may_bring_tools: bool = False) -> Asked:
    """What a chat completion is asked for; raises RefusedRequest."""
    said = _read(body, ChatBody)
    if not may_bring_tools and said.tool_choice != "none":
        _refuse(said.tools, "tools", _OWN_TOOLS.format("tools"))
        _refuse(said.functions, "functions", _OWN_TOOLS.format("functions"))
    _refuse(said.n not in (None, 1), "n", "A message gets one answer: leave `n` out.")
    _refuse_format(said.response_format, "response_format")
    asked = _asked(said.messages, "messages")
    asked.model = said.model or ""
    asked.is_stream = bool(said.stream)
    asked.wants_usage = bool(said.stream_options and said.stream_options.include_usage)
    return asked


def response(body: bytes, *, may_bring_tools: bool = False) -> Asked:
    """What a response is asked for; raises RefusedRequest."""
    said = _read(body, ResponseBody)
    if not may_bring_tools and said.tool_choice != "none":
        _refuse(said.tools, "tools", _OWN_TOOLS.format("tools"))
    instead = "Send an Idempotency-Key instead: the turn then goes on when you hang up."
    _refuse(said.background, "background", instead)
    _refuse_format(said.text.format if said.text else None, "text.format")
    asked = _asked(
        [Said("user", said.input)] if isinstance(said.input, str) else said.input, "input"
    )
    asked.instructions = "\n\n".join(filter(None, (said.instructions, asked.instructions)))
    asked.model = said.model or ""
    asked.is_stream = bool(said.stream)
    asked.metadata = said.metadata or {}
    asked.previous = said.previous_response_id or ""
    named = said.conversation
    asked.conversation = named.id if isinstance(named, Conversation) else named or ""
    if asked.previous:
        both = "Give previous_response_id or conversation, not both."
        _refuse(asked.conversation, "conversation", both)
        alone = "After previous_response_id there is one message: the new one."
        _refuse(asked.history, "input", alone)
    return asked


def event(asked: Asked, place: Place, user: str) -> MessageEvent:
    """The message that the gateway takes in."""
    options = {
        "session_id": place.session_id,
        "model": asked.model,
        "instructions": asked.instructions,
        "history": [] if place.is_lasting else asked.history,
        "is_single": not place.is_named,
    }
    made = MessageEvent(
        text=asked.text,
        source=SessionSource(Platform.API_SERVER, place.chat_id, user_id=user, user_name=user),
        message_id=place.message_id,
        named_within=f"keys of {user}" if place.has_key else None,
        files=[IncomingFile(one.name, at_hand(one.content), True) for one in asked.pictures],
        is_mention=True,
        # What is asked is told in a stream, and answered by name in another request.
        can_be_asked=place.is_named and asked.is_stream,
        options={name: value for name, value in options.items() if value},
    )
    if made.get_command():
        made.message_type = MessageType.COMMAND
    elif asked.pictures:
        made.message_type = MessageType.PHOTO
    return made


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `")
        param = where.rstrip("`").removeprefix("$").removeprefix(".") or None
        text = f"{param}: {what}." if param else f"{what}."
        raise _refused(text + _advice(param or ""), param) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedRequest(400, f"The body is no JSON: {error}.", code="invalid_json") from error


def _advice(param: str) -> str:
    if param.endswith(".role"):
        return " Roles are system, developer, user and assistant; the agent's tools are its own."
    if param.endswith("].type"):
        return " A message has text and pictures: text, image_url, input_text, input_image."
    return ""


def _refused(message: str, param: str | None) -> RefusedRequest:
    return RefusedRequest(400, message, code="invalid_value", param=param)


def _refuse(is_there: object, param: str, why: str) -> None:
    if is_there:
        raise RefusedRequest(400, why, code="unsupported_parameter", param=param)


def _refuse_format(wanted: Format | None, param: str) -> None:
    is_other = wanted is not None and wanted.type != "text"
    _refuse(is_other, param, "Answers are text; say in the message which form you want.")


def _asked(messages: Sequence[Said], where: str) -> Asked:
    """The last message, what came before it, and the instructions."""
    spoken = [one for one in enumerate(messages) if one[1].role in ("user", "assistant")]
    if not spoken or spoken[-1][1].role != "user":
        raise _refused(f"{where} must end with a message of the user.", where)
    *earlier, (number, last) = spoken
    asked = Asked(
        text=_text(last.content),
        pictures=_pictures(last.content, f"{where}[{number}].content"),
        history=[
            {"role": one.role, "content": content}
            for index, one in earlier
            if (content := _history(one.content, f"{where}[{index}].content"))
        ],
        instructions="\n\n".join(
            text
            for one in messages
            if one.role in ("system", "developer") and (text := _text(one.content))
        ),
    )
    if not asked.text.strip() and not asked.pictures:
        raise _refused("The message is empty.", f"{where}[{number}].content")
    return asked


def _text(content: str | list[Part] | None) -> str:
    if not isinstance(content, list):
        return content or ""
    return "\n".join(text for one in content if (text := _words(one)))


def _words(part: Part) -> str:
    match part:
        case ImagePart() | InputImagePart():
            return ""
        case RefusalPart():
            return part.refusal
        case _:
            return part.text


def _history(content: str | list[Part] | None, where: str) -> str | list[dict[str, Any]]:
    """What was said earlier, in the shape that models know: text, or text and pictures."""
    urls = _urls(content, where)
    text = _text(content)
    if not urls:
        return text
    pictures = [{"type": "image_url", "image_url": {"url": url}} for url, _, _ in urls]
    return [*([{"type": "text", "text": text}] if text else []), *pictures]


def _pictures(content: str | list[Part] | None, where: str) -> list[Picture]:
    return [
        Picture(_bytes(url[found.end() :], param), f"picture-{number}.{found[1]}")
        for number, (url, found, param) in enumerate(_urls(content, where), 1)
    ]


def _urls(content: str | list[Part] | None, where: str) -> list[tuple[str, re.Match[str], str]]:
    """The addresses of pictures, each with its beginning taken apart and its place in the body."""
    if not isinstance(content, list):
        return []
    taken = list[tuple[str, re.Match[str], str]]()
    for index, part in enumerate(content):
        if not isinstance(part, ImagePart | InputImagePart):
            continue
        url = part.image_url.url if isinstance(part, ImagePart) else part.image_url
        param = f"{where}[{index}].image_url"
        found = _DATA_URL.match(url)
        if found is None:
            wanted = "Pictures come inside the request: data:image/png;base64,…"
            raise RefusedRequest(400, wanted, code="invalid_image_url", param=param)
        taken.append((url, found, param))
    return taken


def _bytes(text: str, param: str) -> bytes:
    try:
        content = base64.b64decode(text, validate=True)
    except ValueError:
        content = b""
    if not content:
        raise RefusedRequest(400, "The picture is no base64.", code="invalid_image", param=param)
    return content
