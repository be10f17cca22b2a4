"""The engine: inputs of a surface it does not know become turns, which run in order and end once."""

import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from hermes_agent.testing.scripted import Quiet, call, say
from hermes_agent.testing.scripted import silence as falls_silent
from hermes_agent.turn.events import TextDelta, TurnEnded
from hermes_core.errors import UsageError
from hermes_engine.events import Gap, TurnCancelled, TurnDetached, TurnQueued, TurnStarted
from hermes_engine.inputs import Input
from hermes_engine.surface import NotReadyError, Running, TurnPlan
from hermes_state.ledger import questions, turns
from hermes_state.values import InboundMessage, NewSession
from tests.engine.conftest import FakeSchedule, MakeWorld
from tests.support.faults import eventually, no_threads


def test_an_input_is_answered_and_its_reply_is_stored_with_the_end(make_world: MakeWorld) -> None:
    world = make_world(["At nine."])
    accepted = world.accept("When do we start?")
    assert world.wait_for(accepted) == ["answered"]
    assert world.transcript() == ["When do we start?", "At nine."]
    assert world.sent() == ["At nine."]


def test_a_second_delivery_finds_the_first_turn(make_world: MakeWorld) -> None:
    world = make_world(["once"])
    first = world.accept("hello", inbound=InboundMessage("telegram", "42", "7"))
    world.wait_for(first)
    again = world.accept("hello", inbound=InboundMessage("telegram", "42", "7"))
    assert (again.turn_id, again.is_new) == (first.turn_id, False)
    assert world.sent() == ["once"]


def test_turns_of_a_conversation_run_in_the_order_of_their_messages(make_world: MakeWorld) -> None:
    world = make_world(["one", "two", "three"], starts=False)
    accepted = [world.accept(text) for text in ("1", "2", "3")]
    world.engine.start()
    assert world.wait_for(*accepted) == ["answered"] * 3
    assert [turn.id for turn in world.surface.planned] == [
        acceptance.turn_id for acceptance in accepted
    ]
    assert world.sent() == ["one", "two", "three"]


def test_conversations_run_beside_each_other(make_world: MakeWorld) -> None:
    silence = Quiet()
    world = make_world([falls_silent(silence, then="late"), "soon"])
    slow = world.accept("wait", "s1")
    assert silence.started.wait(20)
    quick = world.accept("now", "s2")
    assert world.wait_for(quick) == ["answered"]
    silence.release()
    assert world.wait_for(slow) == ["answered"]


def test_an_interrupt_stops_the_running_turn_and_no_other(make_world: MakeWorld) -> None:
    silence = Quiet()
    world = make_world([falls_silent(silence), "next"])
    first, second = world.accept("first"), world.accept("second")
    assert silence.started.wait(20)
    assert world.engine.interrupt(first.conversation_id)
    assert world.wait_for(first, second) == ["interrupted", "answered"]
    assert not world.engine.interrupt(first.conversation_id)


