"""Chats that get another id on their platform: known by their first one, found where they are now."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.chat_migrations import ChatMigrations
from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import (
    Abilities,
    BasePlatformAdapter,
    MessageEvent,
    SendMetadata,
    SendResult,
)
from gateway.source import SessionSource
from hermes_core.errors import StoreFullError
from hermes_core.paths import Home
from hermes_state import SessionDB
from hermes_state.ledger import meta
from tests.support.faults import disk_full_at

_TELEGRAM = Platform.TELEGRAM


class Recorded(BasePlatformAdapter):
    """Remembers what it is asked for."""

    abilities = Abilities(text_limit=100, can_edit=True)

    def __init__(self) -> None:
        super().__init__(PlatformConfig(enabled=True), _TELEGRAM)
        self.calls: list[tuple[Any, ...]] = []

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        return is_reconnect

    async def disconnect(self) -> None: ...

    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: SendMetadata | None = None,
    ) -> SendResult:
        self.calls.append((chat_id, reply_to, (metadata or {}).get("thread_id")))
        return SendResult(True, "55", continuation_message_ids=("56",))

    async def edit_message(
        self, chat_id: str, message_id: str, content: str, metadata: SendMetadata | None = None
    ) -> SendResult:
        self.calls.append((chat_id, message_id))
        return SendResult(True, message_id)

    async def find_sent(self, chat_id: str, key: str) -> str | None:
        self.calls.append((chat_id, key))
        return "77"


@pytest.fixture
def db(home: Home) -> Iterator[SessionDB]:
    home.create()
    with SessionDB(home.database) as database:
        yield database


def moves(db: SessionDB, *spoken_in: str) -> ChatMigrations:
    return ChatMigrations(db, ["telegram"], lambda _platform, chat: chat in spoken_in)


def note(migrations: ChatMigrations, old: str, new: str) -> None:
    asyncio.run(migrations.record(_TELEGRAM, old, new))


def event_in(migrations: ChatMigrations, chat: str, **more: Any) -> MessageEvent:
    event = MessageEvent("hello", source=SessionSource(_TELEGRAM, chat), message_id="5")
    for name, value in more.items():
        setattr(event.source if name == "thread_id" else event, name, value)
    migrations.translate(event)
    return event


def through(migrations: ChatMigrations) -> tuple[BasePlatformAdapter, Recorded]:
    adapter = Recorded()
    return migrations.forwarding("telegram", adapter), adapter


def place(event: MessageEvent) -> tuple[str, str | None]:
    assert event.source is not None
    return event.source.chat_id, event.message_id


def test_a_chat_that_moved_twice_is_one_chat_after_a_restart_too(db: SessionDB) -> None:
    migrations = moves(db)
    note(migrations, "a", "b")
    note(migrations, "b", "c")
    for each in (migrations, moves(db)):
        assert place(event_in(each, "a")) == ("a", "5")
        assert place(event_in(each, "b")) == ("a", "b/5")
        assert place(event_in(each, "c")) == ("a", "c/5")
        assert place(event_in(each, "d")) == ("d", "5")
        following, adapter = through(each)
        asyncio.run(following.send("a", "hello"))
        asyncio.run(following.send("d", "hello"))
        assert [call[0] for call in adapter.calls] == ["c", "d"]


def test_to_hear_of_a_move_again_changes_nothing(db: SessionDB) -> None:
    migrations = moves(db)
    note(migrations, "a", "b")
    noted = db.read(meta.get, "gateway.moved.telegram")
    note(migrations, "a", "b")
    assert db.read(meta.get, "gateway.moved.telegram") == noted


def test_a_message_keeps_its_names_however_often_it_is_handed_in(db: SessionDB) -> None:
    migrations = moves(db)
    note(migrations, "a", "b")
    event = event_in(migrations, "b", edits="4", reply_to_message_id="3", thread_id="2")
    migrations.translate(event)
    assert place(event) == ("a", "b/5")
    assert (event.edits, event.reply_to_message_id) == ("b/4", "b/3")
    assert event.source is not None and event.source.thread_id == "b/2"


def test_names_are_good_in_the_chat_that_gave_them_alone(db: SessionDB) -> None:
    migrations = moves(db)
    following, adapter = through(migrations)
    before = asyncio.run(following.send("a", "one", "5", {"thread_id": "2"}))
    note(migrations, "a", "b")
    asyncio.run(following.send("a", "two", "5", {"thread_id": "2"}))
    after = asyncio.run(following.send("a", "three", "b/5", {"thread_id": "b/2"}))
    assert adapter.calls == [("a", "5", "2"), ("b", None, None), ("b", "5", "2")]
    assert (before.message_id, after.message_id) == ("55", "b/55")
    assert after.continuation_message_ids == ("b/56",)
    assert asyncio.run(following.find_sent("a", "key")) == "b/77"

    assert asyncio.run(following.edit_message("a", "55", "new")).error_kind == "refused"
    edited = asyncio.run(following.edit_message("a", "b/55", "new"))
    assert edited.success and edited.message_id == "b/55"
    assert adapter.calls[-1] == ("b", "55")


def test_a_chat_with_a_conversation_of_its_own_keeps_it_and_gets_what_was_for_the_old_one(
    db: SessionDB,
) -> None:
    migrations = moves(db, "b")
    note(migrations, "a", "b")
    assert place(event_in(migrations, "b")) == ("b", "5")
    following, adapter = through(migrations)
    asyncio.run(following.send("a", "for the old one", "5"))
    asyncio.run(following.send("b", "for this one", "5"))
    assert adapter.calls == [("b", None, None), ("b", "5", None)]


def test_a_chat_that_is_said_to_be_where_it_was_is_there(db: SessionDB) -> None:
    migrations = moves(db)
    note(migrations, "a", "b")
    note(migrations, "b", "a")
    following, adapter = through(migrations)
    asyncio.run(following.send("a", "hello", "5"))
    assert adapter.calls == [("a", "5", None)]


def test_a_move_that_cannot_be_stored_did_not_happen(db: SessionDB) -> None:
    migrations = moves(db)
    with disk_full_at(db, "INSERT ON meta"), pytest.raises(StoreFullError):
        note(migrations, "a", "b")
    assert place(event_in(migrations, "b")) == ("b", "5")
    note(migrations, "a", "b")
    assert place(event_in(migrations, "b")) == ("a", "b/5")
