"""One reason to ask a person first, the kinds of reasons, and the access that a yes would give."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

Kind = Literal[
    "destructive", "privilege", "exfiltration", "secrets", "outside", "remote_code", "unconfined",
    "edits", "taint",
]  # fmt: skip

HOST_KEY = "host:"
"""Begins the key of a grant for a host."""
EDITS_KEY = "edits:"
"""Begins the key of a grant for changes of files in a workspace."""
REGISTRIES_KEY = "registries:"
"""Key of a grant for package registries, while notes are the only private data that was read."""
TAINTED_KEY = "tainted:"
"""Begins the key of a grant for a receiver, given after outside text and private data were read."""


class Access(NamedTuple):
    """What a call may reach beyond the workspace; nothing by default."""

    reads: tuple[str, ...] = ()
    """Files, or folders with all below them; every link resolved."""
    writes: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    unconfined: bool = False
    """It runs outside the sandbox."""
    keeps_workspace: bool = False
    """Commands only read the workspace, apart from `writes`."""

    def describe(self) -> str:
        """Return what a person gives with a yes, as a sentence; empty when that is nothing more."""
        if self.unconfined:
            return "It runs outside the sandbox."
        parts = [
            f"{verb} {', '.join(what)}"
            for verb, what in (("read", self.reads), ("write", self.writes), ("reach", self.hosts))
            if what
        ]
        return f"If allowed, it may also {' and '.join(parts)}." if parts else ""


NO_ACCESS = Access()
UNCONFINED = Access(unconfined=True)


class Loss(NamedTuple):
    """Names what a danger destroys, where that is only files of the workspace."""

    paths: tuple[str, ...]
    """Resolved; what is lost is at or below them."""
    is_tracked: bool = False
    """Only files that the git repository there tracks."""

    def and_also(self, other: "Loss | None") -> "Loss | None":
        """Return both as one; None when they cannot be told as one."""
        if other is None or self.is_tracked != other.is_tracked:
            return None
        return Loss(tuple(dict.fromkeys((*self.paths, *other.paths))), self.is_tracked)


class Danger(NamedTuple):
    """One reason to ask a person first."""

    kind: Kind
    reason: str
    """For the person: what would happen, as a sentence without its full stop."""
    key: str
    """What tells it from other dangers of the same call, for example `terminal:rm -r`."""
    access: Access = Access()
    """What the call needs beyond the workspace to do it."""
    grant: str = ""
    """The key of a lasting yes to this danger; empty: such a yes is for exactly this call."""
    loss: Loss | None = None
    """With a checkpoint that covers this, the danger is none. None: it does other harm."""


def access_of(dangers: Iterable[Danger]) -> Access:
    """Return the access that all of these need together."""
    all_ = [danger.access for danger in dangers]
    return Access(
        tuple(dict.fromkeys(path for access in all_ for path in access.reads)),
        tuple(dict.fromkeys(path for access in all_ for path in access.writes)),
        tuple(dict.fromkeys(host for access in all_ for host in access.hosts)),
        any(access.unconfined for access in all_),
    )
