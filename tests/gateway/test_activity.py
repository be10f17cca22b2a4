"""The line that shows which tool runs, and that it costs no delivery."""

from collections.abc import Iterator

import pytest

from gateway.activity import Activity
from hermes_agent.testing.scripted import Quiet, Step, call, say, silence, together
from hermes_agent.turn.events import TextDelta, ToolEnded, ToolStarted
from hermes_core import secrets
from hermes_state import SessionDB
from tests.gateway.harness import TIMEOUT_S, Inside, Process, World
from tests.support.faults import eventually
from tests.support.loopback.server import ShownMessage

_WAIT = "while [ ! -e go ]; do sleep 0.05; done"
_BEGINNING = "This is a beginning that is long enough to be shown. "


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


def _started(call_id: str = "1", command: str = "pytest -q") -> ToolStarted:
    return ToolStarted(call_id, "terminal", {"command": command})


def _ended(call_id: str = "1", *, is_error: bool = False, seconds: float = 7.2) -> ToolEnded:
    return ToolEnded(call_id, "terminal", "result", is_error, seconds)


def _activity(clock: _Clock, *events: ToolStarted | ToolEnded | TextDelta) -> Activity:
    activity = Activity(shows_arguments=True, monotonic=clock)
    for event in events:
        activity.report(event)
    return activity


@pytest.mark.parametrize(
    ("elapsed", "line"),
    [
        (0.5, "⚙️ terminal `pytest -q`"),
        (12.9, "⚙️ terminal `pytest -q` · 10 s"),
        (59.9, "⚙️ terminal `pytest -q` · 55 s"),
        (89.0, "⚙️ terminal `pytest -q` · 1 min"),
        (95.0, "⚙️ terminal `pytest -q` · 1 min 30 s"),
        (700.0, "⚙️ terminal `pytest -q` · 11 min"),
    ],
)
def test_the_line_says_what_runs_and_for_how_long(clock: _Clock, elapsed: float, line: str) -> None:
    activity = _activity(clock, _started())
    clock.now += elapsed
    assert activity.line() == line


def test_the_duration_changes_less_often_the_longer_a_tool_runs(clock: _Clock) -> None:
    activity = _activity(clock, _started())
    changes, last = 0, ""
    end = clock.now + 3600
    while (change_s := activity.next_change_s()) is not None and clock.now < end:
        clock.now += change_s
        changes, last = changes + (activity.line() != last), activity.line()
    assert changes < 90, "edits in an hour"


def test_the_last_call_is_shown_until_the_model_writes(clock: _Clock) -> None:
    activity = _activity(clock, _started(), _ended())
    assert activity.line() == "✓ terminal `pytest -q` · 7 s"
    activity.report(TextDelta("Done"))
    assert activity.line() == ""
    assert _activity(clock, _started(), _ended(is_error=True)).line().startswith("✗ terminal")
    assert _activity(clock, _ended()).line() == "", "refused, so it never ran"


def test_of_several_calls_the_first_is_shown_and_the_others_are_counted(clock: _Clock) -> None:
    activity = _activity(clock, _started("1"), _started("2", "make"), _started("3", "ls"))
    assert activity.line() == "⚙️ terminal `pytest -q` (+2)"
    activity.report(_ended("1"))
    assert activity.line() == "⚙️ terminal `make` (+1)"


@pytest.mark.parametrize(
    "command",
    [
        "mysql --password hunter2hunter2 -e 'select 1'",
        "PGPASSWORD=hunter2hunter2 psql",
        "curl -H 'Authorization: Bearer hunter2hunter2' https://example.org",
        "curl -u anna:hunter2hunter2 https://example.org",
        "git clone https://anna:hunter2hunter2@example.org/x",
        'curl -d \'{"password": "hunter2hunter2"}\' https://example.org',
        f"echo {'x' * 108} --token hunter2hunter2",
        f"echo {'x' * 110} registered-value-123",
    ],
)
def test_secrets_of_a_command_are_masked(clock: _Clock, command: str) -> None:
    secrets.register({"OF_A_TEST": "registered-value-123"})
    line = _activity(clock, _started(command=command)).line()
    assert "hunter2" not in line
    assert "registered" not in line


def test_what_is_no_secret_stays(clock: _Clock) -> None:
    command = "ssh-keygen -t rsa && grep -rn token src"
    assert command in _activity(clock, _started(command=command)).line()


# -- in a chat ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def streaming(world: World) -> Iterator[None]:
    world.configure(streaming=True)
    yield


def _waiting(text: str = "") -> Step:
    step = call("terminal", command=_WAIT)
    return together(say(text), step) if text else step


def _go(world: World) -> None:
    (world.home.root / "workspace" / "go").touch()


def _only(world: World, text: str) -> ShownMessage:
    """Wait until a text is in the chat, in its only message."""
    message = world.wait_for_text("a", text)
    assert len(world.platform.shown("a")) == 1
    return message


