"""Email passes the kit, on Dovecot and aiosmtpd."""

import itertools
from collections.abc import Iterator, Sequence
from email.message import EmailMessage
from pathlib import Path

import pytest

from gateway.config import PlatformConfig
from gateway.platforms.base import BasePlatformAdapter
from gateway.platforms.email.manifest import MANIFEST, EmailSettings
from gateway.platforms.testing.conformance import PlatformConformance
from gateway.platforms.testing.network import Proxy
from gateway.platforms.testing.world import World
from tests.gateway.servers.mail import (
    DOMAIN,
    Faults,
    MailServer,
    letter,
    mail_server,
    needs_dovecot,
)

_numbers = itertools.count(1)


class EmailWorld(World):
    patience_s = 30.0

    def __init__(self, server: MailServer, imap: Proxy, smtp: Proxy, folder: Path) -> None:
        self._server = server
        self._proxies = (imap, smtp)
        self._folder = folder
        number = next(_numbers)
        self.chat = f"ann{number}@people.test"
        self._bot = f"hermes{number}@{DOMAIN}"
        self._settings = EmailSettings(
            address=self._bot,
            password=server.password,
            imap_host="127.0.0.1",
            imap_port=imap.port,
            smtp_port=smtp.port,
            imap_security="plain",
            smtp_security="plain",
            find_sent_s=2.0,
        )
        self._written: dict[str, EmailMessage] = {}

    def make(self) -> BasePlatformAdapter:
        return MANIFEST.make(PlatformConfig(enabled=True), self._settings, self._folder)

    def write(self, text: str) -> str:
        mail = self._letter(text)
        self._server.deliver(mail, self._bot)
        return str(mail["Message-ID"])

    def attach(self, content: bytes, name: str, text: str) -> None:
        mail = self._letter(text)
        mail.add_attachment(content, maintype="application", subtype="x-thing", filename=name)
        self._server.deliver(mail, self._bot)

    def deliver_again(self, name: str) -> None:
        self._server.deliver(self._written[name], self._bot)

    def write_out_of_order(self, texts: Sequence[str]) -> None:
        for mail in reversed([self._letter(text) for text in texts]):
            self._server.deliver(mail, self._bot)

    def write_odd(self) -> None:
        for odd in (
            b"\xff\xfe\x00 no mail at all",
            b"From: \r\nSubject: =?utf-8?q?=ff?=\r\n\r\n",
            b"From: a@b.test\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--y\r\n",
            b"From: a@b.test\r\nContent-Type: text/plain; charset=klingon\r\n\r\n\xe9\r\n",
        ):
            self._server.deliver(odd, self._bot)

    def visible_texts(self) -> list[str]:
        return [_text(mail) for mail in self._mails()]

    def files(self) -> list[bytes]:
        parts = [part for mail in self._mails() for part in mail.walk() if part.get_filename()]
        return [bytes(part.get_payload(decode=True)) for part in parts]  # type: ignore[arg-type]

    def cut(self) -> None:
        for proxy in self._proxies:
            proxy.refuse()
            proxy.cut()

    def heal(self) -> None:
        for proxy in self._proxies:
            proxy.accept()

    def restart(self) -> None:
        self._server.restart_imap()

    def lose_next_answer(self) -> None:
        self._server.faults.cut = "after"

    def limit_next_send(self) -> None:
        self._server.faults.data = "451 4.7.1 Too many mails, try again later"

    def closed_chat(self) -> str:
        self._server.faults.rcpt = "550 5.1.1 No such user"
        return "nobody@people.test"

    def _letter(self, text: str) -> EmailMessage:
        name = f"<{next(_numbers)}@people.test>"
        mail = letter(self.chat, self._bot, text, subject="", message_id=name)
        self._written[name] = mail
        return mail

    def _mails(self) -> Sequence[EmailMessage]:
        return self._server.mails_to(self.chat)  # type: ignore[return-value]


def _text(mail: EmailMessage) -> str:
    plain = next(part for part in mail.walk() if part.get_content_type() == "text/plain")
    return bytes(plain.get_payload(decode=True)).decode()  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def server() -> Iterator[MailServer]:
    with mail_server() as mail:
        yield mail


@pytest.mark.servers
@needs_dovecot
class TestEmail(PlatformConformance):
    @pytest.fixture
    def world(self, server: MailServer, tmp_path: Path) -> Iterator[EmailWorld]:
        with (
            Proxy("127.0.0.1", server.imap_port) as imap,
            Proxy("127.0.0.1", server.smtp_port) as smtp,
        ):
            yield EmailWorld(server, imap, smtp, tmp_path)
        server.faults = Faults()
