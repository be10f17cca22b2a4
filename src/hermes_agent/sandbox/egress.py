"""Decide which hosts sandboxed commands may reach.

For a host that is not allowed (see `hosts`) a person is asked while the connection waits. Names that
lead to private addresses are refused, unless the settings or a tool's configuration of the person name
the host. Each host that is reached is noted before anything comes from it.
"""

import functools
import os
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import TYPE_CHECKING

import msgspec

from hermes_agent.addresses import is_public, look_up
from hermes_agent.sandbox.child import Child
from hermes_agent.sandbox.hosts import (
    HostGrants,
    configured_hosts,
    look_ahead,
    matches,
    name_of,
    passes,
)
from hermes_agent.sandbox.network import NetworkNamespace, NetworkUnavailableError
from hermes_agent.sandbox.proxy import Destination, Proxy, Refusal
from hermes_agent.sandbox.sandboxes import AskHost, Job
from hermes_core.errors import Interrupted, StoreError, ToolDeniedError, ToolError

if TYPE_CHECKING:
    from hermes_agent.approval.gate import Permit


class Command(msgspec.Struct):
    """A command that runs in the sandbox, as far as its connections go."""

    hosts: Collection[str]
    """Hosts that were allowed together with the command."""
    ask: AskHost | None
    note: Callable[[str], None]
    """Takes what the output of the command may not say: which connections were refused, and why."""
    note_host: Callable[[str], None] | None = None
    """Is told each host that a connection is made to, before anything comes from it."""
    asks_for_all: bool | None = None
    """Whether hosts that are allowed otherwise are asked for too; None: as the conversation has it by
    then. A command that takes no input hears nothing of what is read while it runs."""
    allowed: set[str] = msgspec.field(default_factory=set[str])
    """Hosts that a person allowed while it ran."""


class Egress:
    """The rules of one conversation's way out."""

    def __init__(self, allowed: Collection[str], grants: Callable[[], HostGrants]) -> None:
        self._allowed = tuple(allowed)
        self._grants = grants
        self._commands: dict[str, Command] = {}
        self._lock = threading.Lock()
        self._asking: dict[str, threading.Lock] = {}

    @property
    def asks_for_all(self) -> bool:
        """Return whether all hosts have to be asked for, as of now."""
        return self._grants().asks_for_all

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
        if not self._passes(host, port, command):
            self._ask(host, port, command)
        try:
            addresses = look_up(host, port)
        except ToolError as error:
            raise Refusal(str(error)) from error
        if not all(map(is_public, addresses)) and not self._is_named(host, port):
            raise Refusal(
                f"{host} is an address of this machine or of a private network."
                " A person can allow it in tools.allowed_hosts."
            )
        try:
            if command.note_host is not None:
                command.note_host(name_of(host, port))
        except StoreError as error:
            raise Refusal(str(error)) from error
        return [(str(address), port) for address in addresses]

    def _is_named(self, host: str, port: int) -> bool:
        """Tell whether the person named the host in a configuration, wherever it lies."""
        return matches(self._allowed, host, port) or matches(configured_hosts(), host, port)

    def _passes(self, host: str, port: int, command: Command) -> bool:
        if matches({*command.hosts, *command.allowed}, host, port):
            return True
        grants = self._grants()
        if command.asks_for_all is not None:
            grants = grants._replace(asks_for_all=command.asks_for_all)
        return passes(host, port, self._allowed, grants)

    def _ask(self, host: str, port: int, command: Command) -> None:
        """Let a person decide; connections to the same host wait for the one question."""
        name = name_of(host, port)
        if command.ask is None:
            raise Refusal(
                f"Connections to {name} are not allowed, and no one can be asked now."
                f" Add {name} to tools.allowed_hosts, or run the command in the foreground."
            )
        with self._lock:
            one_question = self._asking.setdefault(name, threading.Lock())
        with one_question:
            if self._passes(host, port, command):
                return  # the question of another connection was answered meanwhile
            try:
                command.ask(name)
            except (ToolDeniedError, Interrupted) as error:
                raise Refusal(str(error)) from error
            command.allowed.add(name)


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

        hears_more = job.takes_input or permit.access.reads
        command = Command(
            permit.access.hosts,
            ask if job.ask_host else None,
            note,
            job.note_host,
            asks_for_all=None if hears_more else self._rules.asks_for_all,
        )
        self._rules.begin(token, command)
        look_ahead(permit.subject)
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
