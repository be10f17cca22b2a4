"""A container of docker or podman for each command, with the workspace in it."""

import contextlib
import functools
import os
import subprocess
import threading
from typing import TYPE_CHECKING

from hermes_agent.approval.danger import Access, places
from hermes_agent.sandbox.child import Child
from hermes_agent.sandbox.limits import MAX_PROCESSES, unlimited
from hermes_agent.sandbox.orphan_killer import orphan_killer
from hermes_agent.sandbox.sandboxes import (
    Enclosure,
    Job,
    Network,
    check,
)
from hermes_core.settings import ToolSettings

if TYPE_CHECKING:
    from hermes_agent.approval.gate import Permit

_VARIABLES = ("LANG", "LC_ALL", "TZ", "TERM")


class Container(Enclosure):
    """A container of docker or podman for each command, with the workspace in it."""

    name = "container"

    def __init__(self, settings: ToolSettings, network: Network) -> None:
        super().__init__(network)
        self._engine = settings.container_command
        self._image = settings.container_image

    def describe(self) -> str:
        return (
            f"container: {self._engine} runs {self._image} with the workspace,"
            f" network {self.network.describe()}"
        )

    @property
    def python(self) -> str:
        return "python3"

    def spawn(self, permit: "Permit", job: Job) -> Child:
        check(permit)
        if not permit.is_confined:
            return super().spawn(permit, job)
        name = f"hermes-{os.urandom(6).hex()}"
        item = f"{self._engine}:{name}"
        orphan_killer.watch(item)

        def kill() -> None:
            orphan_killer.release(item)
            threading.Thread(target=self._kill, args=(name,), daemon=True).start()

        command = self._named(job, permit.access, name)
        note_changes = self.watch(job, permit.access)
        child = self._start([*unlimited(), *command], job)
        child.on_kill = kill
        child.at_end(functools.partial(orphan_killer.release, item))
        note_changes(child)
        return child

    def _kill(self, name: str) -> None:
        """Signals end only the engine's client; the container is ended by its name."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [self._engine, "kill", name], capture_output=True, timeout=30, check=False
            )

    def wrapped(self, job: Job, access: Access, fds: list[int]) -> list[str]:
        del fds
        return self._named(job, access, f"hermes-{os.urandom(6).hex()}")

    def _named(self, job: Job, access: Access, name: str) -> list[str]:
        workspace = os.path.realpath(job.workspace)
        command = [self._engine, "run", "--rm", "--init", "--name", name]
        command += ["--interactive"] if job.takes_input else []
        command += ["--network", "bridge" if self.network.is_open else "none"]
        command += ["--security-opt", "no-new-privileges", "--cap-drop", "ALL"]
        command += ["--pids-limit", str(MAX_PROCESSES), "--ulimit", "core=0"]
        command += ["--user", f"{os.getuid()}:{os.getgid()}", "--env", "HOME=/tmp"]
        for variable in _VARIABLES:
            if variable in job.environment:
                command += ["--env", f"{variable}={job.environment[variable]}"]
        mode = ":ro" if access.keeps_workspace else ""
        command += ["--volume", f"{workspace}:{workspace}{mode}"]
        command += ["--volume", f"{self.private}:{self.inner_private}"]
        for path in filter(os.path.lexists, places.protected_in(workspace)[0]):
            command += ["--volume", f"{path}:{path}:ro"]
        for path in access.reads:
            command += ["--volume", f"{path}:{path}:ro"]
        for path in access.writes:
            command += ["--volume", f"{path}:{path}"]
        return [*command, "--workdir", str(job.cwd), self._image, *job.command]
