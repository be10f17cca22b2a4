"""Write through one connection, with group commit.

A write is a function of the connection. A thread that finds the writer idle becomes the leader: it runs
every waiting function in one transaction with one fsync. When one of them fails, the others run again,
each in its own savepoint, so that a failing function fails alone. The followers sleep; after the commit
each wakes the next, so that sixteen threads do not contend for the interpreter lock at once. The last of
them wakes the next leader.

A deferrable write waits up to 10 ms for the commit of another.

The main thread never leads: Ctrl-C may stop it between any two instructions, also between a commit and
waking the followers. A helper thread writes in its place.

A function may run twice when its transaction had to be rolled back, so it must have no other effects.
"""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar, cast

import apsw

from hermes_core.errors import StoreError
from hermes_state.engines.sqlite import lenient
from hermes_state.engines.sqlite.checkpoint import Checkpoints
from hermes_state.engines.sqlite.connection import no_memory, no_text, store_gone, translate
from hermes_state.engines.sqlite.presence import Presence
from hermes_state.engines.sqlite.write_fairness import WriteFairness

T = TypeVar("T")

_MAX_BATCH = 256
_SAVEPOINT = "writers_job"
"""A savepoint name that no function uses."""
_DEFER_TIMEOUT_S = 0.01
"""How long a deferrable write waits for another commit."""


class _Job:
    """A waiting write, with the lock on which its caller sleeps."""

    __slots__ = ("error", "fn", "follower", "gate", "result", "deferrable", "settled")

    def __init__(self, fn: Callable[[apsw.Connection], Any], *, deferrable: bool = False) -> None:
        self.fn = fn
        self.deferrable = deferrable
        self.gate = threading.Lock()
        self.gate.acquire()
        self.settled = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.follower: _Job | None = None


