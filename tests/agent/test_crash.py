"""The crash matrix over whole turns: a few kills by default, most by `make crash`."""

from pathlib import Path

import pytest

from hermes_state import SessionDB
from hermes_state.ledger import lineage, turns
from tests.agent.kills import inspection, matrix, script
from tests.agent.kills.worker import turns_of

SEED = 20_261

pytestmark = pytest.mark.promise("P2", "P3", "P9")


def test_a_kill_at_some_statements_of_a_turn_loses_and_repeats_nothing(tmp_path: Path) -> None:
    row = matrix.at_every_point(tmp_path, "statement", step=40)
    assert row.found.is_clean, row.found.notes
    assert row.kills > 5


@pytest.mark.proof
def test_a_kill_at_every_statement_of_a_turn_loses_and_repeats_nothing(tmp_path: Path) -> None:
    row = matrix.at_every_point(tmp_path, "statement", step=3)
    assert row.found.is_clean, row.found.notes
    for point in ("COMMIT", "effect begins", "effect happened", "acknowledge"):
        assert row.points[point], f"{point} was never reached"
    assert row.found.unknown, "no effect was cut off"
    assert row.found.effects > row.found.turns
    assert row.kills > 100


@pytest.mark.proof
def test_a_kill_at_a_change_of_a_file_loses_and_repeats_nothing(tmp_path: Path) -> None:
    row = matrix.at_every_point(tmp_path, "file", step=16)
    assert row.found.is_clean, row.found.notes
    assert row.kills > 50


@pytest.mark.parametrize(
    ("processes", "kills"),
    [
        (1, 8),
        (2, 8),
        *(pytest.param(*run, marks=pytest.mark.proof) for run in ((1, 60), (2, 40))),
    ],
)
def test_kills_at_random_moments_lose_and_repeat_nothing(
    tmp_path: Path, processes: int, kills: int
) -> None:
    row = matrix.at_random_moments(tmp_path, processes, kills, SEED)
    assert row.found.is_clean, row.found.notes
    assert row.found.acknowledged > kills


class TestTheMatrixCanFail:
    """A proof that cannot fail proves nothing: each kind of damage is done by hand, and found."""

    @pytest.fixture
    def database(self, tmp_path: Path) -> Path:
        database = tmp_path / "state.db"
        with SessionDB(database) as store:
            agent = script.agent(store, database, "a", lambda _point: None)
            for number in range(1, matrix.TURNS + 1):
                agent.run_turn(agent.accept(script.prompt("a", number)).turn_id)
            agent.close()
        return database

    def found(self, database: Path, acknowledged: int = 2 * matrix.TURNS) -> inspection.Findings:
        return inspection.inspect(database, {"a": acknowledged})

    def test_what_was_not_disturbed_is_accepted_and_was_compacted(self, database: Path) -> None:
        assert self.found(database).is_clean, self.found(database).notes
        with SessionDB(database) as store:
            assert len(store.read(lineage.members, "a")) > 1

    def test_a_lost_message_is_found(self, database: Path) -> None:
        assert self.found(database, 2 * matrix.TURNS + 1).lost

    def test_a_repeated_effect_is_found(self, database: Path) -> None:
        with script.effects_file(database).open("a") as trace:
            trace.write("a 1 1\n")
        assert self.found(database).repeated == 1

    def test_an_effect_that_never_happened_is_found(self, database: Path) -> None:
        script.effects_file(database).unlink()
        assert self.found(database).mistold

    def test_a_turn_without_an_end_is_found(self, database: Path) -> None:
        with SessionDB(database) as store:
            tip = store.read(lineage.tip, "a")
            store.write(turns.accept, tip, {"role": "user", "content": script.prompt("a", 4)})
        assert self.found(database).unfinished == 1

    def test_a_limit_that_did_not_hold_is_found(self, database: Path) -> None:
        with SessionDB(database) as store:
            first = turns_of(store, "a")[0]
            store.write(
                lambda c: c.run(
                    "INSERT INTO reservations (turn_id, account, tokens, cost_usd, elapsed_s,"
                    " reserved_at) VALUES (?1, ?1, 1, 9.0, 0, 0)",
                    first,
                )
            )
        assert self.found(database).exceeded == 1

    def test_a_call_without_its_result_is_found(self, database: Path) -> None:
        with SessionDB(database) as store:
            store.write(lambda c: c.run("UPDATE messages SET active = 0 WHERE role = 'tool'"))
        assert self.found(database).invalid
