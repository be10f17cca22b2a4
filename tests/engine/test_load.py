"""An engine under load: many inputs from many threads, stops and shutdowns in the middle."""

import random
import threading
from collections import defaultdict

import pytest

from hermes_agent.models.base import Request
from hermes_agent.testing.scripted import Step, say
from hermes_agent.turn.events import TurnEnded
from hermes_engine.events import LogEntry, TurnCancelled, TurnDetached, TurnQueued, TurnStarted
from hermes_engine.inputs import Input
from hermes_engine.surface import QueuedTurn, Running
from hermes_state.ledger import turns
from hermes_state.values import Accepted, NewSession
from tests.engine.conftest import MakeWorld, World
from tests.support.faults import eventually

CONVERSATIONS = ("a", "b", "c", "d")
INPUTS = 12
"""Per thread."""
_ENDS = TurnEnded | TurnCancelled | TurnDetached


def echo(request: Request) -> Step:
    text = f"answer to {request.messages[-1]['content']}"
    return say(text, chunks=[text[:3], text[3:]])


def accept_many(world: World, seed: int, accepted: list[Accepted]) -> None:
    """Accept inputs in random conversations, and cancel or interrupt now and then."""
    chance = random.Random(seed)
    for number in range(INPUTS):
        conversation = chance.choice(CONVERSATIONS)
        text = f"{seed}/{number}"
        opening = NewSession("schedule")
        item = Input("schedule", conversation, text, opening=opening, idempotency_key=text)
        accepted.append(world.engine.accept(item))
        assert not world.engine.accept(item).is_new, "a second delivery finds the first"
        if chance.random() < 0.15:
            world.engine.cancel(chance.choice(accepted).turn_id, "not wanted")
        if chance.random() < 0.1:
            world.engine.interrupt(conversation)


def load(world: World, threads: int = 3) -> tuple[list[Accepted], list[threading.Thread]]:
    accepted: list[Accepted] = []
    running = [
        threading.Thread(target=accept_many, args=(world, seed, accepted), daemon=True)
        for seed in range(threads)
    ]
    for thread in running:
        thread.start()
    return accepted, running


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def follow_all(world: World) -> dict[str, list[LogEntry]]:
    return {conversation: world.follow(conversation) for conversation in CONVERSATIONS}


def wait_for_ends(world: World, accepted: list[Accepted]) -> None:
    for acceptance in accepted:
        eventually(
            lambda turn_id=acceptance.turn_id: is_over(world, turn_id),
            f"{acceptance.turn_id} to end",
        )


def is_over(world: World, turn_id: str) -> bool:
    row = world.store.read(turns.find, turn_id)
    return row is not None and row["ended_at"] is not None


def positions(world: World, entries: list[LogEntry]) -> list[int]:
    """Where the words of the turns stand that began, in the order in which they did."""
    started_ids = [entry.turn_id for entry in entries if isinstance(entry.event, TurnStarted)]
    rows = [world.store.read(turns.find, turn_id) for turn_id in dict.fromkeys(started_ids)]
    return [row["user_message_id"] for row in rows if row is not None]


def test_every_input_ends_once_and_in_order_and_events_have_no_gaps(make_world: MakeWorld) -> None:
    world = make_world(echo, max_turns=3)
    logs = follow_all(world)
    accepted, threads = load(world)
    join(threads)
    wait_for_ends(world, accepted)
    assert world.engine.work.wait_until_all_idle(20)
    ends: dict[str, int] = defaultdict(int)
    queued: dict[str, int] = defaultdict(int)
    for entries in logs.values():
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        assert positions(world, entries) == sorted(positions(world, entries))
        for entry in entries:
            ends[entry.turn_id] += isinstance(entry.event, _ENDS)
            queued[entry.turn_id] += isinstance(entry.event, TurnQueued)
    expected = dict.fromkeys((acceptance.turn_id for acceptance in accepted), 1)
    assert {turn_id: count for turn_id, count in ends.items() if turn_id} == expected
    assert {turn_id: count for turn_id, count in queued.items() if turn_id} == expected
    answered = [text for text in world.sent() if text.startswith("answer to")]
    states = [
        (world.store.read(turns.find, acceptance.turn_id) or {})["state"] for acceptance in accepted
    ]
    assert len(answered) == len(set(answered)) == states.count("answered") > 0
    reported = [turn_id for turn_id, _ in world.surface.ended]
    assert len(reported) == len(set(reported)), "the surface is told once"


@pytest.mark.parametrize("is_drained", [True, False])
def test_an_engine_that_stops_under_load_leaves_every_input_to_the_next(
    make_world: MakeWorld, is_drained: bool
) -> None:
    world = make_world(echo, max_turns=3)
    accepted, threads = load(world)
    eventually(lambda: len(accepted) > INPUTS // 2)
    if is_drained:
        world.engine.drain(0.05)
        assert not len(world.engine.work), "nothing runs or begins after a drain"
    join(threads)  # what is accepted meanwhile is on disk
    world.engine.close()
    assert not len(world.engine.work)
    later = make_world(echo)
    wait_for_ends(later, accepted)
    assert later.engine.work.wait_until_all_idle(20)
    states = [
        (later.store.read(turns.find, acceptance.turn_id) or {})["state"] for acceptance in accepted
    ]
    assert set(states) <= {"answered", "interrupted"}
    answered = [text for text in later.sent() if text.startswith("answer to")]
    assert len(answered) == len(set(answered)) == states.count("answered")


def test_a_turn_that_was_chosen_is_not_cancelled(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(echo)
    planning, may_go_on = threading.Event(), threading.Event()
    plan = world.surface.plan

    def slow_plan(running: Running) -> object:
        planning.set()
        assert may_go_on.wait(20)
        return plan(running)

    monkeypatch.setattr(world.surface, "plan", slow_plan)
    accepted = world.accept("hello")
    assert planning.wait(20)
    assert not world.engine.cancel(accepted.turn_id, "too late")
    may_go_on.set()
    assert world.wait_for(accepted) == ["answered"]


def test_a_turn_for_which_there_is_no_thread_is_started_later(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(echo)
    start, refused = threading.Thread.start, list[str]()

    def fail_once(thread: threading.Thread) -> None:
        if thread.name == "turn" and not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_once)
    accepted = world.accept("hello")
    assert world.wait_for(accepted) == ["answered"]
    assert refused


def test_nothing_begins_after_a_drain(make_world: MakeWorld) -> None:
    world = make_world(echo)
    assert world.engine.drain(0) == []
    accepted = world.accept("hello")
    row = world.store.read(turns.find, accepted.turn_id) or {}
    turn = QueuedTurn(
        id=row["id"],
        session_id=row["session_id"],
        conversation_id=accepted.conversation_id,
        user_message_id=row["user_message_id"],
        surface=row["surface"],
        permissions=None,
        is_resumed=False,
        is_own=True,
    )
    assert not world.engine.work.begin(Running(turn)), "also when the dispatcher had chosen it"
