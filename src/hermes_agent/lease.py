"""Leases of conversations: acquire one, renew it while its turn runs, release it.

A holder names its machine, its process and the start of that process, so that nobody has to wait for the
lease of a process that has ended.
"""

import contextlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path
from typing import TypeVar

from hermes_core.errors import ConversationBusyError, LeaseLostError, StoreError
from hermes_state.ledger import leases, turns
from hermes_state.ledger.leases import DEFAULT_TTL_S
from hermes_state.store import Store
from hermes_state.values import ClaimedTurn, Lease

T = TypeVar("T")

logger = logging.getLogger(__name__)

_RENEW_INTERVAL_S = DEFAULT_TTL_S / 4
_RETRY_INTERVAL_S = 1.0
_numbers = itertools.count(1)
_holders: set[str] = set()
"""The holders of this process that have a lease or are acquiring one."""


@contextlib.contextmanager
def held(store: Store, conversation_id: str, on_lost: Callable[[], None]) -> Generator[Lease]:
    """Hold the lease of a conversation within a block; raises ConversationBusyError."""
    lease = acquire(store, conversation_id)
    with _renewing(store, lease, on_lost):
        yield lease


@contextlib.contextmanager
def running(
    store: Store,
    conversation_id: str,
    turn_id: str,
    on_lost: Callable[[], None],
    *,
    is_same: bool = False,
) -> Generator[ClaimedTurn]:
    """Hold the lease and start a turn in the same commit; the end of the turn releases the lease.

    `is_same` continues the last attempt instead of counting a new one.
    """

    def take(holder: str) -> ClaimedTurn | None:
        return store.write(turns.claim, turn_id, conversation_id, holder, is_same=is_same)

    claimed = _acquire(store, conversation_id, take)
    with _renewing(store, claimed.lease, on_lost):
        yield claimed


def acquire(store: Store, conversation_id: str) -> Lease:
    """Take the lease, also from a process that has ended; raises ConversationBusyError."""

    def take(holder: str) -> Lease | None:
        return store.write(leases.acquire, conversation_id, holder)

    return _acquire(store, conversation_id, take)


def _acquire(store: Store, conversation_id: str, take: Callable[[str], T | None]) -> T:
    holder = f"{_process()}:{next(_numbers)}"
    _holders.add(holder)
    with contextlib.ExitStack() as undo:
        undo.callback(_holders.discard, holder)
        acquired = take(holder)
        if acquired is None:
            former = store.read(leases.holder_of, conversation_id)
            if former is not None and (is_gone(former) or _is_unreleased(former)):
                store.write(leases.take_over, conversation_id, former, holder)
                acquired = take(holder)
        if acquired is None:
            raise ConversationBusyError(
                f"The conversation {conversation_id} is being run by another process.",
                fix="Wait for it to end, or stop it there.",
            )
        undo.pop_all()
        return acquired


@contextlib.contextmanager
def _renewing(store: Store, lease: Lease, on_lost: Callable[[], None]) -> Generator[None]:
    """Renew a lease within a block, and release it afterwards unless the block did."""
    _renewer.add(store, lease, on_lost)
    try:
        yield
    finally:
        _renewer.remove(lease)
        _holders.discard(lease.holder)
        if store.read(leases.holder_of, lease.conversation_id) == lease.holder:
            store.write(leases.release, lease)


def expire_dead_leases(store: Store) -> None:
    """Expire the leases of processes that have ended, so that their turns count as unfinished."""
    for conversation_id, holder in store.read(leases.held).items():
        if is_gone(holder):
            # With no time to live: a search for unfinished turns at this moment finds no holder.
            store.write(leases.take_over, conversation_id, holder, f"{_process()}:0", ttl_s=0)


def is_held_elsewhere(store: Store, conversation_id: str) -> bool:
    """Return whether another living process runs the conversation."""
    holder = store.read(leases.holder_of, conversation_id)
    if not isinstance(holder, str) or holder.startswith(f"{_process()}:"):
        return False
    return not is_gone(holder)


def _is_unreleased(holder: str) -> bool:
    """Tell whether this process held the lease and could not release it, as with a full disk."""
    return holder.startswith(f"{_process()}:") and holder not in _holders


def is_gone(holder: str) -> bool:
    """Tell whether a holder's process has ended; False for a process of another machine."""
    host, pid, started, _ = (*holder.split(":"), "", "", "", "")[:4]
    if host != os.uname().nodename or not pid.isdigit():
        return False
    return _started(int(pid)) != started


def process_name() -> str:
    """Return a name for this process that no other process ever has."""
    return _process()


def _process() -> str:
    pid = os.getpid()
    return f"{os.uname().nodename}:{pid}:{_own_start(pid)}"


@cache
def _own_start(pid: int) -> str:
    return _started(pid)


def _started(pid: int) -> str:
    """Return when a process started, in the kernel's clock ticks; empty when it has ended."""
    try:
        # The program's name is in parentheses and may contain blanks and parentheses.
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        state, *others = stat.rpartition(")")[2].split()
        # A zombie keeps its entry until its parent reaps it, and some parents never do.
        return "" if state in "ZX" else others[18]
    except OSError:
        return _alive(pid)


def _alive(pid: int) -> str:
    """Return "0" for a process that exists, where there is no /proc; else an empty text."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return "0"
    return "0"


def _started_thread(run: Callable[[], None]) -> threading.Thread | None:
    """Start the thread of a renewer; without memory for one, the next lease tries again.

    A lease that nobody renews expires, which is safe: its turn stops and is taken over.
    """
    thread = threading.Thread(target=run, name="leases", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        logger.warning("Leases are not renewed: %s", error)
        return None
    return thread


class LeaseRenewer:
    """Renews the leases of this process in one thread, which lives as long as there are any."""

    def __init__(
        self,
        interval_s: float = _RENEW_INTERVAL_S,
        retry_interval_s: float = _RETRY_INTERVAL_S,
    ) -> None:
        self._interval_s = interval_s
        self._retry_interval_s = retry_interval_s
        self._lock = threading.Lock()
        self._leases: dict[Lease, tuple[Store, Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None

    def add(self, store: Store, lease: Lease, on_lost: Callable[[], None]) -> None:
        """Renew a lease until it is removed; `on_lost` is called when somebody else has taken it."""
        with self._lock:
            self._leases[lease] = (store, on_lost)
            if self._thread is None:
                self._thread = _started_thread(self._run)

    def remove(self, lease: Lease) -> None:
        """Renew a lease no longer."""
        with self._lock:
            self._leases.pop(lease, None)

    def _run(self) -> None:
        wait_s = self._interval_s
        while True:
            time.sleep(wait_s)
            with self._lock:
                if not self._leases:
                    self._thread = None
                    return
                due = list(self._leases.items())
            renewed = [self._renew(lease, store, on_lost) for lease, (store, on_lost) in due]
            wait_s = self._interval_s if all(renewed) else self._retry_interval_s

    def _renew(self, lease: Lease, store: Store, on_lost: Callable[[], None]) -> bool:
        """Renew a lease; returns False when the store could not be written, so that it is due again.

        The boundary of the thread: what fails for one lease must not end the renewal of the others.
        """
        try:
            try:
                store.write(leases.renew, lease)
            except LeaseLostError:
                self.remove(lease)
                on_lost()
        except StoreError as error:  # a full disk, a locked store
            logger.warning("lease of %s: could not renew: %s", lease.conversation_id, error)
            return False
        except Exception:
            logger.exception("lease of %s: could not renew", lease.conversation_id)
            return False
        return True


_renewer = LeaseRenewer()
