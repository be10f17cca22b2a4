"""What the agent's tests share: a conversation with a scripted model, on a real store."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.agent import Agent
from hermes_agent.hooks import NoHooks
from hermes_agent.models.base import Facts
from hermes_agent.testing.scripted import RecordingSink, Script, ScriptedModel
from hermes_agent.tools.base import Args, Call, Result, Tool
from hermes_agent.tools.registry import Toolbox
from hermes_agent.turn.events import QuestionAsked
from hermes_core.paths import Home
from hermes_core.settings import AgentSettings, Settings
from hermes_engine import closing
from hermes_state import SessionDB
from hermes_state.ledger import questions
from hermes_state.ledger import turns as turn_ledger


@dataclass
class Counting:
    """A tool that counts how often it ran, as a side effect would."""

    name: str = "count"
    read_only: bool = False
    then: Callable[[Args, Call], Result | str] = lambda _args, _call: "counted"
    runs: list[Args] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)

    def tool(self) -> Tool:
        def run(args: Args, call: Call) -> Result | str:
            self.runs.append(args)
            return self.then(args, call)

        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        return Tool(
            self.name, f"{self.name}.", schema, run, read_only=self.read_only, **self.options
        )


class RecordingHooks(NoHooks):
    """Hooks that remember what they were called with, and may answer."""

    def __init__(self, **answers: Callable[..., Any]) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.answers = answers

    def has_hook(self, name: str, /) -> bool:
        return True

    def invoke_hook(self, name: str, /, **kwargs: Any) -> list[Any]:
        self.calls.append((name, kwargs))
        answer = self.answers.get(name)
        found = answer(**kwargs) if answer else None
        return [] if found is None else [found]

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def of(self, name: str) -> list[dict[str, Any]]:
        return [kwargs for called, kwargs in self.calls if called == name]


@dataclass
class Chat:
    """A conversation, and everything a test wants to look at."""

    agent: Agent
    model: ScriptedModel
    store: SessionDB
    sink: RecordingSink
    hooks: RecordingHooks

    def say(self, text: Any = "hello", **how: Any) -> dict[str, Any]:
        return self.agent.run_conversation(text, **how)

    def transcript(self) -> list[tuple[str, Any]]:
        found = self.store.get_messages_as_conversation(self.agent.session_id)
        return [(message["role"], message["content"]) for message in found]

    def turns(self) -> list[dict[str, Any]]:
        return self.store.read(turn_ledger.of_session, self.agent.session_id)

    def states(self) -> list[str]:
        return [turn["state"] for turn in self.turns()]


class Person:
    """Answers every question in the same way, and remembers them."""

    def __init__(self, chat: Chat, store: SessionDB, answer: str) -> None:
        self.questions: list[QuestionAsked] = []
        record = chat.agent.sink

        def report(event: Any) -> None:
            record(event)
            if isinstance(event, QuestionAsked):
                self.questions.append(event)
                store.write(questions.answer, event.question_id, answer, by="tester")

        chat.agent.sink = report


def close_agent(
    agent: Agent, end_reason: str, *, completed: bool = False, interrupted: bool = True
) -> None:
    """Close the conversation of an agent, as the engine does."""
    conversation = closing.OpenConversation(
        session_id=lambda: agent.session_id,
        platform=agent.platform,
        hooks=agent.hooks,
        record=lambda session_id: closing.record_end(agent.store, session_id, end_reason),
        agent=agent,
    )
    closing.close(conversation, completed=completed, interrupted=interrupted)


MakeChat = Callable[..., Chat]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionDB]:
    with SessionDB(tmp_path / "state.db") as opened:
        yield opened


@pytest.fixture
def make_chat(store: SessionDB, home: Home, tmp_path: Path) -> Iterator[MakeChat]:
    chats: list[Chat] = []

    def make(
        script: Script,
        tools: Sequence[Tool] = (),
        *,
        settings: Settings | None = None,
        facts: Facts | None = None,
        hooks: RecordingHooks | None = None,
        on: SessionDB | None = None,
        **how: Any,
    ) -> Chat:
        model = ScriptedModel(script, facts=facts)
        sink, hooks = RecordingSink(), hooks or RecordingHooks()
        workspace = tmp_path / "work"
        workspace.mkdir(exist_ok=True)
        agent = Agent(
            model,
            Toolbox(tools),
            on or store,
            settings or Settings(agent=AgentSettings(titles=False)),
            home,
            hooks=hooks,
            sink=sink,
            workspace=workspace,
            **how,
        )
        chats.append(Chat(agent, model, on or store, sink, hooks))
        return chats[-1]

    yield make
    for chat in chats:
        chat.agent.close()
