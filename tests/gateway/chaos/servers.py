"""The surfaces of the chaos: doubles, and with them a real mail server and a real homeserver."""

import itertools
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from email.message import Message
from pathlib import Path
from typing import Any

from gateway.platforms.testing.background import Background
from gateway.platforms.testing.network import Proxy
from tests.gateway.chaos.api import ApiSurface
from tests.gateway.chaos.loopback import WAYS, LoopbackSurface
from tests.gateway.chaos.surface import Link, Seen, Surface
from tests.gateway.chaos.telegram import TelegramSurface
from tests.gateway.servers import mail, synapse
from tests.gateway.servers.mail import DOMAIN, MailServer, letter
from tests.gateway.servers.matrix import Person, person
from tests.gateway.servers.synapse import Synapse

_TIMEOUT_S = 60.0
_HERMES = f"hermes@{DOMAIN}"


class MailSurface(Surface):
    """Dovecot and aiosmtpd; everybody has one thread with Hermes."""

    name = "email"
    resend = "checked"

    def __init__(self) -> None:
        self._server = MailServer()
        self._threads: dict[str, list[str]] = {}
        self._numbers = itertools.count()

    def open(self) -> None:
        self._server.start()
        self._imap = Proxy("127.0.0.1", self._server.imap_port)
        self._smtp = Proxy("127.0.0.1", self._server.smtp_port)
        for proxy in (self._imap, self._smtp):
            proxy.__enter__()
        self.links = [Link(self._imap), Link(self._smtp, b"\r\n.\r\n")]

    def close(self) -> None:
        for proxy in (self._imap, self._smtp):
            proxy.__exit__(None, None, None)
        self._server.close()

    def begin(self, count: int) -> list[str]:
        self._threads = {f"person{number}@people.test": [] for number in range(count)}
        return list(self._threads)

    def settings(self) -> str:
        return (
            f'[gateway.platforms.email]\naddress = "{_HERMES}"\n'
            f'imap_host = "127.0.0.1"\nimap_port = {self._imap.port}\nsmtp_port = {self._smtp.port}\n'
            'imap_security = "plain"\nsmtp_security = "plain"\n'
            "find_sent_s = 1.0\nreplies_per_hour = 100000\n"
        )

    def owners(self) -> list[str]:
        return list(self._threads)

    def environment(self) -> Mapping[str, str]:
        return {"EMAIL_PASSWORD": self._server.password}

    def say(self, talk: str, text: str) -> str:
        thread, name = self._threads[talk], f"<m{next(self._numbers)}@people.test>"
        references = " ".join(thread[:1] + thread[-1:]) if thread else ""
        mail = letter(talk, _HERMES, text, message_id=name, references=references)
        self._server.deliver(mail, _HERMES)
        thread.append(name)
        return name

    def seen(self, talk: str) -> list[Seen]:
        mails = self._server.mails_to(talk)
        return [Seen(_plain(mail), str(mail["In-Reply-To"] or "").strip()) for mail in mails]

    def sends(self) -> int:
        return len(self._server.sent)


def _plain(mail: Message) -> str:
    """The words of a mail, as a program shows them that knows no HTML."""
    for part in mail.walk():
        if part.get_content_type() == "text/plain":
            content = part.get_payload(decode=True)
            assert isinstance(content, bytes)
            return content.decode("utf-8").replace("\r\n", "\n")
    return ""


class MatrixSurface(Surface):
    """Synapse, one room a conversation with one person in it; every second room is encrypted."""

    name = "matrix"
    resend = "same"
    command_prefix = "!"

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="chaos-synapse-"))
        self._server = Synapse(self._folder / "server")
        self._background = Background("matrix-people")
        self._stack = AsyncExitStack()

    def open(self) -> None:
        self._server.start()
        self._bot = self._server.register("hermes")
        self._proxy = Proxy("127.0.0.1", self._server.port)
        self._proxy.__enter__()
        self.links = [Link(self._proxy, b"/send/m.room.")]
        self._background.start()
        self._ann = self._run(self._stack.enter_async_context(self._person()))

    @asynccontextmanager
    async def _person(self) -> AsyncGenerator[Person]:
        async with person(self._server, "ann", self._folder) as opened:
            yield opened

    def _run(self, work: Any) -> Any:
        return self._background.run(work, _TIMEOUT_S)

    def close(self) -> None:
        self._run(self._stack.aclose())
        self._background.stop()
        self._proxy.__exit__(None, None, None)
        self._server.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def begin(self, count: int) -> list[str]:
        rooms = [
            self._ann.invite(self._bot.user_id, encrypted=number % 2 == 1)
            for number in range(count)
        ]
        self._rooms = [self._run(room) for room in rooms]
        return self._rooms

    def is_ready(self) -> bool:
        joined = {
            event["room"]
            for event in list(self._ann.seen.items)
            if event["type"] == "m.room.member"
            and event["state_key"] == self._bot.user_id
            and event["content"]["membership"] == "join"
        }
        return joined.issuperset(self._rooms)

    def settings(self) -> str:
        return (
            f'[gateway.platforms.matrix]\nhomeserver = "http://{self._proxy.address}"\n'
            f'access_token = "{self._bot.access_token}"\n'
        )

    def owners(self) -> list[str]:
        return [self._ann.user_id]

    def say(self, talk: str, text: str) -> str:
        return self._run(self._ann.say(talk, text))

    def seen(self, talk: str) -> list[Seen]:
        by_id: dict[str, Seen] = {}
        for event in list(self._ann.seen.items):
            if event["room"] != talk or event["sender"] != self._bot.user_id:
                continue
            content = event["content"]
            relation = content.get("m.relates_to", {})
            if relation.get("rel_type") == "m.replace":
                old = by_id.get(relation["event_id"], Seen(""))
                by_id[relation["event_id"]] = old._replace(text=content["m.new_content"]["body"])
            elif event["type"] in ("m.room.message", "m.room.encrypted"):
                answers = relation.get("m.in_reply_to", {}).get("event_id", "")
                by_id[event["event_id"]] = Seen(content.get("body", "(unreadable)"), answers)
        return list(by_id.values())

    def sends(self) -> int:
        return sum(event["sender"] == self._bot.user_id for event in list(self._ann.seen.items))


def doubles() -> list[Surface]:
    """The surfaces that need no server."""
    return [*(LoopbackSurface(way) for way in WAYS), TelegramSurface(), ApiSurface()]


def everywhere() -> list[Surface]:
    """Every surface that this machine can have."""
    found = doubles()
    if mail.IS_MISSING:
        sys.stderr.write("email is left out: Dovecot is not installed\n")
    else:
        found.append(MailSurface())
    if synapse.is_installed():
        found.append(MatrixSurface())
    else:
        sys.stderr.write(f"matrix is left out: {synapse.MISSING}\n")
    return found
