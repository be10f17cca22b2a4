"""Reading and writing single mails, whatever their shape: no server needed."""

import email
from email.message import EmailMessage
from email.policy import default
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.locks import AccountLock
from gateway.platforms.base import PlatformError
from gateway.platforms.email.compose import compose
from gateway.platforms.email.cursor import Cursor, CursorFile
from gateway.platforms.email.mail import Mail
from gateway.platforms.email.manifest import MANIFEST, EmailSettings
from gateway.platforms.email.post import Pace
from gateway.platforms.email.quotes import Writer
from gateway.platforms.email.screening import is_authentic, reason_to_skip
from gateway.platforms.email.threads import Threads
from gateway.platforms.email.translate import translate
from hermes_core import clock

OWN = "hermes@mail.test"
US = Writer(OWN, "Hermes")
SETTINGS = EmailSettings(address=OWN, password="secret", imap_host="mail.test")


def read(text: str | bytes) -> Mail:
    return Mail.read(text if isinstance(text, bytes) else text.encode())


def from_header(value: str) -> tuple[str, str]:
    return read(f"From: {value}\n\n").sender


# -- reading ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "address", "name"),
    [
        ("Ann@People.Test", "ann@people.test", ""),
        ("Ann <ann@people.test>", "ann@people.test", "Ann"),
        ('"Ann <the first>, M.A." <ann@people.test>', "ann@people.test", "Ann <the first>, M.A."),
        ("=?utf-8?q?J=C3=BCrgen?= <j@people.test>", "j@people.test", "Jürgen"),
        ("ann@people.test (Ann)", "ann@people.test", ""),
        ("boss@people.test <evil@other.test>", "evil@other.test", "boss@people.test"),
    ],
)
def test_the_sender_is_who_the_header_names(header: str, address: str, name: str) -> None:
    assert from_header(header) == (address, name)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nobody",
        "a@people.test, b@people.test",
        "Ann <a@people.test>, Bob <b@people.test>",
        "a@people.test)b@other.test",
        "<a@people.test> <b@other.test>",
        "=?utf-8?q?ann=40people.test?=",
        "ann@people.test\0",
        "ann@people..test@x",
    ],
)
def test_a_sender_that_can_be_read_in_two_ways_is_none(header: str) -> None:
    assert from_header(header) == ("", "")


def test_two_from_headers_are_no_sender() -> None:
    assert read("From: a@people.test\nFrom: b@people.test\n\n").sender == ("", "")


@pytest.mark.parametrize(
    ("charset", "content"),
    [
        ("iso-8859-1", "Grüße".encode("latin-1")),
        ("windows-1252", "Grüße".encode("cp1252")),
        ("utf-8", "Grüße".encode()),
        ("x-unknown", "Grüße".encode()),
        ("utf-8", "Grüße".encode("latin-1")),
        ("punycode", "Grüße".encode()),
        ("", "Grüße".encode()),
    ],
)
def test_text_is_read_in_whatever_charset_it_is(charset: str, content: bytes) -> None:
    head = f'Content-Type: text/plain; charset="{charset}"\n\n'.encode()
    assert read(head + content).text() == "Grüße"


@pytest.mark.parametrize(
    ("charset", "content", "text"),
    [
        ("iso-8859-1", b"\x93Gr\xfc\xdfe\x94 \x96 5 \x80", "“Grüße” – 5 €"),
        ("us-ascii", b"It\x92s", "It’s"),
        ("iso-8859-8-i", "שלום".encode("iso-8859-8"), "שלום"),
        ("x-mac-roman", "Grüße".encode("mac-roman"), "Grüße"),
    ],
)
def test_charsets_are_read_as_mail_programs_mean_them(
    charset: str, content: bytes, text: str
) -> None:
    head = f'Content-Type: text/plain; charset="{charset}"\n\n'.encode()
    assert read(head + content).text() == text


