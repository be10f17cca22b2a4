"""SIGKILL in the middle of compaction: all of a rotation or none of it, and nothing lost."""

import os
import random
import selectors
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import TracebackType

import pytest

from hermes_state import SessionDB
from tests.agent.compaction import victim

KILLS = 60
PATIENCE_S = 30.0


class Nursery:
    """The process that forks victims, and what they say."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, victim.__file__, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._out = self._process.stdout.fileno()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)
        self._buffer = b""

    def __enter__(self) -> "Nursery":
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def order(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())
        self._process.stdin.flush()

    def line(self, timeout_s: float = PATIENCE_S) -> str | None:
        """The next line, or None when it does not come in time."""
        while b"\n" not in self._buffer:
            if not self._selector.select(timeout_s):
                return None
            self._buffer += os.read(self._out, 65_536)
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def until(self, word: str) -> str:
        while (line := self.line()) is not None:
            if line.startswith(word):
                return line
            assert not line.startswith("error"), line
        raise AssertionError(f"nobody said {word!r}")


@pytest.mark.timeout(300)
def test_kills_at_random_moments_leave_no_half_rotation_and_lose_nothing(tmp_path: Path) -> None:
    chance = random.Random(20_261)
    path = tmp_path / "state.db"
    acknowledged, compactions = 0, 0
    moments: Counter[str] = Counter()
    with Nursery(path) as nursery:
        for _ in range(KILLS):
            nursery.order("go")
            pid = int(nursery.until("pid").split()[1])
            nursery.until("ready")
            seen = _until_the_moment(nursery, chance)
            os.kill(pid, signal.SIGKILL)
            nursery.order("reap")
            while (line := nursery.line()) != "reaped":
                assert line is not None and not line.startswith("error"), line
                seen.append(line)
            moments[seen[-1].split()[0] if seen else "ready"] += 1
            compactions += sum(line.startswith("compacted") for line in seen)
            said = [int(line.split()[1]) for line in seen if line.startswith("said")]
            acknowledged = _checked(path, max([acknowledged, *said]))
    assert compactions > KILLS / 2
    assert moments["compacting"] >= 5, f"too few died while they compacted: {moments}"


def _until_the_moment(nursery: Nursery, chance: random.Random) -> list[str]:
    """Wait for a victim to begin its so manieth compaction, and then a random moment longer."""
    seen: list[str] = []
    for _ in range(chance.randrange(1, 4)):
        while not seen or not seen[-1].startswith("compacting"):
            line = nursery.line()
            assert line is not None and not line.startswith("error"), line
            seen.append(line)
        seen.append("")
    pause = chance.choice((0.0, chance.random() * 0.06))
    while (line := nursery.line(pause)) is not None and len(seen) < 40:
        seen.append(line)
        pause /= 2
    return [line for line in seen if line]


def _checked(path: Path, acknowledged: int) -> int:
    """What was acknowledged is there in order and once, perhaps with the one that was under way."""
    with SessionDB(path) as store:
        assert store.check() == []
        tip = store.get_compression_tip(victim.SESSION)
        whole = store.get_messages_as_conversation(tip, include_ancestors=True)
        assert len(whole) in (acknowledged, acknowledged + 1)
        assert [row["content"].split(":")[0] for row in whole] == [
            f"message {number}" for number in range(len(whole))
        ]
        lineage = store.get_compression_lineage(tip)
        for child in lineage[1:]:
            rows = store.get_messages(child)
            carried = [row for row in rows if row["kind"] != "message"]
            assert [row["kind"] for row in carried].count("summary") == 1
            assert len(carried) >= 3, "the first exchange, the summary, and what was last"
        return len(whole)
