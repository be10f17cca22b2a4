"""A mail server for tests: Dovecot for IMAP, aiosmtpd in front of its LMTP, faults on demand.

Every user name exists and has the same password; an address is delivered to the
mailbox of its local part.
"""

import asyncio
import contextlib
import ctypes
import grp
import os
import pwd
import shutil
import signal
import smtplib
import socket
import ssl
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass
from email import message_from_bytes
from email.message import EmailMessage, Message
from email.parser import BytesHeaderParser
from email.utils import parseaddr
from pathlib import Path
from typing import Any, cast

import pytest
import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.gateway.servers.ports import free_port
from tests.support.faults import eventually

DOMAIN = "mail.test"
PASSWORD = "correct-horse"
TIMEOUT_S = 20.0

DOVECOT = shutil.which("dovecot") or shutil.which("dovecot", path="/usr/sbin")
IS_MISSING = DOVECOT is None and "CI" not in os.environ
needs_dovecot = pytest.mark.skipif(
    IS_MISSING,
    reason="Dovecot is not installed; apt-get install dovecot-imapd dovecot-lmtpd to run this",
)

_CONFIG = """\
base_dir = {root}/run
state_dir = {root}/state
log_path = {root}/log
protocols = imap lmtp
listen = 127.0.0.1
default_internal_user = {internal}
default_internal_group = {group}
default_login_user = {login}
ssl = yes
ssl_cert = <{root}/server.pem
ssl_key = <{root}/server.pem
disable_plaintext_auth = no
auth_username_format = %Ln
auth_failure_delay = 0
mail_location = maildir:{root}/home/%n
first_valid_uid = 1
mail_max_userip_connections = 100
{idle}
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid={owner} gid={owner_group} home={root}/home/%n
}}
namespace inbox {{
  inbox = yes
  mailbox Sent {{
    auto = create
    special_use = \\Sent
  }}
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {imap}
  }}
  inet_listener imaps {{
    port = {imaps}
  }}
}}
service anvil {{
  chroot =
}}
service lmtp {{
  inet_listener lmtp {{
    address = 127.0.0.1
    port = {lmtp}
  }}
}}
"""
_PR_SET_PDEATHSIG = 1
_WITHOUT_IDLE = "imap_capability = IMAP4rev1 UIDPLUS LITERAL+ NAMESPACE SPECIAL-USE"


@dataclass
class Faults:
    """What the SMTP side does wrong; `data` and `cut` hold for one mail."""

    rcpt: str = ""
    """The answer to RCPT TO for everybody but the server's own people."""
    data: str = ""
    """The answer to the text of a mail, which is then not delivered."""
    login: str = ""
    cut: str = ""
    """`before` or `after` the mail was delivered, the connection ends without an answer."""


