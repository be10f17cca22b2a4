"""`hermes gateway setup`: what it writes and leaves alone, and that it takes no message away."""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import closing

import pytest

from gateway.locks import AccountLock
from hermes_core import config
from hermes_state import SessionDB
from hermes_state.ledger import people
from hermes_state.values import Person
from tests.cli.chat_process import CTRL_C, TerminalChat
from tests.gateway.harness import TIMEOUT_S, Process, World
from tests.gateway.servers.ports import free_port
from tests.gateway.servers.telegram import ANNA, BEN, BotApi, Fail

pytestmark = pytest.mark.e2e


@pytest.fixture
def api() -> Iterator[BotApi]:
    with BotApi() as bot_api:
        yield bot_api


@pytest.fixture
def fresh(world: World) -> World:
    """A home in which Anna is an owner on Telegram, and no platform is set up."""
    text = world.home.config.read_text().partition("[gateway.platforms.loopback]")[0]
    owners = f'[gateway.owners]\ntelegram = ["{ANNA.id}"]'
    world.home.config.write_text(text.replace("[gateway.owners]", owners))
    return world


def _environment(world: World) -> dict[str, str]:
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(world.home.root.parent),
        "HERMES_HOME": str(world.home.root),
        "HERMES_GATEWAY_LOCK_DIR": str(world.home.root / "locks"),
    }


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "hermes_cli.main", "gateway", "setup", *arguments]


def _setup(
    world: World, *arguments: str, stdin: str = "\n", **environment: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        _command(*arguments),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**_environment(world), **environment},
    )


def _telegram(api: BotApi, *more: str) -> list[str]:
    settings = [f"token={api.token}", f"api_url={api.url}", "poll_s=20"]
    return ["telegram", *(part for setting in settings for part in ("--set", setting)), *more]


def _platforms(world: World) -> dict[str, dict[str, object]]:
    return tomllib.loads(world.home.config.read_text())["gateway"].get("platforms", {})


def _wait_for(api: BotApi, text: str, chat: int = ANNA.id) -> None:
    api.world.wait_for(lambda: any(text in reply for reply in api.world.replies(chat)), TIMEOUT_S)


def test_a_platform_is_added_to_tables_in_any_order_and_every_line_stays(world: World) -> None:
    before = (
        "[gateway.platforms.telegram] # the family's\ntoken = '1:a'\nenabled = false # for now\n\n"
        "[gateway]\nhealth_port = 18080\ndrain_s = 3.0\n\n[gateway.owners]\ntelegram = ['1']\n\n"
        "[gateway.platforms.webhook]\n# behind the proxy\nport = 18087\n"
    )
    world.home.config.write_text(before)
    done = _setup(
        world, "api_server", "--set", "port=0", "--set", f"token={'t' * 20}", "--no-greet"
    )
    assert done.returncode == 0, done.stderr
    after = world.home.config.read_text()
    assert after.startswith(before)
    assert _platforms(world)["api_server"] == {"port": 0, "token": "t" * 20, "enabled": True}


@pytest.mark.parametrize(
    ("answers", "written"),
    [
        ("a general secret\nbuild\n", {"secret": "a general secret", "hooks": {"build": {}}}),
        ("\nbuild\nits own secret\n", {"hooks": {"build": {"secret": "its own secret"}}}),
    ],
)
def test_a_first_hook_is_asked_for_and_written(
    fresh: World, answers: str, written: dict[str, object]
) -> None:
    done = _setup(fresh, "webhook", "--set", "port=0", stdin=answers)
    assert done.returncode == 0, done.stderr
    assert "Deliveries are posted to http://127.0.0.1:" in done.stdout
    assert "/hooks/build.\n" in done.stdout
    assert _platforms(fresh)["webhook"] == {"port": 0, **written, "enabled": True}


def test_what_stands_in_a_table_can_be_given(fresh: World) -> None:
    settings = ["hooks.build.secret=its own secret", "hooks.build.style=github", "port=0"]
    options = [part for setting in settings for part in ("--set", setting)]
    done = _setup(fresh, "webhook", *options, "--no-greet")
    assert done.returncode == 0, done.stderr
    hooks = {"build": {"secret": "its own secret", "style": "github"}}
    assert _platforms(fresh)["webhook"] == {"hooks": hooks, "port": 0, "enabled": True}


