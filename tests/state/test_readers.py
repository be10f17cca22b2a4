"""A read that is cut short harms no later one; a store that was taken along into a fork is refused."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import apsw
import pytest

from hermes_core.errors import SessionNotFoundError, StoreError
from hermes_state import SessionDB
from hermes_state.ledger import messages

TIMEOUT_S = 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionDB]:
    with SessionDB(tmp_path / "state.db") as store:
        store.create_session("a", "cli")
        store.append_message("a", "user", "one")
        yield store


@pytest.mark.parametrize("moment", ["BEGIN", "SELECT", "ROLLBACK"])
def test_ctrl_c_at_any_moment_of_a_read_leaves_later_reads_whole(
    store: SessionDB, moment: str
) -> None:
    pressed: list[str] = []

    def press(sql: str, _nanoseconds: int) -> None:
        if sql.startswith(moment) and not pressed:
            pressed.append(sql)
            signal.raise_signal(signal.SIGINT)

    store.get_session("a")
    store._database.run_on_reader(lambda conn: conn.set_profile(press))
    with pytest.raises(KeyboardInterrupt):
        store.read(messages.count, "a")
    assert pressed
    store.append_message("a", "user", "two")
    session = store.get_session("a")
    assert session is not None and session["message_count"] == 2
    assert (
        len(store.read(messages.of_session, "a"))
        == len(store.get_messages_as_conversation("a"))
        == 2
    )


def test_a_closed_store_answers_nothing_and_holds_no_file(store: SessionDB) -> None:
    assert store.search_messages("one")
    borrowed, closed = threading.Event(), threading.Event()

    def slow(conn: apsw.Connection) -> int:
        borrowed.set()
        closed.wait(TIMEOUT_S)
        return conn.execute("SELECT count(*) FROM messages").get

    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(store._database.run_on_reader, slow)
        borrowed.wait(TIMEOUT_S)
        store.close()
        closed.set()
        assert under_way.result() == 1
    for ask in (store.get_session, store.search_messages, partial(store.read, messages.count)):
        with pytest.raises(StoreError, match="closed"):
            ask("a")
    open_files = (file.resolve() for file in Path("/proc/self/fd").iterdir())
    assert not [file for file in open_files if file.is_relative_to(store.path.parent)]


def test_a_read_that_fails_half_way_keeps_nobody_on_an_old_state(store: SessionDB) -> None:
    cursors: list[apsw.Cursor] = []

    def half(conn: apsw.Connection) -> None:
        cursors.append(conn.execute("SELECT id FROM messages UNION ALL SELECT id FROM messages"))
        next(iter(cursors[0]))
        raise SessionNotFoundError("no more")

    with pytest.raises(SessionNotFoundError):
        store._database.run_on_reader(half)
    store.append_message("a", "user", "two")
    assert len(store.get_messages_as_conversation("a")) == 2


def in_a_fork(work: Callable[[], None]) -> int:
    """Run `work` in a child that has our store; returns its exit status, killed when it hangs."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    late = threading.Timer(TIMEOUT_S, os.kill, (child, signal.SIGKILL))
    late.start()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    late.cancel()
    return status


def test_after_a_fork_the_store_says_that_it_must_be_opened_again(store: SessionDB) -> None:
    store.search_messages("one")

    def use() -> None:
        for attempt in (
            lambda: store.append_message("a", "user", "of the child"),
            lambda: store.get_session("a"),
            lambda: store.read(messages.of_session, "a"),
            lambda: store.search_messages("one"),
        ):
            with pytest.raises(StoreError, match="fork"):
                attempt()
        store.close()
        with SessionDB(store.path) as own:
            own.append_message("a", "user", "of the child, opened again")

    assert in_a_fork(use) == 0
    store.append_message("a", "user", "of the parent")
    assert [message["content"] for message in store.read(messages.of_session, "a")] == [
        "one",
        "of the child, opened again",
        "of the parent",
    ]