class Writer:
    """Runs functions of the connection, many per commit."""

    def __init__(
        self,
        conn: apsw.Connection,
        path: Path,
        fairness: WriteFairness | None = None,
        checkpoints: Checkpoints | None = None,
        presence: Presence | None = None,
    ) -> None:
        self.conn = conn
        self._path = path
        self._fairness = fairness
        self._checkpoints = checkpoints
        self._presence = presence
        if fairness is not None:
            conn.set_busy_handler(fairness.wait)
        self._main = threading.main_thread().ident
        self._mutex = threading.Lock()
        self._waiting: deque[_Job] = deque()
        self._has_leader = False
        self._leader = 0
        self._closed = False
        self._commits = False
        # A function that runs COMMIT would commit the others of its batch half-way.
        conn.set_commit_hook(lambda: not self._commits)
        self._main_thread_writer = _MainThreadWriter(self._enqueue)

    def run(self, fn: Callable[[apsw.Connection], T], *, deferrable: bool = False) -> T:
        """Run `fn` in a transaction and return its result once that is on disk."""
        me = threading.get_ident()
        if self._leader == me:
            raise StoreError("A write inside a write: pass the transaction on instead.")
        if self._closed:
            raise StoreError(f"{self._path} is closed.")
        job = _Job(fn, deferrable=deferrable and me != self._main)
        if me == self._main:
            self._main_thread_writer.run(job)
        else:
            self._enqueue(job)
        if job.error is not None:
            raise self._translated(job.error)
        return cast("T", job.result)

    def close(self) -> None:
        """Let the waiting writes finish, then close the connection."""
        if not self._closed:
            self._closed = True
            self._main_thread_writer.run(_Job(lambda _conn: None))
            self._main_thread_writer.stop()
            if self._checkpoints is not None:
                self._checkpoints.close()
            self.conn.close()
            if self._fairness is not None:
                self._fairness.close()

    def _enqueue(self, job: _Job) -> None:
        with self._mutex:
            self._waiting.append(job)
            leads = not (self._has_leader or job.deferrable)
            self._has_leader = self._has_leader or leads
        if not leads:
            self._sleep(job)
        if job.settled:
            self._wake_next(job.follower)
        else:
            self._lead(job)

    def _sleep(self, job: _Job) -> None:
        """Sleep until a job is settled or must lead, as a deferrable one must after its timeout."""
        if job.deferrable:
            if job.gate.acquire(timeout=_DEFER_TIMEOUT_S):
                return
            with self._mutex:
                job.deferrable = False
                if not self._has_leader:
                    self._has_leader = True
                    return
        job.gate.acquire()

    def _lead(self, own: _Job) -> None:
        """Commit all waiting jobs, including `own`."""
        self._leader = threading.get_ident()
        batch: list[_Job] = []
        try:
            self._commit_waiting(batch)
        except (apsw.Error, MemoryError) as error:
            self._fail_all(batch, error)
        with suppress(MemoryError):  # those who wait must be woken all the same
            self._after_commit(batch)
        self._leader = 0
        self._settle(batch, own)

    def _commit_waiting(self, batch: list[_Job]) -> None:
        """Commit everything that waits; `batch` gets what has its result or its error."""
        self.conn.cursor_factory = apsw.Cursor
        if self._fairness is not None:
            self._fairness.give_way()
        self._start_over(batch)
        if not self._run_together(batch):
            self._start_over(batch)
            self._run_apart(batch)
        self._commit(batch)

    def _after_commit(self, batch: list[_Job]) -> None:
        # Checked after the commit: a write to a replaced file must not be acknowledged.
        if self._presence is not None and not self._presence.is_ours():
            self._fail_replaced(batch)
        if self._fairness is not None:
            self._fairness.done()
        if self._checkpoints is not None:
            self._checkpoints.committed()

    def _run_together(self, batch: list[_Job]) -> bool:
        """Run waiting jobs, including new ones; return False as soon as one fails."""
        conn = self.conn
        while self._waiting and len(batch) < _MAX_BATCH:
            job = self._waiting.popleft()
            batch.append(job)
            try:
                job.result = job.fn(conn)
            except UnicodeDecodeError:
                conn.cursor_factory = lenient.Cursor
                return False  # runs again with invalid text replaced
            except BaseException as error:  # noqa: BLE001 -- kept for the caller whose function this is
                job.error = error
                return False
            if not conn.in_transaction:
                job.error = StoreError("A write may not end the transaction it runs in.")
                return False
        return True

    def _run_apart(self, batch: list[_Job]) -> None:
        """Run waiting jobs with a savepoint each, so that a failure affects no other."""
        while self._waiting and len(batch) < _MAX_BATCH:
            job = self._waiting.popleft()
            batch.append(job)
            if not self._run_one(job):
                self._start_over(batch)

    def _run_one(self, job: _Job) -> bool:
        """Run one job; return False when its failure ended the transaction."""
        conn = self.conn
        conn.execute(f"SAVEPOINT {_SAVEPOINT}")
        try:
            job.result = job.fn(conn)
        except BaseException as error:  # noqa: BLE001 -- as above
            job.error = error
            if conn.in_transaction:
                conn.execute(f"ROLLBACK TO {_SAVEPOINT}; RELEASE {_SAVEPOINT}")
            return conn.in_transaction
        if not conn.in_transaction:
            job.error = StoreError("A write may not end the transaction it runs in.")
            return False
        conn.execute(f"RELEASE {_SAVEPOINT}")
        return True

    def _start_over(self, batch: list[_Job]) -> None:
        """Begin a transaction; functions that ran in one that was lost wait again, in their order."""
        self._roll_back()
        self._waiting.extendleft([job for job in reversed(batch) if job.error is None])
        batch[:] = [job for job in batch if job.error is not None]
        self.conn.execute("BEGIN IMMEDIATE")

    def _commit(self, batch: list[_Job]) -> None:
        try:
            self._make_durable()
        except apsw.Error as error:
            self._roll_back()
            stored = [job for job in batch if job.error is None]
            if len(stored) == 1:
                stored[0].error = error
            else:
                self._commit_one_by_one(stored)

    def _commit_one_by_one(self, jobs: list[_Job]) -> None:
        """Commit jobs one by one after a shared commit failed, to find the one at fault."""
        for job in jobs:
            try:
                self.conn.execute("BEGIN IMMEDIATE")
                job.result = job.fn(self.conn)
                self._make_durable()
            except BaseException as error:  # noqa: BLE001 -- kept for the caller, as above
                self._roll_back()
                job.error = error

    def _make_durable(self) -> None:
        self._commits = True
        try:
            self.conn.execute("COMMIT")
        finally:
            self._commits = False

    def _fail_all(self, batch: list[_Job], error: apsw.Error | MemoryError) -> None:
        """Fail all jobs, as the transaction could not begin."""
        with suppress(apsw.Error, MemoryError):  # then the next one does it
            self._roll_back()
        while self._waiting:
            batch.append(self._waiting.popleft())
        for job in batch:
            job.error = job.error or error

    def _fail_replaced(self, batch: list[_Job]) -> None:
        """Fail the jobs that were written to a file that was replaced."""
        for job in batch:
            if job.error is None or isinstance(job.error, apsw.Error):
                job.error = store_gone(self._path)

    def _roll_back(self) -> None:
        if self.conn.in_transaction:
            self.conn.execute("ROLLBACK")

    def _settle(self, batch: list[_Job], own: _Job) -> None:
        """Chain the settled jobs, so that each wakes the next."""
        follower: _Job | None = None
        for job in reversed(batch):
            job.settled = True
            if job is not own:
                job.follower, follower = follower, job
        self._wake_next(follower)

    def _wake_next(self, follower: _Job | None) -> None:
        """Wake the next settled job, or the next leader."""
        if follower is None:
            with self._mutex:
                follower = next((job for job in self._waiting if not job.deferrable), None)
                if follower is None:
                    self._has_leader = False
                    return
        follower.gate.release()

    def _translated(self, error: BaseException) -> BaseException:
        if isinstance(error, apsw.Error):
            ours = translate(error, self._path)
        elif isinstance(error, UnicodeEncodeError):
            ours = no_text(error)
        elif isinstance(error, MemoryError):
            ours = no_memory(self._path)
        else:
            return error
        ours.__cause__ = error
        return ours


class _MainThreadWriter:
    """Writes for the main thread, in a thread that Ctrl-C cannot interrupt."""

    def __init__(self, write: Callable[[_Job], None]) -> None:
        self._write = write
        self._requests: SimpleQueue[tuple[_Job, threading.Lock] | None] = SimpleQueue()
        # Started here: if the first write started it, an interrupt could start two.
        self._thread = Thread(target=self._work, name="hermes-writer", daemon=True)
        self._thread.start()

    def run(self, job: _Job) -> None:
        """Run a job and wait; an interrupt is raised when the job is settled."""
        try:
            self._ask(job)
        except BaseException:
            self._wait_for_all()
            raise

    def stop(self) -> None:
        self._requests.put(None)
        self._thread.join()

    def _ask(self, job: _Job) -> None:
        done = threading.Lock()
        done.acquire()
        self._requests.put((job, done))
        done.acquire()

    def _wait_for_all(self) -> None:
        """Wait for an empty job: when it is done, so are all earlier ones."""
        while True:
            with suppress(KeyboardInterrupt):
                return self._ask(_Job(lambda _conn: None))

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            job, done = request
            try:
                self._write(job)
            except BaseException as error:  # noqa: BLE001 -- kept for the caller, as above
                job.error = error
            finally:
                done.release()
