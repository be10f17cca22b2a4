"""Detect the sandbox of this machine, by trying, when the first command needs one."""

import functools
import os
import shutil
import subprocess

from hermes_agent.approval.danger.kinds import NO_ACCESS
from hermes_agent.sandbox.bubblewrap import Bubblewrap
from hermes_agent.sandbox.container import Container
from hermes_agent.sandbox.sandboxes import Host, Job, Sandbox
from hermes_core.errors import ConfigError
from hermes_core.settings import Settings, ToolSettings
from hermes_core.temp_folders import TempFolder

_PROBE_S = 10.0


def choose(settings: Settings) -> Sandbox:
    """The sandbox that the settings ask for; raises ConfigError when it cannot be had."""
    tools = settings.tools
    if tools.sandbox == "host":
        return Host()
    if tools.sandbox == "container":
        return _container(tools)
    program = shutil.which("bwrap")
    problem = _problem_of(program, network=tools.network) if program else "bwrap is not installed"
    if program and not problem:
        return Bubblewrap(program, network=tools.network)
    if tools.sandbox == "bubblewrap":
        raise ConfigError(
            f"tools.sandbox is bubblewrap, but {problem}.",
            fix="Install bubblewrap, or set tools.sandbox to auto, container or host.",
        )
    return Host(problem)


def _container(tools: ToolSettings) -> Container:
    problem = _container_problem(tools.container_command)
    if problem:
        raise ConfigError(
            f"tools.sandbox is container, but {problem}.",
            fix=f"Start {tools.container_command}, or set tools.sandbox to auto or host.",
        )
    return Container(tools)


@functools.cache
def _problem_of(program: str, *, network: bool) -> str:
    """Say why bubblewrap does not work here; empty when it does. Tried once per process."""
    with TempFolder("probe") as place:
        probe = Bubblewrap(program, network=network)
        job = Job(["/bin/sh", "-c", "true"], place, place, place / "home")
        fds: list[int] = []
        try:
            command = probe.wrapped(job, NO_ACCESS, fds)  # the same words as in earnest
            tried = subprocess.run(
                command,
                capture_output=True,
                timeout=_PROBE_S,
                check=False,
                pass_fds=fds,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"bwrap does not work here: {error}"
        finally:
            probe.close()
            for fd in fds:
                os.close(fd)
    lines = tried.stderr.decode("utf-8", "replace").strip().splitlines()
    return "" if tried.returncode == 0 else f"bwrap does not work here: {' '.join(lines[-1:])}"


@functools.cache
def _container_problem(engine: str) -> str:
    if shutil.which(engine) is None:
        return f"{engine} is not installed"
    try:
        tried = subprocess.run(
            [engine, "version"], capture_output=True, timeout=_PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{engine} does not answer: {error}"
    return "" if tried.returncode == 0 else f"{engine} does not answer"