def test_plain_text_is_preferred_and_html_is_read_when_it_is_all_there_is() -> None:
    mail = EmailMessage()
    mail.set_content("plain")
    mail.add_alternative("<p>rich</p>", subtype="html")
    assert Mail.read(mail.as_bytes()).text() == "plain"
    empty = EmailMessage()
    empty.set_content(" \n")
    empty.add_alternative("<p>rich</p>", subtype="html")
    assert Mail.read(empty.as_bytes()).text() == "rich"
    assert read("Content-Type: text/html\n\n<p>a<br>b</p>").text() == "a\nb"


def test_text_around_attachments_is_read_and_lines_that_were_folded_are_whole() -> None:
    raw = (
        'Content-Type: multipart/mixed; boundary="b"\n\n--b\nContent-Type: text/plain; format=flowed\n\n'
        "one \ntwo\n--b\nContent-Type: image/png\n\nx\n--b\nContent-Type: text/plain\n\nthree\n--b--\n"
    )
    mail = read(raw)
    assert mail.text() == "one two\n\nthree"
    assert [file.name for file in mail.files()] == ["file.png"]


def test_a_word_that_was_broken_to_be_short_is_whole_again() -> None:
    head = "Content-Type: text/plain; format=flowed; delsp={}\n\n"
    text = "see https://example.org/a \n/b  \nor not\n"
    assert read(head.format("Yes") + text).text() == "see https://example.org/a/b or not"
    assert read(head.format("no") + text).text() == "see https://example.org/a /b  or not"


def test_a_mail_within_a_mail_is_a_file() -> None:
    inner = EmailMessage()
    inner["Subject"] = "Inner"
    inner.set_content("inside")
    outer = EmailMessage()
    outer.set_content("outside")
    outer.add_attachment(inner)
    mail = Mail.read(outer.as_bytes())
    assert mail.text() == "outside"
    (file,) = mail.files()
    assert file.name == "mail.eml" and b"Subject: Inner" in file.content


def test_more_files_than_anybody_sends_are_left_out() -> None:
    mail = EmailMessage()
    for _ in range(25):
        mail.add_attachment(b"x", maintype="image", subtype="png", filename="x.png")
    letter = translate(Mail.read(mail.as_bytes()), None, US)
    assert len(letter.event.files) == 20
    assert letter.event.text == "[This mail has no text.]\n\n[5 more attachments were left out.]"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("plain", "word " * 50_000),
        (
            "html",
            f"<p>Look.</p><img src='data:image/png;base64,{'A' * 1_000_000}'><p>And this?</p>",
        ),
    ],
)
def test_of_a_text_that_is_too_long_it_is_said_that_it_goes_on(kind: str, text: str) -> None:
    raw = f"From: a@x.test\nContent-Type: text/{kind}\n\n{text}"
    for root in (None, "<1@x>"):
        event_text = translate(read(raw), root, US).event.text
        assert event_text.endswith("\n\n[The text of this mail is longer; the rest was left out.]")
        assert len(event_text) < 201_000


def test_a_long_version_of_a_text_that_nobody_reads_is_no_loss() -> None:
    mail = EmailMessage()
    mail.set_content("plain")
    mail.add_alternative(f"<p>rich</p>{'x' * 1_100_000}", subtype="html")
    assert translate(Mail.read(mail.as_bytes()), None, US).event.text == "plain"


def test_of_a_mail_that_is_cut_it_is_said_that_its_beginning_is_all_that_was_read() -> None:
    mail = Mail.read(b"From: a@x.test\n\nSee", 40_000_000)
    text = translate(mail, None, US).event.text
    assert text == "See\n\n[This mail has 40 MB; only its beginning was read, and no attachment.]"


def test_a_mail_without_an_id_gets_one_that_stays() -> None:
    first, again, other = read("Subject: a\n\nx"), read("Subject: a\n\nx"), read("Subject: b\n\nx")
    assert first.message_id == again.message_id != other.message_id


