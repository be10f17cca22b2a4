"""The gateway as those see it who run it: the command line, health, metrics, status files and locks."""

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Generator
from functools import partial
from pathlib import Path

import pytest

import gateway.platforms.registry as registry
import gateway.status as status
from gateway.config import PlatformConfig
from gateway.health import PortTakenError, serving
from gateway.locks import AccountLock
from gateway.platforms.base import PlatformError
from gateway.supervision import Supervisor, end
from hermes_agent.testing.scripted import Quiet, silence
from hermes_core import gc_tuning
from hermes_core.errors import ConfigError, UsageError
from tests.gateway.harness import TIMEOUT_S, Inside, Process, World
from tests.gateway.servers.ports import free_port
from tests.support.faults import eventually
from tests.support.loopback.adapter import LoopbackAdapter
from tests.support.loopback.manifest import MANIFEST, LoopbackSettings
from tests.support.plugins import enable

pytestmark = pytest.mark.e2e


def _hermes(
    world: World, *arguments: str, stdin: str = "", **environment: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "hermes_cli.main", "gateway", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(world.home.root.parent),
            "HERMES_HOME": str(world.home.root),
            "HERMES_GATEWAY_LOCK_DIR": str(world.home.root / "locks"),
        }
        | environment,
    )


# -- the command line ---------------------------------------------------------------------------------


def test_a_gateway_in_the_background_is_started_shown_restarted_and_stopped(world: World) -> None:
    started = _hermes(world, "start")
    try:
        assert started.returncode == 0, started.stderr
        pid = int(re.findall(r"process (\d+)", started.stdout)[0])
        world.platform.say("a", "hello")
        world.wait_for_replies("a", 1)
        assert f"Already running as process {pid}" in _hermes(world, "start").stdout
        output = _hermes(world, "status")
        assert output.returncode == 0
        assert f"The gateway is running, process {pid}." in output.stdout
        assert "loopback: connected" in output.stdout
        eventually(lambda: "sandbox" in _hermes(world, "status").stdout)
        document = json.loads(_hermes(world, "status", "--json").stdout)
        assert (document["pid"], document["unanswered"], document["to_send"]) == (pid, 0, 0)
        assert _hermes(world, "restart").returncode == 0
        assert json.loads(_hermes(world, "status", "--json").stdout)["pid"] != pid
        world.platform.say("a", "again")
        world.wait_for_replies("a", 2)
    finally:
        stopped = _hermes(world, "stop")
    assert stopped.stdout == "Stopped.\n"
    stopped_status = _hermes(world, "status")
    assert stopped_status.returncode == 3
    assert "The gateway is not running (last: stopped)" in stopped_status.stdout
    assert "is not running" in _hermes(world, "stop").stdout


def test_a_gateway_whose_settings_cannot_be_read_any_more_is_shown_kept_and_stopped(
    world: World,
) -> None:
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.home.config.write_text("[gateway\nbroken")
        output = _hermes(world, "status")
        assert output.returncode == 0
        assert f"The gateway is running, process {gateway.child.pid}." in output.stdout
        assert "could not start with these settings" in output.stderr
        assert (
            "config.toml" in json.loads(_hermes(world, "status", "--json").stdout)["config_error"]
        )
        for unusable in ("[gateway\nbroken", "[gateway.platforms.telegam]\n"):
            world.home.config.write_text(unusable)
            assert _hermes(world, "restart").returncode == 78
            assert _hermes(world, "run", "--replace").returncode == 78
        world.home.config.write_text("")
        assert _hermes(world, "run", "--replace").returncode == 2
        world.platform.say("a", "hello")
        world.wait_for_replies("a", 1)
        assert gateway.child.poll() is None
        assert _hermes(world, "stop").stdout == "Stopped.\n"
        assert gateway.child.wait(10) == 0


@pytest.mark.parametrize(
    ("table", "wrong"),
    [
        ('[gateway.platforms.webhook.hooks.build]\nsecret = "short"\n', "no secret of 8"),
        ('[gateway.platforms.api_server]\nport = 0\ntoken = "short"\n', "cannot be used"),
        ("[gateway.platforms.telegram]\n", "token is missing"),
    ],
)
def test_a_gateway_goes_on_when_a_platform_could_not_be_connected_after_a_restart(
    world: World, table: str, wrong: str
) -> None:
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.configure(more=table)
        for command in (["check"], ["restart"], ["run", "--replace"]):
            refused = _hermes(world, *command)
            assert refused.returncode == 78
            assert wrong in refused.stderr
        assert gateway.child.poll() is None


def test_a_start_tells_which_platform_is_not_connected_and_why(world: World) -> None:
    world.platform.stop()
    try:
        started = _hermes(world, "start")
        assert started.returncode == 4
        assert "The gateway runs as process" in started.stdout
        assert "loopback is not connected: No loopback server answers" in started.stderr
        again = _hermes(world, "start", "--json")
        assert again.returncode == 4
        assert list(json.loads(again.stdout)["not_connected"]) == ["loopback"]
        output = _hermes(world, "status")
        assert output.returncode == 4
        assert "The gateway is degraded" in output.stdout
    finally:
        _hermes(world, "stop")


