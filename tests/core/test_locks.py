"""Lock files: one holder at a time, known by its record, and free when its process is gone."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hermes_core.locks import LockFile, LockHeldError, is_locked, locked

HOLD = """
import sys
from pathlib import Path
from hermes_core.locks import LockFile
lock = LockFile(Path(sys.argv[1]))
lock.acquire()
lock.write(b"it is me")
print("held", flush=True)
sys.stdin.read()
"""


def test_one_process_holds_a_lock_and_its_death_frees_it(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        lock = LockFile(path)
        with pytest.raises(LockHeldError) as held:
            lock.acquire()
        assert held.value.record == b"it is me"
        assert not lock.is_held
        assert is_locked(path)
        holder.kill()
    lock.acquire()
    assert lock.is_held
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_shorter_record_replaces_a_longer_one(tmp_path: Path) -> None:
    lock = LockFile(tmp_path / "a.lock")
    lock.acquire()
    lock.write(b"a long record")
    lock.write(b"short")
    assert lock.path.read_bytes() == b"short"


def test_a_file_that_its_holder_removes_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    first = LockFile(path)
    first.acquire()
    got = threading.Event()
    second = LockFile(path)

    def wait() -> None:
        second.acquire(wait=True)
        got.set()

    thread = threading.Thread(target=wait)
    thread.start()
    first.release(remove=True)
    assert got.wait(30)
    thread.join()
    assert is_locked(path)
    second.release()
    assert not is_locked(path)


def test_a_removed_file_of_another_holder_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    lost = LockFile(path)
    lost.acquire()
    path.unlink()
    other = LockFile(path)
    other.create()
    lost.release(remove=True)
    assert is_locked(path)


def test_those_who_wait_take_turns(tmp_path: Path) -> None:
    inside, seen = 0, list[int]()

    def work() -> None:
        nonlocal inside
        for _ in range(50):
            with locked(tmp_path / "a.lock"):
                inside += 1
                seen.append(inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(seen) == {1}