class MailServer:
    """One mail server on free ports of its own."""

    def __init__(self, *, has_idle: bool = True, password: str = PASSWORD) -> None:
        self.password = password
        self.root = Path(tempfile.mkdtemp(prefix="mail-"))
        self.imap_port, self.imaps_port, self._lmtp_port = (free_port() for _ in range(3))
        self.smtp_port, self.smtps_port = free_port(), free_port()
        self.ca_file = self.root / "ca.pem"
        self.faults = Faults()
        self.verdict = ""
        """What the server says in Authentication-Results about mail it takes in."""
        self.sent: list[tuple[str, Message]] = []
        """Everything that SMTP delivered: the recipient and the mail."""
        self._news = threading.Condition()
        self._process: subprocess.Popen[bytes] | None = None
        self._fronts: list[Controller] = []
        self._prepare(has_idle=has_idle)

    def _prepare(self, *, has_idle: bool) -> None:
        self.root.chmod(0o755)
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca_file))
        certificate = authority.issue_cert("localhost", "127.0.0.1")
        certificate.private_key_and_cert_chain_pem.write_to_path(str(self.root / "server.pem"))
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        certificate.configure_cert(self._tls)
        me = pwd.getpwuid(os.getuid()).pw_name
        is_root = os.getuid() == 0
        mine = grp.getgrgid(os.getgid()).gr_name
        as_root = ("dovecot", "dovecot", "dovenull", "mail", "mail")
        names = as_root if is_root else (me, mine, me, me, mine)
        text = _CONFIG.format(
            root=self.root, imap=self.imap_port, imaps=self.imaps_port, lmtp=self._lmtp_port,
            password=self.password, idle="" if has_idle else _WITHOUT_IDLE,
            **dict(zip(("internal", "group", "login", "owner", "owner_group"), names, strict=True)),
        )  # fmt: skip
        (self.root / "dovecot.conf").write_text(text)
        (self.root / "home").mkdir()
        if is_root:
            shutil.chown(self.root / "home", "mail", "mail")

    def start(self) -> None:
        self.start_imap()
        self.start_smtp()

    def stop(self) -> None:
        self.stop_smtp()
        self.stop_imap()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    def start_imap(self) -> None:
        if DOVECOT is None:
            raise RuntimeError("Dovecot is not installed: dovecot-imapd and dovecot-lmtpd.")
        command = [DOVECOT, "-F", "-c", str(self.root / "dovecot.conf")]
        with (self.root / "stderr").open("wb") as stderr:  # a pipe would be held by its children
            self._process = subprocess.Popen(
                command, stderr=stderr, start_new_session=True, preexec_fn=_die_with_parent
            )
        for port in (self.imap_port, self.imaps_port, self._lmtp_port):
            self._wait_for_port(port)

    def _wait_for_port(self, port: int) -> None:
        """Until somebody listens there; the kernel, not a clock, says so."""
        process = self._process
        assert process is not None
        for _ in range(int(TIMEOUT_S * 100)):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.01)
                raise RuntimeError(f"Dovecot ended: {(self.root / 'stderr').read_text()}")
        raise RuntimeError(f"Dovecot does not listen on port {port}.")

    def stop_imap(self) -> None:
        """Take IMAP away, open connections too."""
        if self._process is None:
            return
        process, self._process = self._process, None
        # Its children would keep their connections for a while.
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):  # all of them may have ended already
                os.killpg(process.pid, number)
            process.wait(TIMEOUT_S)
        eventually(lambda: all(map(_is_free, (self.imap_port, self.imaps_port, self._lmtp_port))))

    def restart_imap(self) -> None:
        self.stop_imap()
        self.start_imap()

    def start_smtp(self) -> None:
        both: dict[int, dict[str, Any]] = {
            self.smtp_port: {"tls_context": self._tls},
            self.smtps_port: {"ssl_context": self._tls},
        }
        for port, options in both.items():
            with warnings.catch_warnings():
                # aiosmtpd warns that passwords may travel in the clear; that is what loopback is for.
                warnings.simplefilter("ignore")
                front = Controller(
                    _Front(self), hostname="127.0.0.1", port=port, authenticator=self._login,
                    auth_require_tls=False, server_hostname=DOMAIN, **options,
                )  # fmt: skip
                front.start()
            self._fronts.append(front)

    def stop_smtp(self) -> None:
        while self._fronts:
            self._fronts.pop().stop()

    def _login(
        self, _server: SMTP, _session: Session, _envelope: Envelope, _how: str, credentials: Any
    ) -> AuthResult:
        if self.faults.login:
            return AuthResult(success=False, handled=False, message=self.faults.login)
        is_right = (
            isinstance(credentials, LoginPassword)
            and credentials.password == self.password.encode()
        )
        return AuthResult(success=is_right, handled=False)

    def change_uidvalidity(self, user: str) -> None:
        """Number the mails of somebody anew, as a server does that lost its index."""
        self.stop_imap()
        folder = self.root / "home" / user
        for path in folder.glob("dovecot*"):
            path.unlink()
        self.start_imap()

    def deliver(self, raw: bytes | EmailMessage, to: str, sender: str | None = None) -> None:
        """Put a mail into a mailbox, as if it came from outside; the envelope of a bounce is empty."""
        content = raw if isinstance(raw, bytes) else raw.as_bytes()
        if sender is None:
            sender = parseaddr(str(BytesHeaderParser().parsebytes(content)["From"] or ""))[1]
        if self.verdict:
            stamp = f"Authentication-Results: {DOMAIN}; {self.verdict}\r\n"
            content = stamp.encode() + content
        with smtplib.LMTP("127.0.0.1", self._lmtp_port) as lmtp:
            lmtp.sendmail(sender, [to], content)

    def note(self, to: str, content: bytes) -> None:
        with self._news:
            self.sent.append((to, message_from_bytes(content)))
            self._news.notify_all()

    def mails_to(self, address: str) -> list[Message]:
        """What SMTP delivered to an address so far."""
        with self._news:
            return [mail for to, mail in self.sent if to == address]

    def wait_for_mail(self, address: str, count: int = 1) -> list[Message]:
        """Wait until SMTP has delivered that many mails to an address."""

        def there() -> bool:
            return sum(to == address for to, _ in self.sent) >= count

        with self._news:
            if not self._news.wait_for(there, TIMEOUT_S):
                raise TimeoutError(f"{address} did not get {count} mails.")
        return self.mails_to(address)


class _Front:
    """The SMTP side: takes a mail and hands it to LMTP, as the faults allow."""

    def __init__(self, owner: MailServer) -> None:
        self._owner = owner

    async def handle_RCPT(
        self,
        _server: SMTP,
        _session: Session,
        envelope: Envelope,
        address: str,
        _options: list[str],
    ) -> str:
        if self._owner.faults.rcpt and address != envelope.mail_from:
            return self._owner.faults.rcpt
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, _session: Session, envelope: Envelope) -> str:
        faults = self._owner.faults
        answer, faults.data = faults.data, ""
        cut, faults.cut = faults.cut, ""
        if answer:
            return answer
        if cut != "before":
            self._deliver(envelope)
        if cut:
            cast("asyncio.Transport", server.transport).abort()
        return "250 OK"

    def _deliver(self, envelope: Envelope) -> None:
        content = envelope.content
        assert isinstance(content, bytes)
        for to in envelope.rcpt_tos:
            self._owner.deliver(content, to, envelope.mail_from or "")
            self._owner.note(to, content)


def _die_with_parent() -> None:
    """A test run that is killed leaves no server behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _is_free(port: int) -> bool:
    """Whether a server could listen there: its former children do so until they are really gone."""
    with socket.socket() as listener, contextlib.suppress(OSError):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        return True
    return False


@contextlib.contextmanager
def mail_server(*, has_idle: bool = True, password: str = PASSWORD) -> Generator[MailServer]:
    """A server for the length of a block."""
    server = MailServer(has_idle=has_idle, password=password)
    try:
        server.start()
        yield server
    finally:
        server.close()


def letter(
    sender: str,
    to: str,
    text: str = "Hello",
    *,
    subject: str = "A question",
    message_id: str = "",
    references: str = "",
    change: Callable[[EmailMessage], None] | None = None,
) -> EmailMessage:
    """A plain mail, as a person's program writes it."""
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = sender, to, subject
    if message_id:
        mail["Message-ID"] = message_id
    if references:
        mail["In-Reply-To"], mail["References"] = references.split()[-1], references
    mail.set_content(text)
    if change:
        change(mail)
    return mail
