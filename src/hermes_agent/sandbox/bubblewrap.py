"""Namespaces of Linux by way of bwrap: an own user namespace without capabilities, also for root."""

import os
import re
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hermes_agent.approval.danger import Access, Danger, places
from hermes_agent.approval.danger.kinds import NO_ACCESS
from hermes_agent.sandbox import seccomp, ssh_proxy, strict_open
from hermes_agent.sandbox.child import Child
from hermes_agent.sandbox.sandboxes import Enclosure, Job, Network, is_in
from hermes_core.secrets import without_passwords

if TYPE_CHECKING:
    from hermes_agent.approval.gate import Permit
    from hermes_agent.sandbox.egress import WayOut

_TOOL_FOLDERS = (
    ".local/bin", ".local/lib", ".local/share/uv", ".local/pipx", ".cargo/bin", ".rustup", ".pyenv",
    ".nvm", ".asdf", ".volta", ".bun/bin", ".deno/bin", ".rbenv", ".sdkman", "go/bin", ".gitconfig",
    ".config/git/config",
)  # fmt: skip
"""Of the hidden home: programs and plain settings that commands need, read-only."""
_PACKAGE_SETTINGS = (
    ".config/pip/pip.conf", ".pip/pip.conf", ".config/uv/uv.toml", ".cargo/config.toml", ".gemrc",
    ".npmrc",
)  # fmt: skip
"""Which mirrors package tools use; shown unless there is a secret in them."""
_SECRET = re.compile(r"password|token|secret|credential|_auth\b|api_?key", re.IGNORECASE)

_HELD = frozenset({"exfiltration", "remote_code"})
"""Kinds of dangers that need no question while the network asks for hosts or is off."""

_View = Literal["hide", "read", "write"]


class Bubblewrap(Enclosure):
    """Namespaces of Linux, by way of bwrap."""

    name = "bubblewrap"

    def __init__(self, program: str, network: Network) -> None:
        """With rules, the network is a namespace of its own, whose way out follows them."""
        super().__init__(network)
        self._program = program
        self._way_out: WayOut | None = None
        self._lock = threading.Lock()

    def describe(self) -> str:
        return (
            "bubblewrap: the system is read-only, the home is hidden, the workspace can be written,"
            f" network {self.network.describe()}"
        )

    def spawn(self, permit: "Permit", job: Job) -> Child:
        if self.network.rules is None or not permit.is_confined:
            return super().spawn(permit, job)
        return self._reached().spawn(permit, job, super().spawn)

    def _reached(self) -> "WayOut":
        """Return the network of this sandbox, made with its first command."""
        from hermes_agent.sandbox.egress import WayOut  # noqa: PLC0415 -- few sandboxes have one

        with self._lock:
            if self._way_out is None and self.network.rules is not None:
                self._way_out = WayOut(self.network.rules)
            assert self._way_out is not None
            return self._way_out

    def close(self) -> None:
        super().close()
        with self._lock:
            if self._way_out is not None:
                self._way_out.close()
                self._way_out = None

    def hides(self, path: Path, workspace: Path) -> bool:
        return is_hidden(path, workspace)

    def to_ask(self, found: Sequence[Danger]) -> Sequence[Danger]:
        """Ask nothing about code that is only strange, or that wants a host: both are held here."""
        if self.network.is_open:
            return found
        leaves = any(danger.kind not in _HELD or danger.access != NO_ACCESS for danger in found)
        return found if leaves else ()

    def wrapped(self, job: Job, access: Access, fds: list[int]) -> list[str]:
        enter = self._way_out.enter(fds) if self._way_out else []
        return [*enter, *self._frame(job, access, fds), "--", *job.command]

    def _frame(self, job: Job, access: Access, fds: list[int]) -> list[str]:
        # Not --new-session: the child leads a session of its own already, and all of it stays in the
        # group that is killed. In a second session, what is ended while it starts would be left.
        frame = [
            self._program, "--die-with-parent", "--unshare-user", "--unshare-pid",
            "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL",
        ]  # fmt: skip
        if not self.network.is_open and not self._way_out:
            frame.append("--unshare-net")
        if filter_ := seccomp.program():
            fds.append(_pipe_of(filter_))
            frame += ["--seccomp", str(fds[-1])]
        frame += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        frame += ["--bind", str(self.private), str(self.inner_private)]
        views = self._views(job, "read" if access.keeps_workspace else "write")
        views |= dict.fromkeys(access.reads, "read")
        views |= dict.fromkeys(access.writes, "write")
        given = {*access.reads, *access.writes}
        for path, view in sorted(views.items(), key=lambda item: item[0].count("/")):
            if path not in given:
                frame += _mount(path, path, view)
            elif source := _pinned(path, fds):
                frame += _mount(source, path, view)
        if self._way_out and (settings := ssh_proxy.configuration()):
            fds.append(_pipe_of(settings))
            frame += ["--ro-bind-data", str(fds[-1]), ssh_proxy.CONFIGURATION]
        return [*frame, "--setenv", "TMPDIR", str(self.inner_private), "--chdir", str(job.cwd)]

    def _views(self, job: Job, view: _View) -> dict[str, _View]:
        """How each place is seen that is not read-only as the system; places in a place override it.

        `view` is that of the workspace.
        """
        workspace, home = os.path.realpath(job.workspace), os.path.realpath(job.home)
        hidden = hidden_folders()
        views: dict[str, _View] = dict.fromkeys(hidden, "hide")
        views |= dict.fromkeys(wanted_again([*hidden, str(self.inner_private)]), "read")
        views[home] = "hide"
        if job.outputs is not None:
            views[os.path.realpath(job.outputs)] = "read"
        views |= dict.fromkeys(_secrets_in(workspace, home), "hide")
        views[workspace] = view
        protected, parents = places.protected_in(workspace)
        views |= dict.fromkeys(parents, view)  # a mount point cannot be renamed and made anew
        views |= dict.fromkeys(protected, "read")
        return {path: view for path, view in views.items() if os.access(path, os.F_OK)}


