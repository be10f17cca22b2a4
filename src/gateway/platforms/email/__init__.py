"""Email: a mailbox watched over IMAP and answered over SMTP; a plugin that comes with Hermes."""

from gateway.platforms.email.manifest import MANIFEST

register = MANIFEST.register
