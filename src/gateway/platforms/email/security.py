"""Protects connections to mail servers: no password leaves the machine unencrypted."""

import ipaddress
import ssl

from gateway.platforms.base import PlatformError
from gateway.platforms.email.manifest import EmailSettings


def tls_context(settings: EmailSettings) -> ssl.SSLContext:
    """Return the TLS context that checks certificates."""
    try:
        return ssl.create_default_context(cafile=settings.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise PlatformError(
            f"The certificates in {settings.ca_file} cannot be read: {error}.",
            fix="Correct ca_file in [gateway.platforms.email].",
            is_fatal=True,
        ) from error


def refuse_plain_abroad(host: str, setting: str) -> None:
    """Refuse a connection without encryption, except to this machine."""
    if not _is_loopback(host):
        raise PlatformError(
            f"{host} is not this machine, and {setting} is plain.",
            fix=f"Set {setting} to tls or starttls in [gateway.platforms.email].",
            is_fatal=True,
        )


def wrong_password(host: str, reason: str) -> PlatformError:
    return PlatformError(
        f"{host} refuses the name or the password: {reason}",
        fix="Set EMAIL_PASSWORD (often an app password), or password and username in"
        " [gateway.platforms.email].",
        is_fatal=True,
    )


def bad_certificate(host: str, error: ssl.SSLError) -> PlatformError:
    """Return an error that is not fatal: an expired certificate may be renewed."""
    return PlatformError(
        f"The certificate of {host} is not trusted: {error.reason or error}.",
        fix="Check the host's name; for a server of your own set ca_file in [gateway.platforms.email].",
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
