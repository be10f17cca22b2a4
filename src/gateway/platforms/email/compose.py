"""Composes a mail: a reply in its thread, as plain text and HTML, with a stable Message-ID."""

import hashlib
import mimetypes
import re
from collections.abc import Sequence
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formataddr, formatdate, make_msgid
from pathlib import Path

from gateway.outline import closed
from gateway.platforms.email.mail import is_real_id
from gateway.platforms.email.manifest import EmailSettings
from gateway.platforms.email.screening import OWN_HEADER, OWN_ID
from gateway.platforms.markdown import reader
from hermes_core.text import one_line, truncate, without_surrogates

_REPLY = re.compile(r"\s*(re|aw|sv|antw|rif|ref)\s*(\[\d+\])?\s*:", re.IGNORECASE)
_NO_SUBJECT = "Message from Hermes"
_MAX_SUBJECT = 200

# Pictures stay links: a picture from elsewhere would tell its server when the mail is read.
_MARKDOWN = reader().disable("image")


def message_id(key: str, domain: str) -> str:
    """The Message-ID of the piece with this key: the same at every attempt."""
    return f"{OWN_ID}{hashlib.sha256(key.encode()).hexdigest()[:40]}@{domain}>"


def _subject(subject: str, *, is_reply: bool) -> str:
    line = truncate(one_line(without_surrogates(subject)), _MAX_SUBJECT) or _NO_SUBJECT
    return line if _REPLY.match(line) or not is_reply else f"Re: {line}"


def compose(
    settings: EmailSettings,
    to: str,
    content: str,
    *,
    key: str = "",
    references: Sequence[str] = (),
    subject: str = "",
    files: Sequence[str] = (),
    is_plain: bool = False,
) -> EmailMessage:
    """The mail; `references` are the thread's first mail and the one that is answered.

    What is plain has no form in HTML, in which Markdown would be drawn.
    """
    mail = EmailMessage(policy=SMTP)
    mail["From"] = formataddr((one_line(settings.name), settings.address))
    mail["To"] = to
    ids = list(dict.fromkeys(name for name in references if is_real_id(name)))
    # Also who wrote a mail without a name is answered.
    mail["Subject"] = _subject(subject, is_reply=any(references))
    mail["Date"] = formatdate(localtime=True)
    name = message_id(key, settings.domain) if key else make_msgid(domain=settings.domain)
    mail["Message-ID"] = mail[OWN_HEADER] = name
    if ids:
        mail["In-Reply-To"] = ids[-1]
        mail["References"] = " ".join(ids)
    mail["Auto-Submitted"] = "auto-replied"
    mail["X-Auto-Response-Suppress"] = "All"
    _write(mail, content, files, is_plain=is_plain)
    return mail


def without_files(content: str, files: Sequence[str], why: str) -> str:
    """Replace the files of a text by the reason why they are missing."""
    notes = "".join(f"\n\n[The file {Path(path).name} {one_line(why)}]" for path in files)
    return closed(content) + notes if notes else content


def _write(mail: EmailMessage, content: str, files: Sequence[str], *, is_plain: bool) -> None:
    found = {path: _read(Path(path)) for path in files}
    missing = [path for path, inside in found.items() if inside is None]
    text = without_surrogates(without_files(content, missing, "could not be read."))
    mail.set_content(text, cte="quoted-printable")
    if not is_plain:
        mail.add_alternative(_html(text), subtype="html", cte="quoted-printable")
    for path, inside in found.items():
        if inside is not None:
            main, _, sub = _kind(path).partition("/")
            mail.add_attachment(inside, maintype=main, subtype=sub, filename=Path(path).name)


def _kind(path: str) -> str:
    """Return the media type of a file by its name.

    Not a mail, which may not be encoded within another one, as it must be to arrive byte for byte.
    """
    kind, compression = mimetypes.guess_type(path)
    if kind is None or compression or kind.startswith(("message/", "multipart/")):
        return "application/octet-stream"
    return kind


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _html(text: str) -> str:
    return f'<!DOCTYPE html>\n<html><body dir="auto">\n{_MARKDOWN.render(text)}</body></html>\n'
