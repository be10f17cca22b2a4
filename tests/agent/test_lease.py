"""Leases: the thread that renews them outlives a store that cannot be written for a while."""

import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import apsw
import pytest

from hermes_agent import lease
from hermes_agent.lease import LeaseRenewer
from hermes_agent.testing.scripted import TIMEOUT_S
from hermes_state import SessionDB
from hermes_state.ledger import leases
from tests.support.faults import disk_full_at, eventually, no_threads

SOON_S = 0.01


@contextmanager
def locked(store: SessionDB) -> Generator[None]:
    """Hold the write lock of a store, as another process does."""
    other = apsw.Connection(str(store.path))
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.close()


@contextmanager
def full(store: SessionDB) -> Generator[None]:
    with disk_full_at(store, "UPDATE ON leases"):
        yield


def expiry(store: SessionDB) -> float:
    return store.read(lambda c: c.value("SELECT expires_at FROM leases"))


@pytest.mark.parametrize("unwritable", [locked, full])
def test_renewal_goes_on_after_the_store_could_not_be_written(
    tmp_path: Path,
    unwritable: Callable[[SessionDB], AbstractContextManager[None]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with SessionDB(tmp_path / "state.db", busy_timeout_s=0.05) as store:
        store.create_session("s", "cli")
        renewer = LeaseRenewer(interval_s=SOON_S, retry_interval_s=SOON_S)
        held = lease.acquire(store, "s")
        renewer.add(store, held, lambda: None)
        with unwritable(store):
            eventually(lambda: "could not renew" in caplog.text, "a failed renewal")
        before = expiry(store)
        eventually(lambda: expiry(store) > before, "a renewal")
        renewer.remove(held)


def test_whoever_loses_a_lease_is_told_once_and_the_others_are_renewed(store: SessionDB) -> None:
    for session_id in ("a", "b"):
        store.create_session(session_id, "cli")
    renewer = LeaseRenewer(interval_s=SOON_S, retry_interval_s=SOON_S)
    lost, other = lease.acquire(store, "a"), lease.acquire(store, "b")
    losses, is_lost = list[str](), threading.Event()

    def lose() -> None:
        losses.append("a")
        is_lost.set()
        raise RuntimeError("a stop that fails is no reason to lose the other lease")

    renewer.add(store, lost, lose)
    renewer.add(store, other, lambda: losses.append("b"))
    store.write(leases.take_over, "a", lost.holder, "somebody:1:1:1")
    assert is_lost.wait(TIMEOUT_S)
    at = "SELECT expires_at FROM leases WHERE conversation_id = 'b'"
    before = store.read(lambda c: c.value(at))
    eventually(lambda: store.read(lambda c: c.value(at)) > before, "a renewal")
    renewer.remove(other)
    assert losses == ["a"]


def test_renewal_begins_with_the_next_lease_when_no_thread_could_start(
    store: SessionDB, caplog: pytest.LogCaptureFixture
) -> None:
    for session_id in ("a", "b"):
        store.create_session(session_id, "cli")
    renewer = LeaseRenewer(interval_s=SOON_S, retry_interval_s=SOON_S)
    first, second = lease.acquire(store, "a"), lease.acquire(store, "b")
    with no_threads("leases"):
        renewer.add(store, first, lambda: None)
    assert "Leases are not renewed" in caplog.text
    renewer.add(store, second, lambda: None)
    sql = "SELECT min(expires_at) FROM leases"
    before = store.read(lambda c: c.value(sql))
    eventually(lambda: store.read(lambda c: c.value(sql)) > before, "a renewal of both")
    renewer.remove(first)
    renewer.remove(second)
