"""Loopback as the conformance kit meets it."""

from collections.abc import Sequence
from pathlib import Path

from gateway.config import PlatformConfig
from gateway.platforms.base import BasePlatformAdapter, Resend
from gateway.platforms.testing.world import World
from tests.support.loopback.manifest import MANIFEST, LoopbackSettings
from tests.support.loopback.server import LoopbackServer


class LoopbackWorld(World):
    """A loopback server, and a person in the chat c1."""

    chat = "c1"

    def __init__(self, server: LoopbackServer, folder: Path, resend: Resend = "same") -> None:
        self.server = server
        self._folder = folder
        self._resend: Resend = resend

    def make(self) -> BasePlatformAdapter:
        settings = LoopbackSettings(self.server.address, resend=self._resend, retry_s=0.01)
        return MANIFEST.make(PlatformConfig(enabled=True), settings, self._folder)

    def write(self, text: str) -> str:
        return self.server.say(self.chat, text)

    def edit(self, name: str, text: str) -> None:
        self.server.edit(self.chat, name, text)

    def attach(self, content: bytes, name: str, text: str) -> None:
        self.server.say(self.chat, text, files=[(name, content)])

    def press(self, label: str) -> None:
        message = self.server.shown(self.chat)[-1]
        choice = next(choice for label_shown, choice in message.buttons if label_shown == label)
        self.server.press(self.chat, message.question or "", choice)

    def deliver_again(self, name: str) -> None:
        self.server.deliver_again(self.chat, name)

    def write_out_of_order(self, texts: Sequence[str]) -> None:
        for number, text in reversed(list(enumerate(texts))):
            self.server.say(self.chat, text, message_id=f"late{number}")

    def write_odd(self) -> None:
        for odd in (None, [1, 2], "text", {"chat": 5}, {"chat": self.chat, "text": None}, {}):
            self.server.deliver(odd)

    def visible_texts(self) -> list[str]:
        return [message.text for message in self.server.shown(self.chat)]

    def typed(self) -> int:
        return self.server.typed[self.chat]

    def files(self) -> list[bytes]:
        return [file.content for message in self.server.shown(self.chat) for file in message.files]

    def cut(self) -> None:
        self.server.stop()

    def heal(self) -> None:
        self.server.start()

    def restart(self) -> None:
        self.server.stop()
        self.server.start()

    def lose_next_answer(self) -> None:
        self.server.lose_answers()

    def limit_next_send(self) -> None:
        self.server.rate_limit(0.01)

    def closed_chat(self) -> str:
        self.server.close_chat("closed")
        return "closed"
