"""The side of a kill test that is killed: traps, and a process that forks workers.

One process imports everything once and forks a worker per order, so that a kill is cheap.
`fork_server.py` starts it with a socket for orders and pipes. What a worker does is a function of its
order and its pipe, in the module that is started.
"""

import os
import signal
import socket
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NoReturn

import apsw
import msgspec

from hermes_state import SessionDB
from hermes_state.engines.sqlite import checkpoint

CHECKPOINT_PAGES = 50
"""Small, so that also a short script sees checkpoints."""


class Order(msgspec.Struct):
    """What a worker is to do."""

    database: str
    threads: list[str]
    """The first is run by the main thread."""
    scripts: int
    """How many each thread runs before it closes the store and says that it is done."""
    trap: Literal["none", "statement", "file"] = "none"
    kill_at: int = 0
    """Die at the n-th point of the trap; 0 is never."""
    reap: int = 0
    """Do not start anything: reap this dead process."""


Live = Callable[[Order, int], None]
"""What a worker does: obey the order, report to the pipe."""


class Trap:
    """Counts the points that are passed and dies at one of them."""

    def __init__(self, kill_at: int, report: Callable[[str], None]) -> None:
        self._kill_at = kill_at
        self._report = report
        self._passed = 0
        self._lock = threading.Lock()

    def reach(self, name: str) -> None:
        """Pass a point, or not."""
        with self._lock:
            self._passed += 1
            if self._passed == self._kill_at:
                self._report(f"point {name}")
                os.kill(os.getpid(), signal.SIGKILL)

    def statement(self, _cursor: apsw.Cursor, sql: str, _bindings: object) -> bool:
        """A point before each statement; to be set as a connection's trace."""
        self.reach(" ".join(sql.split()[:3]).rstrip("("))
        return True


class TrappedFile(apsw.VFSFile):
    """A file with a point before each change of it."""

    def __init__(self, base: str, filename: Any, flags: list[int], trap: Trap) -> None:
        super().__init__(base, filename, flags)
        self._trap = trap
        self._kind = kind_of(filename)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._trap.reach(f"write {self._kind}")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._trap.reach(f"sync {self._kind}")
        super().xSync(flags)
        self._trap.reach(f"synced {self._kind}")

    def xTruncate(self, newsize: int) -> None:
        self._trap.reach(f"truncate {self._kind}")
        super().xTruncate(newsize)


class TrappedVFS(apsw.VFS):
    """A file system with a point before each change of a file; it becomes the default."""

    def __init__(self, trap: Trap) -> None:
        self._base = apsw.vfs_names()[0]
        self._trap = trap
        super().__init__("hermes-trap", self._base, makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return TrappedFile(self._base, name, flags, self._trap)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self._trap.reach(f"delete {kind_of(filename)}")
        super().xDelete(filename, syncdir)


def kind_of(filename: Any) -> str:
    """Which of a store's files this is, in a word."""
    name = Path(filename if isinstance(filename, str) else filename.filename()).name
    for suffix in ("-journal", "-wal", "-shm"):
        if name.endswith(suffix):
            return suffix[1:] + (" of the index" if "-search." in name else "")
    return "index" if "-search." in name else "database"


def open_store(order: Order) -> SessionDB:
    """The store, with many checkpoints; where points are counted, without a thread that makes them."""
    checkpoint.PAGES = CHECKPOINT_PAGES
    store = SessionDB(order.database)
    if order.trap != "none":
        _set_up_connection(store, lambda conn: conn.pragma("wal_autocheckpoint", CHECKPOINT_PAGES))
    return store


def _set_up_connection(store: SessionDB, change: Callable[[apsw.Connection], object]) -> None:
    """Change the connection that writes, which no statement of a store can."""
    store._execute_write(change)  # pyright: ignore[reportPrivateUsage]


def reporter(pipe: int) -> Callable[[str], None]:
    """A function that reports a line; lines are short enough to be written whole or not at all."""

    def report(line: str) -> None:
        os.write(pipe, f"{line}\n".encode())

    return report


def describe(error: BaseException) -> str:
    """An error as a line of a report."""
    return f"error {type(error).__name__}: {error}"[:400].replace("\n", " ")


@contextmanager
def trapped_store(
    order: Order, report: Callable[[str], None]
) -> Generator[tuple[SessionDB, Callable[[str], None]]]:
    """The store with the trap of an order, and a function to pass further points of the trap."""
    trap = Trap(order.kill_at, report)
    vfs = TrappedVFS(trap) if order.trap == "file" else None
    store = open_store(order)
    if order.trap == "statement":
        _set_up_connection(store, lambda conn: setattr(conn, "exec_trace", trap.statement))
    yield store, trap.reach if order.trap == "statement" else lambda _point: None
    store.close()
    del vfs


def run_threads(names: Sequence[str], run: Callable[[int, str], None]) -> None:
    """Run each name in a thread, the first in this one."""
    others = [
        threading.Thread(target=run, args=(number, name), daemon=True)
        for number, name in enumerate(names)
        if number
    ]
    for thread in others:
        thread.start()
    run(0, names[0])
    for thread in others:
        thread.join()


def serve(descriptor: int, live: Live) -> None:
    """Fork a worker per order until the other side closes the socket."""
    with socket.socket(fileno=descriptor) as orders:
        while True:
            text, pipes, _, _ = socket.recv_fds(orders, 65_536, 1)
            if not text:
                return
            order = msgspec.json.decode(text, type=Order)
            if order.reap:
                os.waitpid(order.reap, 0)
                orders.sendall(b"0\n")
                continue
            pid = os.fork()
            if pid == 0:
                orders.close()
                _run(order, pipes[0], live)
            os.close(pipes[0])
            orders.sendall(f"{pid}\n".encode())


def _run(order: Order, pipe: int, live: Live) -> NoReturn:
    try:
        live(order, pipe)
    except BrokenPipeError:
        pass  # nobody listens any more
    except BaseException as error:  # noqa: BLE001 -- whatever it is, the parent must hear of it
        reporter(pipe)(describe(error))
    os._exit(0)
