"""An engine on a real store, with a scripted model and a surface made for the test."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.assembly import Assembly
from hermes_agent.testing.scripted import Script, ScriptedModel
from hermes_agent.turn.events import Event
from hermes_agent.turn.values import Outcome
from hermes_core.paths import Home
from hermes_core.settings import AgentSettings, ModelSettings, Settings
from hermes_engine.engine import Engine
from hermes_engine.events import LogEntry
from hermes_engine.inputs import Input
from hermes_engine.surface import QueuedTurn, Running, TurnPlan
from hermes_state import SessionDB
from hermes_state.values import Accepted, NewSession, OutboundPart
from tests.agent.test_assembly import Host

TIMEOUT_S = 20.0


@dataclass
class FakeSchedule:
    """A surface nobody else knows of: inputs that a clock makes, whose answers go to a chat."""

    workspace: Path
    names: Sequence[str] = ("schedule",)
    ended: list[tuple[str, str]] = field(default_factory=list)
    """The turns that ended, each with its status; empty: another process ended it."""
    problems: list[Exception] = field(default_factory=list)
    """Raised one after the other when turns are planned."""
    planned: list[QueuedTurn] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def adopts(self, turn: QueuedTurn) -> bool:
        del turn
        return False

    def plan(self, running: Running) -> TurnPlan:
        self.planned.append(running.turn)
        if self.problems:
            raise self.problems.pop(0)
        return TurnPlan("schedule", self.workspace, deliver=self.deliver)

    def deliver(self, turn_id: str, outcome: Outcome) -> Sequence[OutboundPart]:
        text = outcome.text or f"{outcome.status}: {outcome.reason}"
        return [OutboundPart("telegram", "42", text, key=f"turn:{turn_id}:0")]

    def report(self, running: Running, event: Event) -> None:
        del running, event

    def turn_ended(self, running: Running, outcome: Outcome | None) -> None:
        with self.changed:
            self.ended.append((running.turn.id, outcome.status if outcome is not None else ""))
            self.changed.notify_all()

    def turn_ended_elsewhere(self, turn_id: str) -> None:
        with self.changed:
            self.ended.append((turn_id, ""))
            self.changed.notify_all()

    def wait_for(self, *turn_ids: str) -> list[str]:
        """Wait until these turns have ended; return their statuses in the order given."""
        with self.changed:
            is_over = self.changed.wait_for(
                lambda: set(turn_ids) <= {turn_id for turn_id, _ in self.ended}, TIMEOUT_S
            )
            assert is_over, f"only {self.ended} ended"
            return [dict(self.ended)[turn_id] for turn_id in turn_ids]


class Plugins(Host):
    """A plugin host whose memory works."""

    def memory_providers(self) -> dict[str, Any]:
        return {"diary": super().memory_providers()["diary"]}


@dataclass
class World:
    """An engine, and everything a test wants to look at."""

    engine: Engine
    surface: FakeSchedule
    store: SessionDB
    model: ScriptedModel
    plugins: Host

    def accept(self, text: str, session_id: str = "s1", **how: Any) -> Accepted:
        return self.engine.accept(
            Input("schedule", session_id, text, opening=NewSession("schedule"), **how)
        )

    def wait_for(self, *accepted: Accepted) -> list[str]:
        return self.surface.wait_for(*(acceptance.turn_id for acceptance in accepted))

    def follow(self, conversation_id: str) -> list[LogEntry]:
        entries: list[LogEntry] = []
        self.engine.subscribe(conversation_id, entries.append, after=0)
        return entries

    def transcript(self, session_id: str = "s1") -> list[Any]:
        found = self.store.get_messages_as_conversation(session_id)
        return [message["content"] for message in found]

    def sent(self) -> list[str]:
        rows = self.store.read(lambda tx: tx.tuples("SELECT content FROM outbox"))
        return [text for (text,) in rows]


def make_assembly(home: Home, store: SessionDB, plugins: Host) -> Assembly:
    """Make what the conversations of an engine share."""
    settings = Settings(model=ModelSettings(name="scripted"), agent=AgentSettings(titles=False))
    return Assembly(home, settings, store, plugins)


MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(home: Home, tmp_path: Path) -> Iterator[MakeWorld]:
    worlds: list[World] = []
    stores: list[SessionDB] = []

    def make(script: Script, *, starts: bool = True, max_turns: int = 4) -> World:
        store = stores[0] if stores else SessionDB(tmp_path / "state.db")
        stores.append(store)
        model = ScriptedModel(script)
        plugins = Plugins(model)
        assembly = make_assembly(home, store, plugins)
        surface = FakeSchedule(tmp_path)
        engine = Engine(assembly, [surface], max_turns=max_turns)
        world = World(engine, surface, store, model, plugins)
        worlds.append(world)
        if starts:
            world.engine.start()
        return world

    yield make
    for world in worlds:
        world.engine.close()
    for store in set(stores):
        store.close()
