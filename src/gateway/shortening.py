"""Shortening: `/compress` in a chat. It asks a model and works on a conversation, and is no turn."""

import threading
from collections.abc import Generator
from contextlib import contextmanager

from gateway.lanes import Lanes
from hermes_agent.agent import Agent
from hermes_core.errors import UsageError

_PRESS_EVERY_S = 0.05
_MOST_PRESSES = 200


class Shortenings:
    """The conversations that are being shortened, by key. May be used from several threads."""

    def __init__(self) -> None:
        self._agents: dict[str, Agent] = {}
        self._ended = threading.Condition()

    @contextmanager
    def running(self, lanes: Lanes, key: str, agent: Agent) -> Generator[None]:
        """Shorten a conversation; its turns wait meanwhile. Raises UsageError when one runs."""
        with lanes.held_back(key) as lane:
            if lane.current is not None:  # it has begun since the command was let through
                raise UsageError("A turn has just begun here.", fix="Wait for it, or /stop it.")
            with self._ended:
                if key in self._agents:
                    raise UsageError("This conversation is being shortened already.")
                self._agents[key] = agent
            try:
                yield
            finally:
                with self._ended:
                    del self._agents[key]
                    self._ended.notify_all()

    def __contains__(self, key: str) -> bool:
        return key in self._agents

    def keys_of(self, conversation_id: str) -> list[str]:
        """The keys under which a conversation is being shortened."""
        agents = list(self._agents.items())
        return [key for key, agent in agents if agent.conversation_id == conversation_id]

    def is_worked_on_by(self, agent: Agent) -> bool:
        """Whether an agent shortens its conversation."""
        return agent in self._agents.values()

    def stop(self, key: str) -> bool:
        """Stop the shortening of a conversation, at once; tells whether there is one."""
        with self._ended:
            agent = self._agents.get(key)
        if agent is None:
            return False
        threading.Thread(target=self._press, args=(key, agent), daemon=True).start()
        return True

    def _press(self, key: str, agent: Agent) -> None:
        """Stop it until it has heard: one that is about to begin does not hear the first time."""
        for _ in range(_MOST_PRESSES):
            agent.interrupt()
            if self.wait_for_end(key, _PRESS_EVERY_S):
                return

    def wait_for_end(self, key: str, seconds: float) -> bool:
        """Wait until a conversation is not being shortened; tells whether that is so."""
        with self._ended:
            return self._ended.wait_for(lambda: key not in self._agents, seconds)
