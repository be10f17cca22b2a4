"""Undo brings back exactly what was there before, and keeps every edit made since."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from hermes_agent.checkpoints import undo
from hermes_agent.checkpoints.recorder import Checkpoints
from hermes_agent.turn.stop import Stop
from hermes_agent.turn.values import Turn
from hermes_core.paths import Home
from hermes_core.settings import ToolSettings
from hermes_state import SessionDB
from hermes_state.ledger import checkpoints, leases, turns
from tests.support.examples import examples

SETTINGS = ToolSettings(sandbox="host")

PATHS = ("a", "b.txt", "d/a", "d/e/c", "f/ü \n", "g/-x")
LINK, PROGRAM = "link:", "program:"
Content = str | None
"""The text of a file; with a prefix a link or a program; None: nothing."""
Steps = list[tuple[dict[str, Content], dict[str, Content]]]

contents = st.one_of(
    st.none(), st.sampled_from(["", "1", "2\r\n", LINK + "a", LINK + "/etc", PROGRAM + "1"])
)

pytestmark = pytest.mark.promise("P15")
edits = st.dictionaries(st.sampled_from(PATHS), contents)


def put(root: Path, path: str, content: Content) -> None:
    place = root / path
    place.unlink(missing_ok=True)
    if content is None:
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if content.startswith(LINK):
        place.symlink_to(content.removeprefix(LINK))
    else:
        place.write_bytes(content.removeprefix(PROGRAM).encode())
        place.chmod(0o755 if content.startswith(PROGRAM) else 0o644)


def found(root: Path) -> dict[str, Content]:
    def at(place: Path) -> Content:
        if place.is_symlink():
            return LINK + str(place.readlink())
        if not place.exists():
            return None
        return PROGRAM * os.access(place, os.X_OK) + place.read_bytes().decode()

    return {path: at(root / path) for path in PATHS}


class Workspace:
    """A workspace, and turns that change it."""

    def __init__(self, root: Path) -> None:
        self.root = root / "work"
        self.root.mkdir()
        self.home = Home(root / "home").create()
        self.store = SessionDB.in_memory()

    def edit(self, changes: Mapping[str, Content]) -> None:
        for path, content in changes.items():
            put(self.root, path, content)

    def turn(self, changes: Mapping[str, Content], *, is_killed: bool) -> None:
        store = self.store
        if not store.get_session("s"):
            store.create_session("s", "cli")
        turn_id = store.write(turns.accept, "s", {"role": "user", "content": "go"}).turn_id
        store.write(turns.start, turn_id)
        lease = store.write(leases.acquire, "s", "test")
        assert lease is not None
        turn = Turn(turn_id, "s", "s", 0, lease, Stop(), lambda _event: None)
        taker = Checkpoints(store, self.home, self.root, SETTINGS)
        taker.begin(turn)
        self.edit(changes)
        if not is_killed:
            taker.end(turn)
        store.write(turns.finish, turn_id, "failed", reason="done")
        taker.close()

    def undo(self) -> list[undo.Plan]:
        rows = self.store.read(checkpoints.since, "s", 0)
        return undo.plans(self.store, self.home, SETTINGS, rows, apply=True)


@settings(max_examples=examples(24), deadline=None, phases=[Phase.explicit, Phase.generate])
@given(
    start=edits,
    steps=st.lists(st.tuples(edits, edits), min_size=1, max_size=3),
    is_killed=st.booleans(),
)
def test_what_was_not_edited_is_as_before_and_edits_stay(
    start: dict[str, Content], steps: Steps,
    is_killed: bool,
) -> None:  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        work = Workspace(Path(folder))
        work.edit(start)
        history: Steps = []
        for number, (by_turn, by_hand) in enumerate(steps):
            before = found(work.root)
            is_last = number == len(steps) - 1
            work.turn(by_turn, is_killed=is_killed and is_last)
            if is_killed and is_last:  # what is edited before anybody looks counts as the turn's
                work.edit(by_hand)
            history.append((before, found(work.root)))
            if not (is_killed and is_last):
                work.edit(by_hand)
        expected = {path: _expected(path, history, found(work.root)[path]) for path in PATHS}
        plans = work.undo()
        assert found(work.root) == expected
        conflicts = {item.path for plan in plans for item in plan.conflicts}
        for path in PATHS:
            is_undone = expected[path] == history[0][0][path]
            was_changed = any(before[path] != after[path] for before, after in history)
            assert is_undone or path in conflicts or not was_changed or _was_edited(path, history)
        assert work.undo() == [], "once"
        work.store.close()


def _expected(path: str, history: Steps, now: Content) -> Content:
    """Go back turn by turn, as long as each finds what it left."""
    for before, after in reversed(history):
        if before[path] == after[path]:
            continue
        if now == after[path]:
            now = before[path]
        elif now != before[path]:
            return now
    return now


def _was_edited(path: str, history: Steps) -> bool:
    """Return whether somebody edited it between turns that changed it."""
    return any(
        after[path] != later[path]
        for (_, after), (later, _) in zip(history, history[1:], strict=False)
    )
