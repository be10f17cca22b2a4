"""One IMAP connection: what is new, what a mail contains, waiting for more. Blocking; for one thread.

Everything that goes wrong is a PlatformError. Deleted mails of other programs are never expunged, and no
mail is marked as read by looking at it.
"""

import contextlib
import imaplib
import logging
import re
import socket
import ssl
import time
from collections.abc import Generator, Sequence
from datetime import datetime, timedelta
from threading import Event
from typing import Any, cast

from imap_tools.errors import ImapToolsError, MailboxFolderSelectError, MailboxLoginError
from imap_tools.mailbox import BaseMailBox, MailBox, MailBoxUnencrypted
from imap_tools.utils import encode_folder

from gateway.platforms.base import PlatformError
from gateway.platforms.email import security
from gateway.platforms.email.manifest import EmailSettings
from gateway.platforms.email.screening import OWN_HEADER

_log = logging.getLogger(__name__)

_TIMEOUT_S = 60.0
_PASSING = re.compile(
    r"\[(UNAVAILABLE|INUSE|LIMIT|SERVERBUG)\]|too many|exceeded|temporar|try again"
    r"|authenticated but not connected",
    re.IGNORECASE,
)
"""Refusals of a login that say nothing about the password; large providers have words for it alone."""
_TEXT_BYTES = 512_000
"""How much of a mail that is too large is read: its text comes first."""
_SIZE = re.compile(rb"RFC822\.SIZE (\d+)")
_ARRIVED = re.compile(rb'INTERNALDATE "([^"]+)"')