def test_the_history_of_a_thread_that_is_not_known_is_read_too() -> None:
    raw = (
        "From: ann@people.test\nMessage-ID: <2@x>\nReferences: <1@x>\nSubject: Re: Offer\n\n"
        "What is this?\n\nOn 2026-11-15 Hermes <hermes@mail.test> wrote:\n> An offer.\n"
    )
    fresh = translate(read(raw), None, US).event
    assert fresh.text.startswith("Re: Offer\n\nWhat is this?") and "> An offer." in fresh.text
    assert fresh.source is not None and fresh.source.thread_id == "<1@x>"
    assert translate(read(raw), "<0@x>", US).event.text == "What is this?"


def test_a_forward_keeps_what_it_forwards_even_in_a_known_thread() -> None:
    raw = "From: a@x.test\nSubject: Fwd: Offer\n\nLook.\n\nFrom: Bob\nSent: today\nTo: me\n\nThe offer."
    assert translate(read(raw), "<0@x>", US).event.text.endswith("The offer.")


@pytest.mark.parametrize(
    ("subject", "body", "text"),
    [
        ("Hello", "/new", "/new"),
        ("/status", "", "/status"),
        ("/new", "Sent from my iPhone", "/new"),
        ("/new", "-- \nAnn\n+49 30 1234", "/new"),
        ("Question", "Why?", "Question\n\nWhy?"),
        ("", "Why?", "Why?"),
    ],
)
def test_a_command_stays_the_first_word(subject: str, body: str, text: str) -> None:
    event = translate(read(f"From: a@x.test\nSubject: {subject}\n\n{body}\n"), None, US).event
    assert event.text == text
    assert event.is_command() == text.startswith("/")


def test_the_subject_of_an_empty_mail_is_a_command_also_in_a_known_thread() -> None:
    raw = "From: a@x.test\nIn-Reply-To: <1@x>\nSubject: /stop\n\n"
    assert translate(read(raw), "<1@x>", US).event.text == "/stop"
    assert translate(read(f"{raw}Why?"), "<1@x>", US).event.text == "Why?"


# -- screening --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "head",
    [
        "From: ann@people.test",
        "From: ann@people.test\nAuto-Submitted: no",
        "From: ann@people.test\nReturn-Path: <ann@people.test>\nX-Auto-Response-Suppress: None",
        "From: ann@people.test\nPrecedence: first-class",
    ],
)
def test_a_person_is_answered(head: str) -> None:
    assert reason_to_skip(read(f"{head}\n\nHello"), OWN) == ""


@pytest.mark.parametrize(
    "head",
    [
        "Subject: nobody",
        "From: HERMES@mail.test",
        "From: no-reply@people.test",
        "From: bounce+123@people.test",
        "From: ann@people.test\nReturn-Path: <>",
        "From: ann@people.test\nAuto-Submitted: auto-generated (rejected)",
        "From: ann@people.test\nPrecedence: Junk",
        "From: ann@people.test\nX-Autoreply: yes",
    ],
)
def test_what_is_no_person_is_not(head: str) -> None:
    assert reason_to_skip(read(f"{head}\n\nHello"), OWN) != ""


