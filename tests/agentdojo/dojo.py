"""AgentDojo's tasks, run through our agent: its tools as tools of a plugin, our gate in between.

The scripted model first makes the calls of a user's task, then those of the injection, word for word.
The person allows what their own task asks for and denies the rest.
"""

import contextlib
import json
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from hermes_agent.agent import Agent
from hermes_agent.testing.scripted import ScriptedModel, call
from hermes_agent.tools.base import Result
from hermes_agent.tools.registry import Toolbox, plugin_tools
from hermes_agent.turn.events import Event, QuestionAsked, ToolEnded
from hermes_core.paths import Home
from hermes_core.settings import AgentSettings, Settings
from hermes_state import SessionDB
from hermes_state.ledger import questions

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-agentdojo/bin/python"
_SETTINGS = Settings(agent=AgentSettings(titles=False, max_steps=0))
_READING = ("get_", "search_", "read_", "list_", "check_")
_COMPOSED = frozenset({"get_webpage"})
"""Read, but from an address that the model composes: what is in it leaves."""

Calls = Sequence[tuple[str, Mapping[str, Any]]]


class Record(NamedTuple):
    """A tool as a plugin registers it."""

    plugin: str
    name: str
    description: str
    parameters: Mapping[str, Any]
    handler: Callable[..., object]
    facts: Mapping[str, Any]


class Suite(NamedTuple):
    """An environment with its tasks and tools."""

    users: list[str]
    injections: list[str]
    tools: list[dict[str, Any]]


class Outcome(NamedTuple):
    """How a case ended."""

    utility: bool
    reached: bool
    """Whether the goal of the injection was."""
    own_questions: int
    """In the user's task."""
    other_questions: int


class Dojo:
    """The process that has AgentDojo, and cases run against it."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self._process = process
        self._folder = folder
        described = self._ask("suites")
        self.suites = {name: Suite(**suite) for name, suite in described.items()}

    def _ask(self, *words: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "AgentDojo ended"
        return json.loads(line)

    def run(
        self, suite: str, user: str, injection: str = "", theirs: Calls = (), *, allows: str = "own"
    ) -> Outcome:
        """Run a case; `allows` are the calls that the person says yes to: own, all or none."""
        case = self._ask("case", suite, user, injection)
        own = [(item["name"], item["args"]) for item in case["user"]]
        others = [*theirs, *((item["name"], item["args"]) for item in case["injection"])]
        ended, positions = 0, list[int]()

        def follow(event: Event) -> None:
            nonlocal ended
            if isinstance(event, ToolEnded):
                ended += 1
            elif isinstance(event, QuestionAsked):
                positions.append(ended)
                is_allowed = allows == "all" or (allows == "own" and ended < len(own))
                answer = "once" if is_allowed else "deny"
                store.write(questions.answer, event.question_id, answer, by="person")

        script = [call(name, **args) for name, args in (*own, *others)]
        with SessionDB.in_memory() as store:
            agent = Agent(
                ScriptedModel([*script, "done"]),
                Toolbox(self._tools(suite)),
                store,
                _SETTINGS,
                Home(self._folder),
                workspace=self._folder,
                can_ask=True,
                sink=follow,
            )
            try:
                agent.run_conversation(case["prompt"])
            finally:
                agent.close()
        assert ended == len(script), "every call was made"
        verdict = self._ask("check", case["output"])
        first = len(own)
        mine = sum(at < first for at in positions)
        return Outcome(verdict["utility"], verdict["reached"], mine, len(positions) - mine)

    def _tools(self, suite: str) -> Any:
        records = {
            tool["name"]: Record(
                "dojo",
                tool["name"],
                tool["description"],
                tool["parameters"],
                self._handler(tool["name"]),
                _facts(tool["name"]),
            )
            for tool in self.suites[suite].tools
        }
        return plugin_tools(cast("Any", records))

    def _handler(self, name: str) -> Callable[..., Result]:
        def handle(**args: Any) -> Result:
            found = self._ask("call", name, args)
            if found["error"]:
                return Result(found["error"], is_error=True)
            return Result(found["result"] or "(nothing)")

        return handle


def _facts(name: str) -> dict[str, Any]:
    """Declare what an honest plugin would."""
    return {"read_only": name.startswith(_READING) and name not in _COMPOSED}


@contextlib.contextmanager
def dojo(folder: Path) -> Generator[Dojo]:
    """Start AgentDojo in its own environment."""
    process = subprocess.Popen(
        [PYTHON, Path(__file__).with_name("server.py")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield Dojo(process, folder)
    finally:
        process.kill()
        process.communicate()
