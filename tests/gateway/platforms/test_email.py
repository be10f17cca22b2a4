"""Mail comes in from a real Dovecot: none is lost, doubled or misrouted, and no machine is answered."""

import imaplib
import socket
import threading
from email.message import EmailMessage
from pathlib import Path

import pytest

from gateway.locks import AccountLock
from gateway.platforms.base import Receipt
from gateway.platforms.email.compose import message_id
from gateway.platforms.email.mailbox import Mailbox
from gateway.platforms.email.manifest import EmailSettings
from hermes_core.errors import StoreError
from tests.gateway.platforms.email_harness import ANN, Bot, bot, flags, name, running, server, write
from tests.gateway.platforms.scripted_ingress import TIMEOUT_S
from tests.gateway.servers.mail import (
    DOMAIN,
    PASSWORD,
    MailServer,
    letter,
    mail_server,
    needs_dovecot,
)

__all__ = ["name", "running", "server"]
pytestmark = [pytest.mark.servers, needs_dovecot]


# -- in ---------------------------------------------------------------------------------------------


def test_a_mail_is_answered_in_its_thread(server: MailServer, tmp_path: Path, name: str) -> None:
    with bot(server, tmp_path, name) as it:
        write(server, it, "What is *new*?", subject="News", message_id="<1@people.test>")
        event = it.ingress.wait_for(1)[0]
        assert event.source is not None
        assert (event.source.chat_id, event.source.user_id) == (ANN, ANN)
        assert (event.source.chat_type, event.source.thread_id) == ("dm", "<1@people.test>")
        assert event.text == "News\n\nWhat is *new*?"
        result = it.send(
            ANN,
            "**Nothing**",
            event.message_id,
            thread_id="<1@people.test>",
            subject="News",
            key="k",
        )
        assert result.success
        mail = server.wait_for_mail(ANN)[0]
    assert mail["Subject"] == "Re: News"
    assert mail["In-Reply-To"] == mail["References"] == "<1@people.test>"
    assert mail["Auto-Submitted"] == "auto-replied"
    assert mail["Message-ID"] == result.message_id == message_id("k", DOMAIN)
    plain, html = (str(part.get_payload(decode=True), "utf-8") for part in mail.get_payload())  # type: ignore[union-attr, misc]
    assert plain.strip() == "**Nothing**"
    assert "<strong>Nothing</strong>" in html


def test_who_takes_the_mailbox_over_goes_on_where_the_other_home_stopped(
    server: MailServer, tmp_path: Path, name: str
) -> None:
    first, second = Bot(server, tmp_path / "one", name), Bot(server, tmp_path / "two", name)
    for it in (first, second):
        it.lock = AccountLock("email", name)
    for it, text in ((first, "first"), (second, "second"), (first, "third"), (second, "fourth")):
        before = len(it.ingress.events)
        if before:  # a mail that comes while nobody has the account is for who takes it next
            write(server, it, text, subject="")
        it.start()
        if not before:
            write(server, it, text, subject="")
        it.ingress.wait_for(before + 1)
        it.stop()
    first.loop.close()
    second.loop.close()
    assert [event.text for event in first.ingress.events] == ["first", "third"]
    assert [event.text for event in second.ingress.events] == ["second", "fourth"]


def test_threads_become_conversations(server: MailServer, tmp_path: Path, name: str) -> None:
    with bot(server, tmp_path, name) as it:
        write(server, it, "First", message_id="<a@people.test>")
        write(server, it, "Other", message_id="<b@people.test>")
        it.ingress.wait_for(2)
        reply = it.send(ANN, "Answer", "<a@people.test>", thread_id="<a@people.test>", key="k1")
        write(server, it, "Whole", references=f"<a@people.test> {reply.message_id}")
        it.ingress.wait_for(3)
        # Some programs name only the mail that they answer.
        short = letter(ANN, it.address, "Short", message_id="<c@people.test>")
        short["In-Reply-To"] = reply.message_id
        server.deliver(short, it.address)
        events = it.ingress.wait_for(4)
    threads = [event.source and event.source.thread_id for event in events]
    assert threads == ["<a@people.test>", "<b@people.test>", "<a@people.test>", "<a@people.test>"]
    assert [event.text for event in events[2:]] == ["Whole", "Short"]
    assert events[2].reply_to_is_own_message


def test_two_people_in_one_thread_have_a_conversation_each(
    server: MailServer, tmp_path: Path, name: str
) -> None:
    with bot(server, tmp_path, name) as it:
        write(server, it, message_id="<a@people.test>")
        it.ingress.wait_for(1)
        other = letter("bob@people.test", it.address, references="<a@people.test>")
        server.deliver(other, it.address)
        places = [event.source for event in it.ingress.wait_for(2)]
    assert [place and place.chat_id for place in places] == [ANN, "bob@people.test"]
    assert [place and place.thread_id for place in places] == ["<a@people.test>"] * 2


def test_what_lies_in_the_mailbox_before_the_first_start_is_left_alone(
    server: MailServer, tmp_path: Path, name: str
) -> None:
    it = Bot(server, tmp_path, name)
    write(server, it, "Old")
    it.loop.close()
    with bot(server, tmp_path, name) as it:
        write(server, it, "New")
        assert [event.text for event in it.ingress.wait_for(1)] == ["A question\n\nNew"]


