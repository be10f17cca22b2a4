"""Landlock: rules for files that a process gives itself. Needs no program, only Linux 5.13 or later."""

import marshal
import os
import subprocess
import sys
from pathlib import Path

from hermes_agent.approval.danger import Access, places
from hermes_agent.sandbox import landlock_launcher, seccomp
from hermes_agent.sandbox.bubblewrap import hidden_folders, is_hidden, wanted_again
from hermes_agent.sandbox.sandboxes import Job, Sandbox

_TEMPORARY = ("/tmp", "/var/tmp")
_WRITABLE_DEVICES = (
    "/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/pts",
)  # fmt: skip
_READABLE_DEVICES = ("/dev/random", "/dev/urandom", "/dev/fd", "/dev/stdin")
_PROBE_S = 10.0


class Landlock(Sandbox):
    """Rules for files and a filter for system calls; other processes are seen, but not reached."""

    name = "landlock"

    def describe(self) -> str:
        return (
            "landlock: the system is read-only, the home is hidden, the workspace can be written,"
            f" network {self.network.describe()}; weaker than bubblewrap: commands can change modes and"
            " times of your files outside"
        )

    def hides(self, path: Path, workspace: Path) -> bool:
        return is_hidden(path, workspace)

    def wrapped(self, job: Job, access: Access, fds: list[int]) -> list[str]:
        del fds
        plan = {
            "rules": self._rules(job, access),
            "filter": seccomp.program("internet" if self.network.is_open else "none"),
            "is_offline": not self.network.is_open,
            "temporary": str(self.private),
        }
        return [*_launcher(), marshal.dumps(plan).hex(), *job.command]

    def _rules(self, job: Job, access: Access) -> list[tuple[str, bool]]:
        """The paths that can be read, and whether they can be written; what is not named is hidden."""
        home = os.path.realpath(job.home)
        hidden = [*hidden_folders(), home, "/dev", *map(os.path.realpath, _TEMPORARY)]
        readable = [*_visible("/", hidden), *wanted_again(hidden), f"{home}/outputs"]
        readable += [*_READABLE_DEVICES, *access.reads]
        writable = [str(self.private), *_WRITABLE_DEVICES]
        (readable if access.keeps_workspace else writable).append(os.path.realpath(job.workspace))
        rules = dict.fromkeys(readable, False)
        rules |= dict.fromkeys([*writable, *access.writes], True)
        return [(path, may_write) for path, may_write in rules.items() if os.access(path, os.F_OK)]


def problem() -> str:
    """Say why Landlock does not work here; empty when it does."""
    if not sys.platform.startswith("linux"):
        return "Landlock is for Linux"
    try:
        tried = subprocess.run(
            [*_launcher(), "abi"], capture_output=True, timeout=_PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"Landlock cannot be tried: {error}"
    version = tried.stdout.strip()
    return "" if version.isdigit() and version != b"0" else "the kernel has no Landlock"


def _launcher() -> list[str]:
    return [sys.executable, "-I", "-S", landlock_launcher.__file__]


def _visible(folder: str, hidden: list[str]) -> list[str]:
    """Return the largest folders and files below this one that contain nothing hidden."""
    if not any(places.is_under(path, folder) for path in hidden):
        return [folder]
    if folder in hidden:
        return []
    try:
        names = [entry.name for entry in os.scandir(folder) if not entry.is_symlink()]
    except OSError:
        return []
    top = folder.rstrip("/")
    return [path for name in names for path in _visible(f"{top}/{name}", hidden)]