@pytest.mark.parametrize(
    ("results", "is_true"),
    [
        (["mx.test; dmarc=pass header.from=people.test"], True),
        (["mx.test 1; dmarc=pass (p=none dis=none) header.from=people.test"], True),
        (["mx.test; spf=pass smtp.mailfrom=ann@people.test"], True),
        (["mx.test; dkim=pass header.d=people.test"], True),
        (["mx.test; dkim=fail header.d=x.test; dkim=pass header.i=@people.test"], True),
        (
            [
                "mx.test; dkim=pass header.d=people.test",
                "mx.test; spf=fail smtp.mailfrom=people.test",
            ],
            True,
        ),
        (["other.test; dmarc=fail", "mx.test; dmarc=pass header.from=people.test"], True),
        (
            ["mx.test; dmarc=none header.from=people.test; dkim=pass header.d=people.test"],
            True,
        ),
        ([], False),
        (["mx.test; none"], False),
        (["mx.test; dmarc=none", "mx.test; dmarc=pass header.from=people.test"], False),
        (["mx.test; dmarc=none; spf=pass smtp.mailfrom=evil.test"], False),
        (["other.test; dmarc=pass header.from=people.test"], False),
        (["mx.test.evil; dmarc=pass header.from=people.test"], False),
        (["mx.test; dmarc=pass header.from=evil.test"], False),
        (
            ["mx.test; dmarc=fail header.from=people.test; spf=pass smtp.mailfrom=people.test"],
            False,
        ),
        (["mx.test; spf=pass smtp.mailfrom=evil.test"], False),
        (["mx.test; dkim=pass header.d=notpeople.test"], False),
        (["mx.test; dkim=pass header.d=evil.people.test"], False),
        (["mx.test; spf=none (dmarc=pass header.from=people.test)"], False),
        (["mx.test; dmarc=fail", "mx.test; dmarc=pass header.from=people.test"], False),
        (
            [
                "mx.test; spf=fail smtp.mailfrom=people.test; dkim=none",
                "mx.test; dmarc=pass header.from=people.test",
            ],
            False,
        ),
        (["mx.test; none", "mx.test; dkim=pass header.d=people.test"], False),
        (['mx.test; spf=fail reason="; dmarc=pass"'], False),
    ],
)
def test_a_sender_is_authentic_when_the_trusted_server_says_so(
    results: list[str], is_true: bool
) -> None:
    heads = "".join(f"Authentication-Results: {result}\n" for result in results)
    assert is_authentic(read(f"{heads}From: ann@people.test\n\n"), "mx.test") is is_true


@pytest.mark.parametrize("suffix", ["test", "co.uk", "com.br", "github.io", "people.test"])
def test_the_signature_of_a_domain_above_the_senders_says_nothing(suffix: str) -> None:
    results = f"dkim=pass header.d={suffix}; spf=pass smtp.mailfrom={suffix}"
    head = f"Authentication-Results: mx.test; {results}"
    assert not is_authentic(read(f"{head}\nFrom: ann@victim.{suffix}\n\n"), "mx.test")


# -- no mail is too broken --------------------------------------------------------------------------

_CORPUS = [
    b"From: =?utf-8?b?////?= <a@x.test>\nSubject: =?x?q?=ff?= =?utf-8?z?a?=\n\n",
    b"From: a@x.test\nContent-Type: text/plain; charset*0*=utf-8''%ff; charset*1=x\n\n\xff",
    b"From: a@x.test\nContent-Type: multipart/mixed\n\nno boundary",
    b"From: a@x.test\nContent-Type: multipart/mixed; boundary=\n\n--\n",
    b"From: a@x.test\nContent-Transfer-Encoding: base64\n\n!!!=",
    b"From: a@x.test\nContent-Transfer-Encoding: x-uuencode\n\nbegin 644 x\n#####\nend\n",
    b"From: a@x.test\nContent-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\nAAAA",
    b"From: a@x.test\nContent-Disposition: attachment; filename*=utf-16''%00%d8\n\nx",
    b"From: a@x.test\nContent-Type: text/html\n\n<![if x]><!x<!DOCTYPE [",
    b"From: a@x.test\nDate: Mon, 99 Foo 99999 99:99:99 +9999\nReferences: <<>> < >\n\n",
    b"From: a@x.test\nSubject: \xff\xfe\nMessage-ID: <\xff@x>\n\n\x00\x80",
    b"From: a@x.test\nContent-Type: text/plain; charset=\xff\n\nx",
    b"From: a@x.test\nContent-Type: text/plain; charset=\"a\0b\"\n\nx",
    b"From: a@x.test\nContent-Type: message/rfc822\n\nContent-Type: multipart/mixed\n\n\xc3\xbc",
]  # fmt: skip