def test_mail_that_came_while_the_adapter_was_away_is_taken_in_once(
    server: MailServer, tmp_path: Path, name: str
) -> None:
    with bot(server, tmp_path, name) as it:
        write(server, it, "1")
        it.ingress.wait_for(1)
        for number in range(2, 5):
            it.stop()
            write(server, it, str(number))
            it.start()
            it.ingress.wait_for(number)
        it.ingress.wait_until_asked(4)
        assert it.ingress.asked_count == 4
    assert [event.text[-1] for event in it.ingress.events] == ["1", "2", "3", "4"]


def test_mail_that_others_have_read_is_taken_in_all_the_same(
    server: MailServer, tmp_path: Path, name: str
) -> None:
    with bot(server, tmp_path, name) as it:
        it.stop()
        write(server, it)
        client = imaplib.IMAP4("127.0.0.1", server.imap_port)
        client.login(it.address, PASSWORD)
        client.select()
        client.store("1", "+FLAGS", r"(\Seen)")
        client.logout()
        it.start()
        it.ingress.wait_for(1)


def test_mail_is_taken_in_also_when_the_server_tells_meanwhile_what_others_did_with_an_older_one(
    tmp_path: Path, name: str
) -> None:
    with mail_server(has_idle=False) as server, bot(server, tmp_path, name, poll_s=0.05) as it:
        write(server, it, "First")
        it.ingress.wait_for(1)
        other = imaplib.IMAP4("127.0.0.1", server.imap_port)
        other.login(it.address, PASSWORD)
        other.select("INBOX")
        for count in range(2, 7):
            other.store("1", "-FLAGS" if count % 2 else "+FLAGS", r"(\Flagged)")
            write(server, it, f"Number {count}")
            assert it.ingress.wait_for(count)[-1].text.endswith(f"Number {count}")
        other.logout()


def test_a_mail_that_cannot_be_stored_is_tried_again_and_keeps_its_place(
    server: MailServer, tmp_path: Path, name: str
) -> None:
    with bot(server, tmp_path, name) as it:
        it.ingress.error = StoreError("full")
        write(server, it, "1")
        write(server, it, "2")
        it.ingress.wait_until_asked(1)
        it.stop()
        it.ingress.error = None
        it.start()
        assert [event.text[-1] for event in it.ingress.wait_for(2)] == ["1", "2"]


def test_a_store_that_recovers_gets_the_mail_without_a_restart(
    server: MailServer, tmp_path: Path, name: str
) -> None:
    with bot(server, tmp_path, name) as it:
        it.ingress.error = StoreError("full")
        write(server, it)
        it.ingress.wait_until_asked(1)
        it.ingress.error = None
        it.ingress.wait_for(1)


@pytest.mark.parametrize("is_wanted", [True, False])
def test_mail_is_marked_as_read_only_when_that_is_wanted(
    server: MailServer, tmp_path: Path, name: str, is_wanted: bool
) -> None:
    with bot(server, tmp_path, name, mark_seen=is_wanted) as it:
        write(server, it, message_id="<seen@people.test>")
        write(server, it, message_id="<later@people.test>")
        it.ingress.wait_for(2)
        it.stop()
        assert flags(server, it)["<seen@people.test>"] is is_wanted


def test_mail_of_strangers_is_never_marked(server: MailServer, tmp_path: Path, name: str) -> None:
    with bot(server, tmp_path, name, mark_seen=True) as it:
        it.ingress.receipt = Receipt("ignored")
        write(server, it, message_id="<strange@people.test>")
        it.ingress.wait_for(1)
        it.stop()
        assert flags(server, it) == {"<strange@people.test>": False}


def test_mail_comes_in_without_idle_too(tmp_path: Path, name: str) -> None:
    with mail_server(has_idle=False) as server, bot(server, tmp_path, name, poll_s=0.05) as it:
        for number in range(1, 4):
            write(server, it, str(number))
            it.ingress.wait_for(number)


def test_attachments_are_kept_and_those_too_large_are_named(
    server: MailServer, tmp_path: Path, name: str
) -> None:
    def attach(mail: EmailMessage) -> None:
        mail.add_attachment(b"\x89PNG", maintype="image", subtype="png", filename="../ä.png")
        mail.add_attachment(
            b"x" * 1_500_000, maintype="application", subtype="zip", filename="big.zip"
        )

    with bot(server, tmp_path, name) as it:
        server.deliver(letter(ANN, it.address, "See", change=attach), it.address)
        event = it.ingress.wait_for(1)[0]
    assert [attachment.name for attachment in event.attachments] == ["ä.png"]
    assert it.ingress.saved == [b"\x89PNG"]
    assert event.text == (
        "A question\n\nSee\n[The file big.zip was left out: big.zip is larger than 1 MB.]"
    )


