"""Decide which hosts sandboxed commands may reach.

Allowed is what the settings name, what a person granted, public code hosts, and the package registries
that the installed tools are configured for. For any other host a person is asked while the connection
waits. Names that lead to private addresses are refused, unless the settings or a tool's configuration of
the person name the host.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from hermes_agent.addresses import is_public, look_up
from hermes_agent.sandbox.child import Child
from hermes_agent.sandbox.network import NetworkNamespace, NetworkUnavailableError
from hermes_agent.sandbox.proxy import Destination, Proxy, Refusal
from hermes_agent.sandbox.sandboxes import AskHost, Job
from hermes_core.errors import Interrupted, ToolDeniedError, ToolError

if TYPE_CHECKING:
    from hermes_agent.approval.gate import Permit

CODE_HOSTS = (
    "github.com", "*.github.com", "*.githubusercontent.com", "gitlab.com", "*.gitlab.com",
    "bitbucket.org", "codeberg.org", "git.sr.ht",
)  # fmt: skip
"""Allowed without a question, as long as a call has nothing private to lose."""

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
    ("cargo", ("config", "get", "-Z", "unstable-options", "source")),
)
"""Programs that install packages, and how to ask each which servers it is configured for."""
_CONFIGURATION_TIMEOUT_S = 5.0
_URL_HOST = re.compile(r"https?://(?:[^\s/@\"']*@)?([A-Za-z0-9.-]+(?::\d+)?)")


class Grants(NamedTuple):
    """The hosts that a conversation may reach, as of now."""

    hosts: Collection[str] = ()
    """Hosts that a person allowed, here or everywhere."""
    asks_for_all: bool = False
    """Whether the preset hosts have to be asked for as well."""


class Command(NamedTuple):
    """A command that runs in the sandbox, as far as its connections go."""

    hosts: Collection[str]
    """Hosts that were allowed together with the command."""
    ask: AskHost | None
    note: Callable[[str], None]
    """Takes what the output of the command may not say: which connections were refused, and why."""
    note_host: Callable[[str], None] | None = None
    """Is told each host that a connection is made to."""


class Egress:
    """The rules of one conversation's way out."""

    def __init__(self, allowed: Collection[str], grants: Callable[[], Grants]) -> None:
        self._allowed = tuple(allowed)
        self._grants = grants
        self._commands: dict[str, Command] = {}
        self._lock = threading.Lock()
        self._asking: dict[str, threading.Lock] = {}

    def begin(self, token: str, command: Command) -> None:
        """Let the connections that carry this token be those of a command."""
        with self._lock:
            self._commands[token] = command

    def end(self, token: str) -> None:
        """Forget a command."""
        with self._lock:
            self._commands.pop(token, None)

    def connect(self, destination: Destination) -> list[tuple[str, int]]:
        """Return the addresses to connect to; raises Refusal. May wait for a person."""
        with self._lock:
            command = self._commands.get(destination.token)
        if command is None:
            raise Refusal("The command that this proxy address was made for has ended.")
        try:
            return self._connect(destination.host.lower(), destination.port, command)
        except Refusal as refusal:
            command.note(f"no connection to {destination.host}: {refusal}")
            raise

    def _connect(self, host: str, port: int, command: Command) -> list[tuple[str, int]]:
        is_named = self._is_named(host, port)
        if not (is_named or matches(command.hosts, host, port) or self._is_granted(host, port)):
            self._ask(host, port, command)
        try:
            addresses = look_up(host, port)
        except ToolError as error:
            raise Refusal(str(error)) from error
        if not is_named and not all(map(is_public, addresses)):
            raise Refusal(
                f"{host} is an address of this machine or of a private network."
                " A person can allow it in tools.allowed_hosts."
            )
        if command.note_host is not None:
            command.note_host(_name(host, port))
        return [(str(address), port) for address in addresses]

    def _is_named(self, host: str, port: int) -> bool:
        """Tell whether the person named the host in a configuration, wherever it lies."""
        if matches(self._allowed, host, port):
            return True
        return not self._grants().asks_for_all and matches(configured_hosts(), host, port)

    def _is_granted(self, host: str, port: int) -> bool:
        grants = self._grants()
        if matches(grants.hosts, host, port):
            return True
        return not grants.asks_for_all and matches(CODE_HOSTS, host, port)

    def _ask(self, host: str, port: int, command: Command) -> None:
        """Let a person decide; connections to the same host wait for the one question."""
        name = _name(host, port)
        if command.ask is None:
            raise Refusal(
                f"Connections to {name} are not allowed, and no one can be asked now."
                f" Add {name} to tools.allowed_hosts, or run the command in the foreground."
            )
        with self._lock:
            one_question = self._asking.setdefault(name, threading.Lock())
        with one_question:
            if matches(self._grants().hosts, host, port):
                return  # the question of another connection was answered meanwhile
            try:
                command.ask(name)
            except (ToolDeniedError, Interrupted) as error:
                raise Refusal(str(error)) from error


class WayOut:
    """The network of one sandbox: a namespace, and the proxy that leads out of it."""

    def __init__(self, rules: Egress) -> None:
        """Make both; raises NetworkUnavailableError."""
        self._rules = rules
        self._namespace = NetworkNamespace.make()
        self._proxy = Proxy(self._namespace.listener, rules.connect)

    def spawn(self, permit: "Permit", job: Job, start: Callable[["Permit", Job], Child]) -> Child:
        """Start a command whose connections follow the rules, and are its own."""
        token, started = os.urandom(8).hex(), Future[Child]()

        def ask(host: str) -> None:
            with started.result().paused():
                if job.ask_host is not None:
                    job.ask_host(host)

        def note(text: str) -> None:
            started.result().notes.append(text)

        command = Command(permit.access.hosts, ask if job.ask_host else None, note, job.note_host)
        self._rules.begin(token, command)
        environment = {**job.environment, **self._proxy.environment(token)}
        try:
            child = start(permit, msgspec.structs.replace(job, environment=environment))
        except ToolError as error:
            self._rules.end(token)
            started.set_exception(error)
            raise
        child.at_end(functools.partial(self._rules.end, token))
        started.set_result(child)
        return child

    def enter(self, descriptors: list[int]) -> list[str]:
        """Return the words before a command that runs in the namespace, and add what it inherits."""
        return self._namespace.enter(descriptors)

    def close(self) -> None:
        """End all connections."""
        self._proxy.close()
        self._namespace.close()


@functools.cache
def problem() -> str:
    """Say why a sandbox cannot have a way out here; empty when it can. Tried once per process."""
    try:
        NetworkNamespace.make().close()
    except NetworkUnavailableError as error:
        return str(error)
    return ""


def matches(entries: Collection[str], host: str, port: int) -> bool:
    """Tell whether a host is named by one of `name`, `name:port`, `*.name` and `*.name:port`."""
    return any(_matches(entry.lower(), host, port) for entry in entries)


def _name(host: str, port: int) -> str:
    return host if port in PORTS else f"{host}:{port}"


def _matches(entry: str, host: str, port: int) -> bool:
    name, _, ports = entry.partition(":")
    if port not in ((int(ports),) if ports.isdecimal() else PORTS):
        return False
    return host.endswith(name[1:]) if name.startswith("*.") else host == name


@functools.cache
def configured_hosts() -> frozenset[str]:
    """Return the servers that this machine's package tools are configured for.

    The tools are asked outside of any workspace, so that a file in one cannot add a host.
    """
    output = " ".join(_output_of(*configuration) for configuration in _CONFIGURATIONS)
    return frozenset(match[1].lower() for match in _URL_HOST.finditer(output))


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
