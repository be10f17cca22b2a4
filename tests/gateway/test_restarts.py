"""The gateway as a process that is killed, stopped and started again."""

import json
import signal
from contextlib import nullcontext

import pytest

from gateway.preflight import ask_for_start
from hermes_agent import lease
from hermes_agent.testing.scripted import Quiet, call, say, silence
from hermes_cli import plugins
from hermes_core.errors import ConfigError
from hermes_state import SessionDB
from hermes_state.engines.sqlite.repair import repair
from hermes_state.ledger import lineage, outbox, turns
from tests.gateway.harness import Inside, Process, World
from tests.support.faults import eventually
from tests.support.plugins import DEADLY, enable

pytestmark = pytest.mark.e2e


def test_a_message_that_was_accepted_is_answered_after_a_kill(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, after="Half"))
    with Process(world) as first:
        first.wait_until_up()
        world.platform.say("a", "one")
        assert quiet.started.wait(20)
        world.platform.say("b", "elsewhere")
        world.platform.say("a", "two")
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        world.wait_for_replies("b", 1)
        first.kill()
    world.play(say("one again"))
    with Process(world) as second:
        second.wait_until_up()
        first_reply, two = world.wait_for_replies("a", 2)
        assert first_reply == "one again"
        assert "two" in two
        assert len(world.replies("b")) == 1


def test_plugins_hear_of_a_conversation_whose_first_message_was_accepted_before_a_kill(
    world: World,
) -> None:
    path = world.home.root / "began.txt"
    enable(world.home, "deadly", DEADLY.format(path=str(path)))
    with Process(world) as first:
        first.wait_until_up()
        world.platform.say("a", "one")
        assert first.child.wait(20) == 9
    with Process(world) as second:
        second.wait_until_up()
        world.wait_for_replies("a", 1)
        session_id, again = path.read_text().split()
        assert session_id == again


def test_a_message_that_came_while_nobody_was_there_is_answered(world: World) -> None:
    world.platform.say("a", "anybody?")
    with Process(world) as gateway:
        gateway.wait_until_up()
        assert "anybody?" in world.wait_for_replies("a", 1)[0]


def test_what_waits_for_a_terminal_waits_on_after_a_restart(world: World) -> None:
    with Inside(world) as inside:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        (entry,) = inside.runner.session_store.list_sessions()
    with SessionDB(world.home.database) as store:
        with lease.held(store, store.read(lineage.root, entry.session_id), lambda: None):
            with Inside(world) as inside:
                world.platform.say("a", "two")
                eventually(lambda: len(inside.open_turns()) == 1)
            with Inside(world) as inside:
                assert len(inside.open_turns()) == 1
                world.platform.say("a", "/status")
                world.wait_for_text("a", "Turns are queued here; none has begun yet.")
        with Inside(world):
            world.wait_for_text("a", "You said: two")


def test_a_stop_waits_for_what_runs(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, then="the end"))
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.say("a", "one")
        assert quiet.started.wait(20)
        gateway.child.send_signal(signal.SIGTERM)
        quiet.release()
        assert gateway.child.wait(20) == 0
        assert world.replies("a") == ["the end"]


def test_what_does_not_end_in_time_is_put_off_with_a_notice_and_goes_on(world: World) -> None:
    world.configure(drain=0.0)
    quiet = Quiet()
    world.play(silence(quiet, after="Half"))
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.say("a", "one")
        assert quiet.started.wait(20)
        assert gateway.terminate() == 0
        (notice,) = world.replies("a")
        assert "continue with this afterwards" in notice
    with SessionDB(world.home.database) as store:
        (turn,) = store.read(turns.unfinished)
        assert turn["state"] == "running"
    world.play(say("here it is"))
    with Process(world) as gateway:
        gateway.wait_until_up()
        assert world.wait_for_replies("a", 2)[1] == "here it is"


def test_what_was_asked_before_a_restart_is_answered_after_it(world: World) -> None:
    world.configure(drain=0.0)
    world.play(call("clarify", question="Which size?", choices=["small", "large"]))
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.say("a", "order one")
        message = world.wait_for_text("a", "Which size?")
        assert gateway.terminate() == 0
    world.play(say("ordered"))
    with Process(world) as gateway:
        gateway.wait_until_up()
        assert message.question is not None
        world.platform.press("a", message.question, "large")
        world.wait_for_text("a", "ordered")
        last_message = world.model.model_requests[-1].json["messages"][-1]
        assert (last_message["role"], last_message["content"]) == ("tool", "large")
        assert len([reply for reply in world.replies("a") if "Which size?" in reply]) == 1