@contextlib.contextmanager
def _silence(world: World) -> Generator[Process]:
    """A gateway whose platform takes a connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        text = world.home.config.read_text().replace("timeout_s = 5.0", "timeout_s = 300.0")
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        world.home.config.write_text(text.replace(world.platform.address, address))
        with Process(world) as gateway, silent.accept()[0]:
            yield gateway


def test_a_platform_that_says_nothing_is_told_as_not_connected(world: World) -> None:
    with _silence(world):
        output = _hermes(world, "status")
    assert output.returncode == 4
    assert "  loopback: connecting" in output.stdout


def test_a_gateway_that_is_to_stop_does_not_wait_until_its_platforms_answer(world: World) -> None:
    with _silence(world) as gateway:
        gateway.child.terminate()
        assert gateway.child.wait(10) == 0, "sooner than a start waits for a platform"
    assert b"gateway is running" not in gateway.output


def test_the_log_is_shown_without_secrets(world: World) -> None:
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.cut()
        world.platform.wait_until(lambda: world.platform.has_listener, timeout=TIMEOUT_S)
        assert gateway.terminate() == 0
    output = _hermes(world, "logs", "-n", "200")
    assert "loopback" in output.stdout
    assert "scripted-key" not in output.stdout


def test_a_gateway_without_platforms_says_what_to_do(world: World) -> None:
    text = world.home.config.read_text().partition("[gateway.platforms.loopback]")[0]
    world.home.config.write_text(text)
    ended = _hermes(world, "run")
    assert ended.returncode == 2
    assert "hermes gateway setup" in ended.stderr


def test_a_platform_that_is_set_up_wrongly_says_which_setting_it_is(world: World) -> None:
    world.home.config.write_text(world.home.config.read_text().replace("resend =", "resent ="))
    ended = _hermes(world, "run")
    assert ended.returncode == 78
    assert "gateway.platforms.loopback" in ended.stderr
    assert status.read_runtime_status()["gateway_state"] == "startup_failed"
    assert status.get_running_pid() is None


@pytest.mark.parametrize("setting", ["owners", "allow"])
def test_people_of_a_platform_that_does_not_exist_are_refused(world: World, setting: str) -> None:
    text = world.home.config.read_text().replace(
        "[gateway.owners]\nloopback", "[gateway.owners]\nx"
    )
    text = text.replace("[gateway.owners]\nx", f"[gateway.{setting}]\nloopbak")
    world.home.config.write_text(text)
    ended = _hermes(world, "run")
    assert ended.returncode == 78
    assert f"gateway.{setting} names 'loopbak', which is not a platform" in ended.stderr
    assert "Did you mean loopback?" in ended.stderr


def test_people_of_a_platform_that_may_be_a_plugins_are_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    text = world.home.config.read_text()
    world.home.config.write_text(
        text.replace("[gateway.owners]", '[gateway.owners]\npigeon = ["1"]')
    )
    with Inside(world):
        assert "gateway.owners names 'pigeon', an unknown platform" in caplog.text


@pytest.mark.parametrize("is_configured", [False, True])
@pytest.mark.parametrize(
    "factory",
    [
        "lambda: 1 / 0",
        "lambda: None",
        "lambda: built_in()['webhook']",
        "sys.exit",
        "lambda: pigeon(variables=None)",
        "lambda: pigeon(variables={1: 'address'})",
        "lambda: pigeon(settings=int)",
        "lambda: pigeon(settings=msgspec.defstruct('Odd', [('both', list[int] | set[int])]))",
        "lambda: pigeon(identity='me')",
    ],
)
def test_a_platform_that_its_plugin_cannot_give_is_left_out_and_told(
    world: World, caplog: pytest.LogCaptureFixture, factory: str, is_configured: bool
) -> None:
    code = f"""
import sys
from dataclasses import replace
import msgspec
from gateway.platforms.webhook.manifest import MANIFEST
def pigeon(**fields): return replace(MANIFEST, name="pigeon", **fields)
def register(ctx): ctx.platform("pigeon", {factory})
"""
    enable(world.home, "birds", code)
    if is_configured:
        config = world.home.config
        config.write_text(config.read_text() + "\n[gateway.platforms.pigeon]\n")
    with Inside(world):
        world.platform.say("a", "hello")
        assert "You said: hello" in world.wait_for_replies("a", 1)[0]
    assert "The plugin birds fails to create its platform pigeon." in caplog.text
    with pytest.raises(ConfigError, match="The plugin birds fails to create its platform pigeon"):
        registry.find("pigeon")


@pytest.mark.parametrize("identity", ["lambda _: 1 / 0", "lambda _: sys.exit(3)", "lambda _: 5"])
def test_a_platform_whose_plugin_cannot_name_the_account_is_left_out_and_told(
    world: World, identity: str
) -> None:
    code = f"""