def test_a_stop_reaches_a_turn_that_was_chosen_and_has_not_begun(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(["never said"])
    planning, go_on = threading.Event(), threading.Event()
    plan = world.surface.plan

    def slow_plan(running: Running) -> TurnPlan:
        planning.set()
        assert go_on.wait(20)
        return plan(running)

    monkeypatch.setattr(world.surface, "plan", slow_plan)
    accepted = world.accept("hello")
    assert planning.wait(20)
    assert world.engine.interrupt(accepted.conversation_id)
    go_on.set()
    assert world.wait_for(accepted) == ["interrupted"]
    assert world.model.requests == []


def test_a_queued_turn_can_be_cancelled_and_a_running_one_cannot(make_world: MakeWorld) -> None:
    silence = Quiet()
    world = make_world([falls_silent(silence, then="done")])
    first, second = world.accept("first"), world.accept("second")
    assert silence.started.wait(20)
    entries = world.follow(first.conversation_id)
    open_turns = world.engine.open_turns(first.conversation_id)
    assert [row["id"] for row in open_turns] == [first.turn_id, second.turn_id]
    assert world.engine.cancel(second.turn_id, "not wanted")
    assert not world.engine.cancel(first.turn_id, "too late")
    silence.release()
    assert world.wait_for(first) == ["answered"]
    assert world.transcript() == ["first", "done"]
    assert TurnCancelled("not wanted") in [entry.event for entry in entries]


def test_a_new_version_of_a_queued_message_is_answered_in_its_place(make_world: MakeWorld) -> None:
    silence = Quiet()
    world = make_world([falls_silent(silence), "yours", "the new one", "behind"])
    first = world.accept("first")
    assert silence.started.wait(20)
    old, behind = world.accept("old"), world.accept("behind")
    entries = world.follow(first.conversation_id)
    message = {"role": "user", "content": "new"}
    new = world.engine.replace(old.turn_id, message, InboundMessage("telegram", "42", "8"))
    assert new is not None
    latest = [(entry.turn_id, type(entry.event)) for entry in entries[-2:]]
    assert latest == [(old.turn_id, TurnCancelled), (new.turn_id, TurnQueued)]
    world.engine.interrupt(first.conversation_id)
    assert world.wait_for(first, new, behind) == ["interrupted", "answered", "answered"]
    assert "old" not in world.transcript()
    assert world.transcript().index("new") < world.transcript().index("behind")
    again = world.engine.replace(old.turn_id, message, InboundMessage("telegram", "42", "9"))
    assert again is None, "it is not queued any more"


def test_a_module_brings_a_further_kind_of_input_to_a_running_engine(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    world = make_world(["Good morning."])
    item = Input("alarm", "s2", "Wake them.", opening=NewSession("alarm"))
    with pytest.raises(LookupError, match="'alarm' is not served here"):
        world.engine.accept(item)
    alarm = FakeSchedule(tmp_path, names=("alarm",))
    world.engine.serve(alarm)
    accepted = world.engine.accept(item)
    assert alarm.wait_for(accepted.turn_id) == ["answered"]
    assert world.surface.ended == []


def test_a_surface_that_is_not_ready_keeps_its_turn_waiting(make_world: MakeWorld) -> None:
    world = make_world(["here"], starts=False)
    world.surface.problems = [NotReadyError()]
    accepted = world.accept("hello")
    world.engine.start()
    eventually(lambda: not world.surface.problems)
    other = world.accept("other", "s2")
    assert world.wait_for(other) == ["answered"]
    assert world.engine.open_turns(accepted.conversation_id)
    world.model.add("now")
    world.engine.wake(accepted.conversation_id)
    assert world.wait_for(accepted) == ["answered"]


def test_a_wake_between_the_answer_not_ready_and_the_wait_is_not_lost(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(["here"])
    plan = world.surface.plan

    def ready_a_moment_later(running: Running) -> TurnPlan:
        monkeypatch.setattr(world.surface, "plan", plan)
        world.engine.wake()
        raise NotReadyError

    monkeypatch.setattr(world.surface, "plan", ready_a_moment_later)
    assert world.wait_for(world.accept("hello")) == ["answered"]


def test_a_turn_that_cannot_be_planned_fails_with_a_notice(make_world: MakeWorld) -> None:
    world = make_world([])
    world.surface.problems = [UsageError("There is no such schedule.")]
    accepted = world.accept("hello")
    assert world.wait_for(accepted) == ["failed"]
    row = world.store.read(turns.find, accepted.turn_id)
    assert row is not None
    assert row["reason"] == "There is no such schedule."


def test_a_turn_needs_no_thread_beside_its_own(make_world: MakeWorld) -> None:
    with ExitStack() as without:
        for name in ("prepare", "leases", "partial replies", "title"):
            without.enter_context(no_threads(name))
        world = make_world(["Hello."])
        assert world.wait_for(world.accept("hello")) == ["answered"]


def test_a_turn_without_memory_fails_and_says_so(make_world: MakeWorld) -> None:
    world = make_world([])
    world.surface.problems = [RuntimeError("can't start new thread")]
    accepted = world.accept("hello")
    assert world.wait_for(accepted) == ["failed"]
    row = world.store.read(turns.find, accepted.turn_id)
    assert row is not None and "short of memory" in row["reason"]


def test_a_stop_ends_a_turn_that_is_not_ready(make_world: MakeWorld) -> None:
    world = make_world([])
    planning, may_go_on = threading.Event(), threading.Event()

    def plan(_running: Running) -> TurnPlan:
        planning.set()
        may_go_on.wait(20)
        raise NotReadyError

    world.surface.plan = plan  # pyright: ignore[reportAttributeAccessIssue]
    accepted = world.accept("hello")
    assert planning.wait(20)
    assert world.engine.interrupt(accepted.conversation_id)
    assert world.wait_for(accepted) == ["interrupted"], "it does not wait for what is slow"
    may_go_on.set()


def test_a_turn_that_a_dead_process_had_begun_can_be_ended_before_it_runs_here(
    make_world: MakeWorld,
) -> None:
    world = make_world([], starts=False)
    accepted = world.accept("hello")
    world.store.write(turns.start, accepted.turn_id)
    entries = world.follow(accepted.conversation_id)
    arguments = (accepted.turn_id, accepted.conversation_id, "not wanted")
    assert world.engine.interrupt_unstarted(*arguments)
    assert not world.engine.interrupt_unstarted(*arguments), "it has its end"
    assert entries[-1].event == TurnEnded("interrupted", "", "not wanted")


def test_nothing_begins_in_a_paused_conversation(make_world: MakeWorld) -> None:
    world = make_world(["later", "first"])
    opened = world.accept("hello")
    world.wait_for(opened)
    with world.engine.paused(opened.conversation_id) as is_idle:
        assert is_idle
        held = world.accept("again")
        other = world.accept("elsewhere", "s2")
        world.wait_for(other)
        assert [row["id"] for row in world.engine.open_turns(opened.conversation_id)] == [
            held.turn_id
        ]
    world.model.add("at last")
    assert world.wait_for(held) == ["answered"]


def test_who_follows_a_turn_hears_that_another_process_has_ended_it(make_world: MakeWorld) -> None:
    world = make_world([], starts=False)
    accepted = world.accept("hello")
    entries = world.follow(accepted.conversation_id)
    world.store.write(turns.cancel, accepted.turn_id, "answered elsewhere")
    world.engine.start()
    assert world.wait_for(accepted) == [""]
    world.engine.close()
    ends = [(entry.turn_id, type(entry.event)) for entry in entries]
    assert ends == [(accepted.turn_id, TurnDetached)]


def test_who_follows_a_postponed_turn_hears_that_another_process_has_ended_it(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world([], starts=False)
    plan = world.surface.plan

    def end_it_elsewhere(running: Running) -> TurnPlan:
        monkeypatch.setattr(world.surface, "plan", plan)
        world.store.write(turns.cancel, running.turn.id, "answered elsewhere")
        raise NotReadyError

    monkeypatch.setattr(world.surface, "plan", end_it_elsewhere)
    accepted = world.accept("hello")
    entries = world.follow(accepted.conversation_id)
    world.engine.start()
    assert world.wait_for(accepted) == [""]
    world.engine.close()
    ends = [(entry.turn_id, type(entry.event)) for entry in entries]
    assert ends == [(accepted.turn_id, TurnDetached)]


def test_a_drain_suspends_what_does_not_end_and_a_start_goes_on(make_world: MakeWorld) -> None:
    silence = Quiet()
    world = make_world([falls_silent(silence)])
    accepted, waiting = world.accept("first"), world.accept("second")
    assert silence.started.wait(20)
    cut_off = world.engine.drain(0.0)
    assert [running.turn.id for running in cut_off] == [accepted.turn_id]
    assert world.wait_for(accepted) == ["suspended"]
    world.engine.close()
    later = make_world(["one", "two"])
    assert later.wait_for(accepted, waiting) == ["answered", "answered"]
    assert later.sent() == ["one", "two"]


@pytest.mark.promise("P12")
def test_events_are_numbered_and_a_late_subscriber_gets_what_it_missed(
    make_world: MakeWorld,
) -> None:
    world = make_world([say("a b", chunks=["a ", "b"])])
    accepted = world.accept("hello", is_followed=True)
    world.wait_for(accepted)
    entries = world.follow(accepted.conversation_id)
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    kinds = [type(entry.event) for entry in entries]
    assert kinds[:2] == [TurnQueued, TurnStarted]
    assert kinds[-1] is TurnEnded
    text = "".join(e.event.text for e in entries if isinstance(e.event, TextDelta))
    assert text == "a b"
    rest: list[int] = []
    world.engine.subscribe(
        accepted.conversation_id, lambda entry: rest.append(entry.seq), after=entries[1].seq
    )
    assert rest == [entry.seq for entry in entries[2:]]


def test_a_subscriber_with_numbers_of_another_log_is_told_to_read_the_store(
    make_world: MakeWorld,
) -> None:
    world = make_world(["hi"])
    accepted = world.accept("hello")
    world.wait_for(accepted)
    gap = world.engine.subscribe(
        accepted.conversation_id, lambda _entry: None, after=3, log_id="another"
    )
    assert gap == Gap(world.engine.log(accepted.conversation_id).id, gap.seq if gap else 0)


def test_a_question_of_a_turn_is_answered_once_and_only_where_it_was_asked(
    make_world: MakeWorld,
) -> None:
    world = make_world([call("clarify", question="Which one?"), "Thanks."])
    accepted = world.accept("Buy it.")
    here = [accepted.conversation_id]
    eventually(lambda: bool(world.store.read(questions.pending)), "the question")
    (question,) = world.store.read(questions.pending)
    with pytest.raises(UsageError, match="no open question"):
        world.engine.answer(question["id"], "the red one", conversations=["another"])
    world.engine.answer(question["id"], "the red one", conversations=here, by="tui")
    with pytest.raises(UsageError, match="no open question"):
        world.engine.answer(question["id"], "the blue one", conversations=here)
    assert world.wait_for(accepted) == ["answered"]
    row = world.store.read(questions.fetch, question["id"])
    assert (row["answer"], row["answered_by"]) == ("the red one", "tui")
