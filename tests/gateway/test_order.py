"""One order for the turns of a conversation, however many chats are in it."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.lanes import Lane, Lanes, Waiting
from gateway.origin import Origin
from hermes_agent.testing.scripted import Quiet, call, say, silence
from hermes_state import SessionDB
from tests.gateway.living import Inside, Process, World
from tests.support.examples import examples
from tests.support.faults import eventually

pytestmark = pytest.mark.promise("P5")

_PATIENCE_S = 10


def _meet(world: World, routes: Callable[[], str]) -> None:
    """Have the chats a and b be in one conversation, whose session is told."""
    world.platform.say("a", "zero")
    world.wait_for_text("a", "You said: zero")
    world.platform.say("b", f"/resume {routes()}")
    world.wait_for_text("b", "You are in")


def _inside(inside: Inside) -> str:
    (entry,) = inside.runner.session_store.list_sessions()
    return entry.session_id


def _taken(world: World, chat: str, text: str) -> None:
    """Say something and wait until it is on disk."""
    world.platform.say(chat, text)
    world.platform.wait_until(lambda: not world.platform.unacknowledged())


def _asked(world: World) -> list[str]:
    """The last words that the model was asked, request by request."""
    said = (request.json["messages"] for request in world.model.asked)
    return [[one for one in messages if one["role"] == "user"][-1]["content"] for messages in said]


# -- chats -----------------------------------------------------------------------------------------


def test_who_came_first_is_answered_first_whichever_chat_it_is(world: World) -> None:
    quiet = Quiet()
    with Inside(world) as inside:
        _meet(world, lambda: _inside(inside))
        world.play(silence(quiet, then="the first"))
        world.platform.say("a", "one")
        assert quiet.begun.wait(_PATIENCE_S)
        for chat, text in (("b", "two"), ("a", "three"), ("b", "four"), ("a", "five")):
            _taken(world, chat, text)
        quiet.release()
        world.wait_for_text("a", "You said: five")
        world.wait_for_text("b", "You said: four")
        assert _asked(world) == ["zero", "one", "two", "three", "four", "five"]
        _resumed, *said = [one.partition("\n")[0] for one in world.replies("b")]
        assert "another chat of this conversation is answered first" in said[0]
        assert said[1:] == ["You said: two", "You said: four"]


def test_a_chat_whose_message_is_queued_hears_that_it_waits_for_another_one(world: World) -> None:
    quiet = Quiet()
    with Inside(world) as inside:
        _meet(world, lambda: _inside(inside))
        world.play(silence(quiet, then="the first"))
        world.platform.say("a", "one")
        assert quiet.begun.wait(_PATIENCE_S)
        world.platform.say("b", "/queue two")
        world.wait_for_text("b", "another chat of this conversation is answered first")
        quiet.release()
        world.wait_for_text("b", "You said: two")


def test_the_order_holds_across_a_kill(world: World) -> None:
    quiet = Quiet()

    def there() -> str:
        with SessionDB(world.home.database) as store:
            (row,) = store.list_sessions_rich()
            return str(row["id"])

    with Process(world) as gateway:
        gateway.wait_until_up()
        _meet(world, there)
        world.play(silence(quiet))
        world.platform.say("a", "one")
        assert quiet.begun.wait(_PATIENCE_S)
        for chat, text in (("b", "two"), ("a", "three"), ("b", "four")):
            _taken(world, chat, text)
        gateway.kill()
    before = len(world.model.asked)
    with Process(world) as gateway:
        gateway.wait_until_up()
        world.wait_for_text("b", "You said: four")
        world.wait_for_text("a", "You said: three")
    assert _asked(world)[before:] == ["one", "two", "three", "four"]


def test_a_chat_that_leaves_takes_what_waits_along_and_holds_nobody_up(world: World) -> None:
    quiet = Quiet()
    with Inside(world) as inside:
        _meet(world, lambda: _inside(inside))
        world.play(silence(quiet, then="the first"))
        world.platform.say("a", "one")
        assert quiet.begun.wait(_PATIENCE_S)
        _taken(world, "b", "two")
        _taken(world, "a", "three")
        world.platform.say("b", "/new")
        world.wait_for_text("b", "1 waiting message will be answered in it.")
        world.wait_for_text("b", "You said: two")  # beside what runs: it is in another conversation
        assert "zero" not in json.dumps(world.model.asked[-1].json)
        quiet.release()
        world.wait_for_text("a", "You said: three")
        assert inside.store.check() == []


def test_what_was_taken_back_in_one_chat_holds_up_no_other(world: World) -> None:
    quiet = Quiet()
    with Inside(world) as inside:
        _meet(world, lambda: _inside(inside))
        world.play(silence(quiet, then="the first"))
        world.platform.say("a", "one")
        assert quiet.begun.wait(_PATIENCE_S)
        _taken(world, "b", "two")
        _taken(world, "a", "three")
        house = inside.house
        (waits,) = [one for one in house.lanes.held if inside.store.turns.user_text(one) == "two"]
        row = inside.store.inbox.of_turn(waits)
        assert row is not None
        assert house.withdraw(json.loads(row["payload"])["session_key"], waits, "taken back")
        quiet.release()
        world.wait_for_text("a", "You said: three")
        eventually(lambda: house.lanes.held == set())


# -- a busy conversation ---------------------------------------------------------------------------


def test_a_message_interrupts_what_runs_for_another_chat_which_hears_of_it(world: World) -> None:
    world.configure(busy="interrupt")
    quiet = Quiet()
    with Inside(world) as inside:
        _meet(world, lambda: _inside(inside))
        world.play(silence(quiet))
        world.platform.say("a", "one")
        assert quiet.begun.wait(_PATIENCE_S)
        world.platform.say("b", "two")
        world.wait_for_text("a", "⏹ Stopped from another chat")
        world.wait_for_text("b", "You said: two")


def test_a_message_is_said_to_what_runs_for_another_chat(world: World) -> None:
    world.configure(busy="steer")
    quiet = Quiet()
    with Inside(world) as inside:
        _meet(world, lambda: _inside(inside))
        world.play(replace(call("todo"), quiet=quiet), say("both done"))
        world.platform.say("a", "one")
        assert quiet.begun.wait(_PATIENCE_S)
        world.platform.say("b", "and blue, please")
        world.wait_for_text("b", "is answered there")
        quiet.release()
        world.wait_for_text("a", "both done")
        assert "and blue, please" in json.dumps(world.model.asked[-1].json)
        eventually(lambda: inside.house.lanes.held == set())
        assert len(world.model.asked) == 3


def test_a_chat_hears_that_its_turn_was_stopped_from_another_one(world: World) -> None:
    quiet = Quiet()
    with Inside(world) as inside:
        _meet(world, lambda: _inside(inside))
        world.play(silence(quiet))
        world.platform.say("a", "one")
        assert quiet.begun.wait(_PATIENCE_S)
        world.platform.say("b", "/stop")
        world.wait_for_text("b", "⏹ Stopping.")
        world.wait_for_text("a", "⏹ Stopped from another chat")


# -- the lanes by themselves -----------------------------------------------------------------------


def test_what_is_said_while_a_chat_leaves_does_not_overtake_what_goes_along() -> None:
    ran: list[str] = []
    gate = threading.Event()

    def run(_lane: Lane, waiting: Waiting) -> None:
        if waiting.turn_id == "runs":
            gate.wait(_PATIENCE_S)
        ran.append(waiting.turn_id)

    lanes = Lanes(run, at_once=2)
    for name, room, place in (("runs", "X", 1), ("waits", "X", 2), ("said since", "Y", 4)):
        lanes.put("chat", Waiting(name, "s", room, Origin({}), place))
    lanes.follow("X", "Y", {"waits": 3})
    gate.set()
    eventually(lambda: not lanes.held, "the end of all")
    assert ran == ["runs", "waits", "said since"]
    lanes.close()


@dataclass
class _Turn:
    """What the lanes are told, and a plain account of where it stands."""

    waiting: Waiting
    chat: str
    may_end: threading.Event = field(default_factory=threading.Event)
    runs: bool = False


class _Chats(RuleBasedStateMachine):
    """Chats that come and go in conversations, beside a plain account of what may run."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[_Turn] = []
        """What runs and waits, in the order of the conversations."""
        self.rooms: dict[str, str] = {}
        self.running: set[str] = set()
        self.holds: dict[str, Any] = {}
        self.number = 0
        self.lanes = Lanes(self._run, at_once=8)

    def _run(self, _lane: Lane, waiting: Waiting) -> None:
        turn = next(one for one in self.turns if one.waiting is waiting)
        self.running.add(waiting.turn_id)
        turn.may_end.wait(_PATIENCE_S)
        self.running.discard(waiting.turn_id)

    def _of(self, chat: str) -> list[_Turn]:
        return [one for one in self.turns if one.chat == chat]

    @property
    def _waits(self) -> list[_Turn]:
        return [one for one in self.turns if not one.runs]

    def _begin_what_may(self) -> None:
        """What runs now, by the account: no lane and no conversation has two, and each its first."""
        for turn in self.turns:
            first_here = self._of(turn.chat)[0]
            room = turn.waiting.conversation_id
            first_there = next(one for one in self.turns if one.waiting.conversation_id == room)
            if turn is first_here is first_there and turn.chat not in self.holds:
                turn.runs = True

    @rule(chat=st.sampled_from("abc"), room=st.sampled_from("XY"))
    def say(self, chat: str, room: str) -> None:
        self.put(self.said(chat, self.rooms.setdefault(chat, room)))

    def said(self, chat: str, room: str) -> _Turn:
        """Something is on disk, and in no lane yet."""
        self.number += 1
        place = Origin({}, session_key=chat)
        turn = _Turn(Waiting(f"t{self.number}", "s", room, place, self.number), chat)
        self.turns.append(turn)
        return turn

    def put(self, turn: _Turn) -> None:
        room = turn.waiting.conversation_id
        there = [one for one in self.turns if one.waiting.conversation_id == room]
        assert self.lanes.put(turn.chat, turn.waiting) == there.index(turn)

    @rule(
        chat=st.sampled_from("abc"),
        room=st.sampled_from("XY"),
        says=st.sampled_from(("nothing", "before", "after")),
    )
    def leave(self, chat: str, room: str, says: str) -> None:
        """What is said meanwhile may be in its lane before what goes along, or come into it later."""
        former = self.rooms.get(chat)
        if former is None or former == room:
            return
        self.rooms[chat] = room
        along = [one for one in self._of(chat) if not one.runs]
        places = {one.waiting.turn_id: self.number + at for at, one in enumerate(along, 1)}
        self.number += len(along)
        said = self.said(chat, room) if says != "nothing" else None
        if said is not None and says == "before":
            self.lanes.put(chat, said.waiting)
        self.lanes.follow(former, room, places)
        for one in along:
            assert one.waiting.conversation_id == room
        after = [said] if said is not None else []
        moved = [*along, *after]
        self.turns = [one for one in self.turns if one not in moved] + moved
        if said is not None and says == "after":
            self.put(said)

    @precondition(lambda self: any(one.runs for one in self.turns))
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        turn = data.draw(st.sampled_from([one for one in self.turns if one.runs]))
        self.turns.remove(turn)
        turn.may_end.set()

    @precondition(lambda self: bool(self._waits))
    @rule(data=st.data())
    def take_back(self, data: st.DataObject) -> None:
        turn = data.draw(st.sampled_from(self._waits))
        self.lanes.take_back(turn.chat, turn.waiting.turn_id)
        self.turns.remove(turn)

    @precondition(lambda self: bool(self._waits))
    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        turn = data.draw(st.sampled_from(self._waits))
        self.number += 1
        old = turn.waiting
        turn.waiting = replace(old, turn_id=f"t{self.number}")
        self.lanes.replace(turn.chat, old.turn_id, turn.waiting)

    @rule(chat=st.sampled_from("abc"))
    def hold_back(self, chat: str) -> None:
        if chat not in self.holds:
            self.holds[chat] = self.lanes.held_back(chat)
            self.holds[chat].__enter__()

    @precondition(lambda self: bool(self.holds))
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        chat = data.draw(st.sampled_from(sorted(self.holds)))
        self.holds.pop(chat).__exit__(None, None, None)

    @invariant()
    def what_may_run_runs_and_nothing_else(self) -> None:
        self._begin_what_may()
        expected = {one.waiting.turn_id for one in self.turns if one.runs}
        eventually(lambda: self.running == expected, f"{expected}, not {self.running}")
        assert self.lanes.held == {one.waiting.turn_id for one in self.turns}
        for turn in self.turns:
            at_work = self.lanes.at_work_on(turn.waiting.conversation_id)
            assert not turn.runs or (at_work is not None and at_work.key == turn.chat)

    def teardown(self) -> None:
        for hold in self.holds.values():
            hold.__exit__(None, None, None)
        self.holds.clear()
        while self.turns:
            self.what_may_run_runs_and_nothing_else()
            (*_, turn) = [one for one in self.turns if one.runs]
            self.turns.remove(turn)
            turn.may_end.set()
        eventually(lambda: not self.lanes._lanes, "the end of the lanes")
        assert self.lanes._orders == {}
        self.lanes.close()


_Chats.TestCase.settings = settings(
    max_examples=examples(40), stateful_step_count=25, deadline=None
)
TestChats = _Chats.TestCase
