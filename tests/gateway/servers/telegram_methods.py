"""The methods of the Bot API as the double carries them out: strict about what it is given.

A method is a function of the world and a call. It returns the result or raises the refusal that Telegram
would send, in Telegram's words, because clients tell them apart by these.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from tests.gateway.servers.telegram_world import Chat, Json, Refusal, World, utf16

TEXT_LIMIT = 4096
CAPTION_LIMIT = 1024
FILE_LIMIT = 20_000_000
PHOTO_LIMIT = 10_000_000
UPLOAD_LIMIT = 50_000_000
_DATA_LIMIT = 64
_MENU_BYTES = 5300
"""Found by those who tried; Telegram says nothing of it."""
_ENTITY_TYPES = {
    "mention", "hashtag", "cashtag", "bot_command", "url", "email", "phone_number", "bold", "italic",
    "underline", "strikethrough", "spoiler", "blockquote", "expandable_blockquote", "code", "pre",
    "text_link", "text_mention", "custom_emoji",
}  # fmt: skip
_ENTITY_BYTES = 12
_LOOKS_BYTES = 9500
"""What the entities of a message may come to, about; the addresses of links are a part of them."""
_QUOTES = ("blockquote", "expandable_blockquote")
_ACTIONS = {"typing", "upload_photo", "record_voice", "upload_voice", "upload_document"}
_COMMAND_NAME = re.compile(r"[a-z0-9_]{1,32}")
_PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF")
_LONGEST_SIDES = 10_000
"""The most that the width and the height of a photo may come to."""
_LONGEST_RATIO = 20


class Call(NamedTuple):
    """What a client asks for: parameters as they came, and the files with them."""

    params: Mapping[str, Any]
    files: Mapping[str, tuple[str, bytes]]

    def value(self, name: str) -> Any:
        """A parameter, read as JSON where it was sent as text."""
        found = self.params.get(name)
        if not isinstance(found, str):
            return found
        try:
            return json.loads(found)
        except ValueError:
            return found

    def text(self, name: str) -> str:
        found = self.params.get(name, "")
        return found if isinstance(found, str) else json.dumps(found)

    def integer(self, name: str, default: int = 0) -> int:
        found = self.value(name)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, int):
            raise Refusal(400, f"Bad Request: invalid {name} specified")
        return found

    def mapping(self, name: str) -> Json:
        found = self.value(name)
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise Refusal(400, f"Bad Request: can't parse {name} JSON object")
        return cast("Json", found)

    def listing(self, name: str) -> list[Json]:
        found = self.value(name)
        if found is None:
            return []
        if not isinstance(found, list):
            raise Refusal(400, f"Bad Request: can't parse {name} JSON object")
        return cast("list[Json]", found)


Method = Callable[[World, Call], Any]


def get_me(world: World, _call: Call) -> Json:
    return world.bot


def get_chat(world: World, call: Call) -> Json:
    return _chat(world, call).about | {"accent_color_id": 0, "max_reaction_count": 11}


def send_message(world: World, call: Call) -> Json:
    chat = _chat(world, call)
    text = call.text("text").rstrip()
    if not text:
        raise Refusal(400, "Bad Request: message text is empty")
    if utf16(text) > TEXT_LIMIT:
        raise Refusal(400, "Bad Request: message is too long")
    return _post(world, chat, call, {"text": text, "entities": _entities(call, "entities", text)})


def send_document(world: World, call: Call) -> Json:
    name, content = _upload(world, call, "document")
    file = world.keep_file(content, name) | {"file_name": name, "file_size": len(content)}
    return _post(world, _chat(world, call), call, {"document": file, **_caption(call)})


def send_photo(world: World, call: Call) -> Json:
    name, content = _upload(world, call, "photo")
    if not content.startswith(_PICTURES) or len(content) > PHOTO_LIMIT:
        raise Refusal(400, "Bad Request: IMAGE_PROCESS_FAILED")
    short, long = sorted(_sides(content))
    if short + long > _LONGEST_SIDES or long > short * _LONGEST_RATIO:
        raise Refusal(400, "Bad Request: PHOTO_INVALID_DIMENSIONS")
    size = world.keep_file(content, name) | {"width": 8, "height": 8, "file_size": len(content)}
    return _post(world, _chat(world, call), call, {"photo": [size], **_caption(call)})


def edit_message_text(world: World, call: Call) -> Json:
    message = _own_message(world, call, "edit")
    text = call.text("text").rstrip()
    if not text:
        raise Refusal(400, "Bad Request: message text is empty")
    if utf16(text) > TEXT_LIMIT:
        raise Refusal(400, "Bad Request: MESSAGE_TOO_LONG")
    new = {
        "text": text,
        "entities": _entities(call, "entities", text),
        "reply_markup": _markup(call),
    }
    if new == {"entities": [], "reply_markup": None} | {
        key: message[key] for key in new if key in message
    }:
        raise Refusal(
            400,
            "Bad Request: message is not modified: specified new message content and reply markup are "
            "exactly the same as a current content and reply markup of the message",
        )
    for key, value in new.items():
        message.pop(key, None)
        if value:
            message[key] = value
    world.changed.notify_all()
    return message


def delete_message(world: World, call: Call) -> bool:
    message = _own_message(world, call, "delete")
    del world.chats[message["chat"]["id"]].messages[message["message_id"]]
    world.changed.notify_all()
    return True


def send_chat_action(world: World, call: Call) -> bool:
    chat = _chat(world, call)
    if call.text("action") not in _ACTIONS:
        raise Refusal(400, "Bad Request: wrong parameter action in request")
    _thread(chat, call)
    world.actions.append((chat.id, call.text("action")))
    world.changed.notify_all()
    return True


def set_my_commands(world: World, call: Call) -> bool:
    commands = call.listing("commands")
    if len(commands) > 100:
        raise Refusal(400, "Bad Request: BOT_COMMANDS_TOO_MUCH")
    for command in commands:
        if not _COMMAND_NAME.fullmatch(str(command.get("command", ""))):
            raise Refusal(400, "Bad Request: BOT_COMMAND_INVALID")
        if not 1 <= len(str(command.get("description", ""))) <= 256:
            raise Refusal(400, "Bad Request: BOT_COMMAND_DESCRIPTION_INVALID")
    if (
        sum(len(f"{command['command']}{command['description']}".encode()) for command in commands)
        > _MENU_BYTES
    ):
        raise Refusal(400, "Bad Request: BOT_COMMANDS_TOO_MUCH")
    world.commands = commands
    return True


def get_my_commands(world: World, _call: Call) -> list[Json]:
    return world.commands


def answer_callback_query(world: World, call: Call) -> bool:
    query = call.text("callback_query_id")
    if query not in world.queries:
        raise Refusal(
            400,
            "Bad Request: query is too old and response timeout expired or query ID is invalid",
        )
    world.queries[query] = call.text("text")
    world.changed.notify_all()
    return True


def get_file(world: World, call: Call) -> Json:
    name = call.text("file_id")
    if name not in world.files:
        raise Refusal(400, "Bad Request: invalid file_id")
    path, content = world.files[name]
    if len(content) > FILE_LIMIT:
        raise Refusal(400, "Bad Request: file is too big")
    return {
        "file_id": name,
        "file_unique_id": f"unique-{name}",
        "file_size": len(content),
        "file_path": path,
    }


METHODS: Mapping[str, Method] = {
    "getMe": get_me,
    "getChat": get_chat,
    "sendMessage": send_message,
    "sendDocument": send_document,
    "sendPhoto": send_photo,
    "editMessageText": edit_message_text,
    "deleteMessage": delete_message,
    "sendChatAction": send_chat_action,
    "setMyCommands": set_my_commands,
    "getMyCommands": get_my_commands,
    "answerCallbackQuery": answer_callback_query,
    "getFile": get_file,
}
"""Updates and webhooks belong to the server, which has to wait and to call."""


def _chat(world: World, call: Call) -> Chat:
    chat = world.chats.get(call.integer("chat_id"))
    if chat is None:
        raise Refusal(400, "Bad Request: chat not found")
    if chat.moved_to is not None:
        raise Refusal(
            400,
            "Bad Request: group chat was upgraded to a supergroup chat",
            migrate_to_chat_id=chat.moved_to,
        )
    if chat.is_blocked:
        raise Refusal(403, "Forbidden: bot was blocked by the user")
    return chat


def _thread(chat: Chat, call: Call) -> int | None:
    thread = call.integer("message_thread_id")
    if thread and thread not in chat.topics:
        raise Refusal(400, "Bad Request: message thread not found")
    return thread or None


def _post(world: World, chat: Chat, call: Call, body: Json) -> Json:
    """Put a message of the bot into a chat."""
    thread, markup = _thread(chat, call), _markup(call)
    reply = call.mapping("reply_parameters")
    reply_to = reply.get("message_id")
    if reply and reply_to not in chat.messages:
        if not reply.get("allow_sending_without_reply"):
            raise Refusal(400, "Bad Request: message to be replied not found")
        reply_to = None
    body |= {"from": world.bot, "reply_markup": markup}
    return world.new_message(chat, body, thread=thread, reply_to=reply_to)


def _own_message(world: World, call: Call, verb: str) -> Json:
    message = _chat(world, call).messages.get(call.integer("message_id"))
    if message is None:
        raise Refusal(400, f"Bad Request: message to {verb} not found")
    if message.get("from", {}).get("id") != world.bot["id"]:
        raise Refusal(400, f"Bad Request: message can't be {verb.rstrip('e')}ed")
    return message


def _caption(call: Call) -> Json:
    caption = call.text("caption")
    if utf16(caption) > CAPTION_LIMIT:
        raise Refusal(400, "Bad Request: message caption is too long")
    entities = _entities(call, "caption_entities", caption)
    return {"caption": caption, "caption_entities": entities} if caption else {}


def _upload(world: World, call: Call, field: str) -> tuple[str, bytes]:
    """A file that is sent along, or one that the double knows."""
    named = call.text(field).removeprefix("attach://")
    if field in call.files or named in call.files:
        name, content = call.files[field if field in call.files else named]
        if len(content) > UPLOAD_LIMIT:
            raise Refusal(413, "Request Entity Too Large")
        return name, content
    if named in world.files:
        path, content = world.files[named]
        return path.rpartition("_")[2], content
    raise Refusal(400, f"Bad Request: there is no {field} in the request")


def _sides(picture: bytes) -> tuple[int, int]:
    """The width and the height of a PNG; of other pictures, some."""
    if picture[12:16] != b"IHDR":
        return 8, 8
    return int.from_bytes(picture[16:20]), int.from_bytes(picture[20:24])


def _markup(call: Call) -> Json | None:
    markup = call.mapping("reply_markup")
    if not markup:
        return None
    if set(markup) != {"inline_keyboard"}:
        raise Refusal(400, "Bad Request: object expected as reply markup")
    for button in (each for row in markup["inline_keyboard"] for each in row):
        if not str(button.get("text", "")).strip():
            raise Refusal(400, "Bad Request: inline keyboard button text must be non-empty")
        data = button.get("callback_data")
        if "url" not in button and not 1 <= len(str(data or "").encode()) <= _DATA_LIMIT:
            raise Refusal(400, "Bad Request: BUTTON_DATA_INVALID")
    return markup


def _entities(call: Call, field: str, text: str) -> list[Json]:
    """The entities of a text; they must lie within it, on whole characters, and nest."""
    if call.text("parse_mode"):
        raise Refusal(400, "Bad Request: unsupported parse_mode (the double reads entities only)")
    entities = call.listing(field)
    coded = text.encode("utf-16-le")
    for entity in entities:
        _check_entity(entity, coded)
    sizes = (_ENTITY_BYTES + len(str(entity.get("url", "")).encode()) for entity in entities)
    if sum(sizes) > _LOOKS_BYTES:
        raise Refusal(400, "Bad Request: ENTITIES_TOO_LONG")
    spans = sorted((entity["offset"], -entity["length"], entity["type"]) for entity in entities)
    outer: list[tuple[int, str]] = []
    for start, minus, kind in spans:
        while outer and outer[-1][0] <= start:
            outer.pop()
        if outer and (outer[-1][0] < start - minus or not _may_lie_in(kind, outer[-1][1])):
            raise Refusal(400, f"Bad Request: can't parse entities: {kind} within {outer[-1][1]}")
        outer.append((start - minus, kind))
    return entities


def _may_lie_in(inner: str, outer: str) -> bool:
    if inner in ("code", "pre"):
        return outer in _QUOTES
    return outer not in ("code", "pre") and not (inner in _QUOTES and outer in _QUOTES)


def _check_entity(entity: Json, coded: bytes) -> None:
    kind, offset, length = entity.get("type"), entity.get("offset"), entity.get("length")
    if kind not in _ENTITY_TYPES:
        raise Refusal(400, f"Bad Request: can't parse entities: unknown type {kind}")
    if not isinstance(offset, int) or not isinstance(length, int) or offset < 0 or length < 1:
        raise Refusal(400, "Bad Request: can't parse entities: wrong offset or length")
    if (offset + length) * 2 > len(coded):
        raise Refusal(400, "Bad Request: can't parse entities: they end after the text")
    for edge in (offset, offset + length):
        if 0xDC <= (coded[edge * 2 + 1] if edge * 2 < len(coded) else 0) <= 0xDF:
            raise Refusal(400, "Bad Request: entity begins in a middle of a UTF-16 symbol")
    if kind == "text_link" and not str(entity.get("url", "")):
        raise Refusal(400, "Bad Request: can't parse entities: a link needs a url")
