"""Holding a conversation while a turn runs: taken, renewed by one thread of the process, given back.

A holder names its machine, process and the process's start, so that the lease of a process that is gone
need not be waited for.
"""

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Generator
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

from hermes_core.errors import ConversationBusyError, LeaseLostError
from hermes_state.leases import DEFAULT_TTL_S, Lease
from hermes_state.protocol import Store
from hermes_state.turns import Taken

T = TypeVar("T")

_RENEW_EVERY_S = DEFAULT_TTL_S / 4
_numbers = itertools.count(1)
_holders: set[str] = set()
"""Those of this process that hold a conversation, or are about to."""


@contextlib.contextmanager
def held(store: Store, conversation_id: str, on_lost: Callable[[], None]) -> Generator[Lease]:
    """Hold a conversation for the length of a block; raises ConversationBusyError."""
    lease = acquire(store, conversation_id)
    with _kept(store, lease, on_lost):
        yield lease


@contextlib.contextmanager
def running(
    store: Store,
    conversation_id: str,
    turn_id: str,
    on_lost: Callable[[], None],
    *,
    is_same: bool = False,
) -> Generator[Taken]:
    """The same for a turn, which begins in the same commit; its end gives the conversation back.

    `is_same` tells that its last attempt goes on.
    """

    def take(holder: str) -> Taken | None:
        return store.turns.take(turn_id, conversation_id, holder, is_same=is_same)

    taken = _taken(store, conversation_id, take)
    with _kept(store, taken.lease, on_lost):
        yield taken


def acquire(store: Store, conversation_id: str) -> Lease:
    """Take the lease, also from a process that is gone; raises ConversationBusyError."""
    return _taken(store, conversation_id, partial(store.leases.acquire, conversation_id))


def _taken(store: Store, conversation_id: str, take: Callable[[str], T | None]) -> T:
    mine = f"{_process()}:{next(_numbers)}"
    _holders.add(mine)
    try:
        taken = take(mine)
        if taken is None:
            former = store.leases.holder_of(conversation_id)
            if former is not None and (is_gone(former) or _is_left(former)):
                store.leases.take_over(conversation_id, former, mine)
                taken = take(mine)
    except BaseException:
        _holders.discard(mine)
        raise
    if taken is None:
        _holders.discard(mine)
        raise ConversationBusyError(
            f"The conversation {conversation_id} is being run by another process.",
            fix="Wait for it to end, or stop it there.",
        )
    return taken


@contextlib.contextmanager
def _kept(store: Store, lease: Lease, on_lost: Callable[[], None]) -> Generator[None]:
    """Renew a lease for the length of a block, and give back what was not given back within it."""
    _keeper.keep(store, lease, on_lost)
    try:
        yield
    finally:
        _keeper.drop(lease)
        _holders.discard(lease.holder)
        if store.leases.holder_of(lease.conversation_id) == lease.holder:
            store.leases.release(lease)


def free_the_dead(store: Store) -> None:
    """Expire the leases of processes that are gone, so that their turns count as unfinished."""
    for conversation_id, holder in store.leases.held().items():
        if is_gone(holder):
            # For no time: whoever looks for unfinished turns at this moment finds nobody holding them.
            store.leases.take_over(conversation_id, holder, f"{_process()}:0", ttl_s=0)


def _is_left(holder: str) -> bool:
    """Whether this process held it and could not give it back, as with a full disk."""
    return holder.startswith(f"{_process()}:") and holder not in _holders


def is_gone(holder: str) -> bool:
    """Whether a holder's process has ended; of another machine's we cannot know."""
    host, pid, started, _ = (*holder.split(":"), "", "", "", "")[:4]
    if host != os.uname().nodename or not pid.isdigit():
        return False
    return _started(int(pid)) != started


def process_name() -> str:
    """This process, by a name that no other ever has."""
    return _process()


def _process() -> str:
    pid = os.getpid()
    return f"{os.uname().nodename}:{pid}:{_own_start(pid)}"


@cache
def _own_start(pid: int) -> str:
    return _started(pid)


def _started(pid: int) -> str:
    """When a process began, in the kernel's own count; empty when there is none."""
    try:
        # The name of the program is in brackets and may hold anything, blanks and brackets too.
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        state, *others = stat.rpartition(")")[2].split()
        # One that has ended keeps its entry until its parent asks, and some parents never do.
        return "" if state in "ZX" else others[18]
    except OSError:
        return _alive(pid)


def _alive(pid: int) -> str:
    """Where there is no /proc: whether the process is there at all."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        return "0"
    return "0"


class _Keeper:
    """Renews what this process holds; its thread lives as long as there is something to renew."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._kept: dict[Lease, tuple[Store, Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None

    def keep(self, store: Store, lease: Lease, on_lost: Callable[[], None]) -> None:
        with self._condition:
            self._kept[lease] = (store, on_lost)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
                self._thread.start()

    def drop(self, lease: Lease) -> None:
        with self._condition:
            self._kept.pop(lease, None)

    def _run(self) -> None:
        while True:
            time.sleep(_RENEW_EVERY_S)
            with self._condition:
                if not self._kept:
                    self._thread = None
                    return
                due = list(self._kept.items())
            for lease, (store, on_lost) in due:
                self._renew(lease, store, on_lost)

    def _renew(self, lease: Lease, store: Store, on_lost: Callable[[], None]) -> None:
        try:
            store.leases.renew(lease)
        except LeaseLostError:
            self.drop(lease)
            on_lost()


_keeper = _Keeper()