class Mailbox:
    """A folder of an account, open."""

    def __init__(self, settings: EmailSettings) -> None:
        self._settings = settings
        self._host = settings.server("imap")[0]
        with self._errors():
            # The library leaves the types of its answers open.
            self._box: Any = _connect(settings)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(self.close)
            self._log_in()
            on_failure.pop_all()

    def _log_in(self) -> None:
        settings = self._settings
        with self._errors():
            is_ascii = f"{settings.login}{settings.password}".isascii()
            log_in = self._box.login if is_ascii else self._box.login_utf8
            try:
                log_in(settings.login, settings.password, initial_folder=None)
            except imaplib.IMAP4.abort:
                raise
            except (MailboxLoginError, imaplib.IMAP4.error) as error:
                reason = _refusal(error)
                if _PASSING.search(reason):
                    raise
                raise security.wrong_password(self._host, reason) from error
            self.select(settings.folder)
            # What a server can do it says in full only after the login.
            _, found = self._client.capability()
            self._abilities = found[-1].decode("ascii", "replace").upper().split()

    @property
    def _client(self) -> imaplib.IMAP4:
        return self._box.client

    def select(self, folder: str) -> None:
        """Look into another folder of the account."""
        with self._errors():
            try:
                self._box.folder.set(folder)
            except MailboxFolderSelectError as error:
                raise _no_folder(folder, "folder") from error
            self.uidvalidity = self._number("UIDVALIDITY")
            self.uidnext = self._number("UIDNEXT") or self._last_uid() + 1

    def _number(self, code: str) -> int:
        """A number that the server told when the folder was opened; 0: it did not."""
        _, (value, *_) = self._client.response(code)
        return int(value) if isinstance(value, bytes) and value.isdigit() else 0

    def _last_uid(self) -> int:
        return max(self.search("ALL"), default=0)

    def search(self, criteria: str) -> list[int]:
        """The mails that fit, in their order."""
        with self._errors():
            return sorted(int(uid) for uid in self._box.uids(criteria, charset=None))

    def uids_after(self, uid: int) -> list[int]:
        """The mails behind this one. A server names the last one even when nothing is behind it."""
        return [found for found in self.search(f"UID {uid + 1}:*") if found > uid]

    def uids_since(self, day: datetime) -> list[int]:
        """Mails that arrived on that day or later; one day more, for servers in other time zones."""
        before = day - timedelta(days=1)
        return self.search(f"SINCE {before.day}-{_MONTHS[before.month - 1]}-{before.year}")

    def has(self, message_id: str) -> bool:
        """Return whether the folder has a mail of ours with this Message-ID."""
        return bool(
            self.search(f'OR HEADER Message-ID "{message_id}" HEADER {OWN_HEADER} "{message_id}"')
        )

    def has_new_mail(self) -> bool:
        """Return whether the server announced new mail since the last call."""
        return self._client.response("EXISTS")[1][0] is not None

    def about(self, uid: int) -> tuple[int, float] | None:
        """The size of a mail and when it arrived; None when somebody took it away."""
        answer = self._fetch(uid, "(RFC822.SIZE INTERNALDATE)")
        size, arrived = _SIZE.search(answer), _ARRIVED.search(answer)
        if size is None or arrived is None:
            return None
        return int(size[1]), _time_of(arrived[1])

    def content(self, uid: int, size_bytes: int) -> bytes:
        """A mail as it is, or its beginning when it is too large; empty when it is gone."""
        is_large = size_bytes > self._settings.mail_limit_mb * 1_000_000
        return self._fetch(uid, f"(BODY.PEEK[]<0.{_TEXT_BYTES}>)" if is_large else "(BODY.PEEK[])")

    def _fetch(self, uid: int, items: str) -> bytes:
        """The literal of an answer, else its lines; empty when the mail is gone.

        Among them may be what other programs did with other mails, which a server tells at any time.
        """
        with self._errors():
            status, answer = self._client.uid("FETCH", str(uid), items)
            if status != "OK":
                raise PlatformError(f"{self._host} does not give mail {uid}: {_words(answer)}")
            for item in answer:
                if isinstance(item, tuple):
                    return bytes(cast("tuple[Any, ...]", item)[1])
            return b"\n".join(item for item in answer if isinstance(item, bytes))

    def mark_seen(self, uid: int) -> None:
        # The library would also expunge every mail that is marked as deleted.
        with self._errors():
            self._client.uid("STORE", str(uid), "+FLAGS", r"(\Seen)")

    def move(self, uid: int, folder: str) -> None:
        """Move a mail to another folder, if the server supports that."""
        if "MOVE" not in self._abilities or folder in ("", self._settings.folder):
            return
        # The library looks at the capabilities before the login, and then copies, deletes and expunges.
        with self._errors():
            status, answer = self._client.uid("MOVE", str(uid), cast("Any", encode_folder(folder)))
        if status != "OK":
            _log.warning("Mail %s stays in its folder, not in %s: %s", uid, folder, _words(answer))

    def sent_folder(self) -> str:
        """Return the folder for sent mail; empty when there is none."""
        with self._errors():
            folders = {folder.name: folder.flags for folder in self._box.folder.list()}
        folder = self._settings.sent_folder
        if folder and folder not in folders:
            raise _no_folder(folder, "sent_folder")
        return folder or next((name for name, flags in folders.items() if "\\Sent" in flags), "")

    def wait(self, stop: Event, timeout_s: float | None = None) -> None:
        """Wait for mail, for `stop` with the connection cut, or for the next regular check."""
        settings = self._settings
        with self._errors():
            if "IDLE" not in self._abilities:
                stop.wait(min(settings.poll_s, timeout_s or settings.poll_s))
                self._client.noop()
                return
            self._box.idle.start()
            if not self._has_buffered():
                self._box.idle.poll(min(settings.idle_minutes * 60, timeout_s or 29 * 60))
            self._box.idle.stop()

    def _has_buffered(self) -> bool:
        """Return whether data came with the go-ahead: the poll does not see buffered data."""
        sock = self._client.socket()
        before = sock.gettimeout()
        sock.settimeout(0)
        try:
            return bool(self._client.readline())
        except OSError:
            return False
        finally:
            sock.settimeout(before)

    def cut(self) -> None:
        """Cut the connection while another thread uses it; the only method for other threads."""
        with contextlib.suppress(OSError):
            self._client.socket().shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        try:
            with contextlib.suppress(OSError, imaplib.IMAP4.error, ImapToolsError):
                self._box.logout()
        finally:
            _hang_up(self._client)

    @contextlib.contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except ssl.SSLCertVerificationError as error:
            raise security.bad_certificate(self._host, error) from error
        except (OSError, imaplib.IMAP4.error, ImapToolsError) as error:
            raise PlatformError(f"The mailbox on {self._host} cannot be read: {error}") from error


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class _StartTls(BaseMailBox):
    """A mailbox behind STARTTLS. (The library's own does not hang up on a server that refuses it.)"""

    def __init__(self, host: str, port: int, context: ssl.SSLContext) -> None:
        self._host, self._port, self._context = host, port, context
        super().__init__()

    def _get_mailbox_client(self) -> imaplib.IMAP4:
        client = imaplib.IMAP4(self._host, self._port, _TIMEOUT_S)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(_hang_up, client)
            client.starttls(self._context)
            on_failure.pop_all()
        return client


def _hang_up(client: imaplib.IMAP4) -> None:
    with contextlib.suppress(OSError, imaplib.IMAP4.error):
        client.shutdown()


def _connect(settings: EmailSettings) -> BaseMailBox:
    host, port, how = settings.server("imap")
    if how == "plain":
        security.refuse_plain_abroad(host, "imap_security")
        return MailBoxUnencrypted(host, port, _TIMEOUT_S)
    context = security.tls_context(settings)
    if how == "starttls":
        return _StartTls(host, port, context)
    return MailBox(host, port, _TIMEOUT_S, ssl_context=context)


def _refusal(error: Exception) -> str:
    """Return why a login was refused; the two login methods report it differently."""
    return _words(getattr(error, "command_result", (None, error.args))[1])


def _no_folder(folder: str, setting: str) -> PlatformError:
    return PlatformError(
        f"There is no folder {folder} in the mailbox.",
        fix=f"Set {setting} in [gateway.platforms.email].",
        is_fatal=True,
    )


def _words(answer: Sequence[Any]) -> str:
    """Decode the answer of a server."""
    return " ".join(line.decode("utf-8", "replace") for line in answer if isinstance(line, bytes))


def _time_of(internal_date: bytes) -> float:
    """Seconds since the epoch of a date as IMAP writes it."""
    local = imaplib.Internaldate2tuple(b'INTERNALDATE "%s"' % internal_date)
    return time.mktime(local) if local else 0.0
