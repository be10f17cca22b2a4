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
    used_at: float


class Agents:
    """Agents by their conversation's key; the ones not used for long are let go of.

    A key has several while people with different rights speak there and one of theirs is busy. One that
    runs a turn, or whose processes run, is never closed here; one that lost its place while it ran is
    closed by who ran it (`keeps` tells).
    """

    def __init__(self, is_running: Callable[[Agent], bool], most: int = MOST) -> None:
        self._is_running = is_running
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, Hashable], _Kept] = OrderedDict()
        """By key and kind, the one used last at the end."""

    def get(self, key: str, kind: Hashable, make: Callable[[], Agent]) -> Agent:
        """The agent of a key that is of a kind; made when there is none."""
        with self._lock:
            if (kept := self._kept.get((key, kind))) is not None:
                kept.used_at = clock.now()
                self._kept.move_to_end((key, kind))
                return kept.agent
        agent = make()
        with self._lock:
            idle = [one for one in self._of(key) if not self._is_busy(self._kept[one].agent)]
            left = [self._kept.pop(one).agent for one in idle]
            self._kept[key, kind] = _Kept(agent, clock.now())
            left += self._too_many()
        for one in left:
            one.close()
        return agent

    def peek(self, key: str) -> Agent | None:
        """The agent of a key that was used last, when one is awake."""
        with self._lock:
            of_key = self._of(key)
            return self._kept[of_key[-1]].agent if of_key else None

    def keeps(self, key: str, agent: Agent) -> bool:
        """Whether an agent still has its place."""
        with self._lock:
            return any(self._kept[one].agent is agent for one in self._of(key))

    def has_processes(self, key: str) -> bool:
        """Whether processes run that an agent of a key has started."""
        with self._lock:
            return any(_has_processes(self._kept[one].agent) for one in self._of(key))

    def drop(self, key: str) -> Agent | None:
        """Forget the agents of a key and hand the one over that was used last; closing that is up to who
        asked.
        """
        with self._lock:
            dropped = [self._kept.pop(one).agent for one in self._of(key)]
        last = dropped.pop() if dropped else None
        for agent in dropped:
            if not self._is_running(agent):
                agent.close()
        return last

    def sweep(self, idle_s: float = IDLE_S) -> int:
        """Let go of those not used for long; returns how many."""
        oldest = clock.now() - idle_s
        with self._lock:
            idle = [
                one
                for one, kept in self._kept.items()
                if kept.used_at < oldest and not self._is_busy(kept.agent)
            ]
            left = [self._kept.pop(one).agent for one in idle]
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

    def _of(self, key: str) -> list[tuple[str, Hashable]]:
        """The places of a key, the one used last at the end; the lock is held."""
        return [one for one in self._kept if one[0] == key]

    def _too_many(self) -> list[Agent]:
        left: list[Agent] = []
        for one in list(self._kept):
            if len(self._kept) <= self._most:
                break
            if not self._is_busy(self._kept[one].agent):
                left.append(self._kept.pop(one).agent)
        return left

    def _is_busy(self, agent: Agent) -> bool:
        """Whether an agent works, or processes that it started do."""
        return self._is_running(agent) or _has_processes(agent)


def _has_processes(agent: Agent) -> bool:
    return agent.bench.processes.has_running(agent.conversation_id)
