"""Awake agents: conversations whose agent is in memory, so that the next turn need not make it again."""

import threading
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from hermes_agent.agent import Agent
from hermes_agent.permissions import Permissions
from hermes_core import clock

MAX_AWAKE = 256
IDLE_TIMEOUT_S = 3600.0

_Key = tuple[str, Permissions | None]


class _Awake(msgspec.Struct):
    agent: Agent
    used_at: float


class AwakeAgents:
    """Agents by conversation and permissions; those not used for long are closed.

    A conversation has several while people with different permissions speak in it. An agent that
    works, or whose background processes run, is never closed here.
    """

    def __init__(self, is_working: Callable[[Agent], bool], max_awake: int = MAX_AWAKE) -> None:
        self.is_working = is_working
        self._max_awake = max_awake
        self._lock = threading.Lock()
        self._awake: OrderedDict[_Key, _Awake] = OrderedDict()
        """The one used last is at the end."""

    def get(
        self, conversation_id: str, permissions: Permissions | None, make: Callable[[], Agent]
    ) -> Agent:
        """Return the agent of a conversation; make it when there is none. Raises what `make` raises."""
        key = (conversation_id, permissions)
        with self._lock:
            if (awake := self._awake.get(key)) is not None:
                awake.used_at = clock.now()
                self._awake.move_to_end(key)
                return awake.agent
        agent = make()
        with self._lock:
            if (awake := self._awake.get(key)) is not None:  # another thread was faster
                dropped, agent = [agent], awake.agent
            else:
                idle = [other for other in self._of(conversation_id) if not self._is_busy(other)]
                dropped = [self._awake.pop(other).agent for other in idle]
                self._awake[key] = _Awake(agent, clock.now())
                dropped += self._over_limit()
        _close(dropped)
        return agent

    def peek(self, conversation_id: str) -> Agent | None:
        """Return the agent of a conversation that was used last, if one is awake."""
        with self._lock:
            keys = self._of(conversation_id)
            return self._awake[keys[-1]].agent if keys else None

    def holds(self, agent: Agent) -> bool:
        """Return whether an agent is still cached; its runner closes one that is not."""
        with self._lock:
            return any(awake.agent is agent for awake in self._awake.values())

    def has_processes(self, conversation_id: str) -> bool:
        """Return whether background processes of a conversation run."""
        with self._lock:
            return any(_has_processes(self._awake[key].agent) for key in self._of(conversation_id))

    def drop(self, conversation_id: str) -> Agent | None:
        """Forget the agents of a conversation and return the one used last, for the caller to close."""
        with self._lock:
            dropped = [self._awake.pop(key).agent for key in self._of(conversation_id)]
        last = dropped.pop() if dropped else None
        _close([agent for agent in dropped if not self.is_working(agent)])
        return last

    def sweep(self, idle_s: float = IDLE_TIMEOUT_S) -> int:
        """Close those not used for long; return how many."""
        before = clock.now() - idle_s
        with self._lock:
            idle = [key for key, awake in self._awake.items() if awake.used_at < before]
            dropped = [self._awake.pop(key).agent for key in idle if not self._is_busy(key)]
        _close(dropped)
        return len(dropped)

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            dropped = [awake.agent for awake in self._awake.values()]
            self._awake.clear()
        _close(dropped)

    def __len__(self) -> int:
        return len(self._awake)

    def _of(self, conversation_id: str) -> list[_Key]:
        """Return the keys of a conversation, the one used last at the end; the lock is held."""
        return [key for key in self._awake if key[0] == conversation_id]

    def _over_limit(self) -> list[Agent]:
        idle = [key for key in self._awake if not self._is_busy(key)]
        surplus = max(0, len(self._awake) - self._max_awake)
        return [self._awake.pop(key).agent for key in idle[:surplus]]

    def _is_busy(self, key: _Key) -> bool:
        agent = self._awake[key].agent
        return self.is_working(agent) or _has_processes(agent)


def _close(agents: list[Agent]) -> None:
    for agent in agents:
        agent.close()


def _has_processes(agent: Agent) -> bool:
    return agent.tool_context.processes.has_running(agent.conversation_id)
