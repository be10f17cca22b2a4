"""Tell public network addresses from those of this machine and of private networks."""

import ipaddress

from hermes_core.errors import ToolError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_GLOBAL_IPV6 = ipaddress.IPv6Network("2000::/3")
_SPECIAL: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
        "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
        "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
        "168.63.129.16/32",  # of the machine's own cloud, though registered as public
        "2001::/23", "2001:db8::/32", "3fff::/20",
    )
)  # fmt: skip
"""A table of our own: the interpreter's differs from version to version (CVE-2024-4032)."""


def is_public(address: Address) -> bool:
    """Return whether an address is public: not private, local, reserved or metadata, however wrapped."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address not in _GLOBAL_IPV6:
            return False
    return not any(address in network for network in _SPECIAL)


def look_up(host: str, port: int) -> list[Address]:
    """Return the addresses of a name; raises ToolError when it has none."""
    import socket  # noqa: PLC0415 -- slow to load, and few conversations go to the web

    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ToolError(f"The name {host} is not known.", fix="Check the address.") from error
    texts = [str(entry[4][0]).partition("%")[0] for entry in found]
    return [ipaddress.ip_address(text) for text in dict.fromkeys(texts)]
