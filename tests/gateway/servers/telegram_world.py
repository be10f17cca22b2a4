"""The world behind the Bot API double: chats and messages, and what people do and see in them.

Everything a person can do is a method here; it becomes an update for the bot, as at Telegram. Messages
are kept in the shape in which the Bot API tells them.
"""

import itertools
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from hermes_core import clock

Json = dict[str, Any]

TIMEOUT_S = 10.0
"""How long `wait_for` waits for what a test expects."""

_COMMAND = re.compile(r"(?<!\S)/[A-Za-z0-9_]{1,32}(?:@[A-Za-z0-9_]{3,32})?")
_MENTION = re.compile(r"(?<!\w)@[A-Za-z0-9_]{3,32}")
_GENERAL_TOPIC = 1


class Refusal(Exception):
    """What the Bot API answers instead of a result."""

    def __init__(self, code: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters


class Person(NamedTuple):
    """Somebody who writes to the bot; their direct chat has their id."""

    id: int
    name: str
    username: str = ""

    @property
    def as_json(self) -> Json:
        fields = {"id": self.id, "is_bot": False, "first_name": self.name}
        return fields | ({"username": self.username} if self.username else {})


ANNA = Person(1001, "Anna", "anna")
BEN = Person(1002, "Ben", "ben")


class ShownMessage(NamedTuple):
    """A message as somebody who looks into the chat sees it."""

    id: int
    text: str
    is_bot: bool
    thread: int | None
    reply_to: int | None
    buttons: tuple[str, ...]
    entities: tuple[Json, ...]
    file: bytes | None


@dataclass
class Chat:
    """A chat, its messages in order, and whether the bot may write there."""

    about: Json
    messages: dict[int, Json] = field(default_factory=dict[int, Json])
    topics: dict[int, str] = field(default_factory=dict[int, str])
    ids: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    is_blocked: bool = False
    moved_to: int | None = None

    @property
    def id(self) -> int:
        return self.about["id"]


def utf16(text: str) -> int:
    """The length as Telegram counts it."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


class World:
    """All chats of one bot. Its methods may be called from any thread."""

    def __init__(self, bot: Json) -> None:
        self.bot = bot
        self.changed = threading.Condition(threading.RLock())
        self.chats: dict[int, Chat] = {}
        self.updates: list[Json] = []
        self.allowed: list[str] = []
        self.files: dict[str, tuple[str, bytes]] = {}
        self.queries: dict[str, str | None] = {}
        """Pressed buttons, and what the bot answered."""
        self.actions: list[tuple[int, str]] = []
        self.commands: list[Json] = []
        self.calls: Counter[str] = Counter()
        """How often each method was carried out."""
        self._update_ids = itertools.count(700_000_001)
        self._names = itertools.count(1)

    # What people do.

    def add_chat(
        self, chat_id: int, kind: str, title: str = "", topics: Mapping[int, str] | None = None
    ) -> int:
        """Make a group, supergroup or channel; with topics it is a forum."""
        with self.changed:
            about: Json = {"id": chat_id, "type": kind, "title": title or f"Chat {chat_id}"}
            if topics is not None:
                about["is_forum"] = True
            self.chats[chat_id] = Chat(about, topics=dict(topics or {}))
        return chat_id

    def write(
        self,
        text: str,
        *,
        person: Person = ANNA,
        chat: int | None = None,
        **more: Any,
    ) -> int:
        """Somebody writes; `more` are parameters of `deliver`. The id of the message comes back."""
        return self.deliver({"text": text, "entities": _entities(text)}, person, chat, **more)

    def attach(
        self,
        kind: str,
        content: bytes,
        *,
        person: Person = ANNA,
        chat: int | None = None,
        caption: str = "",
        size: int | None = None,
        about: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> int:
        """Somebody sends a photo, document, voice, audio, video or sticker."""
        description: Json = {"file_size": len(content) if size is None else size, **(about or {})}
        file: Json = self.keep_file(content, description.get("file_name", kind)) | description
        body: Json = {kind: [file | {"width": 8, "height": 8}] if kind == "photo" else file}
        if caption:
            body |= {"caption": caption, "caption_entities": _entities(caption)}
        return self.deliver(body, person, chat, **more)

    def deliver(
        self,
        body: Mapping[str, Any],
        person: Person | None = ANNA,
        chat: int | None = None,
        *,
        thread: int | None = None,
        reply_to: int | None = None,
        **more: Any,
    ) -> int:
        """Put a message into a chat and tell the bot; without a person it is a post of a channel."""
        with self.changed:
            place = self._chat_of(person, chat)
            message = self.new_message(place, dict(body), thread=thread, reply_to=reply_to)
            message |= {"from": person.as_json} if person else {"sender_chat": place.about}
            message |= more
            self.tell("message" if person else "channel_post", message)
            return message["message_id"]

    def edit(self, message_id: int, text: str, *, chat: int = ANNA.id) -> None:
        """Somebody changes what they wrote."""
        with self.changed:
            message = self.chats[chat].messages[message_id]
            message |= {"text": text, "entities": _entities(text), "edit_date": int(clock.now())}
            self.tell("edited_message" if "from" in message else "edited_channel_post", message)

    def press(
        self, message_id: int, label: str, *, person: Person = ANNA, chat: int = ANNA.id
    ) -> str:
        """Somebody presses a button under a message of the bot; the id of the query comes back."""
        with self.changed:
            message = self.chats[chat].messages[message_id]
            rows = message.get("reply_markup", {}).get("inline_keyboard", [])
            button = next(key for row in rows for key in row if key["text"] == label)
            query = str(9_000_000 + next(self._names))
            self.queries[query] = None
            self.tell(
                "callback_query",
                {
                    "id": query,
                    "from": person.as_json,
                    "chat_instance": str(chat),
                    "message": message,
                    "data": button["callback_data"],
                },
            )
            return query

    def block(self, chat: int = ANNA.id, *, is_blocked: bool = True) -> None:
        """Somebody blocks the bot, or lets it in again."""
        with self.changed:
            self.chats[chat].is_blocked = is_blocked

    def upgrade(self, chat: int, new_id: int, *, is_told: bool = True) -> int:
        """A group becomes a supergroup, under another id and with message ids that begin anew."""
        with self.changed:
            old = self.chats[chat]
            old.moved_to = self.add_chat(new_id, "supergroup", old.about["title"])
            if is_told:
                self.tell_upgrade(chat, "old")
                self.tell_upgrade(chat, "new")
        return new_id

    def tell_upgrade(self, chat: int, where: Literal["old", "new"]) -> None:
        """Telegram says in one of the two chats that the group became a supergroup."""
        with self.changed:
            new_id = self.chats[chat].moved_to
            if new_id is None:
                raise ValueError(f"The chat {chat} did not move.")
            if where == "old":
                self.deliver({"migrate_to_chat_id": new_id}, ANNA, chat)
            else:
                self.deliver({"migrate_from_chat_id": chat}, ANNA, new_id)

    # What people see.

    def shown(self, chat: int = ANNA.id, *, thread: int | None = None) -> list[ShownMessage]:
        """The messages of a chat or a topic, in order, as they read now."""
        with self.changed:
            place = self.chats.get(chat)
            messages = place.messages.values() if place else ()
            seen = [self._seen(message) for message in messages]
        return [message for message in seen if thread is None or message.thread == thread]

    def replies(self, chat: int = ANNA.id, *, thread: int | None = None) -> list[str]:
        """What the bot wrote into a chat."""
        return [message.text for message in self.shown(chat, thread=thread) if message.is_bot]

    def wait_for(self, is_so: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
        """Wait until something has become so; raises TimeoutError."""
        with self.changed:
            if not self.changed.wait_for(is_so, timeout_s):
                raise TimeoutError(f"It did not happen within {timeout_s} s. Calls: {self.calls}")

    # What the methods of the Bot API use.

    def new_message(
        self, chat: Chat, body: Json, *, thread: int | None = None, reply_to: int | None = None
    ) -> Json:
        """Add a message to a chat; the caller holds `changed`."""
        message: Json = {
            "message_id": next(chat.ids),
            "date": int(clock.now()),
            "chat": chat.about,
        } | {key: value for key, value in body.items() if value not in (None, [])}
        if thread is not None and thread != _GENERAL_TOPIC:
            message |= {"message_thread_id": thread, "is_topic_message": True}
        if reply_to is not None:
            replied = chat.messages[reply_to]
            message["reply_to_message"] = {
                key: value for key, value in replied.items() if key != "reply_to_message"
            }
        chat.messages[message["message_id"]] = message
        self.changed.notify_all()
        return message

    def tell(self, kind: str, payload: Mapping[str, Any]) -> int:
        """Queue an update for the bot, unless it asked for other kinds only."""
        with self.changed:
            number = next(self._update_ids)
            if not self.allowed or kind in self.allowed:
                self.updates.append({"update_id": number, kind: dict(payload)})
            self.changed.notify_all()
            return number

    def confirm(self, below: int) -> None:
        """Forget the updates that the bot has seen."""
        with self.changed:
            self.updates = [update for update in self.updates if update["update_id"] >= below]
            self.changed.notify_all()

    def keep_file(self, content: bytes, name: str) -> Json:
        """Store a file; what the Bot API says about it comes back."""
        with self.changed:
            number = next(self._names)
            self.files[f"file-{number}"] = (f"files/{number}_{name}", content)
            return {"file_id": f"file-{number}", "file_unique_id": f"unique-{number}"}

    def _chat_of(self, person: Person | None, chat: int | None) -> Chat:
        if chat is None:
            if person is None:
                raise ValueError("A post needs a channel.")
            about = {"id": person.id, "type": "private", "first_name": person.name}
            self.chats.setdefault(person.id, Chat(about))
            chat = person.id
        return self.chats[chat]

    def _seen(self, message: Json) -> ShownMessage:
        rows: Sequence[Sequence[Json]] = message.get("reply_markup", {}).get("inline_keyboard", ())
        held = message.get("document") or next(iter(message.get("photo", ())), None)
        return ShownMessage(
            id=message["message_id"],
            text=message.get("text") or message.get("caption") or "",
            is_bot=message.get("from", {}).get("id") == self.bot["id"],
            thread=message.get("message_thread_id"),
            reply_to=message.get("reply_to_message", {}).get("message_id"),
            buttons=tuple(button["text"] for row in rows for button in row),
            entities=tuple(message.get("entities", ())),
            file=self.files[held["file_id"]][1] if held else None,
        )


def _entities(text: str) -> list[Json]:
    """The commands and names in a text, marked as Telegram marks them."""
    found = [("bot_command", match) for match in _COMMAND.finditer(text)]
    found += [("mention", match) for match in _MENTION.finditer(text)]
    return [
        {"type": kind, "offset": utf16(text[: match.start()]), "length": utf16(match[0])}
        for kind, match in sorted(found, key=lambda pair: pair[1].start())
    ]
