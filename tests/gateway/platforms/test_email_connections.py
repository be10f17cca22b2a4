"""Connections to mail servers that are given up half-way: none is left open."""

import asyncio
import gc
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from gateway.config import PlatformConfig
from gateway.platforms.base import PlatformError
from gateway.platforms.email import post
from gateway.platforms.email.adapter import EmailAdapter
from gateway.platforms.email.mailbox import Mailbox
from gateway.platforms.email.manifest import EmailSettings
from gateway.platforms.testing.network import Proxy
from tests.gateway.platforms.scripted_ingress import TIMEOUT_S, ScriptedIngress
from tests.gateway.servers.mail import DOMAIN, MailServer, mail_server, needs_dovecot
from tests.support.faults import eventually


@contextmanager
def served(serve: Callable[[socket.socket], None]) -> Generator[int]:
    """A server of one connection, on a port of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(TIMEOUT_S)

        def run() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.settimeout(TIMEOUT_S)
                serve(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def settings(**values: Any) -> EmailSettings:
    defaults: dict[str, Any] = {"imap_security": "plain", "smtp_security": "plain", "password": "x"}
    return EmailSettings(address=f"hermes@{DOMAIN}", imap_host="127.0.0.1", **defaults | values)


@pytest.mark.servers
@needs_dovecot
def test_a_mailbox_that_opens_after_nobody_waits_for_it_any_more_is_closed(tmp_path: Path) -> None:
    async def scenario(proxy: Proxy, password: str) -> None:
        email_settings = settings(imap_port=proxy.port, password=password)
        adapter = EmailAdapter(PlatformConfig(enabled=True), email_settings, tmp_path)
        adapter.set_ingress(ScriptedIngress())
        proxy.blackhole()
        connecting = asyncio.create_task(adapter.connect(is_reconnect=True))
        await asyncio.to_thread(eventually, lambda: bool(proxy._connections))
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        proxy.heal()
        await adapter.disconnect()
        await asyncio.to_thread(eventually, lambda: not proxy._connections)

    with mail_server() as server, Proxy("127.0.0.1", server.imap_port) as proxy:
        asyncio.run(scenario(proxy, server.password))
    gc.collect()


@pytest.mark.parametrize("refusal", ["capability", "command"])
def test_a_server_that_refuses_encryption_is_left(refusal: str) -> None:
    def serve(connection: socket.socket) -> None:
        with connection.makefile("rwb", buffering=0) as stream:
            stream.write(b"* OK ready\r\n")
            while line := stream.readline():
                tag, command = line.split()[:2]
                if command == b"CAPABILITY":
                    offer = b" STARTTLS" if refusal == "command" else b""
                    stream.write(
                        b"* CAPABILITY IMAP4rev1" + offer + b"\r\n" + tag + b" OK done\r\n"
                    )
                else:
                    stream.write(tag + b" NO not today\r\n")

    with served(serve) as port:
        with pytest.raises(PlatformError, match="TLS"):
            Mailbox(settings(imap_port=port, imap_security="starttls"))
        gc.collect()


@pytest.mark.parametrize(
    ("response", "is_fatal"),
    [
        ("[AUTHENTICATIONFAILED] Invalid credentials (Failure)", True),
        ("[ALERT] Application-specific password required (Failure)", True),
        ("[UNAVAILABLE] Temporary authentication failure.", False),
        ("[ALERT] Too many simultaneous connections. (Failure)", False),
        ("[ALERT] Account exceeded command or bandwidth limits. (Failure)", False),
        ("User is authenticated but not connected.", False),
    ],
)
def test_a_login_that_is_put_off_is_no_wrong_password(response: str, is_fatal: bool) -> None:
    def serve(connection: socket.socket) -> None:
        with connection.makefile("rwb", buffering=0) as stream:
            stream.write(b"* OK ready\r\n")
            while line := stream.readline():
                tag, command = line.split()[:2]
                if command == b"LOGIN":
                    stream.write(tag + f" NO {response}\r\n".encode())
                else:
                    stream.write(b"* CAPABILITY IMAP4rev1\r\n" + tag + b" OK done\r\n")

    with served(serve) as port:
        with pytest.raises(PlatformError) as failed:
            Mailbox(settings(imap_port=port))
        gc.collect()
    assert failed.value.is_fatal is is_fatal, failed.value


def test_a_mail_that_is_given_up_half_way_is_not_sent_to_its_end() -> None:
    is_begun, given_up, received = threading.Event(), threading.Event(), bytearray()

    def serve(connection: socket.socket) -> None:
        with connection.makefile("rwb", buffering=0) as stream:
            stream.write(b"220 ready\r\n")
            while (line := stream.readline()) and not line.startswith(b"DATA"):
                stream.write(b"250 fine\r\n")
            stream.write(b"354 go on\r\n")
            received.extend(stream.read(1 << 16))
            is_begun.set()
            assert given_up.wait(TIMEOUT_S)
            while piece := stream.read(1 << 16):
                received.extend(piece)

    async def scenario(port: int) -> None:
        mail = EmailMessage()
        mail["Message-ID"] = "<1@people.test>"
        mail.set_content(("y" * 70 + "\n") * 300_000)  # more than the system takes in for somebody
        email_settings = settings(smtp_port=port)
        sending = asyncio.create_task(post.deliver(email_settings, mail, "ann@people.test"))
        assert await asyncio.to_thread(is_begun.wait, TIMEOUT_S)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        given_up.set()

    with served(serve) as port:
        asyncio.run(scenario(port))
    assert not received.endswith(b"\r\n.\r\n")


@pytest.mark.servers
@needs_dovecot
def test_a_mail_server_that_cannot_start_says_why_and_is_taken_away() -> None:
    server = MailServer()
    (server.root / "dovecot.conf").write_text("nonsense\n")
    try:
        with pytest.raises(RuntimeError, match="Dovecot ended: .*configuration"):
            server.start()
    finally:
        server.close()
