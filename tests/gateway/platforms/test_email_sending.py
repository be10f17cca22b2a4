"""Mail goes out, and connections fail: what a server answers, and what a lost answer means."""

import imaplib
import re
from pathlib import Path

import pytest

from gateway.platforms.base import PlatformError
from gateway.platforms.email import watch
from gateway.platforms.email.compose import message_id
from tests.gateway.platforms.email_harness import ANN, Bot, bot, flags, name, running, server, write
from tests.gateway.platforms.scripted_ingress import TIMEOUT_S
from tests.gateway.servers.mail import (
    DOMAIN,
    PASSWORD,
    Faults,
    MailServer,
    letter,
    mail_server,
    needs_dovecot,
)

__all__ = ["name", "running", "server"]
pytestmark = [pytest.mark.servers, needs_dovecot]


# -- out --------------------------------------------------------------------------------------------


def test_our_own_copy_lies_in_the_sent_folder(
    server: MailServer, tmp_path: Path, name: str
) -> None:
    with bot(server, tmp_path, name) as it:
        it.send(ANN, "Hello", key="copy")
        write(server, it)
        it.ingress.wait_for(1)
        it.stop()
        sent = message_id("copy", DOMAIN)
        assert flags(server, it, "Sent") == {sent: True}
        assert sent not in flags(server, it)
        assert it.find_sent(ANN, "copy") == sent


@pytest.mark.parametrize(("cut", "is_there"), [("after", True), ("before", False)])
def test_after_a_lost_answer_the_mailbox_says_whether_a_mail_was_sent(
    server: MailServer, tmp_path: Path, name: str, cut: str, is_there: bool
) -> None:
    with bot(server, tmp_path, name) as it:
        server.faults.cut = cut
        result = it.send(ANN, "Hello", key=cut)
        assert (result.success, result.error_kind) == (False, "unsure")
        assert (it.find_sent(ANN, cut) is not None) is is_there


def test_a_copy_that_is_on_its_way_is_waited_for(
    server: MailServer, tmp_path: Path, name: str
) -> None:
    with bot(server, tmp_path, name, find_sent_s=TIMEOUT_S) as it:
        it.stop()
        expected_id = message_id("late", DOMAIN)
        copy = letter(it.address, ANN, message_id="<replaced@mail.test>")
        copy["X-Hermes-Piece"] = expected_id
        looking = it.adapter.find_sent(ANN, "late")
        server.deliver(copy, it.address)
        assert it.loop.run(looking) == expected_id


def test_the_same_piece_has_the_same_name_at_every_attempt(
    server: MailServer, tmp_path: Path, name: str
) -> None:
    with bot(server, tmp_path, name) as it:
        first = it.send(ANN, "Hello", key="same")
        again = it.send(ANN, "Hello", key="same")
        assert first.message_id == again.message_id
        assert it.send(ANN, "Hello", key="different").message_id != first.message_id


@pytest.mark.parametrize(
    ("faults", "kind"),
    [
        (Faults(rcpt="550 No such person"), "refused"),
        (Faults(rcpt="450 Come back later"), "rate_limited"),
        (Faults(data="554 Spam"), "refused"),
        (Faults(data="451 Try again"), "rate_limited"),
        (Faults(data="421 Closing"), "network"),
    ],
)
def test_what_the_server_answers_decides_what_becomes_of_a_piece(
    server: MailServer, tmp_path: Path, name: str, faults: Faults, kind: str
) -> None:
    with bot(server, tmp_path, name) as it:
        server.faults = faults
        result = it.send(ANN, "Hello", key="k")
        assert (result.success, result.error_kind) == (False, kind)
        assert server.mails_to(ANN) == [] == server.mails_to(it.address)


def test_a_server_that_is_away_has_surely_not_got_the_mail(tmp_path: Path, name: str) -> None:
    with mail_server() as server, bot(server, tmp_path, name) as it:
        server.stop_smtp()
        assert it.send(ANN, "Hello", key="k").error_kind == "network"
        server.start_smtp()
        assert it.send(ANN, "Hello", key="k").success


