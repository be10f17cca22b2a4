"""A Telegram bot on the double, and an ingress that shows what arrived."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import MessageEvent, PlatformError, Receipt
from gateway.platforms.telegram.adapter import TelegramAdapter
from gateway.platforms.telegram.manifest import TelegramSettings
from tests.gateway.platforms.scripted_ingress import TIMEOUT_S, Loop, ScriptedIngress
from tests.gateway.servers.telegram import BotApi


class Ingress(ScriptedIngress):
    """Takes messages in unless it is told to fail, when the gate is open; returns by the way out."""

    def __init__(self) -> None:
        super().__init__()
        self.receipt = Receipt("turn")
        self.errors: deque[Exception] = deque()
        self.arrivals: list[str | None] = []
        """Every message that was handed in, taken or not, and every chat that one moved to."""
        self.stored_ids = set[str]()
        """Messages that an earlier process accepted."""
        self.gate, self.way_out = threading.Event(), threading.Event()
        self.gate.set()
        self.way_out.set()
        self._changed = threading.Condition()

    async def accept(self, event: MessageEvent) -> Receipt:
        if event.must_be_known:
            outcome = "turn" if event.message_id in self.stored_ids else "ignored"
            return Receipt(outcome, is_new=False)
        self.arrivals.append(event.message_id)
        self._tell()
        await asyncio.to_thread(self.gate.wait, TIMEOUT_S)
        if self.errors:
            raise self.errors.popleft()
        receipt = await super().accept(event)
        self._tell()
        await asyncio.to_thread(self.way_out.wait, TIMEOUT_S)
        return receipt

    async def moved(self, platform: Platform, old_chat: str, new_chat: str) -> None:
        self.arrivals.append(new_chat)
        self._tell()
        await asyncio.to_thread(self.gate.wait, TIMEOUT_S)
        if self.errors:
            raise self.errors.popleft()
        await super().moved(platform, old_chat, new_chat)

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(is_so, TIMEOUT_S), f"Arrived: {self.arrivals}"

    def wait_for_events(self, count: int = 1) -> list[MessageEvent]:
        """Wait until so many messages are taken in; all of them come back."""
        self.wait_for(lambda: len(self.events) >= count)
        return self.events

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()


@dataclass
class Running:
    """A connected bot."""

    adapter: TelegramAdapter
    loop: Loop
    lost: list[PlatformError] = field(default_factory=list[PlatformError])
    is_lost: threading.Event = field(default_factory=threading.Event)

    def send(self, *args: Any, **named: Any) -> Any:
        return self.loop.run(self.adapter.send(*args, **named))

    def edit(self, *args: Any, **named: Any) -> Any:
        return self.loop.run(self.adapter.edit_message(*args, **named))

    def disconnect(self) -> None:
        self.loop.run(self.adapter.disconnect())

    def crash(self) -> None:
        """End as a killed process does: nothing is finished, nothing is confirmed."""
        self.loop.run(_abandon(self.adapter))


async def _abandon(adapter: TelegramAdapter) -> None:
    wire, receiving = adapter._wire, adapter._receiving
    adapter._wire = adapter._receiving = adapter._stop = None
    assert wire is not None and receiving is not None
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    await wire.shutdown()


@contextmanager
def unconnected(api: BotApi, ingress: Ingress, **settings: Any) -> Generator[Running]:
    """A bot that is still to connect."""
    options: dict[str, Any] = {"token": api.token, "api_url": api.url, "poll_s": 20} | settings
    adapter = TelegramAdapter(PlatformConfig(enabled=True), TelegramSettings(**options))
    adapter.pause_s = 0.01
    running = Running(adapter, Loop())

    def lost(error: PlatformError) -> None:
        running.lost.append(error)
        running.is_lost.set()

    adapter.set_ingress(ingress, lost)
    try:
        yield running
        ingress.gate.set()
        running.disconnect()
    finally:
        running.loop.close()


@contextmanager
def running(api: BotApi, ingress: Ingress, **settings: Any) -> Generator[Running]:
    """A bot that hears and can send."""
    with unconnected(api, ingress, **settings) as bot:
        bot.loop.run(bot.adapter.connect())
        yield bot