import sys
from dataclasses import replace
import msgspec
from gateway.platforms.webhook.manifest import MANIFEST
class Settings(msgspec.Struct): pass
def pigeon():
    return replace(
        MANIFEST,
        name="pigeon", title="Pigeon", settings=Settings, variables={{}}, identity={identity},
    )
def register(ctx): ctx.platform("pigeon", pigeon)
"""
    enable(world.home, "birds", code)
    config = world.home.config
    config.write_text(config.read_text() + "\n[gateway.platforms.pigeon]\n")
    with Inside(world):
        world.platform.say("a", "hello")
        assert "You said: hello" in world.wait_for_replies("a", 1)[0]
        assert "account" in status.not_connected()["pigeon"]


def test_a_platform_of_a_plugin_is_described_once_per_start(world: World, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    code = f"""
from pathlib import Path
from dataclasses import replace
from tests.support.loopback.manifest import MANIFEST
def pigeon():
    with Path({str(calls)!r}).open("a") as file:
        file.write("x")
    return replace(MANIFEST, name="pigeon")
def register(ctx): ctx.platform("pigeon", pigeon)
"""
    enable(world.home, "birds", code)
    with Inside(world):
        world.platform.say("a", "hello")
        assert "You said: hello" in world.wait_for_replies("a", 1)[0]
    assert calls.read_text() == "x"


def test_a_tool_of_a_role_that_does_not_exist_is_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    tools = (
        '[tools]\ndisabled = ["todo"]\n[roles]\nguest_tools = ["clarify", "todo", "nosuchtool"]\n'
    )
    world.home.config.write_text(world.home.config.read_text() + tools)
    with Inside(world):
        messages = [
            record.getMessage()
            for record in caplog.records
            if "unknown tool" in record.getMessage()
        ]
    assert len(messages) == 1
    assert messages[0].startswith("roles.guest_tools has 'nosuchtool', an unknown tool")


def test_what_a_platform_lacks_is_named_with_the_variable_it_may_come_from(world: World) -> None:
    with pytest.raises(ConfigError, match=r"Set password \(or EMAIL_PASSWORD in the environment\)"):
        registry.settings_of(
            registry.find("email"), {"address": "a@b.test", "imap_host": "mail.b.test"}
        )


def test_the_service_is_shown_and_not_installed(world: World) -> None:
    output = _hermes(world, "install", "--print")
    assert output.returncode == 0
    assert f"ExecStart={sys.executable} -m hermes_cli.main gateway run" in output.stdout
    assert f"Environment=HERMES_HOME={world.home.root}" in output.stdout
    assert "RestartForceExitStatus=75" in output.stdout
    assert not (world.home.root.parent / ".config").exists()


class _Systemd:
    """A systemctl that notes what it is told, and fails at the verbs it is given.

    It starts what the unit says, but like systemd not while the process before it is still ending.
    """

    def __init__(self, world: World, *fails_at: str) -> None:
        self._world = world
        self._folder = world.home.root.parent / "bin"
        self._folder.mkdir()
        self._log = self._folder / "told"
        self.state = self._folder / "state"
        self.state.write_text("dead\n")
        failing = "|".join(fails_at) or "none"
        program = self._folder / "systemctl"
        program.write_text(
            f'#!/bin/sh\necho "$@" >> {self._log}\n'
            f'case "$2" in {failing}) echo "Failed to connect to bus" >&2; exit 1;; esac\n'
            f'if [ "$2" = start ] && [ "$(cat {self.state})" != running ]; then\n'
            f'  command=$(sed -n s/^ExecStart=//p "{self.unit}"); echo running > {self.state}\n'
            f'  ended="&& echo dead > {self.state} || echo auto-restart > {self.state}"\n'
            '  INVOCATION_ID=$$ setsid sh -c "$command $ended" > /dev/null 2>&1 &\n'
            "fi\n"
            f'if [ "$2" = show ]; then cat {self.state}; fi\n'
        )
        program.chmod(0o755)

    def do(self, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
        return _hermes(self._world, *arguments, PATH=f"{self._folder}:/usr/bin:/bin", **environment)

    @property
    def unit(self) -> Path:
        folder = self._world.home.root.parent / ".config" / "systemd" / "user"
        return folder / "hermes-gateway.service"

    @property
    def calls(self) -> list[str]:
        """What it was told to do."""
        return [line for line in self._log.read_text().splitlines() if " show " not in line]


_START = [
    "--user reset-failed hermes-gateway.service",
    "--user start hermes-gateway.service",
]


def test_the_service_is_installed_and_taken_away(world: World) -> None:
    systemd = _Systemd(world)
    try:
        installed = systemd.do("install")
        assert installed.returncode == 0
        assert f"The gateway runs as process {status.get_running_pid()}." in installed.stdout
    finally:
        systemd.do("stop")
    assert "gateway run" in systemd.unit.read_text()
    assert systemd.do("uninstall").returncode == 0
    assert not systemd.unit.exists()
    assert systemd.calls == [
        "--user daemon-reload",
        "--user enable hermes-gateway.service",
        *_START,
        "--user disable --now hermes-gateway.service",
        "--user daemon-reload",
    ]


def test_a_gateway_that_runs_goes_on_when_it_becomes_a_service_and_a_restart_makes_it_one(
    world: World,
) -> None:
    systemd = _Systemd(world)
    with Process(world) as gateway:
        gateway.wait_until_up()
        installed = systemd.do("install")
        assert installed.returncode == 0
        assert f"already running as process {gateway.child.pid}" in installed.stdout
        assert not set(_START) & set(systemd.calls)
        try:
            assert systemd.do("restart").returncode == 0
            assert gateway.child.wait(TIMEOUT_S) == 0
            assert systemd.calls[-2:] == _START
        finally:
            systemd.do("stop")


def test_a_gateway_that_is_a_service_is_started_and_restarted_as_one(world: World) -> None:
    systemd = _Systemd(world)
    try:
        assert systemd.do("install").returncode == 0
        first = status.get_running_pid()
        assert systemd.do("restart").returncode == 0
        assert status.get_running_pid() not in (None, first)
        assert "Stopped." in systemd.do("stop").stdout
        assert "runs as process" in systemd.do("start").stdout
    finally:
        systemd.do("stop")
    assert systemd.calls[2:] == _START * 3


def test_a_service_that_ends_at_once_is_told_with_the_reason_and_not_started_again_after_a_stop(
    world: World,
) -> None:
    systemd = _Systemd(world)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        world.configure(more=f"health_port = {listener.getsockname()[1]}\n")
        failed = systemd.do("install")
        assert failed.returncode == 2
        assert "The gateway failed to start: Port" in failed.stderr
        again = systemd.do("start")
        assert again.returncode == 2
        assert "The gateway failed to start: Port" in again.stderr
    assert systemd.do("stop").stdout == "Stopped.\n"
    assert systemd.calls[-1] == "--user stop hermes-gateway.service"
    systemd.state.write_text("failed\n")
    assert "is not running" in systemd.do("stop").stdout


def test_what_could_not_start_is_not_installed(world: World) -> None:
    systemd = _Systemd(world)
    world.home.config.write_text("")
    refused = systemd.do("install")
    assert refused.returncode == 78
    assert "No platform is configured" in refused.stderr
    assert not systemd.unit.exists()


def test_the_service_of_another_home_is_left_alone(world: World) -> None:
    systemd = _Systemd(world, "start")
    assert systemd.do("install").returncode == 2
    unit = systemd.unit.read_text()
    systemd.unit.write_text(unit.replace(str(world.home.root), "/elsewhere"))
    try:
        assert "runs as process" in systemd.do("start").stdout
    finally:
        systemd.do("stop")


def test_a_service_that_systemd_does_not_start_is_told(world: World) -> None:
    systemd = _Systemd(world, "start")
    failed = systemd.do("install")
    assert failed.returncode == 2
    assert "start hermes-gateway.service failed: Failed to connect to bus" in failed.stderr
    assert status.get_running_pid() is None


def test_where_systemd_does_not_listen_nothing_is_left_behind(world: World) -> None:
    systemd = _Systemd(world, "daemon-reload", "disable")
    failed = systemd.do("install")
    assert failed.returncode == 2
    assert "Failed to connect to bus" in failed.stderr
    assert not systemd.unit.exists()
    systemd.unit.write_text("from another day")
    assert systemd.do("install").returncode == 2
    assert systemd.unit.read_text() == "from another day"
    result = systemd.do("uninstall")
    assert (result.returncode, systemd.unit.exists()) == (0, False)
    assert "running gateway was not stopped" in result.stderr


def test_the_service_finds_a_home_whatever_its_name_has(world: World) -> None:
    home = world.home.root.parent / 'a b %h "c" \\d'
    stdout = _hermes(world, "install", "--print", HERMES_HOME=str(home)).stdout
    (line,) = [
        text_line for text_line in stdout.splitlines() if text_line.startswith("Environment=")
    ]
    (read,) = shlex.split(line.removeprefix("Environment="))
    assert read.replace("%%", "%") == f"HERMES_HOME={home}"
    assert f"EnvironmentFile=-{home}/gateway.env".replace("%h", "%%h") in stdout


def test_an_install_names_what_only_the_terminal_knows(world: World) -> None:
    text = world.home.config.read_text()
    world.home.config.write_text(f"{text}[gateway.platforms.telegram]\nmode = 'polling'\n")
    variables = {"TELEGRAM_BOT_TOKEN": "4242:x", "OPENAI_API_KEY": "k"}
    stderr = _hermes(world, "install", "--print", **variables).stderr
    assert "TELEGRAM_BOT_TOKEN is set in this shell only" in stderr
    assert "OPENAI_API_KEY is set in this shell only" in stderr
    assert f"{world.home.root}/gateway.env" in stderr
    (world.home.root / "gateway.env").write_text("TELEGRAM_BOT_TOKEN=4242:x\nOPENAI_API_KEY=k\n")
    assert _hermes(world, "install", "--print", **variables).stderr == ""


def test_the_variables_of_the_gateway_count_whoever_starts_it(world: World) -> None:
    file = world.home.root / "gateway.env"
    file.write_text(
        '# ours\nHERMES_API_TOKEN = "0123456789abcdef"\nHERMES_GATEWAY_HEALTH_PORT=nine\n'
    )
    assert "HERMES_GATEWAY_HEALTH_PORT" in _hermes(world, "check").stderr
    file.write_text('# ours\nHERMES_API_TOKEN = "0123456789abcdef"\n')
    world.home.config.write_text("")  # the file alone has a platform on
    assert _hermes(world, "check").returncode == 0
    world.home.config.write_text(f"[gateway.platforms.api_server]\nport = {free_port()}\n")
    file.write_text("HERMES_API_TOKEN=short\n")
    try:
        assert "cannot be used" in _hermes(world, "start").stderr
        file.write_text("HERMES_API_TOKEN='0123456789abcdef'\n")
        restarted = _hermes(world, "restart", HERMES_API_TOKEN="of this terminal")
        assert (restarted.returncode, restarted.stderr) == (0, "")
    finally:
        _hermes(world, "stop")


def test_setup_asks_tries_writes_and_greets(world: World) -> None:
    text = world.home.config.read_text().partition("[gateway.platforms.loopback]")[0]
    world.home.config.write_text(text)
    world.platform.say("a", "anybody?", message_id="first")
    done = _hermes(world, "setup", "loopback", stdin=f"{world.platform.address}\n")
    assert done.returncode == 0, done.stderr
    assert "Loopback: connected." in done.stdout
    assert "Hello, this is Hermes" in world.replies("a")[0]
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.say("a", "hello")
        world.wait_for_text("a", "You said: hello")


def test_setup_of_a_platform_that_cannot_be_reached_writes_nothing(world: World) -> None:
    before = world.home.config.read_text()
    done = _hermes(world, "setup", "loopback", "--set", "address=127.0.0.1:1", "--no-greet")
    assert done.returncode != 0
    assert "No loopback server answers" in done.stderr
    assert world.home.config.read_text() == before


def test_the_platforms_are_listed_with_what_they_guarantee(world: World) -> None:
    platforms = {
        platform["name"]: platform
        for platform in json.loads(_hermes(world, "platforms", "--json").stdout)
    }
    assert platforms["loopback"]["state"] == "on"
    assert all(platform["guarantee"] for platform in platforms.values())


def test_a_stranger_is_let_in_from_the_command_line_and_told_so(world: World) -> None:
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.say("s", "let me in", user="stranger")
        code = world.wait_for_text("s", "Your pairing code is").text.split("code is ")[1][:8]
        wrong = _hermes(world, "pair", "ABCDEFGH")
        assert wrong.returncode == 2
        assert "hermes gateway people" in wrong.stderr
        assert "is now a member" in _hermes(world, "pair", code.lower()).stdout
        world.wait_for_text("s", "You have access now")
        assert "stranger" in _hermes(world, "people").stdout
        assert _hermes(world, "forget", "loopback", "stranger").returncode == 0
        world.platform.say("s", "still there?", user="stranger")
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        assert world.model.model_requests == []


# -- the process --------------------------------------------------------------------------------------


def test_a_terminal_that_is_closed_does_not_end_the_gateway(world: World) -> None:
    with Process(world) as gateway:
        gateway.wait_until_up()
        gateway.child.send_signal(signal.SIGHUP)
        world.platform.say("a", "hello")
        world.wait_for_replies("a", 1)
        gateway.child.send_signal(signal.SIGINT)
        assert gateway._end() == 0


def test_the_files_say_what_the_process_does(world: World) -> None:
    with Process(world) as gateway:
        gateway.wait_until_up()
        assert status.get_running_pid() == gateway.child.pid
        status_ = status.read_runtime_status()
        assert status_["gateway_state"] == "running"
        assert status_["platforms"]["loopback"]["state"] == "connected"
        gateway.kill()
    assert status.pid_file().exists()
    assert status.get_running_pid() is None
    with Process(world) as gateway:
        gateway.wait_until_up()
        assert gateway.terminate() == 0
    assert not status.pid_file().exists()
    status_ = status.read_runtime_status()
    assert (status_["gateway_state"], status_["exit_reason"]) == ("stopped", "SIGTERM")


def test_of_two_gateways_that_start_at_once_in_a_home_one_runs(world: World) -> None:
    with Process(world) as first, Process(world) as two:
        eventually(lambda: {first.child.poll(), two.child.poll()} == {None, 2})
        eventually(lambda: first.is_up.is_set() or two.is_up.is_set())


def test_a_gateway_takes_over_from_one_that_runs(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, then="the end"))
    with Process(world) as first:
        first.wait_until_up()
        world.platform.say("a", "one")
        assert quiet.started.wait(20)
        threading.Timer(0.5, quiet.release).start()
        replaced = subprocess.Popen(
            [sys.executable, "-m", "hermes_cli.main", "gateway", "run", "--replace"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": str(world.home.root.parent),
                "HERMES_HOME": str(world.home.root),
                "HERMES_GATEWAY_LOCK_DIR": str(world.home.root / "locks"),
            },
        )
        try:
            assert first.child.wait(30) == 0
            assert replaced.stdout is not None
            assert b"gateway is running: loopback" in replaced.stdout.readline()
            assert world.replies("a") == ["the end"]
            world.platform.say("a", "two")
            world.wait_for_text("a", "You said: two")
        finally:
            replaced.terminate()
            replaced.communicate(timeout=30)


def test_an_account_is_used_by_one_gateway_and_taken_over_when_that_ends(world: World) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HERMES_GATEWAY_LOCK_DIR", str(world.home.root / "locks"))
        other = AccountLock("loopback", world.platform.address)
    other.take()
    with Process(world) as gateway:
        gateway.wait_until_up()
        eventually(lambda: b"uses this loopback account" in gateway.output)
        assert f"process {os.getpid()}".encode() in gateway.output
        world.platform.say("a", "hello")
        other.release()
        world.platform.wait_for("a", lambda messages: len(messages) == 1, TIMEOUT_S)
        assert gateway.terminate() == 0


def test_a_lock_is_free_when_its_holder_lets_go() -> None:
    first, two = AccountLock("x", "token"), AccountLock("x", "token")
    first.take()
    first.take()
    with pytest.raises(PlatformError, match="Another gateway"):
        two.take()
    AccountLock("x", "another token").take()
    first.release()
    two.take()
    two.release()


def test_a_pid_file_is_taken_away_by_its_own_process_alone(world: World) -> None:
    world.home.create()
    status.pid_file().write_text(json.dumps({"pid": os.getppid(), "start_time": "other:1:2"}))
    status.remove_pid_file()
    assert status.pid_file().exists()
    status.write_pid_file()
    assert status.get_running_pid() == os.getpid()
    with pytest.raises(UsageError, match="already"):
        status.write_pid_file()
    status.remove_pid_file()
    assert not status.pid_file().exists()


def test_platforms_say_how_they_do_from_several_threads(world: World) -> None:
    world.home.create()
    barrier = threading.Barrier(8)

    def tell(number: int) -> None:
        barrier.wait(TIMEOUT_S)
        status.write_runtime_status(platform=f"p{number}", platform_state="connected")

    threads = [threading.Thread(target=tell, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(status.read_runtime_status()["platforms"]) == 8


# -- health and metrics -------------------------------------------------------------------------------


def _get(
    port: int, path: str, method: str = "GET", headers: dict[str, str] | None = None
) -> tuple[int, str]:
    url = f"http://127.0.0.1:{port}{path}"
    request = urllib.request.Request(url, method=method, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


_LINE = re.compile(r'^([a-z_]+)(\{[a-z_]+="[^"\\]*"\})? (-?[0-9.]+)$')


def _parsed(text: str) -> dict[str, float]:
    """The values of a page in Prometheus' text format; each name must have been given a type."""
    values: dict[str, float] = {}
    kinds: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in kinds
            assert kind in ("counter", "gauge")
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            found = _LINE.fullmatch(line)
            assert found, line
            assert found[1] in kinds
            assert found[1].endswith("_total") == (kinds[found[1]] == "counter")
            values[found[1] + (found[2] or "")] = float(found[3])
    assert text.endswith("\n")
    return values


