"""The log of a gateway: its whole life, one record an event, and nothing of what people say."""

import json
import subprocess
import sys
import threading
from typing import Any

from hermes_agent.testing.scripted import Quiet, silence
from hermes_core.paths import Home
from tests.gateway.harness import TIMEOUT_S, Process, World
from tests.support.faults import eventually


def _records(home: Home) -> list[dict[str, Any]]:
    path = home.logs / "hermes.log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _about(home: Home, message: str) -> list[dict[str, Any]]:
    return [record for record in _records(home) if record["message"] == message]


def _logs(world: World, *arguments: str) -> str:
    command = [sys.executable, "-m", "hermes_cli.main", "gateway", "logs", *arguments]
    environment = {"PATH": "/usr/bin:/bin", "HERMES_HOME": str(world.home.root)}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True, env=environment
    ).stdout


def test_the_life_of_a_gateway_is_in_its_log_without_what_was_said(world: World) -> None:
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.say("a", "the private word is marzipan")
        world.wait_for_text("a", "You said: the private")
        world.platform.say("a", "/title nougat")
        world.platform.say("a", "/caramel")
        world.wait_for_replies("a", 3)
        assert gateway.terminate() == 0
        output = gateway.output.decode()
    home = world.home
    (start,) = _about(home, "gateway starts")
    assert (start["platforms"], start["level"]) == ("loopback", "INFO")
    assert start["version"]
    assert _about(home, "recovered")[0]["turns"] == 0
    assert _about(home, "platform connected")[0]["platform"] == "loopback"
    assert _about(home, "gateway started")[0]["connected"] == "loopback"
    records = _about(home, "message accepted")
    assert [record["outcome"] for record in records] == ["turn", "command", "command"]
    (turn,) = _about(home, "turn answered")
    assert {turn[name] for name in ("platform", "chat")} == {"loopback", "a"}
    assert (turn["turn_id"], turn["session_id"]) == (
        records[0]["turn_id"],
        records[0]["session_id"],
    )
    assert turn["seconds"] > 0
    assert _about(home, "command done")[0]["command"] == "title"
    assert _about(home, "command refused")[0]["command"] == "(unknown)"
    assert _about(home, "gateway drains")[0]["reason"] == "SIGTERM"
    assert _records(home)[-1]["message"] == "gateway stopped"
    written = (home.logs / "hermes.log").read_text()
    for text in (written, output):
        assert "gateway stopped" in text
        for secret in ("marzipan", "nougat", "caramel", "scripted-key"):
            assert secret not in text
    log_text = _logs(world, "-n", "1000")
    assert " INFO gateway.log_fields: turn answered (platform=loopback chat=a turn_id=" in log_text
    assert _logs(world, "--json", "-n", "2").splitlines() == written.splitlines()[-2:]


def test_turns_that_fail_are_recovered_and_lost_platforms_are_in_the_log(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet))
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.say("a", "hello")
        assert quiet.started.wait(TIMEOUT_S)
        gateway.kill()
    world.model.close()  # nobody answers any more
    with Process(world) as gateway:
        gateway.wait_until_up()
        assert world.wait_for_replies("a", 1)[0].startswith("⚠️")
        eventually(lambda: bool(_about(world.home, "turn failed")))
        world.platform.cut()
        eventually(lambda: len(_about(world.home, "platform connected")) == 3)
    (failed,) = _about(world.home, "turn failed")
    assert (failed["level"], failed["outcome"], failed["chat"]) == ("WARNING", "failed", "a")
    assert failed["reason"]
    assert [record["turns"] for record in _about(world.home, "recovered")] == [0, 1]
    (lost,) = _about(world.home, "platform lost")
    assert (lost["platform"], lost["level"]) == ("loopback", "WARNING")
    assert "connection to the loopback server ended" in lost["reason"]
    assert _about(world.home, "Retrying platform")[0]["seconds"] > 0
    assert _about(world.home, "platform connected")[-1]["is_reconnect"] is True


def test_the_log_is_followed_also_when_it_makes_room(world: World) -> None:
    path = world.home.logs / "hermes.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name("hermes.log.1").write_text("very old\n")
    path.write_text("old\n")
    command = [sys.executable, "-m", "hermes_cli.main", "gateway", "logs", "-f", "-n", "2"]
    environment = {"PATH": "/usr/bin:/bin", "HERMES_HOME": str(world.home.root)}
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    give_up = threading.Timer(TIMEOUT_S, follower.kill)
    give_up.start()
    with follower:
        assert follower.stdout is not None
        lines = [follower.stdout.readline() for _ in range(2)]
        with path.open("a") as file:
            file.write("the last of the old\n")
        path.replace(path.with_name("hermes.log.1"))
        path.write_text("new\n")
        lines += [follower.stdout.readline() for _ in range(2)]
        follower.kill()
    give_up.cancel()
    assert lines == ["very old\n", "old\n", "the last of the old\n", "new\n"]


def test_a_gateway_without_a_log_says_where_it_will_be(world: World) -> None:
    assert "No log yet" in _logs(world)
