"""Kill an update at each of its changes: one version is whole, and the next run ends the update."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_cli.update_switch import READY, Files
from hermes_core.version import VERSION
from tests.cli import update_world
from tests.cli.update_world import NEW, SESSION, World, wait_for

pytestmark = [pytest.mark.proof, pytest.mark.timeout(300)]

KILLER = Path(update_world.__file__).with_name("update_killer.py")
STEPS = 12
"""Changes of an update without a gateway, counted before and after each."""


class Prepared:
    """A world whose update is ready to switch; each test begins with it anew."""

    def __init__(self, folder: Path, wheel: Path, environment: Path) -> None:
        self.wheel = wheel
        self._folder, self._copy = folder / "world", folder / "copy"
        self._folder.mkdir()
        self.world = World(self._folder, environment)
        child = self.world.start("update", "--yes", "--from", str(wheel))
        assert child.stdout is not None
        journal = Files(self.world.work).journal
        wait_for(journal.exists)
        child.kill()
        child.communicate()
        loaded = Files(self.world.work).load()
        assert loaded is not None
        assert loaded.state == READY
        shutil.copytree(self._folder, self._copy, symlinks=True)

    def fresh(self) -> World:
        shutil.rmtree(self._folder)
        shutil.copytree(self._copy, self._folder, symlinks=True)
        return self.world

    def switch(self, number: int, *options: str) -> int:
        """Switch, killed at a change; return the exit status."""
        command = [sys.executable, str(KILLER), str(self.world.work), str(number), *options]
        return subprocess.run(
            command, env=self.world.variables, capture_output=True, check=False, timeout=200
        ).returncode


def _factory(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Prepared]:
    folder = tmp_path_factory.mktemp("kills")
    wheels = update_world.build(folder)
    environment = update_world.template(folder / "template", wheels["old"])

    def prepare(variant: str) -> Prepared:
        place = folder / f"place_{len(variant)}"
        place.mkdir()
        return Prepared(place, wheels[variant], environment)

    return prepare


@pytest.fixture(scope="module")
def prepare(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Prepared]:
    return _factory(tmp_path_factory)


@pytest.fixture(scope="module")
def good(prepare: Callable[[str], Prepared]) -> Prepared:
    return prepare("good")


@pytest.fixture(scope="module")
def bad(prepare: Callable[[str], Prepared]) -> Prepared:
    return prepare("real home")


@pytest.mark.parametrize("number", range(STEPS))
def test_a_killed_switch_leaves_a_whole_version_and_is_finished_or_undone(
    good: Prepared, number: int
) -> None:
    world = good.fresh()
    assert good.switch(number) == -signal.SIGKILL
    version = world.version()
    assert version in (VERSION, NEW)
    status, output = world.update(good.wheel)
    assert status == 0, output
    assert world.version() == version
    assert world.is_whole()


def test_the_switch_has_no_more_changes_than_are_killed(good: Prepared) -> None:
    world = good.fresh()
    assert good.switch(STEPS) == 0
    assert world.version() == NEW
    assert world.is_whole()


@pytest.mark.parametrize("number", range(4, 16))
def test_a_killed_return_to_the_old_version_is_finished(bad: Prepared, number: int) -> None:
    world = bad.fresh()
    assert bad.switch(number) == -signal.SIGKILL
    world.update(bad.wheel)
    assert world.version() == VERSION
    assert world.is_whole()


def test_messages_that_the_new_version_accepted_after_a_kill_are_kept(bad: Prepared) -> None:
    world = bad.fresh()
    assert bad.switch(6) == -signal.SIGKILL  # the exchange is done
    assert world.version() == NEW
    script = (
        "import sys; from pathlib import Path; from hermes_state import SessionDB\n"
        f"SessionDB(Path(sys.argv[1])).append_message({SESSION!r}, 'user', 'Said meanwhile.')"
    )
    python = str(world.prefix / "bin" / "python")
    subprocess.run(
        [python, "-c", script, str(world.home.database)],
        env=world.variables,
        check=True,
        timeout=60,
    )
    status, output = world.update(bad.wheel)
    assert status == 1
    assert "has already accepted messages" in output
    assert world.version() == NEW
    assert "Said meanwhile." in world.run("sessions", "show", SESSION)[1]
