"""What the conversations of one process share."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hermes_agent.assembly import Assembly
from hermes_agent.models.base import Model
from hermes_agent.testing.scripted import ScriptedModel
from hermes_agent.turn.events import ignore
from hermes_core.paths import Home
from hermes_core.settings import AgentSettings, ModelSettings, Settings
from hermes_state import SessionDB
from tests.agent.conftest import RecordingHooks, close_agent


class Host(RecordingHooks):
    """A plugin host with one model and two memories, one of which cannot be made."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.conversations: list[list[dict[str, Any]]] = []
        self._model = model

    def load_enabled(self, home: Home, settings: Settings) -> None:
        del home, settings

    def tools(self) -> dict[str, Any]:
        return {}

    def models(self) -> dict[str, Any]:
        return {"scripted": SimpleNamespace(factory=lambda: self._model)}

    def providers(self) -> dict[str, Any]:
        return {}

    def memory_providers(self) -> dict[str, Any]:
        def fail() -> object:
            raise RuntimeError("no memory today")

        learning = SimpleNamespace(on_session_end=self.conversations.append)
        return {
            "broken": SimpleNamespace(factory=fail),
            "diary": SimpleNamespace(factory=lambda: learning),
        }


def assembled(home: Home, store: SessionDB, host: Host) -> Assembly:
    settings = Settings(model=ModelSettings(name="scripted"), agent=AgentSettings(titles=False))
    return Assembly(home, settings, store, host)


def test_a_plugins_model_answers_and_its_memory_learns(
    home: Home, store: SessionDB, tmp_path: Path
) -> None:
    model = ScriptedModel(["hello"])
    host = Host(model)
    parts = assembled(home, store, host)
    agent = parts.agent(None, source="cli", workspace=tmp_path, sink=ignore)
    assert agent.run_conversation("hi")["final_response"] == "hello"
    close_agent(agent, "cli_close")
    assert [[m["content"] for m in conversation] for conversation in host.conversations] == [
        ["hi", "hello"]
    ]
    assert not model.closed, "the model outlives a conversation"
    parts.close()
    assert model.closed
