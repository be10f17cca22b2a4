"""Background processes: a registry that knows them by conversation and ends them with the agent.

A conversation's id stays when compaction moves it to a new session, so its processes stay with it.
"""

import atexit
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import cached_property

from hermes_agent.sandbox.child import Child
from hermes_agent.sandbox.sandboxes import Host, Sandbox
from hermes_agent.tools.output import Plain
from hermes_agent.turn.stop import Stop
from hermes_core import clock
from hermes_core.errors import ToolError

_MAX_RUNNING = 16
_MAX_ENDED = 32
_MAX_UNREAD = 200_000
"""Characters of unread output that are kept of each."""


class Process:
    """A background process and what it printed since somebody looked."""

    def __init__(self, number: int, conversation_id: str, command: str, child: Child) -> None:
        self.id = f"p{number}"
        self.conversation_id = conversation_id
        self.command = command
        self.started_at = clock.now()
        self.exit_code: int | None = None
        self._child = child
        self._plain = Plain()
        self._unread: deque[str] = deque()
        self._size = 0
        self._lost = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._follow, name=f"process-{self.id}", daemon=True).start()

    @property
    def is_running(self) -> bool:
        return self.exit_code is None

    @property
    def state(self) -> str:
        return "running" if self.exit_code is None else f"ended with exit code {self.exit_code}"

    def read(self) -> str:
        """Return what it printed since the last time."""
        with self._changed:
            text = "".join(self._unread)
            gap = f"[… {self._lost} characters were not kept …]\n" if self._lost else ""
            self._unread.clear()
            self._size = self._lost = 0
            return gap + text

    def wait(self, seconds: float, stop: Stop) -> None:
        """Wait for its end, but not longer than this, nor past a stop."""
        with stop.callback(self._notify), self._changed:
            self._changed.wait_for(lambda: not self.is_running or stop.is_set, seconds)
        stop.check()

    def write(self, text: str) -> None:
        """Type into it; raises ToolError when it does not listen."""
        try:
            self._child.send(text.encode())
        except (OSError, ValueError) as error:
            raise ToolError(f"{self.id} does not read its input: {self.state}.") from error

    def kill(self) -> None:
        """End it and all it started."""
        self._child.terminate()
        with self._changed:
            self._changed.wait_for(lambda: not self.is_running, 5)

    def _follow(self) -> None:
        self._child.follow({self._child.stdout: lambda data: self._keep(self._plain.feed(data))})
        self._keep(self._plain.end())
        with self._changed:
            self.exit_code = self._child.reap()
            self._changed.notify_all()

    def _keep(self, text: str) -> None:
        if not text:
            return
        with self._changed:
            self._unread.append(text)
            self._size += len(text)
            while self._size > _MAX_UNREAD and len(self._unread) > 1:
                dropped = len(self._unread.popleft())
                self._size -= dropped
                self._lost += dropped

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()


class Processes:
    """The background processes of the conversations that an agent runs."""

    def __init__(
        self, sandbox: Sandbox | None = None, *, choose: Callable[[], Sandbox] = Host
    ) -> None:
        """`choose` finds the sandbox when the first command needs one: finding out takes a while."""
        self._sandbox = sandbox
        self._choose = choose
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._processes: dict[str, Process] = {}
        _open.add(self)

    @cached_property
    def sandbox(self) -> Sandbox:
        return self._sandbox or self._choose()

    def add(self, conversation_id: str, command: str, child: Child) -> Process:
        """Take charge of a child that was just started."""
        with self._lock:
            process = Process(next(self._numbers), conversation_id, command, child)
            self._processes[process.id] = process
            ended = [p.id for p in self._processes.values() if not p.is_running]
            for old in ended[:-_MAX_ENDED]:
                del self._processes[old]
        return process

    def check_room(self, conversation_id: str) -> None:
        """Raise ToolError when the conversation has enough running."""
        running = [p.id for p in self.of(conversation_id) if p.is_running]
        if len(running) >= _MAX_RUNNING:
            raise ToolError(
                f"{len(running)} background processes are running already.",
                fix=f"End one with process, for example {running[0]}.",
            )

    def of(self, conversation_id: str) -> list[Process]:
        """The processes of a conversation, oldest first."""
        with self._lock:
            processes = list(self._processes.values())
        return [process for process in processes if process.conversation_id == conversation_id]

    def get(self, conversation_id: str, process_id: str) -> Process:
        """One of the conversation's own; raises ToolError."""
        own = {process.id: process for process in self.of(conversation_id)}
        if process_id not in own:
            ids = ", ".join(own) or "none"
            raise ToolError(f"There is no process {process_id!r}.", fix=f"There are: {ids}.")
        return own[process_id]

    def find(self, process_id: str) -> Process | None:
        """A process by its id alone, for whoever judges a call."""
        with self._lock:
            return self._processes.get(process_id)

    def has_running(self, conversation_id: str) -> bool:
        """Return whether something of the conversation still runs."""
        return any(process.is_running for process in self.of(conversation_id))

    def close(self) -> None:
        """End everything; may be called again."""
        with self._lock:
            processes = list(self._processes.values())
        for process in processes:
            if process.is_running:
                process.kill()
        if "sandbox" in self.__dict__:  # else no command ran, and none need be found now
            self.sandbox.close()
        _open.discard(self)


_open: "weakref.WeakSet[Processes]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for processes in list(_open):
        processes.close()
