"""Telegram passes the kit, on the double of its Bot API."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from gateway.config import PlatformConfig
from gateway.platforms.base import BasePlatformAdapter
from gateway.platforms.telegram.adapter import TelegramAdapter
from gateway.platforms.telegram.manifest import TelegramSettings
from gateway.platforms.testing.conformance import PlatformConformance
from gateway.platforms.testing.world import World
from tests.gateway.servers.ports import free_port
from tests.gateway.servers.telegram import BotApi, Cut, Fail
from tests.gateway.servers.telegram_world import ANNA, BEN


class TelegramWorld(World):
    chat = str(ANNA.id)

    def __init__(self, api: BotApi, **settings: Any) -> None:
        self.api = api
        options: dict[str, Any] = {"token": api.token, "api_url": api.url, "poll_s": 5}
        self._settings = options | settings
        self._is_cut = False

    def make(self) -> BasePlatformAdapter:
        adapter = TelegramAdapter(PlatformConfig(enabled=True), TelegramSettings(**self._settings))
        adapter.pause_s = 0.01
        return adapter

    def write(self, text: str) -> str:
        return str(self.api.world.write(text))

    def edit(self, name: str, text: str) -> None:
        self.api.world.edit(int(name), text)

    def attach(self, content: bytes, name: str, text: str) -> None:
        self.api.world.attach("document", content, caption=text, about={"file_name": name})

    def fetched(self) -> int:
        return self.api.count("getFile")

    def press(self, label: str) -> None:
        newest = self.api.world.shown()[-1]
        self.api.world.press(newest.id, label)

    def deliver_again(self, name: str) -> None:
        self.api.world.tell("message", self._messages()[int(name)])

    def write_out_of_order(self, texts: Sequence[str]) -> None:
        world = self.api.world
        with world.changed:
            numbers = [world.write(text) for text in texts]
            world.updates = [update for update in world.updates if "message" not in update]
            for number in reversed(numbers):
                world.tell("message", self._messages()[number])

    def write_odd(self) -> None:
        world = self.api.world
        world.tell("message", {"message_id": "no number", "chat": 7})
        world.tell(
            "message", {"message_id": 90_001, "date": 0, "chat": {"id": ANNA.id, "type": "?"}}
        )
        world.tell("something_new", {"of": ["next", "year"]})
        world.deliver({"new_chat_title": "a title"})

    def visible_texts(self) -> list[str]:
        return self.api.world.replies()

    def typed(self) -> int:
        return self.api.world.actions.count((ANNA.id, "typing"))

    def files(self) -> list[bytes]:
        return [
            message.file for message in self.api.world.shown() if message.is_bot and message.file
        ]

    def cut(self) -> None:
        self.api.go_offline()
        self._is_cut = True

    def heal(self) -> None:
        if self._is_cut:
            self.api.go_online()
            self._is_cut = False

    def restart(self) -> None:
        self.cut()
        self.heal()

    def lose_next_answer(self) -> None:
        self.api.fail("sendMessage", Cut("after"))

    def limit_next_send(self) -> None:
        self.api.fail("sendMessage", Fail(429, "Too Many Requests: retry after 1", retry_after=1))

    def closed_chat(self) -> str:
        self.api.world.write("hello", person=BEN)
        self.api.world.block(BEN.id)
        return str(BEN.id)

    def _messages(self) -> dict[int, Any]:
        return self.api.world.chats[ANNA.id].messages


class TestTelegramPolling(PlatformConformance):
    @pytest.fixture
    def world(self) -> Iterator[TelegramWorld]:
        with BotApi() as api:
            yield TelegramWorld(api)


class TestTelegramWebhook(PlatformConformance):
    @pytest.fixture
    def world(self) -> Iterator[TelegramWorld]:
        port = free_port()
        url = f"http://127.0.0.1:{port}/hook"
        with BotApi() as api:
            yield TelegramWorld(api, mode="webhook", webhook_url=url, webhook_port=port)
