"""Choose the proxy of a request, by the variables that all tools share."""

from urllib.parse import urlsplit

from hermes_core.config import Proxies


def proxy_for(url: str, proxies: Proxies) -> str:
    """The address of the proxy for a URL; empty: it is reached directly, as this machine always is."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    if _is_this_machine(host) or any(_covers(rule, host) for rule in proxies.no_proxy.split(",")):
        return ""
    chosen = proxies.https_proxy if parts.scheme == "https" else proxies.http_proxy
    proxy = chosen or proxies.all_proxy
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


def _is_this_machine(host: str) -> bool:
    return host in ("localhost", "::1") or host.endswith(".localhost") or host.startswith("127.")


def _covers(rule: str, host: str) -> bool:
    if rule.strip() == "*":
        return True
    rule = rule.strip().lower().removeprefix("*").removeprefix(".")
    name = rule.partition(":")[0] if rule.count(":") == 1 else rule
    if "/" in name:
        return _is_in_network(host, name)
    return bool(rule) and (host == name or host.endswith(f".{name}"))


def _is_in_network(host: str, network: str) -> bool:
    import ipaddress  # noqa: PLC0415 -- a rule for a range of addresses is rare

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
