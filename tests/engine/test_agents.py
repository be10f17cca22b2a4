"""Awake agents: which of them are closed, and when."""

from typing import Any

from hermes_agent.permissions import Permissions
from hermes_engine.agents import AwakeAgents
from hermes_state.values import Scope


class FakeAgent:
    """As much of an agent as is asked of it here."""

    conversation_id = "c"

    def __init__(self, *, has_processes: bool = False) -> None:
        self.is_closed = False
        self.tool_context: Any = self
        self.processes: Any = self
        self._has_processes = has_processes

    def has_running(self, _conversation_id: str) -> bool:
        return self._has_processes

    def close(self) -> None:
        self.is_closed = True


def person(name: str) -> Permissions:
    return Permissions(name, "member", Scope("telegram", name), is_private=True)


def get(agents: AwakeAgents, conversation_id: str, name: str, agent: Any) -> None:
    agents.get(conversation_id, person(name), lambda: agent)


def test_an_agent_that_works_is_not_closed_when_another_takes_its_place() -> None:
    working: list[object] = []
    agents = AwakeAgents(is_working=lambda agent: agent in working, max_awake=2)
    first, second, third = (FakeAgent() for _ in range(3))
    get(agents, "a", "one", first)
    working.append(first)
    get(agents, "a", "two", second)
    assert not first.is_closed
    get(agents, "a", "three", third)
    assert second.is_closed
    assert agents.peek("a") is third  # type: ignore[comparison-overlap]
    assert agents.drop("a") is third  # type: ignore[comparison-overlap]
    assert not first.is_closed
    assert not agents.holds(first), "whoever runs it closes it"  # type: ignore[arg-type]


def test_the_agent_used_longest_ago_is_closed_unless_it_is_busy() -> None:
    agents = AwakeAgents(is_working=lambda _agent: False, max_awake=2)
    busy, others = FakeAgent(has_processes=True), [FakeAgent() for _ in range(3)]
    for conversation_id, agent in zip("abcd", (busy, *others), strict=True):
        get(agents, conversation_id, "one", agent)
    assert [agent.is_closed for agent in (busy, *others)] == [False, True, True, False]
    assert agents.sweep(idle_s=-1) == 1
    assert others[-1].is_closed
    assert not busy.is_closed
