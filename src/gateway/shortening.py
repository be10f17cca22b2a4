"""Shortening: `/compress` in a chat. It asks a model and works on a conversation, and is no turn."""

import threading
from collections.abc import Generator
from contextlib import contextmanager

from gateway.lanes import Lanes
from hermes_agent.agent import Agent
from hermes_agent.stop import Stop
from hermes_core.errors import UsageError


class Shortenings:
    """The conversations that are being shortened, by key. May be used from several threads."""

    def __init__(self) -> None:
        self._running: dict[str, tuple[Agent, Stop]] = {}
        self._ended = threading.Condition()

    @contextmanager
    def running(self, lanes: Lanes, key: str, agent: Agent) -> Generator[Stop]:
        """Hold back the turns of a conversation while it is compacted; yields the stop of that.

        Raises UsageError when a turn runs.
        """
        with lanes.held_back(key) as lane:
            if lane.current is not None:  # it has begun since the command was let through
                raise UsageError("A turn has just begun here.", fix="Wait for it, or /stop it.")
            with self._ended:
                if key in self._running:
                    raise UsageError("This conversation is being shortened already.")
                self._running[key] = (agent, stop := Stop())
            try:
                yield stop
            finally:
                with self._ended:
                    del self._running[key]
                    self._ended.notify_all()

    def __contains__(self, key: str) -> bool:
        return key in self._running

    def keys_of(self, conversation_id: str) -> list[str]:
        """The keys under which a conversation is being shortened."""
        running = list(self._running.items())
        return [key for key, (agent, _) in running if agent.conversation_id == conversation_id]

    def is_worked_on_by(self, agent: Agent) -> bool:
        """Whether an agent shortens its conversation."""
        return any(agent is one for one, _ in list(self._running.values()))

    def stop(self, key: str) -> bool:
        """Stop the shortening of a conversation, at once; tells whether there is one."""
        with self._ended:
            found = self._running.get(key)
        if found is None:
            return False
        _, stop = found
        stop.set()
        return True

    def wait_for_end(self, key: str, seconds: float) -> bool:
        """Wait until a conversation is not being shortened; tells whether that is so."""
        with self._ended:
            return self._ended.wait_for(lambda: key not in self._running, seconds)