def test_a_tool_that_takes_long_is_shown_and_the_reply_replaces_it(world: World) -> None:
    world.play(_waiting(), say("All tests pass."))
    with Inside(world):
        world.platform.say("a", "test it")
        draft = _only(world, f"⚙️ terminal `{_WAIT}` ▉")
        _go(world)
        reply = _only(world, "All tests pass.")
        assert (reply.message_id, reply.text) == (draft.message_id, "All tests pass.")


def test_it_stands_below_the_text_of_the_reply(world: World) -> None:
    world.play(_waiting(_BEGINNING), say("Done."))
    with Inside(world):
        world.platform.say("a", "test it")
        _only(world, f"{_BEGINNING.strip()}\n\n⚙️ terminal `{_WAIT}` ▉")
        _go(world)
        eventually(lambda: world.replies("a") == ["Done."])


def test_a_group_reads_the_name_of_a_tool_and_not_the_command(world: World) -> None:
    world.play(_waiting(), say("Done."))
    with Inside(world):
        world.platform.say("g", "test it", chat_type="group")
        assert world.wait_for_text("g", "⚙️").text == "⚙️ terminal ▉"
        _go(world)
        eventually(lambda: world.replies("g") == ["Done."])


def test_many_quick_tools_are_few_edits(world: World) -> None:
    world.play(*[call("todo")] * 40, say("Done."))
    with Inside(world):
        world.platform.say("a", "plan it")
        world.platform.wait_for(
            "a", lambda messages: bool(messages) and messages[-1].text == "Done.", TIMEOUT_S
        )
        (message,) = world.platform.shown("a")
        assert len(message.edits) <= 5


def test_a_setting_switches_it_off(world: World) -> None:
    text = world.home.config.read_text()
    world.home.config.write_text(text.replace("tool_activity = true", "tool_activity = false"))
    quiet = Quiet()
    world.play(_waiting(_BEGINNING), silence(quiet, then="Done."))
    with Inside(world):
        world.platform.say("a", "test it")
        assert "⚙️" not in _only(world, "beginning").text
        _go(world)
        assert quiet.started.wait(TIMEOUT_S)
        quiet.release()
        eventually(lambda: world.replies("a") == ["Done."])
        assert not [a for a in world.platform.attempts if "terminal" in a.text]


def test_it_is_shown_without_streaming_too(world: World) -> None:
    text = world.home.config.read_text()
    world.home.config.write_text(text.replace("streaming = true", "streaming = false"))
    world.play(_waiting(_BEGINNING), say("Done."))
    with Inside(world):
        world.platform.say("a", "test it")
        assert _only(world, "⚙️").text == f"⚙️ terminal `{_WAIT}` ▉"
        _go(world)
        eventually(lambda: world.replies("a") == ["Done."])


def test_limits_of_the_platform_delay_the_line_and_lose_no_reply(world: World) -> None:
    world.platform.rate_limit(0.2)
    world.play(_waiting(), say("All tests pass."))
    with Inside(world):
        world.platform.say("a", "test it")
        _only(world, "⚙️")
        _go(world)
        eventually(lambda: world.replies("a") == ["All tests pass."])


def _kill_while_a_tool_runs(world: World) -> None:
    world.play(_waiting())
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.say("a", "test it")
        world.wait_for_text("a", "⚙️ terminal")
        with SessionDB(world.home.database, read_only=True) as store:
            sql = "SELECT count(*) FROM drafts WHERE message_id IS NOT NULL"
            eventually(lambda: store.read(lambda tx: tx.value(sql)) == 1)
        gateway.kill()
    assert "⚙️" in _only(world, "terminal").text


@pytest.mark.parametrize("resend", ["same", "checked", "marked"])
def test_after_a_kill_the_line_does_not_say_that_the_tool_runs(world: World, resend: str) -> None:
    world.configure(streaming=True, resend=resend)
    _kill_while_a_tool_runs(world)
    quiet = Quiet()
    world.play(silence(quiet, then="It was cut off."))
    with Process(world) as gateway:
        gateway.wait_until_up()
        assert _only(world, "Continuing after a restart").text.endswith("▉")
        quiet.release()
        eventually(lambda: world.replies("a") == ["It was cut off."])
        assert gateway.terminate() == 0


def test_a_turn_that_is_stopped_says_so_instead(world: World) -> None:
    world.play(_waiting())
    with Inside(world):
        world.platform.say("a", "test it")
        world.wait_for_text("a", "⚙️ terminal")
        world.platform.say("a", "/stop")
        world.wait_for_text("a", "⏹ Stopped.")
        assert not [text for text in world.replies("a") if "⚙️" in text]


def test_a_turn_that_is_suspended_is_shown_as_paused_until_the_next_start(world: World) -> None:
    world.configure(streaming=True, drain=0.1)
    world.play(_waiting(), say("It was cut off."))
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.say("a", "test it")
        world.wait_for_text("a", "⚙️ terminal")
        assert gateway.terminate() == 0
    draft, notice = world.replies("a")
    assert draft == "⏸ Paused."
    assert "I have to restart" in notice
    with Process(world) as gateway:
        gateway.wait_until_up()
        eventually(lambda: world.replies("a")[0] == "It was cut off.")
        assert gateway.terminate() == 0