_PIECES = st.sampled_from(
    rb"""From: a@x.test|Subject: |Content-Type: |multipart/mixed|text/html|text/plain|message/rfc822
|; boundary=b|; charset=|utf-7|hex|idna|--b|--b--|Content-Transfer-Encoding: |base64|quoted-printable
|=?utf-8?b?|?=|Content-Disposition: attachment|; filename*0*=|''%ff|<|>|@|=|(|;|Message-ID: |x
|References: |Date: |Authentication-Results: """.replace(b"\n", b"").split(b"|")
    + [b"\n", b"\n\n", b"\r\n", b"\xff", b"\0", b"\\", b'"']
)


def survives(raw: bytes) -> None:
    mail = Mail.read(raw)
    reason_to_skip(mail, OWN, "mx.test")
    event = translate(mail, None, US).event
    translate(mail, "<1@x>", US)
    assert event.message_id
    event.text.encode()  # no half characters, which no store takes
    str(event.source).encode()


@pytest.mark.parametrize("raw", _CORPUS)
def test_broken_mails_that_exist_are_read(raw: bytes) -> None:
    survives(raw)


@given(st.lists(_PIECES, max_size=60).map(b"".join))
@example(b"")
def test_no_mail_is_too_broken_to_be_read(raw: bytes) -> None:
    survives(raw)


@given(st.binary(max_size=500))
def test_bytes_are_no_danger(raw: bytes) -> None:
    survives(b"From: a@x.test\n" + raw)


# -- writing ----------------------------------------------------------------------------------------


def written(content: str, **parts: object) -> EmailMessage:
    message = compose(SETTINGS, "ann@people.test", content, **parts)  # type: ignore[arg-type]
    read_back = email.message_from_bytes(message.as_bytes(), policy=default)
    assert isinstance(read_back, EmailMessage)
    return read_back


def body(mail: EmailMessage, kind: str) -> str:
    part = mail.get_body((kind,))
    assert part is not None
    return part.get_content().replace("\r\n", "\n")


def test_markdown_becomes_safe_html() -> None:
    html = body(
        written(
            "| a |\n|---|\n| b |\n\n<script>x</script> [y](javascript:z) ![p](https://t.test/p.png)"
        ),
        "html",
    )
    assert "<td>b</td>" in html
    assert "<script" not in html and "<img" not in html and 'href="javascript' not in html


def test_any_text_arrives_as_it_is() -> None:
    text = "Ünï 🎉\n.\n..dots\nFrom here\n" + "x" * 3000 + "\n\ud800"
    assert body(written(text), "plain") == text.replace("\ud800", "?") + "\n"


@pytest.mark.parametrize("name", ["mail.eml", "page.mht", "notes.txt.gz", "notes.txt"])
def test_any_file_arrives_byte_for_byte(tmp_path: Path, name: str) -> None:
    content = b"Subject: kept\n\nGr\xfc\xdfe\n.\n\x00\x1f\x8b"
    (tmp_path / name).write_bytes(content)
    mail = written("See", files=[str(tmp_path / name)])
    (part,) = mail.iter_attachments()
    assert (part.get_filename(), part.get_payload(decode=True)) == (name, content)
    is_text = part.get_content_maintype() == "text"
    assert is_text == (name == "notes.txt"), "nobody shows what is compressed as text"


@pytest.mark.parametrize(
    ("subject", "reply"),
    [
        ("News", "Re: News"),
        ("Re: News", "Re: News"),
        ("AW: Neues", "AW: Neues"),
        ("", "Re: Message from Hermes"),
        ("a\r\nBcc: x@y.test", "Re: a Bcc: x@y.test"),
        ("Grüße 🎉", "Re: Grüße 🎉"),
    ],
)
def test_a_reply_keeps_the_subject(subject: str, reply: str) -> None:
    mail = written("x", subject=subject, references=["<1@x>"])
    assert (mail["Subject"], mail["Bcc"]) == (reply, None)


