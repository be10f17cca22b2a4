"""Run commands in bubblewrap, in a container, or on the host. Tools start them only here.

Whoever starts a process shows a permit, which only the gate gives. In bubblewrap the system is
read-only, the workspace can be written, the person's home is hidden, and /tmp is private to the sandbox
and lasts as long as it; what needs more than that, and what a person said yes to, runs unconfined.
"""

import contextlib
import functools
import os
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hermes_agent.approval.danger import places
from hermes_agent.sandbox.child import Child
from hermes_agent.sandbox.orphan_killer import orphan_killer
from hermes_core.errors import ToolError
from hermes_core.settings import ToolSettings

if TYPE_CHECKING:
    from hermes_agent.approval.gate import Permit
    from hermes_core.temp_folders import TempFolder

_LIMITS = 'ulimit -c 0 2>/dev/null; ulimit -f 41943040 2>/dev/null; "$@"; exit $?'
"""No core dumps, no file beyond tens of gigabytes. The shell stays as the parent on purpose: what ends
with its parent must not end with the thread of ours that made it."""
_TOOL_FOLDERS = (
    ".local/bin", ".local/lib", ".local/share/uv", ".local/pipx", ".cargo/bin", ".rustup", ".pyenv",
    ".nvm", ".asdf", ".volta", ".bun/bin", ".deno/bin", ".rbenv", ".sdkman", "go/bin", ".gitconfig",
    ".config/git/config",
)  # fmt: skip
"""Of the hidden home: programs and plain settings that commands need, read-only."""
_CONTAINER_VARIABLES = ("LANG", "LC_ALL", "TZ", "TERM")


class Job(msgspec.Struct, frozen=True):
    """A command and the place to run it."""

    command: Sequence[str]
    cwd: Path
    workspace: Path
    home: Path
    """Hermes's own home, which commands do not see."""
    environment: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    takes_input: bool = False
    splits_errors: bool = False
    """Whether errors come on a stream of their own."""
    is_confined: bool = True
    """False when a person allowed something that needs the host."""


class Sandbox(ABC):
    """A place for commands."""

    name: str

    def __init__(self) -> None:
        self._private: TempFolder | None = None

    @abstractmethod
    def describe(self) -> str:
        """For `hermes doctor`: where commands run and what holds them there."""

    @abstractmethod
    def wrapped(self, job: Job) -> list[str]:
        """The command as the host has to run it."""

    @property
    def python(self) -> str:
        """The interpreter that runs code in here."""
        return sys.executable

    @property
    def private(self) -> Path:
        """A folder of this sandbox alone, as we see it; commands see it as `inner_private`."""
        if self._private is None:
            from hermes_core.temp_folders import TempFolder  # noqa: PLC0415 -- slow to load

            self._private = TempFolder("sandbox")
        return self._private.path

    @property
    def inner_private(self) -> Path:
        return self.private

    def real(self, path: Path, workspace: Path) -> Path:
        """Return where a path that commands use lies for us."""
        del workspace
        return path

    def hides(self, path: Path, workspace: Path) -> bool:
        """Return whether confined commands do not see this folder as it is."""
        del path, workspace
        return False

    def spawn(self, permit: "Permit", job: Job) -> Child:
        """Start a command in a group of its own; raises ToolError when it cannot be started."""
        _check(permit)
        command = self.wrapped(job)
        return self._start(["/bin/sh", "-c", _LIMITS, "sh", *command], job)

    def _start(self, command: list[str], job: Job) -> Child:
        # A folder of a private /tmp is not there for us; the sandbox goes into it by itself.
        cwd = job.cwd if job.cwd.is_dir() else job.workspace
        try:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=dict(job.environment),
                stdin=subprocess.PIPE if job.takes_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if job.splits_errors else subprocess.STDOUT,
                bufsize=0,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise ToolError(f"The command cannot be started: {error}.") from error
        return Child(process)

    def close(self) -> None:
        """Delete what is private to this sandbox."""
        if self._private is not None:
            self._private.close()
            self._private = None


class Host(Sandbox):
    """No sandbox: what is dangerous needs a yes, the rest runs as the person would run it."""

    name = "host"

    def __init__(self, why: str = "chosen in the settings") -> None:
        super().__init__()
        self._why = why

    def describe(self) -> str:
        return f"host ({self._why}): dangerous commands need an approval"

    def wrapped(self, job: Job) -> list[str]:
        return list(job.command)


class Enclosure(Sandbox):
    """A sandbox with a /tmp of its own."""

    @property
    def inner_private(self) -> Path:
        return Path("/tmp")  # inside, where it is private

    def real(self, path: Path, workspace: Path) -> Path:
        inner = str(self.inner_private)
        if _is_in(path, workspace) or not places.is_under(str(path), inner):
            return path
        return self.private / path.relative_to(inner)


