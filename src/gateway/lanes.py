"""Lanes: one a chat; the turns in it run one after the other, those of other conversations beside them.

Several chats may be in one conversation. Its turns run one after the other all the same, in the order
in which they came, whichever lanes they are in: a lane waits while its first turn is not the next one
of its conversation, and takes no thread meanwhile. Lanes and conversations go by the same places, those
of the words on disk, so that no two of them can wait for each other.

A lane only orders what the store holds already: a process that dies loses nothing of it.
"""

import logging
import threading
from bisect import insort_left
from collections import deque
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from gateway.origin import Origin
from hermes_agent.stop import Stop

logger = logging.getLogger(__name__)

_TRY_AGAIN_S = 1.0
_LEAVING_S = 3.0
"""What a turn does after its end, as telling plugins, is waited for so long."""


class NotYet(Exception):
    """A turn cannot begin now, because its conversation is run elsewhere: it goes on waiting."""


@dataclass(eq=False)
class Waiting:
    """A turn that is on disk and has not begun."""

    turn_id: str
    session_id: str
    conversation_id: str
    origin: Origin
    place: int
    """That of its words: who waits has lower ones before it."""
    text: str = ""
    makes_session: bool = False
    model_name: str = ""
    stop: Stop = field(default_factory=Stop)
    is_stopped_elsewhere: bool = False
    """Whether it was stopped from another chat, so that its own must hear of it."""
    has_asked: bool = False
    """Whether it has put a question, which may be answered by now."""


@dataclass(eq=False)
class Lane:
    """The turns of one chat, or of a job beside it."""

    key: str
    queue: deque[Waiting] = field(default_factory=deque[Waiting])
    current: Waiting | None = None
    is_served: bool = False
    """Whether a thread runs what waits, or is about to."""
    holds: int = 0
    """How many want nothing to begin in it."""

    @property
    def turns(self) -> list[Waiting]:
        """What runs and what waits."""
        return [*([self.current] if self.current is not None else []), *self.queue]

    @property
    def is_empty(self) -> bool:
        return self.current is None and not self.queue


_Order = list[tuple[Lane, Waiting]]
"""What runs and waits in one conversation, and where; what runs is the first."""


