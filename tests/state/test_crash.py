"""The crash matrix: a few kills by default, more in the tier `proof`, most by `make crash`."""

from collections import Counter
from pathlib import Path

import pytest

from hermes_state import SessionDB
from hermes_state.ledger import routes
from hermes_state.values import Route
from tests.state import kills, workload
from tests.state.kills import Pass
from tests.state.workload import Expectation
from tests.support.findings import Row, table

SEED = 20_260

pytestmark = pytest.mark.promise("P1")


def test_a_kill_at_some_statements_loses_nothing(tmp_path: Path) -> None:
    row = kills.at_every_point(tmp_path, Pass("statement", 1), step=20)
    assert row.found.is_clean, row.found.notes
    assert row.kills > 10


@pytest.mark.proof
def test_a_kill_at_every_statement_loses_nothing(tmp_path: Path) -> None:
    row = kills.at_every_point(tmp_path, Pass("statement", 1))
    assert row.found.is_clean, row.found.notes
    for point in ("BEGIN IMMEDIATE", "COMMIT", "INSERT INTO messages", "acknowledge"):
        assert row.points[point], f"{point} was never reached"
    assert row.kills > 200


@pytest.mark.proof
def test_a_kill_inside_a_shared_commit_loses_nothing(tmp_path: Path) -> None:
    row = kills.at_every_point(tmp_path, Pass("statement", 3), step=3)
    assert row.found.is_clean, row.found.notes
    # which of the two depends on how the writers met; every third statement is a point
    assert row.points["SAVEPOINT writers_job"] + row.points["RELEASE writers_job"]


@pytest.mark.proof
def test_a_kill_at_every_change_of_a_file_loses_nothing(tmp_path: Path) -> None:
    row = kills.at_every_point(tmp_path, Pass("file", 1))
    assert row.found.is_clean, row.found.notes
    for point in ("write wal", "sync wal", "synced wal", "write database", "delete journal"):
        assert row.points[point], f"{point} was never reached"


@pytest.mark.parametrize(
    ("writers", "count"),
    [
        (1, 10),
        (2, 10),
        *(pytest.param(*run, marks=pytest.mark.proof) for run in ((1, 250), (2, 125), (4, 125))),
    ],
)
def test_kills_at_random_moments_lose_nothing(tmp_path: Path, writers: int, count: int) -> None:
    row = kills.at_random_moments(tmp_path, writers, count, SEED)
    assert row.found.is_clean, row.found.notes
    assert row.found.acknowledged > count


def test_every_step_of_the_script_can_be_told_from_the_one_before() -> None:
    views = workload.undisturbed()
    assert len(views) > 40
    assert all(before != after for before, after in zip(views, views[1:], strict=False))


class TestTheMatrixCanFail:
    """A proof that cannot fail proves nothing: each kind of damage is done by hand, and found."""

    EXPECTED = Expectation(workload.undisturbed())
    STEPS = 16

    def _store(self) -> SessionDB:
        store = SessionDB.in_memory()
        script = workload.conversation(store, "r0w0t0c0")
        for _ in range(self.STEPS):
            next(script)
        return store

    def _found(self, store: SessionDB, acknowledged: int = STEPS) -> workload.Findings:
        with store:
            return workload.verify(store, {"r0w0t0": acknowledged}, self.EXPECTED)

    def test_a_true_prefix_is_accepted(self) -> None:
        assert self._found(self._store()).is_clean
        assert self._found(self._store(), self.STEPS - 1).is_clean

    def test_a_lost_write_is_found(self) -> None:
        assert self._found(self._store(), self.STEPS + 1).lost
        store = self._store()
        store.write(lambda c: c.run("DELETE FROM messages WHERE content LIKE '%message 2'"))
        assert self._found(store).lost == 1

    def test_more_than_was_under_way_is_found(self) -> None:
        assert not self._found(self._store(), self.STEPS - 2).is_clean

    def test_a_doubled_message_is_found(self) -> None:
        store = self._store()
        store.append_message("r0w0t0c0:a", "user", "r0w0t0c0: message 2")
        assert self._found(store).doubled == 1

    def test_a_wrong_order_is_found(self) -> None:
        store = self._store()
        store.write(
            lambda c: c.run(
                "DROP TRIGGER messages_immutable;"
                "UPDATE messages SET id = id + 1000 WHERE content LIKE '%message 2'"
            )
        )
        assert self._found(store).disordered == 1

    def test_a_half_done_rotation_is_found(self) -> None:
        store = self._store()
        store.write(routes.save, Route("r0w0t0c0:key"), "r0w0t0c0:elsewhere")
        assert self._found(store).half_rotations == 1

    def test_a_wrong_state_is_found(self) -> None:
        store = self._store()
        store.write(lambda c: c.run("UPDATE turns SET attempts = 3"))
        assert self._found(store).illegal == 1

    def test_a_broken_invariant_is_found(self) -> None:
        store = self._store()
        store.write(lambda c: c.run("UPDATE sessions SET is_tip = 0"))
        assert self._found(store).integrity

    def test_the_table_shows_what_was_found(self) -> None:
        found = self._found(self._store(), self.STEPS + 1)
        text = table([Row("one", 1, found, Counter())])
        assert text.splitlines()[-1].split()[:4] == [
            "all",
            "1",
            str(self.STEPS + 1),
            str(found.lost),
        ]