def test_who_gave_one_way_to_be_let_in_is_not_asked_for_another(fresh: World) -> None:
    options = ("--set", "homeserver=http://127.0.0.1:9", "--set", "user=@hermes:x")
    for more in ({"MATRIX_PASSWORD": "secret-password"}, {}):
        options_ = () if more else ("--set", "password=secret-password")
        done = _setup(fresh, "matrix", "--no-greet", *options, *options_, stdin="", **more)
        assert "access_token" not in done.stdout
        assert "Matrix cannot be reached" in done.stderr, done
    token = {"MATRIX_ACCESS_TOKEN": "secret-token"}
    done = _setup(fresh, "matrix", "--no-greet", *options[:2], stdin="", **token)
    assert "user" not in done.stdout
    assert "Matrix cannot be reached" in done.stderr


def test_the_end_of_the_input_leaves_out_what_is_not_needed(fresh: World) -> None:
    port = free_port()
    done = _setup(fresh, "api_server", "--set", f"port={port}", stdin="")
    assert done.returncode == 0, done
    assert f"Clients connect to http://127.0.0.1:{port}/v1 with the token in " in done.stdout
    lacking = _setup(fresh, "email", "--no-greet", stdin="")
    assert lacking.returncode == 2
    assert "--set address=VALUE" in lacking.stderr


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("bogus=1", "no setting 'bogus'"),
        ("port=abc", "Invalid value 'abc' for port"),
        ("bogus.x=1", "no setting"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_before_anything_is_asked(
    fresh: World, setting: str, expected: str
) -> None:
    done = _setup(fresh, "api_server", "--set", setting, stdin="")
    assert done.returncode == 2
    assert expected in done.stderr
    assert done.stdout == ""


def test_who_wrote_while_nobody_was_there_is_greeted_now_and_answered_when_the_gateway_runs(
    fresh: World, api: BotApi
) -> None:
    api.world.write("first")
    api.world.write("second")
    api.world.write("let me in", person=BEN)
    done = _setup(fresh, *_telegram(api))
    assert done.returncode == 0, done.stderr
    assert "and answered it" in done.stdout
    assert len(api.world.updates) == 3
    replies = api.world.replies() + api.world.replies(BEN.id)
    assert [text.partition(".")[0] for text in replies] == ["Hello, this is Hermes"]
    with Process(fresh) as gateway:
        gateway.wait_until_up()
        _wait_for(api, "You said: second")
        assert any("You said: first" in text for text in api.world.replies())
        _wait_for(api, "code is", BEN.id)
        assert gateway.terminate() == 0


def test_somebody_who_is_in_is_not_told_of_a_code_and_a_stranger_is(
    fresh: World, api: BotApi
) -> None:
    api.world.write("it is me")
    stdout = _setup(fresh, *_telegram(api)).stdout
    assert "as owner" in stdout
    assert "hermes gateway pair" not in stdout
    with api.world.changed:
        api.world.updates.clear()
    api.world.write("it is Ben", person=BEN)
    assert "hermes gateway pair CODE" in _setup(fresh, *_telegram(api)).stdout


def test_a_chat_that_moved_meanwhile_is_left_for_the_gateway(fresh: World, api: BotApi) -> None:
    api.world.add_chat(-77, "group", "Friends")
    api.world.upgrade(-77, -1077)
    api.world.write("hello")
    assert _setup(fresh, *_telegram(api)).returncode == 0
    assert len(api.world.updates) == 3


def test_an_account_that_a_gateway_uses_is_not_touched(fresh: World, api: BotApi) -> None:
    assert _setup(fresh, *_telegram(api, "--no-greet")).returncode == 0
    before = fresh.home.config.read_text()
    with Process(fresh) as gateway:
        gateway.wait_until_up()
        seen = len(api.requests)
        done = _setup(fresh, *_telegram(api, "--set", "mode=webhook"))
        assert done.returncode != 0
        assert f"process {gateway.child.pid}" in done.stderr
        assert "hermes gateway stop" in done.stderr
        methods = {method for method, _ in api.requests[seen:]}
        assert methods <= {"getUpdates", "setMyCommands"}, "the gateway's own, which has just begun"
        api.world.write("hello")
        _wait_for(api, "You said: hello")
        assert len(api.world.replies()) == 1
        assert gateway.terminate() == 0
    assert fresh.home.config.read_text() == before


def test_ctrl_c_skips_the_greeting_and_the_settings_are_written(fresh: World, api: BotApi) -> None:
    terminal = TerminalChat(_command(*_telegram(api)), fresh.home.root, _environment(fresh))
    try:
        terminal.wait_for("Ctrl+C to skip")
        terminal.type(CTRL_C)
        terminal.wait_for("Start [")
        terminal.type("no\r")
        assert terminal.wait() == 0, terminal.text
        terminal.wait_for("hermes gateway start")
    finally:
        terminal.kill()
    assert _platforms(fresh)["telegram"]["token"] == api.token


def test_what_others_write_while_it_asks_stays(fresh: World, api: BotApi) -> None:
    command = _command("telegram", "--set", f"api_url={api.url}", "--no-greet")
    terminal = TerminalChat(command, fresh.home.root, _environment(fresh))
    try:
        terminal.wait_for("token (")
        config.change(fresh.home, "gateway.platforms", {"webhook": {"port": 18087}})
        terminal.type(f"{api.token}\r")
        terminal.wait_for("Start [")
        terminal.type("no\r")
        assert terminal.wait() == 0, terminal.text
    finally:
        terminal.kill()
    assert _platforms(fresh).keys() == {"telegram", "webhook"}


@pytest.fixture
def newcomer(world: World) -> World:
    """A home in which nobody has access, and no platform is set up."""
    text = world.home.config.read_text().partition("[gateway.platforms.loopback]")[0]
    world.home.config.write_text(text.partition("[gateway.owners]")[0])
    return world


def _dialogue(world: World, api: BotApi, *more: str) -> TerminalChat:
    command = _command("telegram", "--set", f"api_url={api.url}", "--set", "poll_s=20", *more)
    environment = _environment(world) | {"PATH": "/nonexistent"}  # without systemd
    return TerminalChat(command, world.home.root, environment)


def _invited(terminal: TerminalChat, api: BotApi) -> str:
    """Type the token; return the code of the invitation."""
    terminal.wait_for("token (")
    terminal.type(f"{api.token}\r")
    terminal.wait_for("https://t.me/hermes_test_bot?start=")
    code = terminal.wait_for("\n")
    terminal.wait_for("Ctrl+C to skip")
    return code


def _people(world: World) -> list[Person]:
    with closing(SessionDB(world.home.database)) as store:
        return store.read(people.list_all)


def _run(world: World, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "hermes_cli.main", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=_environment(world)
    )


def test_two_answers_lead_from_nothing_to_a_bot_that_answers(newcomer: World, api: BotApi) -> None:
    with _dialogue(newcomer, api) as terminal:
        terminal.wait_for("https://t.me/BotFather")
        code = _invited(terminal, api)
        api.world.write(f"/start {code}")
        terminal.wait_for("Anna (1001). You are the owner now")
        terminal.wait_for("Start [background]")
        terminal.type("\r")
        terminal.wait_for("The gateway runs as process")
        assert terminal.wait() == 0, terminal.text
    assert [(person.user_id, person.role) for person in _people(newcomer)] == [("1001", "owner")]
    api.world.write("how are you?")
    _wait_for(api, "You said: how are you?")
    assert _run(newcomer, "gateway", "stop").returncode == 0
    greeting, answer = api.world.replies()
    assert greeting.startswith("Hello, this is Hermes.")
    assert "how are you?" in answer
    assert api.token not in terminal.raw


def test_a_wrong_token_is_asked_for_again(newcomer: World, api: BotApi) -> None:
    with _dialogue(newcomer, api, "--no-greet") as terminal:
        for wrong, reason in (
            ("hello", "missing or malformed"),
            (f"4242:{'x' * 30}", "does not know this bot token"),
        ):
            terminal.wait_for("token (")
            terminal.type(f"{wrong}\r")
            terminal.wait_for(reason)
            assert "telegram" not in _platforms(newcomer)
        terminal.wait_for("token (")
        terminal.type(f"{api.token}\r")
        terminal.wait_for("Start [")
        terminal.type("no\r")
        assert terminal.wait() == 0, terminal.text
    assert _platforms(newcomer)["telegram"]["token"] == api.token


def test_somebody_else_who_writes_first_does_not_become_the_owner(
    newcomer: World, api: BotApi
) -> None:
    with _dialogue(newcomer, api) as terminal:
        terminal.wait_for("token (")
        api.world.write("I am the owner", person=BEN)
        terminal.type(f"{api.token}\r")
        terminal.wait_for("Ben (1002) wrote: I am the owner")
        terminal.wait_for("[y/N]")
        terminal.type("\r")
        terminal.wait_for("They were not let in")
        assert not _people(newcomer)
        api.world.write("first message")
        terminal.wait_for("Anna (1001) wrote: first message")
        terminal.type("y\r")
        terminal.wait_for("You are the owner now")
        terminal.wait_for("Start [")
        terminal.type("background\r")
        assert terminal.wait() == 0, terminal.text
    _wait_for(api, "You said: first message")
    _wait_for(api, "code is", BEN.id)
    assert _run(newcomer, "gateway", "stop").returncode == 0
    assert [person.user_id for person in _people(newcomer)] == ["1001"]


def test_a_dialogue_that_is_killed_can_be_repeated(newcomer: World, api: BotApi) -> None:
    with _dialogue(newcomer, api) as terminal:
        terminal.wait_for("token (")
        terminal.type(CTRL_C)
        assert terminal.wait() != 0
    assert "telegram" not in _platforms(newcomer)
    with _dialogue(newcomer, api) as terminal:
        _invited(terminal, api)
        terminal.kill()
    assert _platforms(newcomer)["telegram"]["token"] == api.token
    assert not _people(newcomer)
    with _dialogue(newcomer, api) as terminal:
        terminal.wait_for("https://t.me/hermes_test_bot?start=")
        api.world.write(terminal.wait_for("\n"))
        terminal.wait_for("You are the owner now")
        terminal.wait_for("Start [")
        terminal.type("no\r")
        assert terminal.wait() == 0, terminal.text
    assert [person.user_id for person in _people(newcomer)] == ["1001"]


def test_without_a_terminal_options_do_what_the_dialogue_does(newcomer: World, api: BotApi) -> None:
    unnamed = _run(newcomer, "gateway", "setup")
    assert unnamed.returncode == 2
    assert "telegram" in unnamed.stderr
    done = _setup(newcomer, *_telegram(api, "--no-greet", "--start", "background"))
    assert done.returncode == 0, done.stderr
    assert "The gateway runs as process" in done.stdout
    refused = _setup(newcomer, *_telegram(api, "--start", "background"))
    assert "hermes gateway stop" in refused.stderr
    assert _run(newcomer, "gateway", "stop").returncode == 0


def test_a_connection_that_is_lost_while_it_waits_is_told_and_the_settings_stay(
    fresh: World, api: BotApi
) -> None:
    api.fail("getUpdates", Fail(401, "Unauthorized"))
    done = _setup(fresh, *_telegram(api))
    assert done.returncode != 0
    assert "token" in done.stderr
    assert "telegram" in _platforms(fresh)


def test_a_setup_holds_its_account_and_gives_it_back(fresh: World, api: BotApi) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HERMES_GATEWAY_LOCK_DIR", str(fresh.home.root / "locks"))
        lock = AccountLock("telegram", "4242")
    lock.take()
    assert "uses this telegram account" in _setup(fresh, *_telegram(api)).stderr
    lock.release()
    assert _setup(fresh, *_telegram(api, "--no-greet")).returncode == 0
    lock.take()
    lock.release()


def test_the_server_that_verifies_senders_of_mail_is_asked_for(fresh: World) -> None:
    settings = ("address=hermes@mail.test", "password=x", "imap_host=127.0.0.1", "imap_port=9")
    options = [part for setting in settings for part in ("--set", setting)]
    done = _setup(fresh, "email", *options, "--set", "imap_security=plain", stdin="\nmx.test\n")
    assert "trusted_authserv (The server that verifies senders" in done.stdout
    assert "everybody on email is a guest" in done.stdout
    assert done.returncode != 0, "nothing listens there"