class Lanes:
    """Runs what waits, at most so many turns at once. May be used from several threads."""

    def __init__(self, run: Callable[[Lane, Waiting], None], at_once: int) -> None:
        self._run = run
        self._pool = ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="turn")
        self._lock = threading.Lock()
        self._lanes: dict[str, Lane] = {}
        self._orders: dict[str, _Order] = {}
        self._is_closed = False
        self._closing = threading.Event()
        self._left = threading.Condition(self._lock)
        """Notified when a turn leaves its lane."""

    def put(self, key: str, waiting: Waiting) -> int:
        """Have a turn run after those before it in its conversation; returns how many these are.

        One that is there already keeps its place: it may be found on disk before it is put.
        """
        with self._lock:
            if self._is_closed:
                return 0  # it is on disk, and runs after the next start
            lane = self._lanes.setdefault(key, Lane(key))
            known = next((one for one in lane.turns if one.turn_id == waiting.turn_id), None)
            if known is None:
                self._line_up(lane, waiting)
                self._serve(lane)
            return self._ahead_of(known or waiting)

    def follow(self, former_id: str, conversation_id: str, places: Mapping[str, int]) -> None:
        """Have turns that wait be answered in another conversation, at the places that their words have
        there, since their chat left the one that they were in; the store says so already.
        """
        with self._lock:
            moved = [
                (lane, one)
                for lane, one in self._orders.get(former_id, ())
                if one.turn_id in places and one is not lane.current
            ]
            for lane, one in moved:
                lane.queue.remove(one)
                self._strike(one)
                one.conversation_id, one.place = conversation_id, places[one.turn_id]
                self._line_up(lane, one)
            for lane, _ in moved:
                self._serve(lane)
            self._go_on(former_id)

    @contextmanager
    def held_back(self, key: str) -> Generator[Lane]:
        """Begin nothing in a lane meanwhile. What runs in it goes on, and what comes waits."""
        with self._lock:
            lane = self._lanes.setdefault(key, Lane(key))
            lane.holds += 1
        try:
            yield lane
        finally:
            with self._lock:
                lane.holds -= 1
                self._serve(lane)

    def find(self, key: str) -> Lane | None:
        """The lane of a key, when something runs or waits in it."""
        return self._lanes.get(key)

    def at_work_on(self, conversation_id: str) -> Lane | None:
        """The lane in which a turn of a conversation runs now."""
        with self._lock:
            order = self._orders.get(conversation_id)
            return order[0][0] if order is not None and _is_at_work(order) else None

    def beside(self, key: str) -> list[Lane]:
        """The lanes beside a chat's own in which something that came from there runs or waits."""
        with self._lock:
            return [
                lane
                for lane in self._lanes.values()
                if lane.key != key and any(one.origin.session_key == key for one in lane.turns)
            ]

    def is_busy(self, key: str, is_over: Callable[[str], bool]) -> bool:
        """Whether a turn runs or waits in a lane.

        One that is over on disk, so that its reply may have been read, leaves its lane in a moment:
        that is waited for.
        """
        lane = self._lanes.get(key)
        if lane is None:
            return False
        current = lane.current
        if current is not None and is_over(current.turn_id):
            with self._left:
                self._left.wait_for(lambda: lane.current is not current, _LEAVING_S)
        return not lane.is_empty

    def wait_for_end(self, lane: Lane, seconds: float) -> bool:
        """Wait until nothing runs in a lane that is held back; tells whether that is so."""
        with self._left:
            return self._left.wait_for(lambda: lane.current is None, seconds)

    @property
    def held(self) -> set[str]:
        """The turns that wait or run here."""
        with self._lock:
            return {one.turn_id for lane in self._lanes.values() for one in lane.turns}

    def waiting(self, key: str) -> list[Waiting]:
        """What waits in a lane behind what runs."""
        with self._lock:
            lane = self._lanes.get(key)
            return list(lane.queue) if lane is not None else []

    def take_back(self, key: str, turn_id: str) -> None:
        """Take a turn that waits out of its lane; the store says already that it is over."""
        with self._lock:
            lane = self._lanes.get(key)
            waiting = _find(lane, turn_id) if lane is not None else None
            if lane is None or waiting is None:
                return
            lane.queue.remove(waiting)
            self._strike(waiting)
            self._serve(lane)
            self._go_on(waiting.conversation_id)

    def replace(self, key: str, turn_id: str, waiting: Waiting) -> None:
        """Have a turn run in the place of one that waits, or was about to begin and is over."""
        with self._lock:
            if self._is_closed:
                return  # it is on disk, and runs after the next start
            lane = self._lanes.setdefault(key, Lane(key))
            if (old := _find(lane, turn_id)) is not None:
                waiting.conversation_id, waiting.place = old.conversation_id, old.place
                lane.queue.remove(old)
                self._strike(old)
            elif lane.turns:
                waiting.place = lane.turns[0].place
            self._line_up(lane, waiting)
            self._serve(lane)

    @property
    def running(self) -> list[Lane]:
        """The lanes in which a turn runs."""
        with self._lock:
            return [lane for lane in self._lanes.values() if lane.current is not None]

    @property
    def waiting_count(self) -> int:
        with self._lock:
            return sum(len(lane.queue) for lane in self._lanes.values())

    def close(self) -> None:
        """Begin no more turns; those that run go on."""
        with self._lock:
            self._is_closed = True
            self._closing.set()
            self._pool.shutdown(wait=False)

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait for the turns that run; tells whether they have ended."""
        with self._left:
            return self._left.wait_for(
                lambda: all(lane.current is None for lane in self._lanes.values()), seconds
            )

    def _serve(self, lane: Lane) -> None:
        """Have a thread run what waits in a lane, or forget one that is empty; the lock is held."""
        if lane.is_served or lane.holds:
            return
        if self._is_closed or not lane.queue:
            self._lanes.pop(lane.key, None)
        elif self._is_next(lane.queue[0]):
            lane.is_served = True
            self._pool.submit(self._drain, lane)

    def _line_up(self, lane: Lane, waiting: Waiting) -> None:
        """Put a turn in its place in its lane and its conversation, before another one of the same
        place.
        """
        insort_left(lane.queue, waiting, key=lambda one: one.place)
        order = self._orders.setdefault(waiting.conversation_id, [])
        insort_left(order, (lane, waiting), lo=_is_at_work(order), key=lambda one: one[1].place)

    def _ahead_of(self, waiting: Waiting) -> int:
        """How many run or wait in its conversation before a turn."""
        return [one for _, one in self._orders[waiting.conversation_id]].index(waiting)

    def _is_next(self, waiting: Waiting) -> bool:
        """Whether nothing of its conversation runs, or waits before it."""
        return self._orders[waiting.conversation_id][0][1] is waiting

    def _strike(self, waiting: Waiting) -> None:
        """Take a turn out of the order of its conversation."""
        order = self._orders[waiting.conversation_id]
        self._orders[waiting.conversation_id] = [one for one in order if one[1] is not waiting]

    def _go_on(self, conversation_id: str) -> None:
        """Serve the lane in which a conversation's next turn waits."""
        if order := self._orders.get(conversation_id):
            self._serve(order[0][0])
        else:
            self._orders.pop(conversation_id, None)

    def _drain(self, lane: Lane) -> None:
        while True:
            with self._lock:
                if (over := lane.current) is not None:
                    lane.current = None
                    self._strike(over)
                    self._go_on(over.conversation_id)
                is_held_up = self._is_closed or lane.holds > 0
                if is_held_up or not lane.queue or not self._is_next(lane.queue[0]):
                    lane.is_served = False
                    self._serve(lane)
                    self._left.notify_all()
                    return
                lane.current = lane.queue.popleft()
                self._left.notify_all()
            try:
                self._run(lane, lane.current)
            except NotYet:
                self._put_back(lane)
            except Exception:  # the last boundary of a turn: those behind it must run
                logger.exception("turn %s could not be run", lane.current.turn_id)

    def _put_back(self, lane: Lane) -> None:
        """Have what could not begin wait as before, in its place, and try again soon."""
        with self._lock:
            if (waiting := lane.current) is not None:
                lane.current = None
                self._strike(waiting)
                self._line_up(lane, waiting)
                self._go_on(waiting.conversation_id)
            self._left.notify_all()
        self._closing.wait(_TRY_AGAIN_S)


def _find(lane: Lane, turn_id: str) -> Waiting | None:
    """The turn of this id, if it waits in a lane."""
    return next((one for one in lane.queue if one.turn_id == turn_id), None)


def _is_at_work(order: _Order) -> bool:
    """Whether the first turn of a conversation runs."""
    return bool(order) and order[0][0].current is order[0][1]
