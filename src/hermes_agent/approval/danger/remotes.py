"""Find the hosts that git reaches: in an address, or behind the name of a remote in its configuration.

What stands in a configuration can change before the command runs. The proxy of the sandbox decides then:
this only says in the question which host a yes is for.
"""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from hermes_agent.approval.danger import places

KEYS_KEY = "terminal:git over ssh "
"""Begins the key of a danger that is one in a sandbox only: outside, git has the keys anyway."""

_MAX_BYTES = 1_000_000
_URL = re.compile(
    r"(https?|ssh|git)://(?:[^/@]*@)?(\[[^\]]*\]|[^/:]+)(?::(\d+))?(?:/|$)", re.IGNORECASE
)
_SCP = re.compile(r"(?:[^/:@]+@)?([^/:@]+):(?!//)")
_PORTS = {"ssh": "22", "git": "9418"}
_SECTION = re.compile(r'\[\s*([^\s"\]]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_ENTRY = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*=\s*(.*?)\s*")


class Entry(NamedTuple):
    """A line of a configuration."""

    section: str
    name: str
    """Of the section, as it stands in quotes."""
    key: str
    value: str


class Endpoint(NamedTuple):
    """A host with its port as entries of allowed hosts have it, and whether ssh is used."""

    host: str
    is_ssh: bool


def endpoint_of(address: str) -> Endpoint | None:
    """Return what an address leads to; None for a folder of this machine."""
    if url := _URL.match(address):
        scheme = url[1].lower()
        port = url[3] or _PORTS.get(scheme, "")
        return Endpoint(f"{url[2]}:{port}" if port else url[2], scheme == "ssh")
    scp = _SCP.match(address)
    return Endpoint(f"{scp[1]}:22", is_ssh=True) if scp and "://" not in address else None


def endpoints(folders: Sequence[str], remote: str = "", *, push: bool = False) -> list[Endpoint]:
    """Return where a remote (a name, an address, or the usual one) leads from any of these folders."""
    found = [
        endpoint_of(address)
        for folder in folders
        for address in _addresses(folder, remote, push=push)
    ]
    return list(dict.fromkeys(endpoint for endpoint in found if endpoint is not None))


def _addresses(folder: str, remote: str, *, push: bool) -> list[str]:
    entries = [
        *_entries(Path(places.own_home(), ".gitconfig")),
        *_entries(configuration_of(folder)),
    ]
    name = remote or _usual(entries, push=push)
    pushed = _values(entries, "remote", name, "pushurl") if push else []
    addresses = pushed or _values(entries, "remote", name, "url") or [name]
    return [_rewritten(entries, address, push=push and not pushed) for address in addresses]


def _usual(entries: Sequence[Entry], *, push: bool) -> str:
    """Return the remote of a command that names none; which branch is current is not looked at."""
    keys = ("pushdefault", "pushremote", "remote") if push else ("remote",)
    names = {e.value for e in entries if e.section in ("branch", "remote") and e.key in keys}
    return names.pop() if len(names) == 1 else "origin"


def _rewritten(entries: Sequence[Entry], address: str, *, push: bool) -> str:
    """Apply `url.BASE.insteadOf`, of which the longest counts."""
    keys = ("insteadof", "pushinsteadof") if push else ("insteadof",)
    found = [
        (len(e.value), e.name + address[len(e.value) :])
        for e in entries
        if e.section == "url" and e.key in keys and e.value and address.startswith(e.value)
    ]
    return max(found)[1] if found else address


def _values(entries: Sequence[Entry], section: str, name: str, key: str) -> list[str]:
    return [e.value for e in entries if e[:3] == (section, name, key)]


def _entries(path: Path | None) -> Iterator[Entry]:
    section = name = ""
    for line in _text(path).splitlines():
        if header := _SECTION.match(line.strip()):
            section, name = header[1].lower(), header[2] or ""
        elif found := _ENTRY.fullmatch(line):
            yield Entry(section, name, found[1].lower(), found[2].strip('"'))


def configuration_of(folder: str) -> Path | None:
    """Return the configuration of the repository that a folder is in."""
    for parent in (Path(folder), *Path(folder).parents):
        git = parent / ".git"
        if git.is_dir():
            return git / "config"
        if git.is_file():  # a working tree of its own, or a submodule
            own = parent / _text(git).strip().removeprefix("gitdir:").strip()
            common = _text(own / "commondir").strip()
            return Path(os.path.normpath(own / common), "config")
    return None


def _text(path: Path | None) -> str:
    try:
        if path is not None and path.is_file() and path.stat().st_size <= _MAX_BYTES:
            return path.read_text("utf-8", "replace")
    except OSError:
        pass
    return ""
