"""An email adapter between a mail server and an ingress, as tests use it."""

import imaplib
import itertools
import queue
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.config import PlatformConfig
from gateway.locks import AccountLock
from gateway.platforms.base import MessageEvent, PlatformError, Receipt
from gateway.platforms.email.adapter import EmailAdapter
from gateway.platforms.email.manifest import EmailSettings
from tests.gateway.platforms.scripted_ingress import TIMEOUT_S, Loop, ScriptedIngress
from tests.gateway.servers.mail import DOMAIN, PASSWORD, Faults, MailServer, letter, mail_server

ANN = "ann@people.test"
_numbers = itertools.count()


class WaitingIngress(ScriptedIngress):
    """An ingress that can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_count = 0
        self._news = threading.Condition()

    async def accept(self, event: MessageEvent) -> Receipt:
        try:
            return await super().accept(event)
        finally:
            with self._news:
                self.asked_count += 1
                self._news.notify_all()

    def wait_for(self, count: int) -> list[MessageEvent]:
        """The messages so far, once there are that many."""
        with self._news:
            if not self._news.wait_for(lambda: len(self.events) >= count, TIMEOUT_S):
                raise TimeoutError(f"{len(self.events)} messages instead of {count}")
        return self.events

    def wait_until_asked(self, count: int) -> None:
        with self._news:
            if not self._news.wait_for(lambda: self.asked_count >= count, TIMEOUT_S):
                raise TimeoutError(f"asked {self.asked_count} times instead of {count}")


class Bot:
    """A mailbox that Hermes answers; the adapter may be stopped and made anew."""

    def __init__(self, server: MailServer, home: Path, name: str, **changes: Any) -> None:
        self.address = f"{name}@{DOMAIN}"
        settings: dict[str, Any] = {
            "address": self.address,
            "password": server.password,
            "imap_host": "127.0.0.1",
            "imap_port": server.imap_port,
            "smtp_port": server.smtp_port,
            "imap_security": "plain",
            "smtp_security": "plain",
            "find_sent_s": 0.0,
        }
        self.settings = EmailSettings(**settings | changes)
        self.ingress = WaitingIngress()
        self.lost: queue.Queue[PlatformError] = queue.Queue()
        self.loop = Loop()
        self._folder = home / name
        self.lock: AccountLock | None = None
        """The account as the gateways of all homes hold it."""
        self.adapter = self._make()

    def _make(self) -> EmailAdapter:
        adapter = EmailAdapter(PlatformConfig(enabled=True), self.settings, self._folder)
        adapter.set_ingress(self.ingress, self.lost.put)
        return adapter

    def start(self) -> None:
        """A new life of the adapter, as after a crash or a lost connection."""
        self.adapter = self._make()
        if self.lock is not None:
            self.lock.take()
            self.adapter.mark = self.lock.mark
        self.loop.run(self.adapter.connect())

    def stop(self) -> None:
        self.loop.run(self.adapter.disconnect())
        if self.lock is not None:
            self.lock.release()

    def send(self, to: str, text: str, reply_to: str | None = None, **metadata: Any) -> Any:
        return self.loop.run(self.adapter.send(to, text, reply_to, metadata or None))  # type: ignore[arg-type]

    def find_sent(self, to: str, key: str) -> str | None:
        return self.loop.run(self.adapter.find_sent(to, key))


@contextmanager
def bot(server: MailServer, home: Path, name: str, **changes: Any) -> Generator[Bot]:
    """A bot that is connected for the length of a block."""
    client = Bot(server, home, name, **changes)
    try:
        client.start()
        yield client
    finally:
        client.stop()
        client.loop.close()


@pytest.fixture(scope="module")
def running() -> Iterator[MailServer]:
    with mail_server() as mail:
        yield mail


@pytest.fixture
def server(running: MailServer) -> Iterator[MailServer]:
    yield running
    running.faults = Faults()
    running.verdict = ""
    running.sent.clear()


@pytest.fixture
def name() -> str:
    """A mailbox that no other test has."""
    return f"bot{next(_numbers)}"


def write(server: MailServer, to: Bot, text: str = "Hello", **parts: str) -> None:
    """A mail from Ann."""
    headers: dict[str, Any] = {"message_id": f"<{next(_numbers)}@people.test>"} | parts
    server.deliver(letter(ANN, to.address, text, **headers), to.address)


def flags(server: MailServer, bot: Bot, folder: str = "INBOX") -> dict[str, bool]:
    """The Message-IDs in a folder, and whether they are marked as read."""
    client = imaplib.IMAP4("127.0.0.1", server.imap_port)
    try:
        client.login(bot.address, PASSWORD)
        client.select(folder, readonly=True)
        _, answer = client.fetch("1:*", "(FLAGS BODY.PEEK[HEADER.FIELDS (MESSAGE-ID)])")
        pairs = [pair for pair in answer if isinstance(pair, tuple)]
        return {
            text.decode().partition(":")[2].strip(): b"\\Seen" in values for values, text in pairs
        }
    finally:
        client.logout()
