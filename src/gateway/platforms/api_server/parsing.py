"""Parse requests: headers and bodies become the message that the gateway accepts. No I/O."""

import base64
import hashlib
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from gateway.config import Platform
from gateway.platforms.api_server.json_mode import JsonFormat
from gateway.platforms.api_server.schema import (
    ChatBody,
    Conversation,
    Format,
    ImagePart,
    InputImagePart,
    Message,
    Part,
    RefusalPart,
    ResponseBody,
)
from gateway.platforms.base import IncomingFile, MessageEvent, MessageType, at_hand
from gateway.platforms.refusal import RefusedRequest
from gateway.source import SessionSource

T = TypeVar("T")

CONVERSATION = "X-Hermes-Conversation"
SESSION = "X-Hermes-Session-Id"
KEY = "Idempotency-Key"

_NAME = re.compile(r"(?!.*\.\.)(?!session:|request:)[\w@+=~-][\w .@+:=/~-]{0,127}", re.ASCII)
_SESSION_ID = re.compile(r"[\w-]{1,128}", re.ASCII)
_MAX_KEY_LENGTH = 255
_DATA_URL = re.compile(r"data:image/([\w.+-]{1,40});base64,")
_OWN_TOOLS = 'The agent has tools of its own: leave `{}` out, or set client_tools = "ignore".'
_OWN_ITEMS = ("mcp_call", "mcp_list_tools", "reasoning")
"""Items of our own responses, which clients send back as history; the messages are enough."""


class Target(NamedTuple):
    """The conversation that a request is for, and the id that its repeats share."""

    chat_id: str
    message_id: str
    session_id: str = ""
    """The session that the request names."""
    is_named: bool = False
    """Whether the client named the conversation."""
    has_key: bool = False
    """Whether the client can repeat the request to get its reply."""

    @property
    def has_history(self) -> bool:
        """Return whether the store has the history; otherwise the client sends it along."""
        return self.is_named or bool(self.session_id)


@dataclass
class Picture:
    """A picture that came with the message."""

    content: bytes
    name: str


@dataclass
class AgentRequest:
    """A request to the agent, from either of the two formats."""

    text: str
    pictures: list[Picture] = field(default_factory=list[Picture])
    history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The earlier messages, as the client sends them."""
    has_results: bool = False
    """Whether results of tools were among them."""
    instructions: str = ""
    model: str = ""
    is_stream: bool = False
    wants_usage: bool = False
    previous_response_id: str = ""
    conversation: str = ""
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    json_format: JsonFormat | None = None


def find_target(
    headers: Mapping[str, str], *, conversation: str = "", session_id: str = ""
) -> Target:
    """Return the conversation that headers and body name; raises RefusedRequest."""
    name = headers.get(CONVERSATION) or conversation
    session_id = headers.get(SESSION) or session_id
    key = headers.get(KEY, "")
    if conversation and name != conversation:
        raise _bad_header("The header and the body name different conversations.", CONVERSATION)
    if name and session_id:
        raise _bad_header("Name the conversation or the session, not both.", CONVERSATION)
    if name and not _NAME.fullmatch(name):
        raise _bad_header(
            "A conversation's name is up to 128 letters, digits, blanks and ._@+:=/~- without `..`;"
            " it begins with a letter, a digit or one of _@+=~-, and not with session: or request:",
            CONVERSATION,
        )
    if session_id and not _SESSION_ID.fullmatch(session_id):
        raise _bad_header("This is not a valid session id.", SESSION)
    if len(key) > _MAX_KEY_LENGTH:
        raise _bad_header(f"An idempotency key has at most {_MAX_KEY_LENGTH} characters.", KEY)
    message_id = key or uuid.uuid4().hex
    chat_id = name or (f"session:{session_id}" if session_id else f"request:{_hash(message_id)}")
    return Target(chat_id, message_id, session_id, is_named=bool(name), has_key=bool(key))


def _hash(key: str) -> str:
    """Map a key to a conversation of its own, the same one for a repeat."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _bad_header(message: str, header: str) -> RefusedRequest:
    return RefusedRequest(400, message, code="invalid_header", param=header)