class Bubblewrap(Enclosure):
    """Namespaces of Linux, by way of bwrap."""

    name = "bubblewrap"

    def __init__(self, program: str, *, network: bool) -> None:
        super().__init__()
        self._program = program
        self._network = network

    def describe(self) -> str:
        network = "on" if self._network else "off"
        return (
            "bubblewrap: the system is read-only, the home is hidden, the workspace can be written,"
            f" network {network}"
        )

    def hides(self, path: Path, workspace: Path) -> bool:
        hidden = any(places.is_under(str(path), folder) for folder in _hidden())
        return hidden and not _is_in(path, workspace)

    def wrapped(self, job: Job) -> list[str]:
        if not job.is_confined:
            return list(job.command)
        return [*self._frame(job), "--", *job.command]

    def _frame(self, job: Job) -> list[str]:
        frame = [
            self._program, "--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc",
            "--unshare-uts", "--unshare-cgroup-try", "--ro-bind", "/", "/", "--dev", "/dev",
            "--proc", "/proc",
        ]  # fmt: skip
        if not self._network:
            frame.append("--unshare-net")
        frame += ["--bind", str(self.private), str(self.inner_private)]
        hidden = _hidden()
        for folder in hidden:
            frame += ["--tmpfs", folder]
        for path in _wanted_again([*hidden, str(self.inner_private)]):
            frame += ["--ro-bind", path, path]
        workspace = os.path.realpath(job.workspace)
        frame += ["--bind", workspace, workspace]
        frame += _hide_secrets(job, workspace)
        return [*frame, "--chdir", str(job.cwd)]


class Container(Enclosure):
    """A container of docker or podman for each command, with the workspace in it."""

    name = "container"

    def __init__(self, settings: ToolSettings) -> None:
        super().__init__()
        self._engine = settings.container_command
        self._image = settings.container_image
        self._network = settings.network

    def describe(self) -> str:
        network = "on" if self._network else "off"
        return f"container: {self._engine} runs {self._image} with the workspace, network {network}"

    @property
    def python(self) -> str:
        return "python3"

    def spawn(self, permit: "Permit", job: Job) -> Child:
        _check(permit)
        name = f"hermes-{os.urandom(6).hex()}"
        item = f"{self._engine}:{name}"
        orphan_killer.watch(item)

        def kill() -> None:
            orphan_killer.release(item)
            threading.Thread(target=self._kill, args=(name,), daemon=True).start()

        command = self._named(job, name)
        child = self._start(["/bin/sh", "-c", _LIMITS, "sh", *command], job)
        child.on_kill = kill
        child.on_end = functools.partial(orphan_killer.release, item)
        return child

    def _kill(self, name: str) -> None:
        """Signals end only the engine's client; the container is ended by its name."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [self._engine, "kill", name], capture_output=True, timeout=30, check=False
            )

    def wrapped(self, job: Job) -> list[str]:
        return self._named(job, f"hermes-{os.urandom(6).hex()}")

    def _named(self, job: Job, name: str) -> list[str]:
        workspace = os.path.realpath(job.workspace)
        command = [self._engine, "run", "--rm", "--init", "--name", name]
        command += ["--interactive"] if job.takes_input else []
        command += ["--network", "bridge" if self._network else "none"]
        command += ["--security-opt", "no-new-privileges", "--pids-limit", "1024"]
        command += ["--user", f"{os.getuid()}:{os.getgid()}", "--env", "HOME=/tmp"]
        for variable in _CONTAINER_VARIABLES:
            if variable in job.environment:
                command += ["--env", f"{variable}={job.environment[variable]}"]
        command += ["--volume", f"{workspace}:{workspace}"]
        command += ["--volume", f"{self.private}:{self.inner_private}"]
        return [*command, "--workdir", str(job.cwd), self._image, *job.command]


def _check(permit: object) -> None:
    """Refuse to start anything for somebody who did not pass the gate."""
    from hermes_agent.approval.gate import Permit  # noqa: PLC0415 -- the gate imports tools, which import us

    if not isinstance(permit, Permit):
        raise TypeError("a process is started with the permit of the gate")


def _is_in(path: Path, workspace: Path) -> bool:
    folders = (str(workspace), os.path.realpath(workspace))
    return any(places.is_under(str(path), folder) for folder in folders)


def _hidden() -> list[str]:
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


def _wanted_again(hidden: Sequence[str]) -> list[str]:
    """Return what commands need of covered folders: tools, this interpreter, how names are looked up."""
    own = os.path.realpath(places.own_home())
    paths = [f"{own}/{name}" for name in _TOOL_FOLDERS]
    paths += [sys.prefix, sys.base_prefix, os.path.realpath("/etc/resolv.conf")]
    mounts = [
        path
        for path in dict.fromkeys(paths)
        if Path(path).exists() and any(places.is_under(path, folder) for folder in hidden)
    ]
    return sorted(path for path in mounts if path not in hidden)


def _hide_secrets(job: Job, workspace: str) -> list[str]:
    """Cover what is secret inside the workspace; Hermes's own outputs stay readable."""
    place = places.Place(workspace, os.path.realpath(job.home))
    frame: list[str] = []
    for secret in places.secret_places(place):
        inside = places.is_under(secret, workspace) and secret != workspace
        if inside and not places.is_under(workspace, secret) and Path(secret).exists():
            frame += (
                ["--tmpfs", secret] if Path(secret).is_dir() else ["--ro-bind", "/dev/null", secret]
            )
    if Path(place.home).is_dir() and not places.is_under(workspace, place.home):
        frame += ["--tmpfs", place.home]
        outputs = f"{place.home}/outputs"
        frame += ["--ro-bind", outputs, outputs] if Path(outputs).is_dir() else []
    return frame
