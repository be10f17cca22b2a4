"""Sends mail over SMTP, and limits how much of it one address gets."""

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import AsyncGenerator
from email.message import EmailMessage

from aiosmtplib import SMTP
from aiosmtplib.errors import (
    SMTPAuthenticationError,
    SMTPException,
    SMTPNotSupported,
    SMTPResponseException,
)

from gateway.platforms.base import PlatformError, SendResult
from gateway.platforms.email import security
from gateway.platforms.email.manifest import EmailSettings
from hermes_core import clock

_TIMEOUT_S = 60.0
_DATA_TIMEOUT_S = 300.0
"""A server may look for viruses before it answers."""
_RETRY_AFTER_S = 60.0
_CLOSING = 421
_HOUR_S = 3600.0
_MAX_ADDRESSES = 10_000


async def check(settings: EmailSettings) -> None:
    """Log in and out again; raises PlatformError."""
    async with _session(settings):
        pass


async def deliver(settings: EmailSettings, mail: EmailMessage, to: str) -> SendResult:
    """Send a mail to a person and to ourselves; raises PlatformError without a connection.

    One transaction, one answer: our own copy exists exactly when the server took the mail.
    """
    content = mail.as_bytes()
    async with _session(settings) as client:
        # With the size declared, a mail that is too large is refused before it is sent.
        size = [f"size={len(content)}"] if client.supports_extension("size") else []
        try:
            await client.mail(settings.address, options=size)
            await client.rcpt(to)
            with contextlib.suppress(SMTPResponseException):
                await client.rcpt(settings.address)  # the mail matters more than our copy
        except SMTPResponseException as error:
            return _refused(error)
        except (SMTPException, OSError) as error:
            return SendResult(success=False, error=str(error), error_kind="network")
        return await _send_text(client, content, str(mail["Message-ID"]))


async def _send_text(client: SMTP, content: bytes, name: str) -> SendResult:
    """Send the content; after a lost connection the server may have accepted the mail."""
    try:
        await client.data(content, timeout=_DATA_TIMEOUT_S)
    except SMTPResponseException as error:
        return _refused(error)
    except (SMTPException, OSError) as error:
        return SendResult(success=False, error=str(error), error_kind="unsure")
    return SendResult(success=True, message_id=name)


def _refused(error: SMTPResponseException) -> SendResult:
    answer = f"{error.code} {error.message}"
    if error.code == _CLOSING:
        return SendResult(success=False, error=answer, error_kind="network")
    if error.code < 500:  # 4xx may pass, 5xx stays
        return SendResult(
            success=False, error=answer, error_kind="rate_limited", retry_after=_RETRY_AFTER_S
        )
    return SendResult(success=False, error=answer, error_kind="refused")


@contextlib.asynccontextmanager
async def _session(settings: EmailSettings) -> AsyncGenerator[SMTP]:
    """Open a connection and log in."""
    host, port, how = settings.server("smtp")
    if how == "plain":
        security.refuse_plain_abroad(host, "smtp_security")
    client = SMTP(
        hostname=host,
        port=port,
        use_tls=how == "tls",
        start_tls=how == "starttls",
        tls_context=None if how == "plain" else security.tls_context(settings),
        local_hostname=settings.domain,
        timeout=_TIMEOUT_S,
    )
    transport: asyncio.BaseTransport | None = None
    try:
        await _log_in(client, settings, host)
        transport = client.transport
        yield client
        with contextlib.suppress(SMTPException, OSError):
            await client.quit()
    finally:
        client.close()
        if isinstance(transport, asyncio.WriteTransport):
            transport.abort()  # close alone would first finish sending


async def _log_in(client: SMTP, settings: EmailSettings, host: str) -> None:
    try:
        await client.connect()
        await client.ehlo()
        # A server on this machine may need no login.
        if settings.smtp_security != "plain" or client.supports_extension("auth"):
            await client.login(settings.login, settings.password)
    except SMTPAuthenticationError as error:
        if error.code < 500:
            raise PlatformError(f"{host} cannot check the password now: {error.message}") from error
        raise security.wrong_password(host, error.message) from error
    except SMTPNotSupported as error:
        raise PlatformError(
            f"{host} lacks something that email needs: {error.message}",
            fix="Check smtp_security and smtp_port in [gateway.platforms.email].",
            is_fatal=True,
        ) from error
    except (SMTPException, OSError) as error:
        if isinstance(error.__cause__, ssl.SSLCertVerificationError):
            raise security.bad_certificate(host, error.__cause__) from error
        raise PlatformError(f"The mail server {host} cannot be reached: {error}") from error


class Pace:
    """The mails of the last hour by address: it stops two programs that answer each other."""

    def __init__(self, per_hour: int) -> None:
        self._per_hour = per_hour
        self._sent: dict[str, deque[float]] = {}

    def wait_s(self, address: str) -> float:
        """Return how long the next mail to this address must wait; 0: it may go."""
        sent = self._sent.get(address, deque())
        while sent and sent[0] <= clock.now() - _HOUR_S:
            sent.popleft()
        return sent[0] + _HOUR_S - clock.now() if len(sent) >= self._per_hour else 0.0

    def note(self, address: str) -> None:
        """Count one more mail."""
        self._sent.setdefault(address, deque()).append(clock.now())
        if len(self._sent) > _MAX_ADDRESSES:
            del self._sent[next(iter(self._sent))]
