"""Checks of the Host and Origin headers of requests.

Anybody can point a name at this machine, and a web page that did so could read its answers; nobody can
redirect an address.
"""

import ipaddress
from urllib.parse import urlsplit


def name_of(url: str) -> str:
    """Return the host of a URL, or of a Host header after `//`; empty when there is none."""
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


def is_loopback(name: str) -> bool:
    """Return whether a host is certainly this machine."""
    return name == "localhost" or (is_address(name) and ipaddress.ip_address(name).is_loopback)