def test_of_a_huge_mail_the_text_is_read(server: MailServer, tmp_path: Path, name: str) -> None:
    def attach(mail: EmailMessage) -> None:
        mail.add_attachment(
            b"x" * 3_000_000, maintype="application", subtype="zip", filename="big.zip"
        )

    with bot(server, tmp_path, name, mail_limit_mb=1) as it:
        server.deliver(letter(ANN, it.address, "See", change=attach), it.address)
        event = it.ingress.wait_for(1)[0]
    assert (
        event.text
        == "A question\n\nSee\n\n[This mail has 4 MB; only its beginning was read, and no attachment.]"
    )
    assert event.attachments == []


def test_a_broken_mail_does_not_stop_the_next_one(
    server: MailServer, tmp_path: Path, name: str
) -> None:
    nested = b"".join(
        b'Content-Type: multipart/mixed; boundary="%d"\r\n\r\n--%d\r\n' % (n, n)
        for n in range(3000)
    )
    with bot(server, tmp_path, name) as it:
        for raw in (b"", b"\xff\x00\n\n", b"From: ann@people.test\r\n" + nested):
            server.deliver(raw.replace(b"\x00", b""), it.address)
        write(server, it, "Fine", subject="")
        events = it.ingress.wait_for(2)
    assert events[1].text == "Fine"


def test_mail_that_comes_with_the_go_ahead_is_noticed_at_once(name: str) -> None:
    """Both are read in one go then, and the connection has nothing more to say."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection, connection.makefile("rwb", buffering=0) as f:
                f.write(b"* OK\r\n")
                for line in f:
                    tag, command, *_ = line.split() + [b""]
                    if command == b"IDLE":
                        f.write(b"+ idling\r\n* 1 EXISTS\r\n")
                        f.readline()
                    f.write(b"* CAPABILITY IMAP4rev1 IDLE\r\n%s OK [UIDNEXT 1]\r\n" % tag)

        serving = threading.Thread(target=serve)
        serving.start()
        settings = EmailSettings(
            address=f"{name}@x.test",
            password="x",
            imap_host="127.0.0.1",
            imap_port=listening.getsockname()[1],
            imap_security="plain",
        )
        mailbox = Mailbox(settings)
        waiting = threading.Thread(target=mailbox.wait, args=(threading.Event(),), daemon=True)
        waiting.start()
        waiting.join(TIMEOUT_S)
        assert not waiting.is_alive()
        mailbox.close()
        serving.join(TIMEOUT_S)


# -- what is not answered ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Auto-Submitted", "auto-replied"),
        ("Precedence", "bulk"),
        ("List-Id", "<talk.people.test>"),
        ("X-Auto-Response-Suppress", "All"),
    ],
)
def test_machines_and_lists_are_not_answered(
    server: MailServer, tmp_path: Path, name: str, header: str, value: str
) -> None:
    with bot(server, tmp_path, name) as it:
        mail = letter(ANN, it.address)
        mail[header] = value
        server.deliver(mail, it.address)
        write(server, it, "From a person", subject="")
        assert [event.text for event in it.ingress.wait_for(1)] == ["From a person"]


def test_bounces_and_our_own_mails_are_not_answered(
    server: MailServer, tmp_path: Path, name: str
) -> None:
    with bot(server, tmp_path, name) as it:
        server.deliver(letter(ANN, it.address), it.address, "")
        server.deliver(letter(it.address, it.address), it.address)
        server.deliver(letter("MAILER-DAEMON@people.test", it.address), it.address)
        write(server, it, "From a person", subject="")
        assert [event.text for event in it.ingress.wait_for(1)] == ["From a person"]


def test_two_hermes_that_write_to_each_other_come_to_rest(
    server: MailServer, tmp_path: Path, name: str
) -> None:
    with bot(server, tmp_path, name) as first, bot(server, tmp_path, f"{name}b") as other:
        first.send(other.address, "Hello", key="loop")
        write(server, other, "From a person", subject="")
        assert [event.text for event in other.ingress.wait_for(1)] == ["From a person"]


def test_one_address_gets_only_so_many_mails_in_an_hour(
    server: MailServer, tmp_path: Path, name: str
) -> None:
    with bot(server, tmp_path, name, replies_per_hour=2) as it:
        results = [it.send(ANN, "Again", key=f"pace{number}") for number in range(3)]
        assert [result.success for result in results] == [True, True, False]
        assert results[2].error_kind == "rate_limited"
        assert 0 < results[2].retry_after <= 3600
        assert it.send("bob@people.test", "Hello", key="pace-bob").success


def test_a_forged_sender_is_not_answered_where_the_server_checks(
    server: MailServer, tmp_path: Path, name: str
) -> None:
    with bot(server, tmp_path, name, trusted_authserv=DOMAIN) as it:
        server.verdict = "dmarc=fail header.from=people.test"
        forged = letter(ANN, it.address, "Forged")
        forged["Authentication-Results"] = f"{DOMAIN}; dmarc=pass header.from=people.test"
        server.deliver(forged, it.address)
        server.verdict = ""
        server.deliver(letter(ANN, it.address, "Unchecked"), it.address)
        server.verdict = "dmarc=pass header.from=people.test"
        write(server, it, "True", subject="")
        assert [event.text for event in it.ingress.wait_for(1)] == ["True"]
