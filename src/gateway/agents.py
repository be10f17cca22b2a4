"""Agents: the conversations that are awake, so that the next message need not wake them again."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from hermes_agent.agent import Agent
from hermes_core import clock

MOST = 256
IDLE_S = 3600.0


@dataclass
class _Kept:
    agent: Agent
    signature: Hashable
    used_at: float


class Agents:
    """Agents by their conversation's key; the ones not used for long are let go of.

    One that runs a turn, or whose processes run, is never closed here; one that lost its place while it
    ran is closed by who ran it (`keeps` tells).
    """

    def __init__(self, is_running: Callable[[Agent], bool], most: int = MOST) -> None:
        self._is_running = is_running
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def get(self, key: str, signature: Hashable, make: Callable[[], Agent]) -> Agent:
        """The agent of a key; made when there is none, or one of another kind."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and kept.signature == signature:
                kept.used_at = clock.now()
                self._kept.move_to_end(key)
                return kept.agent
        agent = make()
        with self._lock:
            former = self._kept.pop(key, None)
            self._kept[key] = _Kept(agent, signature, clock.now())
            left = self._too_many()
            if former is not None and not self._is_running(former.agent):
                left.append(former.agent)
        for one in left:
            one.close()
        return agent

    def peek(self, key: str) -> Agent | None:
        """The agent of a key, when it is awake."""
        kept = self._kept.get(key)
        return kept.agent if kept is not None else None

    def keeps(self, key: str, agent: Agent) -> bool:
        """Whether an agent still has its place."""
        return self.peek(key) is agent

    def drop(self, key: str) -> Agent | None:
        """Forget the agent of a key and hand it over; closing it is up to who asked."""
        with self._lock:
            kept = self._kept.pop(key, None)
        return kept.agent if kept is not None else None

    def sweep(self, idle_s: float = IDLE_S) -> int:
        """Let go of those not used for long; returns how many."""
        oldest = clock.now() - idle_s
        with self._lock:
            idle = [
                key
                for key, kept in self._kept.items()
                if kept.used_at < oldest and not self._is_busy(kept.agent)
            ]
            left = [self._kept.pop(key).agent for key in idle]
        for agent in left:
            agent.close()
        return len(left)

    def close(self) -> None:
        """Let go of all."""
        with self._lock:
            left = [kept.agent for kept in self._kept.values()]
            self._kept.clear()
        for agent in left:
            agent.close()

    def __len__(self) -> int:
        return len(self._kept)

    def _too_many(self) -> list[Agent]:
        left: list[Agent] = []
        for key in list(self._kept):
            if len(self._kept) <= self._most:
                break
            if not self._is_busy(self._kept[key].agent):
                left.append(self._kept.pop(key).agent)
        return left

    def _is_busy(self, agent: Agent) -> bool:
        """Whether an agent works, or processes that it started do."""
        return self._is_running(agent) or agent.bench.processes.has_running(agent.conversation_id)