def test_a_lost_answer_is_not_shown_twice_where_the_platform_knows_the_key(world: World) -> None:
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.lose_answers(1)
        world.platform.say("a", "hello")
        world.platform.wait_until(lambda: len(world.platform.attempts) >= 2, timeout=30)
        world.platform.say("a", "more")
        replies = world.wait_for_replies("a", 2)
        assert len(replies) == 2
        assert "may be a repeat" not in "".join(replies)


def test_a_lost_answer_is_marked_where_the_platform_knows_no_better(world: World) -> None:
    world.configure(resend="marked")
    world.platform._folds_keys = False
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.lose_answers(1)
        world.platform.say("a", "hello")
        first, second = world.wait_for_replies("a", 2)
        assert second == f"(This may be a repeat.)\n{first}"


@pytest.mark.parametrize(
    "variables",
    [{}, {"INVOCATION_ID": "inherited"}],
    ids=["by hand", "in a terminal that systemd has started"],
)
def test_restart_in_chat_comes_back_with_the_same_conversation(
    world: World, variables: dict[str, str]
) -> None:
    with Process(world, **variables) as gateway:
        gateway.wait_until_up()
        world.platform.say("a", "remember the word apple")
        world.wait_for_replies("a", 1)
        gateway.is_up.clear()
        world.platform.say("a", "/restart")
        world.wait_for_text("a", "Restarting")
        gateway.wait_until_up()
        world.platform.say("a", "which word?")
        world.wait_for_text("a", "You said: which word?")
        assert "apple" in json.dumps(world.model.model_requests[-1].json["messages"])


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("[gateway\nbroken", "config.toml"),
        ("[gateway]\nbusy = 'never'\n", "gateway.busy"),
        ("[gateway.platforms.email]\nenabled = true\n", "Set address"),
        ("[gateway.platforms.telegam]\n", "There is no platform 'telegam'."),
        ("[gateway.platforms.loopback]\n", "There is no platform 'loopback'."),
        (
            "[plugins]\nenabled = ['loopback']\n[gateway.platforms.loopback]\n",
            "Set address",
        ),
        ("", "No platform is configured."),
    ],
)
def test_a_gateway_that_could_not_start_again_does_not_restart_and_says_why(
    world: World, config: str, reason: str
) -> None:
    with Inside(world) as inside:
        sound = world.home.config.read_text()
        world.home.config.write_text(config)
        world.platform.say("a", "/restart")
        text = world.wait_for_text("a", "Not restarted").text
        assert reason in text
        world.platform.say("a", "still there?")
        world.wait_for_text("a", "You said: still there?")
        assert inside.runner._exit_reason is None
        world.home.config.write_text(sound)
        ask_for_start()


def test_a_restart_knows_the_platforms_of_plugins_that_were_enabled_since_the_start(
    world: World,
) -> None:
    code = """
from dataclasses import replace
from tests.support.loopback.manifest import MANIFEST

def register(ctx):
    ctx.platform("pigeon", lambda: replace(MANIFEST, name="pigeon"))
"""
    with Inside(world):
        enable(world.home, "pigeon", code)
        sound = world.home.config.read_text()
        for name, is_known in (("pigeon", True), ("pigon", False)):
            table = f"\n[gateway.platforms.{name}]\naddress = 'unix:/nowhere'\n"
            world.home.config.write_text(sound + table)
            with nullcontext() if is_known else pytest.raises(ConfigError, match="'pigon'"):
                ask_for_start()
        assert "pigeon" not in plugins.loaded(), "nothing of it runs before the restart"


def test_a_second_gateway_in_the_same_home_is_refused_with_what_to_do(world: World) -> None:
    with Process(world) as first:
        first.wait_until_up()
        with Process(world) as second:
            assert second.child.wait(20) == 2
            second._thread.join(30)
            assert b"runs in this home already" in second.output
            assert b"--replace" in second.output


