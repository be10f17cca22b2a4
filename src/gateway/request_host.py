"""Hosts: what the Host and the Origin of a request say about who asks.

Names can be made to point here by anybody, and a page that did so would read what is meant for this
machine; addresses cannot.
"""

import ipaddress
from urllib.parse import urlsplit


def name_of(url: str) -> str:
    """The host of an address, or of a Host header with `//` before it; empty when there is none."""
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_here(name: str) -> bool:
    """Whether a host is this machine, beyond doubt."""
    return name == "localhost" or (is_address(name) and ipaddress.ip_address(name).is_loopback)