def test_a_reply_names_the_thread_and_what_it_answers() -> None:
    mail = written("x", references=["<1@x>", "<5@x>"])
    assert (mail["References"], mail["In-Reply-To"]) == ("<1@x> <5@x>", "<5@x>")
    invented = read("Subject: without an id\n\n").message_id
    assert written("x", references=[invented])["In-Reply-To"] is None
    assert written("x", subject="News")["Subject"] == "News"


# -- what is remembered -----------------------------------------------------------------------------


def test_threads_are_remembered_over_restarts_and_each_person_has_their_own(tmp_path: Path) -> None:
    path = tmp_path / "threads.jsonl"
    first = Threads(path)
    first.note("ann@x", "<1@x>", "<1@x>", "News")
    first.note("ann@x", "<2@x>", "<1@x>", "Re: News")
    path.write_bytes(b"\xff\n1\nnull\n" + path.read_bytes() + b'["cut o')
    again = Threads(path)
    assert again.root_of("ann@x", ["<0@x>", "<2@x>"]) == "<1@x>"
    assert again.subject_of("ann@x", "<1@x>") == "News"
    assert again.root_of("bob@x", ["<2@x>"]) is None
    assert again.subject_of("bob@x", "<1@x>") == ""
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_broken_cursor_is_made_up_for_by_the_mark_of_the_account(tmp_path: Path) -> None:
    lock = AccountLock("email", "somebody")
    lock.take()
    file = CursorFile(tmp_path / "cursor.json", lock.mark)
    cursor = Cursor("a/INBOX", 1, 7, 0.0, 0.0)
    file.write(cursor)
    (tmp_path / "cursor.json").write_text("{")
    assert file.read("a/INBOX") == cursor
    lock.release()


def test_a_cursor_belongs_to_its_mailbox_and_a_broken_one_is_named(tmp_path: Path) -> None:
    file = CursorFile(tmp_path / "cursor.json", AccountLock("email", "nobody").mark)
    assert file.read("a") is None
    file.write(Cursor("a", 1, 5, 10.0, 20.0))
    assert file.read("a") == Cursor("a", 1, 5, 10.0, 20.0)
    assert file.read("b") is None
    (tmp_path / "cursor.json").write_text("{")
    with pytest.raises(PlatformError, match=r"cursor\.json") as caught:
        file.read("a")
    assert caught.value.is_fatal


def test_after_an_hour_the_next_mail_may_go() -> None:
    pace, now = Pace(2), 1000.0
    with clock.replaced(lambda: now):
        pace.note("a")
        pace.note("a")
        assert pace.wait_s("a") == 3600.0
        now += 3600.0
        assert pace.wait_s("a") == 0.0


def test_the_manifest_names_the_account_and_the_usual_ports() -> None:
    assert MANIFEST.identity(SETTINGS) == "hermes@mail.test/INBOX"
    assert SETTINGS.server("imap") == ("mail.test", 993, "tls")
    assert SETTINGS.server("smtp") == ("mail.test", 465, "tls")


def test_the_answer_to_a_mail_without_an_id_has_the_subject_of_an_answer() -> None:
    nameless = Mail.read(b"From: ann@x\r\nSubject: No id\r\n\r\nHello", 40)
    root = nameless.message_id
    mail = compose(SETTINGS, "ann@x", "Hello", references=[root], subject="No id", key="k")
    assert mail["Subject"] == "Re: No id"
    assert mail["In-Reply-To"] is None, "nobody knows the name that we made up"
    assert compose(SETTINGS, "ann@x", "Hello", subject="News")["Subject"] == "News"
