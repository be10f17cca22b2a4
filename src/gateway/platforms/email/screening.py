"""Decides which mails are never answered: from machines, lists, ourselves and forged senders."""

import re
from collections.abc import Iterator

from gateway.platforms.email.mail import Mail

OWN_ID = "<hermes."
"""The beginning of our own Message-IDs."""
OWN_HEADER = "X-Hermes-Piece"
"""Marks our own mails, as the Message-ID does, which some servers replace."""

_MACHINES = re.compile(
    r"(mailer-daemon|postmaster|no-?reply|do-?not-?reply|bounces?|auto-?reply)([+.-].*)?@.*"
)
_BULK = frozenset({"bulk", "list", "junk", "auto_reply"})
_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|\((?:[^()"\\]|\\.)*\)')
"""Comments and quoted strings, which may repeat what a sender chose."""
_RESULT = re.compile(r"(?P<method>[a-z][a-z0-9-]*)(?:\s*/\s*\d+)?\s*=\s*(?P<result>[a-z]+)")
_PROPERTY = re.compile(r"(?P<name>[a-z]+\.[a-z0-9_-]+)\s*=\s*(?P<value>[^\s;]+)")
_MAX_HEADER = 10_000


def reason_to_skip(mail: Mail, own_address: str, trusted_authserv: str = "") -> str:
    """Return why a mail must not be answered; empty when it may be."""
    address, _ = mail.sender
    if not address:
        return "it has no single readable sender"
    if address == own_address.lower():
        return "it is our own"
    if trusted_authserv and not is_authentic(mail, trusted_authserv):
        return f"{trusted_authserv} does not confirm that it is from {address}"
    return _reason_of_machines(mail, address)


def is_own_copy(mail: Mail, own_address: str) -> bool:
    """Return whether a mail is the copy of one that we sent."""
    return mail.sender[0] == own_address.lower() and bool(mail.headers(OWN_HEADER))


def _reason_of_machines(mail: Mail, address: str) -> str:
    if _MACHINES.fullmatch(address):
        return f"{address} is an automatic sender"
    if mail.headers("Return-Path") and mail.header("Return-Path") in ("", "<>"):
        return "it is a bounce"
    if mail.header("Auto-Submitted").partition(";")[0].strip().lower() not in ("", "no"):
        return "it was sent automatically"
    if mail.header("Precedence").lower() in _BULK:
        return "it was sent in bulk"
    for name in ("List-Id", "X-Auto-Response-Suppress", "X-Autoreply"):
        if mail.headers(name) and mail.header(name).lower() != "none":
            return f"it has {name}"
    return ""


def is_authentic(mail: Mail, authserv: str) -> bool:
    """Return whether the receiving server confirms the sender of a mail.

    Only the topmost header of that server counts: it writes above what the sender wrote. DMARC decides
    where the sender's domain has it; else SPF or DKIM must have passed for exactly that domain. A domain
    above it could be a public suffix, and every list of those is incomplete.
    """
    domain = mail.sender[0].rpartition("@")[2]
    headers = (_parts(str(header)) for header in mail.headers("Authentication-Results"))
    _, *parts = next((found for found in headers if found[0] == authserv.lower()), [""])
    results = list(_results(parts))
    dmarc = [(result, about) for method, result, about in results if method == "dmarc"]
    if any(result != "none" for result, _ in dmarc):
        return any(result == "pass" and about in ("", domain) for result, about in dmarc)
    checked = [(result, about) for method, result, about in results if method in ("spf", "dkim")]
    return ("pass", domain) in checked


def _parts(header: str) -> list[str]:
    """Return the name of the server that wrote a header, and its results."""
    server, *parts = _without_comments(" ".join(header.split()).lower()).split(";")
    return [server.split()[0] if server.split() else "", *parts]


def _results(parts: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield methods, results and their domains."""
    for part in parts:
        found = _RESULT.match(part.strip())
        if found:
            values = {match["name"]: match["value"] for match in _PROPERTY.finditer(part)}
            names = ("header.from", "smtp.mailfrom", "header.d", "header.i")
            about = next((values[name] for name in names if name in values), "")
            yield found["method"], found["result"], about.rpartition("@")[2]


def _without_comments(text: str) -> str:
    """Remove comments; return nothing when one has no end."""
    count = len(text) < _MAX_HEADER
    while count:
        text, count = _COMMENT.subn(" ", text)
    return "" if set(text) & set('()"') else text