def test_health_and_metrics_follow_what_happens(world: World) -> None:
    port = free_port()
    world.configure(more=f"health_port = {port}\n")
    quiet = Quiet()
    with Process(world) as gateway:
        gateway.wait_until_up()
        code, text = _get(port, "/health")
        assert code == 200
        assert json.loads(text)["platforms"] == {"loopback": "connected"}
        world.play(silence(quiet, then="done"))
        world.platform.say("a", "one")
        assert quiet.started.wait(20)
        world.platform.say("a", "two")
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        values = _parsed(_get(port, "/metrics")[1])
        assert values["hermes_gateway_turns_running"] == 1
        assert values["hermes_gateway_turns_queued"] == 1
        assert values['hermes_gateway_platform_up{platform="loopback"}'] == 1
        helped = re.findall(r"^# HELP (\S+)", _get(port, "/metrics")[1], re.MULTILINE)
        assert set(helped) == {name.partition("{")[0] for name in values}
        quiet.release()
        world.wait_for_replies("a", 2)
        counts = ("parts_sent", "turns_answered")  # a reply is seen before its turn is counted

        def counted() -> list[float]:
            values = _parsed(_get(port, "/metrics")[1])
            return [values[f"hermes_gateway_{name}_total"] for name in counts]

        eventually(lambda: counted() == [2, 2])
        values = _parsed(_get(port, "/metrics")[1])
        assert values["hermes_gateway_messages_received_total"] == 2
        assert values["hermes_gateway_agents_awake"] == 1
        world.platform.stop()
        eventually(lambda: _get(port, "/health")[0] == 503)
        assert _get(port, "/other")[0] == 404
        assert _get(port, "/health", "POST")[0] == 405
        with socket.create_connection(("127.0.0.1", port)) as rude:
            rude.sendall(b"x" * 20_000)
        assert _get(port, "/metrics")[0] == 200


