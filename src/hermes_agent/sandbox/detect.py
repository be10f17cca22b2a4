"""Detect the sandbox of this machine, by trying, when the first command needs one."""

import functools
import os
import shutil
import subprocess
from collections.abc import Callable

from hermes_agent.approval.danger.kinds import NO_ACCESS
from hermes_agent.sandbox import landlock, seatbelt
from hermes_agent.sandbox.bubblewrap import Bubblewrap
from hermes_agent.sandbox.container import Container
from hermes_agent.sandbox.hosts import HostGrants
from hermes_agent.sandbox.landlock import Landlock
from hermes_agent.sandbox.sandboxes import Host, Job, Network, Sandbox, Unavailable
from hermes_agent.sandbox.seatbelt import Seatbelt
from hermes_core.errors import ConfigError
from hermes_core.settings import Settings, ToolSettings
from hermes_core.temp_folders import TempFolder

_PROBE_S = 10.0
_WITHOUT_BUBBLEWRAP = "asking for hosts needs bubblewrap and nsenter"
_CHAIN = ("bubblewrap", "landlock", "seatbelt", "container")
_FIX = "Set tools.sandbox to auto."
_FIXES = {
    "bubblewrap": "Install bubblewrap, or set tools.sandbox to auto, container or host.",
    "container": "Start the engine of tools.container_command, or set tools.sandbox to auto or host.",
}


def choose(settings: Settings, grants: Callable[[], HostGrants] = HostGrants) -> Sandbox:
    """Return the sandbox that the settings ask for; raises ConfigError when it cannot be had.

    With `auto`, the first that works; when none does, every command needs a yes.
    """
    tools = settings.tools
    if tools.sandbox == "host":
        return Host()
    if tools.sandbox != "auto":
        chosen = _try(tools.sandbox, tools, grants)
        if isinstance(chosen, Sandbox):
            return chosen
        raise ConfigError(
            f"tools.sandbox is {tools.sandbox}, but {chosen}.", fix=_FIXES.get(tools.sandbox, _FIX)
        )
    problems: list[str] = []
    for name in _CHAIN:
        chosen = _try(name, tools, grants)
        if isinstance(chosen, Sandbox):
            chosen.passed_over = tuple(problems)
            return chosen
        problems.append(chosen)
    return Unavailable("; ".join(problems))


def survey(settings: Settings) -> dict[str, str]:
    """Return every sandbox by its name, with what holds commands in it or why it cannot be had."""
    found: dict[str, str] = {}
    for name in _CHAIN:
        tried = _try(name, settings.tools, HostGrants)
        found[name] = "works here" if isinstance(tried, Sandbox) else tried
    return {**found, "host": "no sandbox: dangerous commands need an approval"}


def summary(settings: Settings) -> str:
    """Say in a line or two what commands of the agent may do, for the start of a surface."""
    try:
        text = choose(settings).summary()
    except ConfigError as error:
        return str(error)
    is_open = settings.approvals.mode == "allow"
    return text + " Nothing is asked: approvals.mode is allow." * is_open


def confine_git() -> Sandbox:
    """Return the sandbox in which git makes checkpoints, whatever commands run in: it has no network."""
    for name in _CHAIN:
        chosen = _try(name, ToolSettings(network="off"), HostGrants) if name != "container" else ""
        if isinstance(chosen, Sandbox):
            return chosen
    return Host("no sandbox works here")


def _try(name: str, tools: ToolSettings, grants: Callable[[], HostGrants]) -> Sandbox | str:
    """Return this sandbox, or why it cannot be had."""
    if name == "bubblewrap":
        program = shutil.which("bwrap")
        if program is None:
            return "bwrap is not installed"
        problem = _problem_of(program, network=tools.network == "open")
        return problem or Bubblewrap(program, _network(name, tools, grants))
    network = _network(name, tools, grants)
    if name == "landlock":
        return _landlock_problem() or Landlock(network)
    if name == "seatbelt":
        return _seatbelt_problem() or Seatbelt(network)
    return _container_problem(tools.container_command) or Container(tools, network)


def _network(name: str, tools: ToolSettings, grants: Callable[[], HostGrants]) -> Network:
    """Return what commands in this sandbox reach; nothing where no person can be asked for hosts."""
    if tools.network != "ask":
        return Network(is_open=tools.network == "open")
    if name != "bubblewrap":
        return Network(problem=_WITHOUT_BUBBLEWRAP)
    from hermes_agent.sandbox.egress import Egress, problem  # noqa: PLC0415 -- loads sockets

    if why := problem():
        return Network(problem=why)
    return Network(rules=Egress(tools.allowed_hosts, grants))


@functools.cache
def _landlock_problem() -> str:
    return landlock.problem()


@functools.cache
def _seatbelt_problem() -> str:
    return seatbelt.problem()


@functools.cache
def _problem_of(program: str, *, network: bool) -> str:
    """Say why bubblewrap does not work here; empty when it does. Tried once per process."""
    with TempFolder("probe") as place:
        probe = Bubblewrap(program, Network(is_open=network))
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