def chat(body: bytes, *, ignores_tools: bool = False) -> AgentRequest:
    """Parse the body of a chat completion; raises RefusedRequest."""
    parsed, has_results = _parse(body, ChatBody, "messages", ignores_tools=ignores_tools)
    if not ignores_tools and parsed.tool_choice != "none":
        _refuse(parsed.tools, "tools", _OWN_TOOLS.format("tools"))
        _refuse(parsed.functions, "functions", _OWN_TOOLS.format("functions"))
    _refuse(parsed.n not in (None, 1), "n", "A message gets one answer: leave `n` out.")
    request = _to_request(parsed.messages, "messages")
    request.json_format = _json_format(parsed.response_format, "response_format")
    request.has_results = has_results
    request.model = parsed.model or ""
    request.is_stream = bool(parsed.stream)
    request.wants_usage = bool(parsed.stream_options and parsed.stream_options.include_usage)
    return request


def response(body: bytes, *, ignores_tools: bool = False) -> AgentRequest:
    """Parse the body of a response; raises RefusedRequest."""
    parsed, has_results = _parse(body, ResponseBody, "input", ignores_tools=ignores_tools)
    if not ignores_tools and parsed.tool_choice != "none":
        _refuse(parsed.tools, "tools", _OWN_TOOLS.format("tools"))
    instead = "Send an Idempotency-Key instead: the turn then continues when you hang up."
    _refuse(parsed.background, "background", instead)
    requested = parsed.text.format if parsed.text else None
    json_format = _json_format(requested, "text.format")
    request = _to_request(
        [Message("user", parsed.input)] if isinstance(parsed.input, str) else parsed.input, "input"
    )
    request.has_results = has_results
    request.json_format = json_format
    request.instructions = "\n\n".join(filter(None, (parsed.instructions, request.instructions)))
    request.model = parsed.model or ""
    request.is_stream = bool(parsed.stream)
    request.metadata = parsed.metadata or {}
    request.previous_response_id = parsed.previous_response_id or ""
    named = parsed.conversation
    request.conversation = named.id if isinstance(named, Conversation) else named or ""
    if request.previous_response_id:
        both = "Give previous_response_id or conversation, not both."
        _refuse(request.conversation, "conversation", both)
        alone = "After previous_response_id, send only the new message."
        _refuse(request.history, "input", alone)
    return request


def to_message(request: AgentRequest, target: Target, source: SessionSource) -> MessageEvent:
    """Build the message that the gateway accepts."""
    options = {
        "session_id": target.session_id,
        "model": request.model,
        "instructions": request.instructions,
        "history": [] if target.has_history else request.history,
        "has_results": request.has_results,
        "is_single": not target.is_named,
    }
    message = MessageEvent(
        text=_with_demand(request),
        source=source,
        message_id=target.message_id,
        named_within=f"keys of {source.user_id}" if target.has_key else None,
        files=[
            IncomingFile(picture.name, at_hand(picture.content), True)
            for picture in request.pictures
        ],
        is_mention=True,
        # A question is shown in a stream, and answered by the conversation's name in another request.
        can_be_asked=target.is_named and request.is_stream and request.json_format is None,
        options={name: value for name, value in options.items() if value},
    )
    if message.get_command():
        message.message_type = MessageType.COMMAND
    elif request.pictures:
        message.message_type = MessageType.PHOTO
    return message


def _with_demand(request: AgentRequest) -> str:
    """Return the text for the model, with the format of the reply; commands stay as they are."""
    if request.json_format is None or request.text.startswith("/"):
        return request.text
    return "\n\n".join(filter(None, (request.text, request.json_format.demand)))


def source_of(target: Target, user: str) -> SessionSource:
    """Return the chat of a conversation, as the gateway knows it."""
    return SessionSource(Platform.API_SERVER, target.chat_id, user_id=user, user_name=user)


def _parse(body: bytes, kind: type[T], field_name: str, *, ignores_tools: bool) -> tuple[T, bool]:
    """Return a body without items of tools, and whether there were some; raises RefusedRequest."""
    has_results = False
    try:
        data = msgspec.json.decode(body)
        if isinstance(data, dict):
            data = cast("dict[str, Any]", data)
            messages = data.get(field_name)
            if isinstance(messages, list):
                items = cast("list[Any]", messages)
                data[field_name] = _without_tools(items, ignores_tools)
                has_results = len(data[field_name]) < len(items)
        return msgspec.convert(data, kind), has_results
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `")
        param = where.rstrip("`").removeprefix("$").removeprefix(".") or None
        text = f"{param}: {what}." if param else f"{what}."
        raise _bad_value(text + _advice(param or ""), param) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = f"The request body is not valid JSON: {error}."
        raise RefusedRequest(400, text, code="invalid_json") from error


