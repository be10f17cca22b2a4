"""The manifest of email: its settings, its account and its delivery guarantee."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from gateway.config import PlatformConfig
from gateway.platforms.base import BasePlatformAdapter, Manifest, describe

Security = Literal["tls", "starttls", "plain"]

_PORTS = {
    "imap": {"tls": 993, "starttls": 143, "plain": 143},
    "smtp": {"tls": 465, "starttls": 587, "plain": 25},
}


class EmailSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A mailbox of its own for Hermes."""

    address: Annotated[str, describe("The address of Hermes.", pattern=r"^[^\s@<>]+@[^\s@<>]+$")]
    password: Annotated[
        str, describe("Its password or app password; better in EMAIL_PASSWORD.", min_length=1)
    ]
    imap_host: Annotated[str, describe("The server to read mail from.", min_length=1)]
    smtp_host: Annotated[str, describe("The server to send mail through; empty: the IMAP one.")] = (
        ""
    )
    username: Annotated[str, describe("The name to log in with; empty: the address.")] = ""
    imap_port: Annotated[int, describe("0: the default.", ge=0, le=65535)] = 0
    smtp_port: Annotated[int, describe("0: the default.", ge=0, le=65535)] = 0
    imap_security: Annotated[Security, describe("plain is for a server on this machine.")] = "tls"
    smtp_security: Annotated[Security, describe("plain is for a server on this machine.")] = "tls"
    ca_file: Annotated[str, describe("Certificates to trust instead of the system's.")] = ""
    name: Annotated[str, describe("Display name of the sender.")] = "Hermes"
    folder: Annotated[str, describe("The folder to read mail from.")] = "INBOX"
    sent_folder: Annotated[
        str, describe("The folder for copies of sent mail; empty: the one that the server names.")
    ] = ""
    mark_seen: Annotated[bool, describe("Mark a mail as read once it was accepted.")] = False
    trusted_authserv: Annotated[
        str,
        describe(
            "The server that verifies senders, as Authentication-Results of received mail names it;"
            " empty: everybody on email is a guest."
        ),
    ] = ""
    replies_per_hour: Annotated[
        int, describe("Mails per hour to one address; more wait. Ends loops.", ge=1)
    ] = 30
    mail_limit_mb: Annotated[
        int, describe("Only the text of a larger mail is read.", ge=1, le=200)
    ] = 30
    idle_minutes: Annotated[
        float, describe("Minutes after which the wait for mail is renewed.", gt=0, le=29)
    ] = 5.0
    poll_s: Annotated[
        float, describe("Seconds between two checks, when the server cannot announce mail.", gt=0)
    ] = 60.0
    find_sent_s: Annotated[
        float, describe("Seconds to search for the copy of a mail that may have been sent.", ge=0)
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
        "EMAIL_TRUSTED_AUTHSERV": "trusted_authserv",
    },
    guide=(
        "1. Make a mailbox of its own for Hermes, not yours: Hermes answers what arrives there.",
        "2. Create an app password for it, where the provider has them. It is tested at once.",
    ),
    extra="email",
    greets_strangers=False,  # senders are forged, and machines write
    carries_outside_text=True,
    guarantee=(
        "Every reply has its own Message-ID and also goes to our mailbox, in the same SMTP"
        " transaction. After a crash, the copy shows whether it was sent."
    ),
)
