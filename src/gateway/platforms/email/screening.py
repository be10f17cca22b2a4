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
        return f"{address} is a machine"
    if mail.headers("Return-Path") and mail.header("Return-Path") in ("", "<>"):
        return "it is a bounce"
    if mail.header("Auto-Submitted").partition(";")[0].strip().lower() not in ("", "no"):
        return "it was sent by a machine"
    if mail.header("Precedence").lower() in _BULK:
        return "it was sent in bulk"
    for name in ("List-Id", "X-Auto-Response-Suppress", "X-Autoreply"):
        if mail.headers(name) and mail.header(name).lower() != "none":
            return f"it has {name}"
    return ""


def is_authentic(mail: Mail, authserv: str) -> bool:
    """Return whether the receiving server confirms the sender of a mail.

    The uppermost result of each method counts: a server writes above what the sender wrote. DMARC
    decides where the sender's domain has it; else SPF or DKIM must have passed for that domain.
    """
    domain = mail.sender[0].rpartition("@")[2]
    results: dict[str, list[tuple[str, str]]] = {}
    for header in mail.headers("Authentication-Results"):
        found = list(_results(str(header), authserv))
        for method in {method for method, _, _ in found} - results.keys():
            results[method] = [(result, about) for name, result, about in found if name == method]
    dmarc = results.get("dmarc", [])
    if any(result != "none" for result, _ in dmarc):
        return any(result == "pass" and about in ("", domain) for result, about in dmarc)
    checked = [*results.get("spf", []), *results.get("dkim", [])]
    return any(result == "pass" and _is_aligned(domain, about) for result, about in checked)


def _results(header: str, authserv: str) -> Iterator[tuple[str, str, str]]:
    """Yield methods, results and their domains, if the header is from that server."""
    server, *parts = _without_comments(" ".join(header.split()).lower()).split(";")
    if not server.split() or server.split()[0] != authserv.lower():
        return
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


def _is_aligned(domain: str, about: str) -> bool:
    return bool(about) and (domain == about or domain.endswith(f".{about}"))
