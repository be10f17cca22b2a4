"""Each way a disk can fail gives its own error, and nothing acknowledged is lost."""

import os
import resource
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest

from hermes_core.errors import (
    StoreBusyError,
    StoreCorruptError,
    StoreError,
    StoreFilesError,
    StoreFullError,
    StoreIOError,
    StoreMemoryError,
    StorePermissionError,
    StoreReadOnlyError,
)
from hermes_state import SessionDB
from hermes_state.engines.sqlite import connection
from hermes_state.ledger import messages, sessions
from tests.support.faults import disk_full_at

NOBODY_UID = 65534


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionDB]:
    with SessionDB(tmp_path / "state.db", busy_timeout_s=0.2) as store:
        store.create_session("a", "cli")
        yield store


def texts(store: SessionDB) -> list[str]:
    return [message["content"] for message in store.read(messages.of_session, "a")]


def test_a_full_disk_says_so_and_keeps_what_was_acknowledged(store: SessionDB) -> None:
    store.append_message("a", "user", "kept")
    pages = store._execute_write(lambda c: c.pragma("page_count"))
    store._execute_write(lambda c: c.pragma("max_page_count", pages + 5))
    acknowledged = ["kept"]
    with pytest.raises(StoreFullError, match="Free some space"):
        for number in range(1000):
            store.append_message("a", "user", f"{number} " + "x" * 500)
            acknowledged.append(f"{number} " + "x" * 500)
    assert texts(store) == acknowledged
    store._execute_write(lambda c: c.pragma("max_page_count", 1_000_000))
    store.append_message("a", "user", "there is room again")
    assert texts(store) == [*acknowledged, "there is room again"]
    assert store.check() == []


def test_a_write_too_large_for_the_disk_fails_alone(store: SessionDB) -> None:
    """Sixteen writers share commits; the one whose message does not fit is the one that fails."""
    pages = store._execute_write(lambda c: c.pragma("page_count"))
    store._execute_write(lambda c: c.pragma("max_page_count", pages + 60))
    barrier = threading.Barrier(16)
    outcomes: dict[int, str] = {}

    def write(number: int) -> None:
        barrier.wait(30)
        try:
            store.append_message(
                "a", "user", "huge " * 200_000 if number == 7 else f"small {number}"
            )
            outcomes[number] = "stored"
        except StoreFullError:
            outcomes[number] = "full"

    threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert outcomes == {n: "full" if n == 7 else "stored" for n in range(16)}
    assert sorted(texts(store)) == sorted(f"small {n}" for n in range(16) if n != 7)


class FailingFile(apsw.VFSFile):
    """A file whose writes or syncs fail once the fault is armed."""

    fault: str | None = None

    def xWrite(self, data: bytes, offset: int) -> None:
        if FailingFile.fault == "full":
            raise apsw.FullError("no space")
        if FailingFile.fault == "write":
            raise apsw.IOError("write failed")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        if FailingFile.fault == "sync":
            raise apsw.IOError("sync failed")
        super().xSync(flags)


class FailingDisk(apsw.VFS):
    def __init__(self, name: str) -> None:
        super().__init__(name, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return FailingFile("", name, flags)


@pytest.fixture
def disk() -> Iterator[str]:
    name = "failing-disk"
    shim = FailingDisk(name)
    yield name
    FailingFile.fault = None
    shim.unregister()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("fault", "error"), [("full", StoreFullError), ("write", StoreIOError), ("sync", StoreIOError)]
)
def test_a_disk_that_fails_in_the_middle_of_a_write_loses_nothing_acknowledged(
    tmp_path: Path, disk: str, fault: str, error: type[StoreError]
) -> None:
    store = SessionDB(tmp_path / "state.db", vfs=disk)
    store.create_session("a", "cli")
    store.append_message("a", "user", "acknowledged")
    FailingFile.fault = fault
    with pytest.raises(error):
        store.append_message("a", "user", "never acknowledged")
    FailingFile.fault = None
    store.append_message("a", "user", "after the fault")
    assert texts(store) == ["acknowledged", "after the fault"]
    store.close()
    with SessionDB(tmp_path / "state.db") as again:
        assert texts(again) == ["acknowledged", "after the fault"]
        assert again.check() == []


