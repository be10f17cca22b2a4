"""Hosts that may be reached without a question.

Allowed is what the settings name, what a person granted, public code hosts, and the package registries
that the installed tools are configured for. A conversation with something to lose asks for these too.
"""

import contextlib
import functools
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

CODE_HOSTS = (
    "github.com", "*.github.com", "*.githubusercontent.com", "gitlab.com", "*.gitlab.com",
    "bitbucket.org", "codeberg.org", "git.sr.ht",
)  # fmt: skip
"""Allowed without a question, as long as there is nothing to lose."""

PORTS = (80, 443)
"""What a host is allowed for, when an entry names no port."""

_PIP_DEFAULTS = """
from pip._internal.models.index import PyPI
print(PyPI.url, f"https://{PyPI.file_storage_domain}")
"""
_CONFIGURATIONS: Sequence[tuple[str, Sequence[str]]] = (
    ("pip", ("-m", "pip", "config", "list")),
    ("pip", ("-c", _PIP_DEFAULTS)),
    ("npm", ("config", "get", "registry", "--logs-max=0")),  # its log would lie in the home
    ("go", ("env", "GOPROXY", "GOSUMDB")),
    ("gem", ("sources", "--list")),
)
"""Programs that install packages, and how to ask each which servers it is configured for."""
_CARGO_SETTINGS = (".cargo/config.toml", ".cargo/config")
"""Read by us: cargo tells its configuration with an unstable option only, and never its defaults."""
_PACKAGE_TOOL = re.compile(
    r"\b(?:(?P<pip>pip\d?|pipx|uvx?|poetry)|(?P<npm>npm|npx|pnpm|yarn|bun)|(?P<go>go)"
    r"|(?P<gem>gem|bundle)|(?P<cargo>cargo))\b"
)
"""Programs that use a registry, by the one that is asked for it."""
_CONFIGURATION_TIMEOUT_S = 5.0
_URL_HOST = re.compile(r"https?://(?:[^\s/@\"']*@)?([A-Za-z0-9.-]+(?::\d+)?)")


class HostGrants(NamedTuple):
    """The hosts that a conversation may reach, as of now."""

    hosts: Collection[str] = ()
    """Hosts that a person allowed, here or everywhere."""
    asks_for_all: bool = False
    """Whether all other hosts have to be asked for, whatever allows them."""
    despite: Collection[str] = ()
    """Hosts that a person allowed although all have to be asked for."""


def passes(host: str, port: int, allowed: Collection[str], grants: HostGrants) -> bool:
    """Tell whether a host is reached without a question; `allowed` are those of the settings."""
    if matches(grants.despite, host, port):
        return True
    if grants.asks_for_all:
        return False
    named = (allowed, grants.hosts, CODE_HOSTS)
    return any(matches(entries, host, port) for entries in named) or matches(
        configured_hosts(), host, port
    )


def name_of(host: str, port: int) -> str:
    """Return how a host is named in questions and settings."""
    return host if port in PORTS else f"{host}:{port}"


def split(name: str) -> tuple[str, int]:
    """Return the host and the port of a name."""
    host, _, port = name.rpartition(":")
    return (host, int(port)) if host and port.isdecimal() else (name, PORTS[-1])


def matches(entries: Collection[str], host: str, port: int) -> bool:
    """Tell whether a host is named by one of `name`, `name:port`, `*.name` and `*.name:port`."""
    return any(_matches(entry.lower(), host, port) for entry in entries)


def _matches(entry: str, host: str, port: int) -> bool:
    name, _, ports = entry.partition(":")
    if port not in ((int(ports),) if ports.isdecimal() else PORTS):
        return False
    return host.endswith(name[1:]) if name.startswith("*.") else host == name


def configured_hosts() -> frozenset[str]:
    """Return the servers that this machine's package tools are configured for.

    The tools are asked once per process, outside of any workspace, so that a file in one cannot add
    a host.
    """
    with _lock:  # a second caller waits for the answers to the first
        return frozenset(host for found in _registries().values() for host in found)


def named_by(command: str) -> list[str]:
    """Return hosts that a command is likely to reach: of its addresses, and of its package tools."""
    configured_hosts()
    tools = {match.lastgroup or "" for match in _PACKAGE_TOOL.finditer(command)}
    registries = [host for tool in tools for host in _registries().get(tool, ())]
    return list(dict.fromkeys([*_hosts_in(command), *sorted(registries)]))


_lock = threading.Lock()


@functools.cache
def _registries() -> Mapping[str, Collection[str]]:
    """Return the servers of each package tool."""
    with ThreadPoolExecutor(len(_CONFIGURATIONS)) as pool:
        outputs = list(pool.map(_output_of, *zip(*_CONFIGURATIONS, strict=True)))
    found = {"cargo": _hosts_in(_of_cargo())}
    for (program, _), output in zip(_CONFIGURATIONS, outputs, strict=True):
        found.setdefault(program, []).extend(_hosts_in(output))
    return found


def _hosts_in(text: str) -> list[str]:
    return [match[1].lower() for match in _URL_HOST.finditer(text)]


def is_registry(name: str) -> bool:
    """Return whether a host is a server of this machine's package tools."""
    return matches(configured_hosts(), *split(name))


def look_ahead(command: str) -> None:
    """Ask the package tools in the background if a command that starts may want their servers."""
    if _PACKAGE_TOOL.search(command):
        threading.Thread(target=configured_hosts, name="package-tools", daemon=True).start()


def _of_cargo() -> str:
    """Return the addresses in the person's settings of cargo."""
    if shutil.which("cargo") is None:
        return ""
    texts: list[str] = []
    for name in _CARGO_SETTINGS:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            texts.append((Path.home() / name).read_text("utf-8"))
    return " ".join(texts)


def _output_of(program: str, arguments: Sequence[str]) -> str:
    path = (
        (shutil.which("python3") or sys.executable) if program == "pip" else shutil.which(program)
    )
    if path is None:
        return ""
    try:
        done = subprocess.run(
            [path, *arguments],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_CONFIGURATION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")
