"""`hermes update` between two really built versions, in real environments, with a real gateway."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_core.version import VERSION
from tests.cli import update_world
from tests.cli.update_world import NEW, World, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

GATEWAY = '[gateway.platforms.api_server]\nport = 0\ntoken = "a-token-for-the-test-0123456789"\n'


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return update_world.build(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module")
def environment(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return update_world.template(tmp_path_factory.mktemp("template") / "env", wheels["old"])


@pytest.fixture
def world(environment: Path, tmp_path: Path) -> World:
    return World(tmp_path, environment)


@pytest.fixture
def gateway(world: World) -> Iterator[int]:
    """The process id of a gateway that runs."""
    with world.home.config.open("a", encoding="utf-8") as file:
        file.write(GATEWAY)
    status, output = world.run("gateway", "start")
    assert status == 0, output
    yield world.json("gateway", "status")["pid"]
    world.run("gateway", "stop")


def test_a_new_version_takes_the_place_of_the_old_and_the_gateway_runs_on(
    world: World, gateway: int, wheels: dict[str, Path]
) -> None:
    (world.prefix / "uv-receipt.toml").write_text(
        '[tool]\nrequirements = [{ name = "hermes-durable", path = "/old.whl" }]\n'
    )
    status, plan = world.run("update", "--dry-run", "--from", str(wheels["good"]))
    assert status == 0
    assert f"Hermes {VERSION} becomes {NEW}" in plan
    assert f"stop the gateway (process {gateway})" in plan
    world.work = world.folder / ".hermes.hermes-update"
    status, output = world.update(wheels["good"])
    assert status == 0, output
    assert f"Hermes is version {NEW} now." in output
    assert world.version() == NEW
    assert world.is_whole()
    after = world.json("gateway", "status")
    assert after["state"] == "running"
    assert after["pid"] != gateway
    assert str(wheels["good"]) in (world.prefix / "uv-receipt.toml").read_text()
    (archive,) = world.folder.glob("real.before-*.tar.gz")
    assert archive.stat().st_mode & 0o777 == 0o600
    assert world.run("restore", "--check", str(archive))[0] == 0
    assert world.run("update", "--from", str(wheels["good"]))[1].startswith("Hermes is up to date")


@pytest.mark.parametrize(
    ("variant", "reason"),
    [("import", "a broken build"), ("migration", "oops"), ("doctor", "new check: it fails")],
)
def test_a_version_that_does_not_work_on_a_copy_of_the_home_changes_nothing(
    world: World, wheels: dict[str, Path], variant: str, reason: str
) -> None:
    before = world.home.database.read_bytes()
    status, output = world.update(wheels[variant])
    assert status == 1, output
    assert reason in output
    assert f"Version {VERSION} stays" in output
    assert world.version() == VERSION
    assert world.home.database.read_bytes() == before
    assert not list(world.folder.glob("real.before-*"))
    assert world.is_whole()


def test_a_version_that_fails_with_the_real_home_is_taken_back_with_the_store(
    world: World, gateway: int, wheels: dict[str, Path]
) -> None:
    status, output = world.update(wheels["real home"])
    assert status == 1, output
    assert f"version {VERSION} stays: hermes doctor reports new check: it fails" in output
    assert world.version() == VERSION
    assert world.is_whole()
    assert world.json("gateway", "status")["state"] == "running"


def test_a_version_whose_gateway_does_not_start_is_taken_back(
    world: World, gateway: int, wheels: dict[str, Path]
) -> None:
    status, output = world.update(wheels["gateway"])
    assert status == 1, output
    assert "a broken gateway" in output
    assert world.version() == VERSION
    assert world.is_whole()
    assert world.json("gateway", "status")["state"] == "running"


def test_a_gateway_that_a_killed_update_had_stopped_is_started_again(
    world: World, gateway: int, wheels: dict[str, Path]
) -> None:
    child = world.start("update", "--yes", "--from", str(wheels["good"]))
    assert child.stdout is not None
    assert any("Switching to" in line for line in child.stdout)
    child.kill()
    child.communicate()
    version = world.version()
    assert version in (VERSION, NEW)
    status, output = world.update(wheels["good"])
    assert status == 0, output
    assert world.version() == version
    assert world.is_whole()
    after = world.json("gateway", "status")
    assert after["state"] == "running"
    assert after["pid"] != gateway


def _problems(world: World) -> list[str]:
    return [each["what"] for each in world.json("doctor") if each["state"] == "problem"]


def test_an_update_that_is_killed_before_the_switch_leaves_the_old_version(
    world: World, wheels: dict[str, Path]
) -> None:
    child = world.start("update", "--yes", "--from", str(wheels["good"]))
    assert child.stdout is not None
    assert any("Installing version" in line for line in child.stdout)
    child.kill()
    child.communicate()
    assert world.version() == VERSION
    wait_for(lambda: "update" in _problems(world))  # pip ends by itself
    child = world.start("update", "--yes", "--from", str(wheels["good"]))
    assert child.stdout is not None
    assert any("Trying it" in line for line in child.stdout)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert world.version() == VERSION
    assert world.is_whole()


def test_ctrl_c_during_the_switch_brings_the_old_version_back(
    world: World, wheels: dict[str, Path]
) -> None:
    child = world.start("update", "--yes", "--from", str(wheels["good"]))
    assert child.stdout is not None
    assert any("Checking it with" in line for line in child.stdout)
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    assert f"version {VERSION} stays: it was interrupted." in output
    assert world.version() == VERSION
    assert world.is_whole()


def test_an_update_is_refused_while_hermes_is_in_use(world: World, wheels: dict[str, Path]) -> None:
    with world.start("serve") as terminal:
        assert terminal.stdout is not None
        terminal.stdout.readline()
        status, output = world.update(wheels["good"])
        terminal.terminate()
        terminal.stdout.read()
    assert status == 2
    assert f"(process {terminal.pid})" in output
    assert world.version() == VERSION


def test_the_installed_program_is_uninstalled_by_its_pip(world: World) -> None:
    status, output = world.run("uninstall", "--yes")
    assert status == 0, output
    assert "Successfully uninstalled hermes-durable" in output
    assert not (world.prefix / "bin" / "hermes").exists()
    assert world.home.database.exists()
