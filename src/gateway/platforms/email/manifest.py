"""The manifest of email: its settings, its account, and what holds when the process dies."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from gateway.config import PlatformConfig
from gateway.platforms.base import BasePlatformAdapter, Manifest

Security = Literal["tls", "starttls", "plain"]

_PORTS = {
    "imap": {"tls": 993, "starttls": 143, "plain": 143},
    "smtp": {"tls": 465, "starttls": 587, "plain": 25},
}


def _says(text: str, **limits: Any) -> Any:  # noqa: ANN401 -- msgspec's own
    return msgspec.Meta(description=text, **limits)


class EmailSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A mailbox of its own for Hermes."""

    address: Annotated[str, _says("The address that Hermes has.", pattern=r"^[^\s@<>]+@[^\s@<>]+$")]
    password: Annotated[
        str, _says("Its password or app password; better in EMAIL_PASSWORD.", min_length=1)
    ]
    imap_host: Annotated[str, _says("The server that mail is read from.", min_length=1)]
    smtp_host: Annotated[str, _says("The server that takes mail; empty: the IMAP one.")] = ""
    username: Annotated[str, _says("The name to log in with; empty: the address.")] = ""
    imap_port: Annotated[int, _says("0: the usual one.", ge=0, le=65535)] = 0
    smtp_port: Annotated[int, _says("0: the usual one.", ge=0, le=65535)] = 0
    imap_security: Annotated[Security, _says("plain is for a server on this machine.")] = "tls"
    smtp_security: Annotated[Security, _says("plain is for a server on this machine.")] = "tls"
    ca_file: Annotated[str, _says("Certificates to trust instead of the system's.")] = ""
    name: Annotated[str, _says("The name that people see beside the address.")] = "Hermes"
    folder: Annotated[str, _says("The folder that mail is read from.")] = "INBOX"
    sent_folder: Annotated[
        str, _says("Where copies of what was sent are kept; empty: where the server says.")
    ] = ""
    mark_seen: Annotated[bool, _says("Mark a mail as read once it was taken in.")] = False
    trusted_authserv: Annotated[
        str, _says("The server whose Authentication-Results say that a sender is no forgery.")
    ] = ""
    replies_per_hour: Annotated[
        int, _says("Mails one address gets in an hour; more wait. Ends loops.", ge=1)
    ] = 30
    mail_limit_mb: Annotated[
        int, _says("Of a larger mail only the text is read.", ge=1, le=200)
    ] = 30
    idle_minutes: Annotated[
        float, _says("How often the wait for mail is renewed.", gt=0, le=29)
    ] = 5.0
    poll_s: Annotated[
        float, _says("How often to look where the server cannot say when mail comes.", gt=0)
    ] = 60.0
    find_sent_s: Annotated[
        float, _says("How long to look for the copy of a mail that may have been sent.", ge=0)
    ] = 10.0

    @property
    def login(self) -> str:
        return self.username or self.address

    @property
    def domain(self) -> str:
        return self.address.rpartition("@")[2]

    def server(self, protocol: Literal["imap", "smtp"]) -> tuple[str, int, Security]:
        """The host, the port and the security of one of the two servers."""
        is_imap = protocol == "imap"
        host = self.imap_host if is_imap else self.smtp_host or self.imap_host
        port = self.imap_port if is_imap else self.smtp_port
        security = self.imap_security if is_imap else self.smtp_security
        return host, port or _PORTS[protocol][security], security


def _make(config: PlatformConfig, settings: EmailSettings, folder: Path) -> BasePlatformAdapter:
    # The manifest is read at every start; the libraries only when email is used.
    from gateway.platforms.email.adapter import EmailAdapter  # noqa: PLC0415 -- start-up time

    return EmailAdapter(config, settings, folder)


def _identity(settings: EmailSettings) -> str:
    return f"{settings.address.lower()}/{settings.folder}"


MANIFEST = Manifest(
    name="email",
    title="Email",
    settings=EmailSettings,
    make=_make,
    identity=_identity,
    variables={
        "EMAIL_ADDRESS": "address",
        "EMAIL_PASSWORD": "password",
        "EMAIL_IMAP_HOST": "imap_host",
        "EMAIL_SMTP_HOST": "smtp_host",
    },
    extra="email",
    greets_strangers=False,  # senders are forged, and machines write
    guarantee=(
        "Every reply has a Message-ID of its own and goes to our mailbox too, in the same SMTP"
        " transaction: when the process dies while it sends, the copy says whether it was sent."
    ),
)