def test_the_status_file_follows_what_happens(world: World) -> None:
    def is_status(state: str, agents: int) -> bool:
        status_ = status.read_runtime_status()
        return (status_.get("gateway_state"), status_.get("active_agents")) == (state, agents)

    quiet = Quiet()
    world.platform.stop()
    with Process(world) as gateway:
        gateway.wait_until_up()
        eventually(lambda: is_status("degraded", 0))
        world.platform.start()
        eventually(lambda: is_status("running", 0))
        world.play(silence(quiet, then="done"))
        world.platform.say("a", "one")
        eventually(lambda: is_status("running", 1))
        output = _hermes(world, "status")
        assert "1 turn running" in output.stdout
        assert json.loads(_hermes(world, "status", "--json").stdout)["running_turns"] == 1
        quiet.release()
        eventually(lambda: is_status("running", 0))
        world.platform.stop()
        eventually(lambda: is_status("degraded", 0))
        assert gateway.terminate() == 0
    assert is_status("stopped", 0)


def test_a_port_that_is_taken_is_named(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, Inside(world) as inside:
        port = listener.getsockname()[1]

        async def serve() -> None:
            async with serving(lambda: inside.services, port):
                pass

        with pytest.raises(PortTakenError, match="health_port") as error:
            asyncio.run(serve())
        assert str(port) in str(error.value)


def test_a_port_that_is_taken_is_noticed_before_a_platform_is_connected(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        world.configure(more=f"health_port = {listener.getsockname()[1]}\n")
        with Process(world) as gateway:
            code = gateway.child.wait(TIMEOUT_S)
    assert code == 69, "a service manager tries it again, unlike a mistake in the settings"
    assert b"health_port" in gateway.output
    assert b"platform connected" not in gateway.output
    assert status.read_runtime_status().get("gateway_state") == "startup_failed"


def test_health_is_told_to_who_asks_this_machine_and_to_no_page_of_others(world: World) -> None:
    port = free_port()
    world.configure(more=f"health_port = {port}\n")
    with Process(world) as gateway:
        gateway.wait_until_up()

        def code(**headers: str) -> int:
            return _get(port, "/health", headers=headers)[0]

        assert code(Host="evil.example") == 403
        assert code(Host="127.0.0.1.evil.example") == 403
        assert code(Host="192.168.0.7") == 403
        assert code(Origin="https://evil.example") == 403
        assert code(Origin="null") == 403
        assert code(Host=f"localhost:{port}") == code(Host="[::1]") == 200
        assert code(Origin=f"http://localhost:{port}") == 200


# -- staying connected --------------------------------------------------------------------------------


class _Rude(LoopbackAdapter):
    """Hangs up twice at once, the first time it connects."""

    lives = 0

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        type(self).lives += 1
        if self.lives == 1:
            self.lost(PlatformError("first"))
            self.lost(PlatformError("second"))
        return True

    async def disconnect(self) -> None: ...


def test_a_loss_that_was_told_twice_ends_one_connection(world: World) -> None:
    world.home.create()
    _Rude.lives = 0
    connected = 0

    async def live() -> None:
        nonlocal connected
        is_second = asyncio.Event()

        async def on_connected(_name: str, _adapter: object) -> None:
            nonlocal connected
            connected += 1
            if connected == 2:
                is_second.set()

        def make() -> _Rude:
            return _Rude(PlatformConfig(), LoopbackSettings("127.0.0.1:1"))

        supervisor = Supervisor(MANIFEST, make, None, on_connected)  # type: ignore[arg-type]
        task = asyncio.create_task(supervisor.run())
        async with asyncio.timeout(TIMEOUT_S):
            await is_second.wait()
        await asyncio.sleep(0)
        assert supervisor.adapter is not None
        assert supervisor.error is None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(live())
    assert connected == 2


def test_a_platform_that_can_never_be_connected_is_given_up_with_its_reason(world: World) -> None:
    world.home.create()

    def make() -> _Rude:
        raise PlatformError("The token is wrong.", is_fatal=True)

    async def live() -> Supervisor:
        supervisor = Supervisor(MANIFEST, make, None, None)  # type: ignore[arg-type]
        supervisor.prepare()
        async with asyncio.timeout(TIMEOUT_S):
            await supervisor.run()
        return supervisor

    supervisor = asyncio.run(live())
    assert str(supervisor.error).startswith("The token is wrong.")
    assert supervisor.settled.is_set()
    loopback = status.read_runtime_status()["platforms"]["loopback"]
    assert (loopback["state"], loopback["error_message"]) == ("failed", str(supervisor.error))


def test_a_platform_that_comes_back_is_connected_again(world: World) -> None:
    world.platform.stop()
    with Process(world) as gateway:
        gateway.wait_until_up()
        eventually(lambda: b"No loopback server answers" in gateway.output)
        world.platform.start()
        world.platform.say("a", "hello")
        assert "hello" in world.wait_for_replies("a", 1)[0]


def test_what_lasts_is_left_out_of_the_search_for_rubbish_as_long_as_the_gateway_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    for name in ("freeze", "unfreeze"):
        monkeypatch.setattr(gc_tuning, name, partial(steps.append, name))
    with Inside(world):
        assert steps == ["freeze"]
    assert steps == ["freeze", "unfreeze"]


def test_a_stop_is_done_once_however_often_it_is_asked_for(world: World) -> None:
    with Inside(world) as inside:
        for _ in range(3):
            inside.call(inside.runner.stop())
        assert status.read_runtime_status()["gateway_state"] == "stopped"


_NO_ERRORS = [
    SystemExit(3),
    KeyboardInterrupt(),
    GeneratorExit(),
    asyncio.CancelledError(),
    BaseException("all"),
]


@pytest.mark.parametrize("error", _NO_ERRORS, ids=repr)
def test_a_platform_that_raises_what_is_no_error_is_connected_again(
    world: World, error: BaseException
) -> None:
    world.home.create()
    _Rude.lives = 0

    class Quitting(_Rude):
        async def connect(self, *, is_reconnect: bool = False) -> bool:
            if not is_reconnect:
                raise error
            return True

        async def disconnect(self) -> None:
            raise error

    async def live() -> None:
        is_connected = asyncio.Event()

        async def on_connected(_name: str, _adapter: object) -> None:
            is_connected.set()

        def make() -> Quitting:
            return Quitting(PlatformConfig(), LoopbackSettings("127.0.0.1:1"))

        supervisor = Supervisor(MANIFEST, make, None, on_connected)  # type: ignore[arg-type]
        task = asyncio.create_task(supervisor.run())
        async with asyncio.timeout(TIMEOUT_S):
            await is_connected.wait()
            await end({task})
        assert task.cancelled()

    asyncio.run(live())


_QUITTING = """
import asyncio
from dataclasses import replace
from tests.support.loopback.adapter import KINDS
from tests.support.loopback.manifest import MANIFEST

class Quitting(KINDS["same"]):
    first = True

    async def connect(self, *, is_reconnect=False):
        if not is_reconnect:
            raise {error}
        return await super().connect(is_reconnect=is_reconnect)

    async def announce_commands(self, commands):
        raise {error}

    async def send_typing(self, chat_id, metadata=None):
        raise {error}

    async def send(self, *args):
        if Quitting.first:
            Quitting.first = False
            raise {error}
        return await super().send(*args)

def make(config, settings, folder):
    return Quitting(config, settings)

def register(ctx):
    ctx.platform("loopback", lambda: replace(MANIFEST, make=make))
"""


@pytest.mark.parametrize("error", ["SystemExit(3)", "asyncio.CancelledError()"])
def test_a_gateway_outlives_an_adapter_that_raises_what_is_no_error(
    world: World, error: str
) -> None:
    code = _QUITTING.format(error=error)
    (world.home.plugins / "loopback" / "__init__.py").write_text(code)
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.say("a", "hello")
        assert "hello" in world.wait_for_replies("a", 1)[0]


class _Deaf(_Rude):
    """An adapter over a library that takes the first cancellation for an answer."""

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return await super().connect(is_reconnect=is_reconnect)


def test_a_platform_that_swallows_a_cancellation_is_ended_all_the_same(world: World) -> None:
    world.home.create()

    async def live() -> None:
        async def on_connected(_name: str, _adapter: object) -> None: ...

        def make() -> _Deaf:
            return _Deaf(PlatformConfig(), LoopbackSettings("127.0.0.1:1"))

        supervisor = Supervisor(MANIFEST, make, None, on_connected)  # type: ignore[arg-type]
        task = asyncio.create_task(supervisor.run())
        await asyncio.sleep(0)
        async with asyncio.timeout(TIMEOUT_S):
            await end({task}, again_s=0.01)
        assert task.cancelled()

    asyncio.run(live())
