"""The lost page cache: what was acknowledged is on the disk itself, whatever of the rest is."""

import random
from pathlib import Path

import pytest

from hermes_state import SessionDB
from tests.state import power_loss
from tests.state.power_loss import Disk, Event

pytestmark = pytest.mark.promise("P1")


def _recorded(folder: Path, **how: object) -> list[Event]:
    place = folder / "recorded"
    place.mkdir()
    return power_loss.record(place, **how)  # type: ignore[arg-type]


def test_a_cut_at_every_point_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    loss = power_loss.cut_everywhere(_recorded(tmp_path), tmp_path)
    assert loss.found.is_clean, loss.found.notes
    assert loss.cuts > 150
    assert loss.found.acknowledged > 80


@pytest.mark.parametrize(
    ("seed", "step"),
    [
        (1, 30),
        pytest.param(1, 3, marks=pytest.mark.proof),
        pytest.param(2, 3, marks=pytest.mark.proof),
    ],
)
def test_a_cut_that_keeps_random_sectors_loses_nothing(
    tmp_path: Path, seed: int, step: int
) -> None:
    loss = power_loss.cut_everywhere(_recorded(tmp_path), tmp_path, seed=seed, step=step)
    assert loss.found.is_clean, loss.found.notes
    assert loss.cuts > 1_200 / step


@pytest.mark.proof
def test_a_cut_while_threads_share_commits_loses_nothing(tmp_path: Path) -> None:
    events = _recorded(tmp_path, threads=4, openings=1)
    for seed, step in ((None, 1), (3, 7)):
        loss = power_loss.cut_everywhere(events, tmp_path, seed=seed, step=step)
        assert loss.found.is_clean, loss.found.notes


@pytest.mark.parametrize("level", ["off", "normal"])
def test_without_a_sync_before_the_acknowledgement_losses_are_found(
    tmp_path: Path, level: str
) -> None:
    def weaken(store: SessionDB) -> None:
        writer = store._database._writer
        assert writer is not None
        writer.conn.pragma("synchronous", level)

    events = _recorded(tmp_path, openings=1, prepare=weaken)
    assert power_loss.cut_everywhere(events, tmp_path, step=5).found.lost


def test_a_disk_keeps_what_was_synced_and_any_sectors_of_the_rest() -> None:
    disk = Disk("f")
    disk.see(Event("write", "f", 0, b"a" * 1024))
    disk.see(Event("create", "f-wal"))
    assert disk.after_cut() == {}
    disk.see(Event("sync", "f"))
    disk.see(Event("sync", "f-wal", 1))
    assert disk.after_cut() == {"f": b"a" * 1024, "f-wal": b""}
    disk.see(Event("write", "f", 256, b"b" * 512))
    assert disk.after_cut()["f"] == b"a" * 1024
    dice = random.Random(0)
    seen = {disk.after_cut(lambda: dice.random() < 0.5)["f"] for _ in range(50)}
    first, second = b"a" * 256 + b"b" * 256 + b"a" * 512, b"a" * 512 + b"b" * 256 + b"a" * 256
    assert seen == {b"a" * 1024, first, second, b"a" * 256 + b"b" * 512 + b"a" * 256}


def test_a_deleted_file_is_back_until_its_folder_is_synced() -> None:
    disk = Disk("f")
    disk.see(Event("create", "f-journal"))
    disk.see(Event("sync", "f-journal", 1))
    disk.see(Event("delete", "f-journal"))
    assert "f-journal" in disk.after_cut()
    disk.see(Event("create", "f-wal"))
    disk.see(Event("sync", "f-wal", 1))
    assert "f-journal" not in disk.after_cut()
