"""Which mails are never answered: machines, mailing lists, bounces, ourselves, and forged senders."""

import re
from collections.abc import Iterator

from gateway.platforms.email.mail import Mail

OWN_ID = "<hermes."
"""How the Message-IDs that we give begin."""
OWN_HEADER = "X-Hermes-Piece"
"""Says the same as the Message-ID, which some servers replace."""

_MACHINES = re.compile(
    r"(mailer-daemon|postmaster|no-?reply|do-?not-?reply|bounces?|auto-?reply)([+.-].*)?@.*"
)
_BULK = frozenset({"bulk", "list", "junk", "auto_reply"})
_ASIDE = re.compile(r'"(?:[^"\\]|\\.)*"|\((?:[^()"\\]|\\.)*\)')
"""Comments and quoted strings, which may repeat what a sender chose."""
_RESULT = re.compile(r"(?P<method>[a-z][a-z0-9-]*)(?:\s*/\s*\d+)?\s*=\s*(?P<result>[a-z]+)")
_PROPERTY = re.compile(r"(?P<name>[a-z]+\.[a-z0-9_-]+)\s*=\s*(?P<value>[^\s;]+)")
_MAX_HEADER = 10_000


def reason_to_skip(mail: Mail, own_address: str, trusted_authserv: str = "") -> str:
    """Why a mail must not be answered; empty when it may be."""
    address, _ = mail.sender
    if not address:
        return "it has no single readable sender"
    if address == own_address.lower():
        return "it is our own"
    if trusted_authserv and not is_authentic(mail, trusted_authserv):
        return f"{trusted_authserv} does not confirm that it is from {address}"
    return _reason_of_machines(mail, address)


def is_own_copy(mail: Mail, own_address: str) -> bool:
    """Whether a mail is the copy of one that we sent."""
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
    """Whether the server that took the mail in confirms its sender.

    The uppermost result of each method counts: a server writes above what the sender wrote. DMARC
    decides where the sender's domain has it; else SPF or DKIM must have passed for that domain.
    """
    domain = mail.sender[0].rpartition("@")[2]
    results: dict[str, list[tuple[str, str]]] = {}
    for header in mail.headers("Authentication-Results"):
        found = list(_results(str(header), authserv))
        for method in {method for method, _, _ in found} - results.keys():
            results[method] = [(said, about) for one, said, about in found if one == method]
    dmarc = results.get("dmarc", [])
    if any(said != "none" for said, _ in dmarc):
        return any(said == "pass" and about in ("", domain) for said, about in dmarc)
    checked = [*results.get("spf", []), *results.get("dkim", [])]
    return any(said == "pass" and _is_aligned(domain, about) for said, about in checked)


def _results(header: str, authserv: str) -> Iterator[tuple[str, str, str]]:
    """Method, result and the domain it is about, if the header is that server's."""
    server, *parts = _without_asides(" ".join(header.split()).lower()).split(";")
    if not server.split() or server.split()[0] != authserv.lower():
        return
    for part in parts:
        found = _RESULT.match(part.strip())
        if found:
            given = {one["name"]: one["value"] for one in _PROPERTY.finditer(part)}
            names = ("header.from", "smtp.mailfrom", "header.d", "header.i")
            about = next((given[name] for name in names if name in given), "")
            yield found["method"], found["result"], about.rpartition("@")[2]


def _without_asides(text: str) -> str:
    """The bare results; nothing when it cannot be told where an aside ends."""
    count = len(text) < _MAX_HEADER
    while count:
        text, count = _ASIDE.subn(" ", text)
    return "" if set(text) & set('()"') else text


def _is_aligned(domain: str, about: str) -> bool:
    return bool(about) and (domain == about or domain.endswith(f".{about}"))
