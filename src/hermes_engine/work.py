"""Work: the turns that run in this process, one per conversation, and conversations that are paused."""

import threading
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from hermes_agent.agent import Agent
from hermes_agent.turn.stop import Stop
from hermes_core.errors import UsageError
from hermes_engine.surface import Running


class Work:
    """The conversations at work in this process. May be used from several threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: dict[str, Running] = {}
        self._paused: Counter[str] = Counter()
        self._compacting: dict[str, tuple[Agent, Stop]] = {}
        self._is_closed = False
        self._ended_since_mark: set[str] = set()
        """Conversations whose work ended since `mark`: what was read before that is out of date."""

    def mark(self) -> None:
        """Remember from now on what ends."""
        with self._changed:
            self._ended_since_mark.clear()

    def begin(self, running: Running, limit: int | None = None) -> bool:
        """Note that a conversation is at work.

        Returns False, and notes nothing, when it is at work already, is paused, its work ended since the
        last mark, `limit` conversations are at work, or nothing begins any more.
        """
        with self._changed:
            key = running.turn.conversation_id
            if self._is_closed:
                return False
            if key in self._running or key in self._compacting or self._paused[key]:
                return False
            if key in self._ended_since_mark:
                return False
            if limit is not None and len(self._running) >= limit:
                return False
            self._running[key] = running
            self._changed.notify_all()
            return True

    def shut_down(self) -> None:
        """Begin no more turns: the engine shuts down."""
        with self._changed:
            self._is_closed = True

    def end(self, running: Running) -> None:
        """Note that the work on a conversation has ended."""
        with self._changed:
            key = running.turn.conversation_id
            if self._running.get(key) is running:
                del self._running[key]
                self._ended_since_mark.add(key)
            self._changed.notify_all()

    def get(self, conversation_id: str) -> Running | None:
        """Return the work on a conversation, if there is any."""
        return self._running.get(conversation_id)

    def find(self, turn_id: str) -> Running | None:
        """Return the work on a turn, if it runs here."""
        return next((running for running in self if running.turn.id == turn_id), None)

    def uses(self, agent: Agent) -> bool:
        """Return whether an agent works."""
        with self._changed:
            is_compacting = any(agent is other for other, _ in self._compacting.values())
        return is_compacting or any(running.agent is agent for running in self)

    def is_compacting(self, conversation_id: str) -> bool:
        """Return whether a conversation is compacted now, between turns."""
        return conversation_id in self._compacting

    def is_at_work(self, conversation_id: str) -> bool:
        """Return whether a turn or a compaction of a conversation runs here."""
        return conversation_id in self._running or conversation_id in self._compacting

    def interrupt(self, conversation_id: str, by: str) -> bool:
        """Stop the turn or the compaction of a conversation; return whether there is one."""
        with self._changed:
            running = self._running.get(conversation_id)
            compaction = self._compacting.get(conversation_id)
            if running is not None:
                running.stopped_by = running.stopped_by or by
        if running is not None:
            running.stop.set()
        if compaction is not None:
            compaction[1].set()
        return running is not None or compaction is not None

    @contextmanager
    def compacting(self, agent: Agent) -> Generator[Stop]:
        """Compact a conversation inside the block; nothing begins in it meanwhile.

        Raises UsageError when a turn or another compaction runs in it.
        """
        key, stop = agent.conversation_id, Stop()
        with self._changed:
            if key in self._compacting:
                raise UsageError("This conversation is being compacted already.")
            if key in self._running:
                raise UsageError("A turn has just started.", fix="Wait for it, or /stop it.")
            self._compacting[key] = (agent, stop)
        try:
            yield stop
        finally:
            with self._changed:
                del self._compacting[key]
                self._changed.notify_all()

    def __iter__(self) -> Iterator[Running]:
        with self._changed:
            return iter(list(self._running.values()))

    def __len__(self) -> int:
        return len(self._running)

    def wait_until_begun(self, conversation_id: str, timeout_s: float, stop: Stop) -> None:
        """Wait until something runs in a conversation, or a stop is set that calls `notify`."""
        with self._changed:
            self._changed.wait_for(
                lambda: stop.is_set or self.is_at_work(conversation_id), timeout_s
            )

    def wait_until_idle(
        self, conversation_id: str, timeout_s: float | None = None, stop: Stop | None = None
    ) -> bool:
        """Wait until nothing runs in a conversation, or a stop is set that calls `notify`.

        Returns whether nothing runs.
        """

        def is_over() -> bool:
            return (stop is not None and stop.is_set) or not self.is_at_work(conversation_id)

        with self._changed:
            self._changed.wait_for(is_over, timeout_s)
            return not self.is_at_work(conversation_id)

    def notify(self) -> None:
        """Wake those who wait here, to look again."""
        with self._changed:
            self._changed.notify_all()

    def wait_until_all_idle(self, timeout_s: float) -> bool:
        """Wait until nothing runs; return whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, timeout_s)

    @contextmanager
    def paused(self, *conversation_ids: str) -> Generator[None]:
        """Begin nothing in these conversations inside the block; running turns continue."""
        with self._changed:
            self._paused.update(conversation_ids)
        try:
            yield
        finally:
            with self._changed:
                self._paused.subtract(conversation_ids)
                self._paused += Counter()  # drops those at zero