def _without_tools(messages: list[Any], ignores_tools: bool) -> list[Any]:
    """Leave out the items of our own tool calls, and those of a client's tools if these are ignored."""
    return [message for message in messages if not _is_left_out(message, ignores_tools)]


def _is_left_out(message: object, ignores_tools: bool) -> bool:
    if not isinstance(message, dict):
        return False
    table = cast("dict[str, Any]", message)
    kind, role = table.get("type", "message"), table.get("role")
    if kind in _OWN_ITEMS:
        return True
    is_call = role == "assistant" and bool(table.get("tool_calls")) and not table.get("content")
    is_of_tools = is_call or role in ("tool", "function") or (kind != "message" and role is None)
    return ignores_tools and is_of_tools


def _advice(param: str) -> str:
    if param.endswith(".role"):
        return (
            " Roles are system, developer, user and assistant; messages of a client's own tools"
            ' are ignored with client_tools = "ignore".'
        )
    if param.endswith("].type"):
        return " A message has text and pictures: text, image_url, input_text, input_image."
    return ""


def _bad_value(message: str, param: str | None) -> RefusedRequest:
    return RefusedRequest(400, message, code="invalid_value", param=param)


def _refuse(is_given: object, param: str, why: str) -> None:
    if is_given:
        raise RefusedRequest(400, why, code="unsupported_parameter", param=param)


def _json_format(requested: Format | None, param: str) -> JsonFormat | None:
    """Return the JSON that a reply must be; None for text."""
    if requested is None or requested.type == "text":
        return None
    if requested.type == "json_object":
        return JsonFormat()
    is_known = requested.type == "json_schema"
    _refuse(not is_known, param, "Formats are text, json_object and json_schema.")
    inner = requested.json_schema
    schema = inner.schema if inner is not None else requested.schema
    if schema is None:
        raise _bad_value("The format json_schema needs a schema.", param)
    strict = inner.strict if inner is not None else requested.strict
    return JsonFormat(schema, bool(strict))


def _to_request(messages: Sequence[Message], where: str) -> AgentRequest:
    """Split messages into the last one, the history before it, and the instructions."""
    exchanged = [(i, m) for i, m in enumerate(messages) if m.role in ("user", "assistant")]
    if not exchanged or exchanged[-1][1].role != "user":
        raise _bad_value(f"{where} must end with a message of the user.", where)
    *earlier, (number, last) = exchanged
    request = AgentRequest(
        text=_text(last.content),
        pictures=_pictures(last.content, f"{where}[{number}].content"),
        history=[
            {"role": message.role, "content": content}
            for index, message in earlier
            if (content := _history(message.content, f"{where}[{index}].content"))
        ],
        instructions="\n\n".join(
            text
            for message in messages
            if message.role in ("system", "developer") and (text := _text(message.content))
        ),
    )
    if not request.text.strip() and not request.pictures:
        raise _bad_value("The message is empty.", f"{where}[{number}].content")
    return request


def _text(content: str | list[Part] | None) -> str:
    if not isinstance(content, list):
        return content or ""
    return "\n".join(text for part in content if (text := _part_text(part)))


def _part_text(part: Part) -> str:
    match part:
        case ImagePart() | InputImagePart():
            return ""
        case RefusalPart():
            return part.refusal
        case _:
            return part.text


def _history(content: str | list[Part] | None, where: str) -> str | list[dict[str, Any]]:
    """Convert an earlier message to the form that models know: text, or text and pictures."""
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
    """Return the data URLs of pictures, each with its parsed head and its path in the body."""
    if not isinstance(content, list):
        return []
    found_urls = list[tuple[str, re.Match[str], str]]()
    for index, part in enumerate(content):
        if not isinstance(part, ImagePart | InputImagePart):
            continue
        url = part.image_url.url if isinstance(part, ImagePart) else part.image_url
        param = f"{where}[{index}].image_url"
        found = _DATA_URL.match(url)
        if found is None:
            text = "Send pictures inside the request: data:image/png;base64,…"
            raise RefusedRequest(400, text, code="invalid_image_url", param=param)
        found_urls.append((url, found, param))
    return found_urls


def _bytes(text: str, param: str) -> bytes:
    try:
        content = base64.b64decode(text, validate=True)
    except ValueError:
        content = b""
    if not content:
        raise RefusedRequest(
            400, "The picture is not valid base64.", code="invalid_image", param=param
        )
    return content