def test_a_lock_held_beyond_the_timeout_says_so_and_nothing_is_written(store: SessionDB) -> None:
    other = apsw.Connection(str(store.path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusyError, match="locked by another process"):
        store.append_message("a", "user", "waited in vain")
    assert texts(store) == []
    other.execute("ROLLBACK")
    other.close()
    store.append_message("a", "user", "free again")
    assert texts(store) == ["free again"]


def test_a_damaged_page_says_what_repair_will_do(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with SessionDB(path) as store:
        store.create_session("a", "cli")
        for number in range(200):
            store.append_message("a", "user", f"{number} " + "x" * 500)
    damage(path)
    with SessionDB(path) as store, pytest.raises(StoreCorruptError, match="doctor --fix"):
        store.read(messages.of_session, "a")


def damage(path: Path) -> None:
    """Overwrite a page that holds messages."""
    data = bytearray(path.read_bytes())
    at = data.index(b"100 xxxx") // 4096 * 4096
    data[at : at + 4096] = b"\xa5" * 4096
    path.write_bytes(data)


def as_somebody_else(work: Callable[[], None]) -> type[BaseException] | None:
    """Run `work` as a user without rights in a child process; returns what it raised."""
    kinds = (StoreReadOnlyError, StorePermissionError, StoreError)
    child = os.fork()
    if child == 0:
        status = 0
        try:
            if os.getuid() == 0:
                os.setgid(NOBODY_UID)
                os.setuid(NOBODY_UID)
            work()
        except BaseException as error:  # noqa: BLE001 -- told to the parent as an exit status
            status = next((n for n, kind in enumerate(kinds, 1) if isinstance(error, kind)), 99)
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status != 99
    return None if status == 0 else kinds[status - 1]


@pytest.fixture
def reachable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that other users may enter, with a store in it."""
    folder = Path("/tmp") / f"hermes-test-{os.getpid()}-{threading.get_ident()}"
    folder.mkdir(mode=0o755)
    with SessionDB(folder / "state.db") as store:
        store.create_session("a", "cli")
        store.append_message("a", "user", "hello")
    yield folder
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def test_a_store_that_may_not_be_opened_says_so(reachable: Path) -> None:
    (reachable / "state.db").chmod(0)
    assert (
        as_somebody_else(lambda: SessionDB(reachable / "state.db").close()) is StorePermissionError
    )


def test_a_store_that_may_only_be_read_is_refused_for_writing_and_opens_for_reading(
    reachable: Path,
) -> None:
    path = reachable / "state.db"
    path.chmod(0o444)
    (reachable / "state-search.db").unlink(missing_ok=True)
    reachable.chmod(0o555)

    def write() -> None:
        with SessionDB(path) as store:
            store.append_message("a", "user", "no")

    def read() -> None:
        with SessionDB(path, read_only=True) as store:
            assert store.read(messages.of_session, "a")[0]["content"] == "hello"

    outcome, reading = as_somebody_else(write), as_somebody_else(read)
    reachable.chmod(0o755)
    assert outcome in (StoreReadOnlyError, StorePermissionError)
    assert reading is None


@pytest.fixture
def owned(reachable: Path) -> Path:
    """The same, with a search index, and belonging to the one who has no rights elsewhere."""
    with SessionDB(reachable / "state.db") as store:
        assert store.search_messages("hello")
    if os.getuid() == 0:
        for path in (reachable, *reachable.iterdir()):
            os.chown(path, NOBODY_UID, NOBODY_UID)
    return reachable


def say_and_search(path: Path) -> None:
    with SessionDB(path) as store:
        store.append_message("a", "user", "hello again")
        assert len(store.search_messages("hello")) == 2


@pytest.mark.parametrize("hindrance", ["folder of its name", "file", "log beside it"])
def test_search_answers_where_the_index_cannot_be_written(owned: Path, hindrance: str) -> None:
    index = owned / "state-search.db"

    def search() -> None:
        match hindrance:
            case "folder of its name":
                index.unlink()
                index.mkdir()
            case "file":
                index.chmod(0o400)
            case _:
                for suffix in ("-wal", "-shm"):
                    (owned / f"state-search.db{suffix}").touch(0o400)
        say_and_search(owned / "state.db")

    outcome = as_somebody_else(search)
    if index.is_dir():
        index.rmdir()
    assert outcome is None


def test_search_answers_where_nothing_new_can_be_made_beside_an_open_store(owned: Path) -> None:
    def search() -> None:
        for path in owned.glob("state-search.db*"):
            path.unlink()
        with SessionDB(owned / "state.db") as store:
            store.read(messages.count)
            owned.chmod(0o500)
            try:
                assert store.search_messages("hello")
            finally:
                owned.chmod(0o755)

    assert as_somebody_else(search) is None


def test_a_store_that_was_once_read_only_is_written_again(owned: Path) -> None:
    path = owned / "state.db"

    def change_modes() -> None:
        path.chmod(0o400)
        with SessionDB(path) as store, pytest.raises(StoreReadOnlyError):
            store.append_message("a", "user", "no")
        with SessionDB(path, read_only=True) as store:
            assert store.read(messages.of_session, "a")
        path.chmod(0o600)
        say_and_search(path)

    assert as_somebody_else(change_modes) is None


def test_a_disk_without_room_for_shared_memory_is_full_and_not_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = apsw.IOError("disk I/O error")
    assert isinstance(connection.translate(failure, tmp_path / "state.db"), StoreIOError)
    rest = SimpleNamespace(f_bavail=3, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _path: rest)
    assert isinstance(connection.translate(failure, tmp_path / "state.db"), StoreFullError)


def test_a_process_without_free_descriptors_does_not_speak_of_permissions(tmp_path: Path) -> None:
    with SessionDB(tmp_path / "state.db") as store:
        store.create_session("s", "cli")
        with few_files(0), pytest.raises(StoreFilesError, match="too many files open"):
            read_in_parallel(store, 4)
        assert store.get_session("s")


def test_a_function_without_memory_fails_as_temporary(store: SessionDB) -> None:
    def greedy(_conn: object) -> None:
        raise MemoryError

    for ask in (store.read, store.write):
        with pytest.raises(StoreMemoryError, match="Nothing was written"):
            ask(greedy)


@contextmanager
def few_files(free: int) -> Generator[None]:
    """Leave this process so few file descriptors."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def read_in_parallel(store: SessionDB, readers: int) -> None:
    """Read inside a read, which needs a connection each."""
    if readers:
        store.read(lambda _conn: read_in_parallel(store, readers - 1))


def test_instructions_and_the_prompt_that_was_built_with_others_change_together(
    tmp_path: Path,
) -> None:
    with SessionDB(tmp_path / "state.db") as store:
        store.create_session("s", "cli", system_prompt="Be kind.")
        with (
            disk_full_at(store, "UPDATE OF system_prompt ON sessions"),
            pytest.raises(StoreFullError),
        ):
            store.write(sessions.instruct, "s", "in verse")
        row = store.get_session("s")
        assert row is not None
        assert (sessions.instructions_of(row), row["system_prompt"]) == ("", "Be kind.")
        store.write(sessions.instruct, "s", "in verse")
        row = store.get_session("s")
        assert row is not None
        assert (sessions.instructions_of(row), row["system_prompt"]) == ("in verse", None)