def _pinned(path: str, fds: list[int]) -> str:
    """Return a name for what lies at a path that was allowed, and not for where a later link leads."""
    try:
        fds.append(strict_open.open_anything(path))
    except OSError:
        return ""  # it is gone, or has become a link; the command will say so
    return f"/proc/self/fd/{fds[-1]}"


def _mount(source: str, path: str, view: _View) -> list[str]:
    if view != "hide":
        return ["--ro-bind" if view == "read" else "--bind", source, path]
    return ["--tmpfs", path] if Path(path).is_dir() else ["--ro-bind", "/dev/null", path]


def _pipe_of(data: bytes) -> int:
    """Return a descriptor from which a child can read this, which fits into a pipe."""
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    return reading


def is_hidden(path: Path, workspace: Path) -> bool:
    """Return whether a path lies in a hidden folder."""
    hidden = any(places.is_under(str(path), folder) for folder in hidden_folders())
    return hidden and not is_in(path, workspace)


def hidden_folders() -> list[str]:
    """Folders that hold people's homes, and the sockets of services; a home elsewhere by itself."""
    own = os.path.realpath(places.own_home())
    found = [folder for folder in ("/home", "/root", "/Users") if Path(folder).is_dir()]
    if (
        not any(places.is_under(own, folder) for folder in found)
        and Path(own).is_dir()
        and own != "/"
    ):
        found.append(own)
    return [*found, "/run"]


def wanted_again(hidden: Sequence[str]) -> list[str]:
    """Return what commands need of covered folders: tools, this interpreter, how names are looked up."""
    own = os.path.realpath(places.own_home())
    paths = [f"{own}/{name}" for name in _TOOL_FOLDERS]
    paths += [path for name in _PACKAGE_SETTINGS if _is_plain(path := f"{own}/{name}")]
    paths += [sys.prefix, sys.base_prefix, os.path.realpath("/etc/resolv.conf")]
    return [
        path
        for path in dict.fromkeys(paths)
        if path not in hidden and any(places.is_under(path, folder) for folder in hidden)
    ]


def _is_plain(path: str) -> bool:
    """Return whether settings are there and hold no secret."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return not _SECRET.search(text) and without_passwords(text) == text


def _secrets_in(workspace: str, home: str) -> list[str]:
    """Return what is secret inside the workspace."""
    return [
        secret
        for secret in places.secret_places(places.Place(workspace, home))
        if places.is_under(secret, workspace) and not places.is_under(workspace, secret)
    ]
