"""The sandboxes that commands run in. Tools start processes only here, with a permit of the gate.

In a sandbox the system is read-only, the workspace can be written, the person's home is hidden, and
/tmp is private to the sandbox and lasts as long as it.
"""

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hermes_agent.approval.danger import Access, Danger, places, remotes
from hermes_agent.approval.danger.kinds import UNCONFINED
from hermes_agent.sandbox import git_guard, limits
from hermes_agent.sandbox.child import Child
from hermes_core.errors import ToolError

if TYPE_CHECKING:
    from hermes_agent.approval.gate import Permit
    from hermes_agent.sandbox.egress import Egress
    from hermes_core.temp_folders import TempFolder


AskHost = Callable[[str], None]
"""Asks whether a command may reach a host (`name`, or `name:port`); raises ToolDeniedError."""


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
    outputs: Path | None = None
    """The folder in the home that commands may read: long outputs of the conversation."""
    ask_host: AskHost | None = None
    """None: no one can be asked."""
    note_host: Callable[[str], None] | None = None
    """Is told each host that the command reaches."""


class Network(NamedTuple):
    """Network access of the commands in a sandbox; none by default."""

    is_open: bool = False
    rules: "Egress | None" = None
    """With these, commands reach hosts by a proxy that asks a person for new ones."""
    problem: str = ""
    """Why a person cannot be asked for hosts, although the settings want it."""

    def describe(self) -> str:
        """Return the state, in a few words that follow "network"."""
        if self.rules is not None:
            return "asks for new hosts"
        return "on" if self.is_open else f"off ({self.problem})" if self.problem else "off"


class Sandbox(ABC):
    """A place for commands."""

    name: str
    passed_over: Sequence[str] = ()
    """Why the sandboxes before it in the order of `auto` are not used."""
    holds_files = True
    """Whether commands change only files that their permit names."""

    def __init__(self, network: Network = Network()) -> None:  # noqa: B008 -- it does not change
        self.network = network
        self._private: TempFolder | None = None
        self._limits = limits.Limits()
        self._git_guard = git_guard.GitGuard()

    @abstractmethod
    def describe(self) -> str:
        """For `hermes doctor`: where commands run and what holds them there."""

    @property
    def is_confining(self) -> bool:
        """Return whether it holds commands at all."""
        return True

    def summary(self) -> str:
        """Say for the start of a surface where commands run and what they reach."""
        return f"Commands run in a sandbox ({self.name}), network {self.network.describe()}."

    @abstractmethod
    def wrapped(self, job: Job, access: Access, fds: list[int]) -> list[str]:
        """Return the command as the host has to run it; descriptors that it needs are added to `fds`."""

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

    def to_ask(self, found: Sequence[Danger]) -> Sequence[Danger]:
        """Return the dangers of a command that a person is asked about, for all that holds it here."""
        return found

    def spawn(self, permit: "Permit", job: Job) -> Child:
        """Start a command in a group of its own; raises ToolError when it cannot be started."""
        check(permit)
        if not permit.is_confined:
            return self._start([*limits.unlimited(), *job.command], job)
        fds: list[int] = []
        note_changes = self.watch(job, permit.access)
        try:
            command = [*self._limits.words(), *self.wrapped(job, permit.access, fds)]
            child = self._start(command, job, fds)
        finally:
            for fd in fds:
                os.close(fd)
        note_changes(child)
        return child

    def watch(self, job: Job, access: Access) -> Callable[[Child], None]:
        """Look at the files that other programs run or follow, before a command starts.

        Returns what lets its child note what became of them.
        """
        workspace = os.path.realpath(job.workspace)
        protected = set(places.protected_in(workspace)[0]) - set(access.writes)
        missing = [path for path in sorted(protected) if not os.path.lexists(path)]
        links = {path: _link_of(path) for path in sorted(protected) if _link_of(path)}
        repository = self._git_guard.watch(workspace, access)

        def follow(child: Child) -> None:
            child.at_end(lambda: child.notes.extend(repository.restore()))
            child.at_end(
                lambda: child.notes.extend(map(_note_on, filter(os.path.lexists, missing)))
            )
            child.at_end(
                lambda: child.notes.extend(
                    _note_on(path) for path, led in links.items() if _link_of(path) != led
                )
            )

        return follow

    def _start(self, command: list[str], job: Job, fds: Sequence[int] = ()) -> Child:
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
                pass_fds=fds,
            )
        except (OSError, ValueError) as error:
            raise ToolError(f"The command cannot be started: {error}.") from error
        return Child(process)

    def close(self) -> None:
        """Delete what is private to this sandbox."""
        if self._private is not None:
            self._private.close()
            self._private = None
        self._limits.close()


class Host(Sandbox):
    """No sandbox: what is dangerous needs a yes, the rest runs as the person would run it."""

    name = "host"
    holds_files = False

    def __init__(self, why: str = "chosen in the settings") -> None:
        super().__init__(Network(is_open=True))
        self._why = why

    def describe(self) -> str:
        return f"host ({self._why}): dangerous commands need an approval"

    @property
    def is_confining(self) -> bool:
        return False

    def summary(self) -> str:
        return "Commands run without a sandbox (tools.sandbox = host): they can do what you can."

    def to_ask(self, found: Sequence[Danger]) -> Sequence[Danger]:
        return [danger for danger in found if not danger.key.startswith(remotes.KEYS_KEY)]

    def wrapped(self, job: Job, access: Access, fds: list[int]) -> list[str]:
        del access, fds
        return list(job.command)

    def spawn(self, permit: "Permit", job: Job) -> Child:
        check(permit)
        return self._start([*limits.unlimited(), *job.command], job)


class Unavailable(Host):
    """No sandbox where one was wanted: every command needs a yes."""

    name = "none"

    def describe(self) -> str:
        return f"none ({self._why}): every command needs an approval. {_HOW}"

    def summary(self) -> str:
        return f"No sandbox works here, so every command asks. {_HOW}."

    def to_ask(self, found: Sequence[Danger]) -> Sequence[Danger]:
        reason = f"No sandbox works here: {self._why}. {_HOW}"
        return [
            *super().to_ask(found),
            Danger("unconfined", reason, "terminal:no sandbox", UNCONFINED),
        ]


_HOW = "Install bubblewrap, or set tools.sandbox to host to run commands without one"


class Enclosure(Sandbox):
    """A sandbox with a /tmp of its own."""

    @property
    def inner_private(self) -> Path:
        return Path("/tmp")  # inside, where it is private

    def real(self, path: Path, workspace: Path) -> Path:
        inner = str(self.inner_private)
        if is_in(path, workspace) or not places.is_under(str(path), inner):
            return path
        return self.private / path.relative_to(inner)


def check(permit: object) -> None:
    """Refuse to start anything for somebody who did not pass the gate."""
    from hermes_agent.approval.gate import Permit  # noqa: PLC0415 -- the gate imports tools, which import us

    if not isinstance(permit, Permit):
        raise TypeError("a process is started with the permit of the gate")


def _link_of(path: str) -> str:
    """Return where a link leads; empty for anything else."""
    return str(Path(path).readlink()) if Path(path).is_symlink() else ""


def _note_on(path: str) -> str:
    return f"this made {path}, which other programs run or follow; tell the user"


def is_in(path: Path, workspace: Path) -> bool:
    folders = (str(workspace), os.path.realpath(workspace))
    return any(places.is_under(str(path), folder) for folder in folders)