def test_an_answer_that_was_given_in_a_terminal_meanwhile_is_sent_once(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, after="Half"))
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.say("a", "one")
        assert quiet.started.wait(20)
        gateway.kill()
    with SessionDB(world.home.database) as store:
        lease.expire_dead_leases(store)
        (turn,) = store.read(turns.unfinished)
        store.write(
            turns.finish,
            turn["id"],
            "answered",
            message={"role": "assistant", "content": "said elsewhere"},
        )
    for _ in range(2):
        with Process(world) as gateway:
            gateway.wait_until_up()
            world.platform.say("b", "still there?")
            world.wait_for_text("b", "still there?")
            assert gateway.terminate() == 0
    assert world.replies("a") == ["said elsewhere"]


def test_what_was_sent_before_a_repair_is_not_sent_again_because_the_note_of_it_is_lost(
    world: World,
) -> None:
    with Inside(world):
        world.platform.say("a", "one")
        world.wait_for_text("a", "You said: one")
    with SessionDB(world.home.database) as store:
        store.write(lambda conn: conn.run("DELETE FROM outbox"))
    repair(world.home.database)
    with Inside(world):
        world.platform.say("a", "two")
        world.wait_for_text("a", "You said: two")
    sent = [
        attempt.text
        for attempt in world.platform.attempts
        if attempt.text.startswith("You said: one")
    ]
    assert len(sent) == 1


def test_an_answer_that_a_terminal_gives_beside_the_gateway_is_sent_at_once(world: World) -> None:
    with Inside(world) as inside, SessionDB(world.home.database) as store:
        world.platform.say("a", "one")
        world.wait_for_replies("a", 1)
        (entry,) = inside.runner.session_store.list_sessions()
        with lease.held(store, store.read(lineage.root, entry.session_id), lambda: None):
            for text in ("two", "three"):
                world.platform.say("a", text)
            eventually(lambda: len(inside.open_turns()) == 2)
            turn, _ = store.read(turns.all_open)
            store.write(turns.start, turn["id"])
            message = {"role": "assistant", "content": "said elsewhere"}
            store.write(turns.finish, turn["id"], "answered", message=message)
        world.wait_for_text("a", "You said: three")
        inside.services.recovery.send_foreign_answers()
        eventually(lambda: not inside.store.read(outbox.waiting))
        assert world.replies("a")[1] == "said elsewhere"
        assert len(world.replies("a")) == 3


def test_an_answer_that_a_terminal_gave_is_sent_before_what_came_after_it_is_answered(
    world: World,
) -> None:
    quiet = Quiet()
    world.play(silence(quiet))
    with Process(world) as gateway:
        gateway.wait_until_up()
        for text in ("one", "two"):
            world.platform.say("a", text)
        assert quiet.started.wait(20)
        world.platform.wait_until(lambda: not world.platform.unacknowledged())
        gateway.kill()
    with SessionDB(world.home.database) as store:
        first, _ = store.read(turns.all_open)
        message = {"role": "assistant", "content": "said elsewhere"}
        store.write(turns.finish, first["id"], "answered", message=message)
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.wait_for_text("a", "You said: two")
        assert world.replies("a")[0] == "said elsewhere"


def test_what_a_terminal_answers_when_the_gateway_starts_is_sent_when_it_is_answered(
    world: World,
) -> None:
    quiet = Quiet()
    world.play(silence(quiet))
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.platform.say("a", "one")
        assert quiet.started.wait(20)
        gateway.kill()
    with SessionDB(world.home.database) as store:
        lease.expire_dead_leases(store)
        (turn,) = store.read(turns.unfinished)
        with lease.held(store, turn["conversation_id"], lambda: None), Inside(world) as inside:
            eventually(lambda: inside.open_turns() == {turn["id"]})
            message = {"role": "assistant", "content": "said elsewhere"}
            store.write(turns.finish, turn["id"], "answered", message=message)
            world.wait_for_text("a", "said elsewhere")
    assert len(world.model.model_requests) == 1


def test_what_somebody_else_answered_while_we_did_is_what_the_chat_gets(world: World) -> None:
    quiet = Quiet()
    world.play(silence(quiet, then="said too late"))
    with Inside(world) as inside:
        world.platform.say("a", "one")
        assert quiet.started.wait(20)
        (turn,) = inside.store.read(turns.all_open)
        message = {"role": "assistant", "content": "said elsewhere"}
        inside.store.write(turns.finish, turn["id"], "answered", message=message)
        quiet.release()
        world.wait_for_text("a", "said elsewhere")
        assert inside.services.turns.failed_count == 0
