"""SIGKILL in the middle of compaction: all of a rotation or none of it, and nothing lost."""

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from hermes_state import SessionDB
from hermes_state.ledger import lineage as lineage_ledger
from hermes_state.ledger import messages
from tests.agent.compaction import worker
from tests.support.fork_server import Worker, fork_server, listen
from tests.support.worker import Order


@pytest.mark.promise("P4")
@pytest.mark.parametrize("kills", [15, pytest.param(60, marks=pytest.mark.proof)])
def test_kills_at_random_moments_leave_no_half_rotation_and_lose_nothing(
    tmp_path: Path, kills: int
) -> None:
    chance = random.Random(20_261)
    path = tmp_path / "state.db"
    acknowledged, compactions = 0, 0
    moments: Counter[str] = Counter()
    with fork_server(worker.__name__) as workers:
        for _ in range(kills):
            alive = workers.start(Order(str(path), [], 0))
            _wait_for_the_moment(alive, chance)
            workers.kill([alive])
            assert not alive.errors
            moments[alive.point] += 1
            compactions += alive.points.count("compacted")
            acknowledged = _check(path, max(acknowledged, alive.steps.get(0, 0)))
    assert compactions > kills / 2
    assert moments["compacting"] >= kills / 12, f"too few died while they compacted: {moments}"


def _wait_for_the_moment(alive: Worker, chance: random.Random) -> None:
    """Wait until a worker begins one of its first compactions, and then a random moment longer."""
    number = chance.randrange(1, 4)
    assert listen([alive], lambda: alive.points.count("compacting") >= number), alive.errors
    pause_s = chance.choice((0.0, chance.random() * 0.06))
    listen([alive], lambda: False, time.monotonic() + pause_s)


def _check(path: Path, acknowledged: int) -> int:
    """What was acknowledged is there in order and once, perhaps with the one that was under way."""
    with SessionDB(path) as store:
        assert store.check() == []
        tip = store.read(lineage_ledger.tip, worker.SESSION)
        whole = store.get_messages_as_conversation(tip, include_ancestors=True)
        assert len(whole) in (acknowledged, acknowledged + 1)
        assert [row["content"].split(":")[0] for row in whole] == [
            f"message {number}" for number in range(len(whole))
        ]
        lineage = store.read(lineage_ledger.members, tip)
        for child in lineage[1:]:
            rows = store.read(messages.of_session, child)
            carried = [row for row in rows if row["kind"] != "message"]
            assert [row["kind"] for row in carried].count("summary") == 1
            assert len(carried) >= 3, "the first exchange, the summary, and what was last"
        return len(whole)