def test_files_go_along(server: MailServer, tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.txt").write_text("Notes")
    files = [str(tmp_path / "notes.txt"), str(tmp_path / "gone.txt")]
    with bot(server, tmp_path, name) as it:
        assert it.send(ANN, "See", key="files", files=files).success
        mail = server.wait_for_mail(ANN)[0]
    parts = {part.get_filename(): part.get_payload(decode=True) for part in mail.walk()}
    assert parts["notes.txt"] == b"Notes"
    assert b"[The file gone.txt could not be read.]" in mail.as_bytes()


@pytest.mark.parametrize(
    ("size_bytes", "answer"),
    [(26_000_000, ""), (10, "552 5.7.0 This message was blocked because of its content")],
    ids=["too large", "blocked"],
)
def test_of_a_mail_that_is_refused_for_its_files_the_words_arrive_and_say_so(
    server: MailServer, tmp_path: Path, name: str, size_bytes: int, answer: str
) -> None:
    (tmp_path / "film.mp4").write_bytes(b"x" * size_bytes)
    with bot(server, tmp_path, name) as it:
        server.faults.data = answer
        assert it.send(ANN, "Here it is", key="film", files=[str(tmp_path / "film.mp4")]).success
        (mail,) = server.wait_for_mail(ANN)
    text = mail.get_payload(0).get_payload(decode=True).decode()  # type: ignore[union-attr]
    assert text.startswith("Here it is")
    assert "[The file film.mp4 could not be sent: 552 " in text
    assert mail["Message-ID"] == message_id("film", DOMAIN)


def test_what_is_no_address_is_refused(server: MailServer, tmp_path: Path, name: str) -> None:
    with bot(server, tmp_path, name) as it:
        assert it.send("ann\r\nBcc: x@y", "Hello", key="k").error_kind == "refused"


# -- connections ------------------------------------------------------------------------------------


def test_what_another_program_marked_as_deleted_stays(
    server: MailServer, tmp_path: Path, name: str
) -> None:
    with bot(server, tmp_path, name) as it:
        write(server, it, "1", message_id="<marked@people.test>")
        it.ingress.wait_for(1)
        client = imaplib.IMAP4("127.0.0.1", server.imap_port)
        client.login(it.address, PASSWORD)
        client.select()
        client.store("1", "+FLAGS", r"(\Deleted)")
        it.send(ANN, "Hello", key="copy")
        write(server, it, "2")
        it.ingress.wait_for(2)
        client.logout()
        assert "<marked@people.test>" in flags(server, it)
        assert message_id("copy", DOMAIN) in flags(server, it, "Sent")


def test_a_copy_that_cannot_be_put_away_stays_where_it_is_and_holds_nothing_up(
    server: MailServer, tmp_path: Path, name: str
) -> None:
    with bot(server, tmp_path, name) as it:
        it.send(ANN, "Hello", key="first")
        write(server, it, "1")
        it.ingress.wait_for(1)
        sent = server.root / "home" / name / ".Sent"
        for folder in (sent, sent / "cur", sent / "new", sent / "tmp"):
            folder.chmod(0o500)
        it.send(ANN, "Hello", key="copy")
        write(server, it, "2")
        it.ingress.wait_for(2)
        assert it.lost.empty()
        assert flags(server, it)[message_id("copy", DOMAIN)], "it is marked as read"
        assert it.find_sent(ANN, "copy")


def _mails(server: MailServer, name: str) -> list[Path]:
    """The files of a mailbox, oldest first; the server moves them when it has told of them."""
    folder = server.root / "home" / name
    return sorted([*folder.glob("new/*"), *folder.glob("cur/*")], key=_moment)


def _moment(mail: Path) -> tuple[int, ...]:
    """When a mail came, in seconds and microseconds, as its name says; these have no leading zeros."""
    return tuple(map(int, re.findall(r"\d+", mail.name)[:2]))


def _break_newest(server: MailServer, name: str) -> None:
    """Have the server fail at a mail, whoever asks for it."""
    _mails(server, name)[-1].chmod(0)


def test_a_mail_that_the_server_cannot_give_keeps_nobody_behind_it_waiting_for_ever(
    server: MailServer, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_MAX_ATTEMPTS", 2)
    with bot(server, tmp_path, name) as it:
        write(server, it, "1")
        it.ingress.wait_for(1)
        it.stop()
        write(server, it, "2")
        _break_newest(server, name)
        for _ in range(3):
            it.start()
            assert not it.lost.get(timeout=TIMEOUT_S).is_fatal, "nobody is behind it"
            it.stop()
        write(server, it, "3")
        it.start()
        assert it.ingress.wait_for(2)[-1].text.endswith("3")


def test_a_mail_that_the_server_cannot_give_after_it_numbered_anew_keeps_nobody_waiting_either(
    server: MailServer, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_MAX_ATTEMPTS", 2)
    with bot(server, tmp_path, name) as it:
        write(server, it, "1")
        it.ingress.wait_for(1)
        it.stop()
        write(server, it, "2")
        _break_newest(server, name)
        write(server, it, "3")
        server.change_uidvalidity(name)
        for _ in range(2):
            it.start()
            assert not it.lost.get(timeout=TIMEOUT_S).is_fatal
            it.stop()
        it.start()
        assert it.ingress.wait_for(2)[-1].text.endswith("3")


def test_a_mail_that_the_server_could_not_give_for_a_while_comes_in_its_place(
    server: MailServer, tmp_path: Path, name: str
) -> None:
    with bot(server, tmp_path, name) as it:
        it.stop()
        write(server, it, "1")
        _break_newest(server, name)
        write(server, it, "2")
        for _ in range(3):
            it.start()
            it.lost.get(timeout=TIMEOUT_S)
            it.stop()
        _mails(server, name)[0].chmod(0o600)
        it.start()
        texts = [event.text[-1] for event in it.ingress.wait_for(2)]
        assert texts == ["1", "2"]


def test_a_server_that_restarts_is_reported_and_nothing_is_lost(tmp_path: Path, name: str) -> None:
    with mail_server() as server, bot(server, tmp_path, name) as it:
        write(server, it, "1")
        it.ingress.wait_for(1)
        server.restart_imap()
        assert not it.lost.get(timeout=TIMEOUT_S).is_fatal
        write(server, it, "2")
        it.stop()
        it.start()
        it.ingress.wait_for(2)
        server.stop_imap()
        it.lost.get(timeout=TIMEOUT_S)
        with pytest.raises(PlatformError) as caught:
            it.start()
        assert not caught.value.is_fatal
        server.start_imap()
        it.start()
        write(server, it, "3")
        it.ingress.wait_for(3)
        it.ingress.wait_until_asked(3)
        assert it.ingress.asked_count == 3


def test_mails_that_were_numbered_anew_are_neither_lost_nor_old(tmp_path: Path, name: str) -> None:
    with mail_server() as server:
        client = imaplib.IMAP4("127.0.0.1", server.imap_port)
        client.login(name, PASSWORD)
        old = letter(ANN, name, "Old").as_bytes()
        client.append("INBOX", "", '"14-Nov-2026 10:00:00 +0000"', old)
        client.logout()
        with bot(server, tmp_path, name) as it:
            write(server, it, "1")
            it.ingress.wait_for(1)
            it.stop()
            write(server, it, "2")
            server.change_uidvalidity(name)
            it.start()
            it.ingress.wait_for(2)
            write(server, it, "3")
            events = it.ingress.wait_for(3)
            assert [event.text[-1] for event in events] == ["1", "2", "3"]


@pytest.mark.parametrize("security", ["tls", "starttls"])
def test_connections_are_encrypted(
    server: MailServer, tmp_path: Path, name: str, security: str
) -> None:
    ports = {
        "imap_port": server.imaps_port if security == "tls" else server.imap_port,
        "smtp_port": server.smtps_port if security == "tls" else server.smtp_port,
    }
    secure = {"imap_security": security, "smtp_security": security} | ports
    with bot(server, tmp_path, name, **secure, ca_file=str(server.ca_file)) as it:
        write(server, it)
        it.ingress.wait_for(1)
        assert it.send(ANN, "Hello", key=security).success
        assert it.find_sent(ANN, security)
    it = Bot(server, tmp_path, name, **secure)
    with pytest.raises(PlatformError, match="certificate"):
        it.loop.run(it.adapter.connect())
    it.loop.close()


@pytest.mark.parametrize("side", ["imap", "smtp"])
def test_a_wrong_password_is_fatal_and_says_what_to_set(
    server: MailServer, tmp_path: Path, name: str, side: str
) -> None:
    wrong = {"password": "wrong"} if side == "imap" else {}
    server.faults.login = "535 5.7.8 Authentication failed" if side == "smtp" else ""
    it = Bot(server, tmp_path, name, **wrong)
    with pytest.raises(PlatformError, match="EMAIL_PASSWORD") as caught:
        it.loop.run(it.adapter.connect())
    it.loop.close()
    assert caught.value.is_fatal


def test_a_password_that_is_changed_meanwhile_loses_no_reply(
    server: MailServer, tmp_path: Path, name: str
) -> None:
    with bot(server, tmp_path, name) as it:
        server.faults.login = "535 5.7.8 Authentication failed"
        assert it.send(ANN, "Hello", key="k").error_kind == "network"
        assert it.lost.get(timeout=TIMEOUT_S).is_fatal


def test_a_password_may_have_any_letters(tmp_path: Path, name: str) -> None:
    with mail_server(password="rösselsprung") as server:
        with bot(server, tmp_path, name) as it:
            assert it.send(ANN, "Hello", key="k").success
        wrong = Bot(server, tmp_path, name, password="rößlein")
        mailbox = wrong.adapter.connect(is_reconnect=True)
        with pytest.raises(PlatformError, match="EMAIL_PASSWORD") as caught:
            wrong.loop.run(mailbox)
        wrong.loop.close()
        assert caught.value.is_fatal


@pytest.mark.parametrize("setting", ["folder", "sent_folder"])
def test_a_folder_that_is_not_there_is_named(
    server: MailServer, tmp_path: Path, name: str, setting: str
) -> None:
    it = Bot(server, tmp_path, name, **{setting: "Nowhere"})
    with pytest.raises(PlatformError, match=f"Nowhere.*Set {setting} in") as caught:
        it.loop.run(it.adapter.connect())
    it.loop.close()
    assert caught.value.is_fatal


@pytest.mark.parametrize("side", ["imap", "smtp"])
def test_no_password_leaves_the_machine_in_the_clear(tmp_path: Path, name: str, side: str) -> None:
    changes = {"imap_security": "tls", "smtp_security": "tls"} | {f"{side}_security": "plain"}
    server = MailServer()
    hosts = {"imap_host": "192.0.2.1", "smtp_host": "192.0.2.1"}
    if side == "imap":
        hosts["smtp_host"], changes["smtp_security"] = "127.0.0.1", "plain"
        server.start_smtp()
    it = Bot(server, tmp_path, name, **hosts, **changes)
    with pytest.raises(PlatformError, match=f"{side}_security is plain") as caught:
        it.loop.run(it.adapter.connect())
    it.loop.close()
    server.close()
    assert caught.value.is_fatal
