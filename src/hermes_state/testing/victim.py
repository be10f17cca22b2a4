"""The process that is killed: runs scripts on a store and reports every acknowledgement.

To make a kill cheap, one process (the nursery) imports everything once and forks a victim on demand;
it is started by `crash.py` with a socket over which orders and pipes come.
"""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NoReturn

import apsw
import msgspec

from hermes_state import SessionDB, checkpoint
from hermes_state.testing import workload

CHECKPOINT_PAGES = 50
"""Small, so that also a short script sees checkpoints."""


class Order(msgspec.Struct):
    """What a victim is to do."""

    database: str
    threads: list[str]
    """The first is run by the main thread."""
    scripts: int
    """How many each thread runs before it closes the store and says that it is done."""
    trap: Literal["none", "statement", "file"] = "none"
    kill_at: int = 0
    """Die at so manieth point of the trap; 0 is never."""
    reap: int = 0
    """Not an order to start: this process is dead, forget it."""


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

    def __init__(self, base: str, filename: Any, flags: list[int], trap: Trap) -> None:  # noqa: ANN401
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

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: ANN401 -- SQLite's
        return TrappedFile(self._base, name, flags, self._trap)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self._trap.reach(f"delete {kind_of(filename)}")
        super().xDelete(filename, syncdir)


def kind_of(filename: Any) -> str:  # noqa: ANN401 -- a text, or SQLite's object around one
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
        store.write(lambda c: c.pragma("wal_autocheckpoint", CHECKPOINT_PAGES))
    return store


def live(order: Order, pipe: int) -> None:
    """Do what is ordered, in as many threads as there are names; report to the pipe."""

    def report(line: str) -> None:
        os.write(pipe, f"{line}\n".encode())  # short enough to be written whole or not at all

    trap = Trap(order.kill_at, report)
    vfs = TrappedVFS(trap) if order.trap == "file" else None
    store = open_store(order)
    if order.trap == "statement":
        store.write(lambda c: setattr(c, "exec_trace", trap.statement))
    together = threading.Barrier(len(order.threads))

    def run(number: int, name: str) -> None:
        try:
            together.wait(10)
            steps = 0
            for script in range(order.scripts):
                for _ in workload.conversation(store, f"{name}c{script}"):
                    steps += 1
                    if order.trap == "statement":
                        trap.reach("acknowledge")
                    report(f"{number} {steps}")
        except BaseException as error:  # noqa: BLE001 -- whatever it is, the parent must hear of it
            report(f"error {type(error).__name__}: {error}"[:400].replace("\n", " "))

    others = [
        threading.Thread(target=run, args=(number, name), daemon=True)
        for number, name in enumerate(order.threads)
        if number
    ]
    for thread in others:
        thread.start()
    run(0, order.threads[0])
    for thread in others:
        thread.join()
    store.close()
    del vfs
    report("done")


def serve(descriptor: int, live: Callable[[Order, int], None] = live) -> None:
    """The nursery: fork a victim for every order, until nobody is there to give one."""
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
                _be_born(order, pipes[0], live)
            os.close(pipes[0])
            orders.sendall(f"{pid}\n".encode())


def _be_born(order: Order, pipe: int, live: Callable[[Order, int], None]) -> NoReturn:
    try:
        live(order, pipe)
    except BrokenPipeError:
        pass  # nobody listens any more
    except BaseException as error:  # noqa: BLE001 -- as above
        os.write(pipe, f"error {type(error).__name__}: {error}"[:400].encode() + b"\n")
    os._exit(0)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
