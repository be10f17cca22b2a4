"""What the tests of tools share: a bench on a real store, and calls as the gate would make them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.approval.danger import Danger, access_of, places
from hermes_agent.approval.gate import Permit
from hermes_agent.sandbox.sandboxes import Host, Sandbox
from hermes_agent.tools import schema
from hermes_agent.tools.base import Args, Call, Result, Tool, ToolContext
from hermes_agent.tools.processes import Processes
from hermes_agent.turn.stop import Stop
from hermes_core import config
from hermes_core.errors import ToolError
from hermes_core.paths import Home
from hermes_core.settings import Settings, ToolSettings
from hermes_state import SessionDB
from hermes_state.values import TaintSource


@dataclass
class Desk:
    """A bench, and what a test wants to see of calls."""

    bench: ToolContext
    session_id: str = "s1"
    updates: list[str] = field(default_factory=list)
    questions: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    read: list[TaintSource] = field(default_factory=list)
    nested: list[tuple[str, Args]] = field(default_factory=list)
    run_nested: Callable[[str, Args], Result] = lambda name, args: Result(f"{name} {args}")

    @property
    def workspace(self) -> Path:
        return self.bench.workspace

    def call(self, stop: Stop | None = None, permit: Permit | None = None) -> Call:
        def ask(question: str, choices: Sequence[str]) -> str:
            self.questions.append((question, tuple(choices)))
            return "blue"

        def run_tool(name: str, arguments: Args) -> Result:
            self.nested.append((name, arguments))
            return self.run_nested(name, arguments)

        return Call(
            id="c1",
            session_id=self.session_id,
            turn_id="t1",
            bench=self.bench,
            stop=stop or Stop(),
            permit=permit or Permit._for_tests(),
            progress=self.updates.append,
            ask_user=ask,
            ask_host=self.hosts.append,
            note_host=lambda _host: None,
            run_tool=run_tool,
            delegate=lambda task, context: Result(f"did {task} with {context!r}"),
            note_read=self.read.append,
        )

    def run(self, tool: Tool, stop: Stop | None = None, **args: Any) -> Result:
        """Check the arguments, allow all dangers, and run a tool, as the executor does."""
        checked = schema.check(tool.parameters, args)
        path = self._path(tool, checked)
        access = access_of(tool.dangers_of(self._judged(tool, checked), self.bench))
        answer = tool.run(checked, self.call(stop, Permit._for_tests(access, path)))
        return answer if isinstance(answer, Result) else Result(answer)

    def text(self, tool: Tool, **args: Any) -> str:
        return self.run(tool, **args).text

    def error(self, tool: Tool, **args: Any) -> str:
        with pytest.raises(ToolError) as caught:
            self.run(tool, **args)
        return str(caught.value)

    def dangers(self, tool: Tool, **args: Any) -> list[Danger]:
        checked = schema.check(tool.parameters, args)
        return list(tool.dangers_of(self._judged(tool, checked), self.bench))

    def _judged(self, tool: Tool, args: Args) -> Args:
        return {**args, tool.subject: self._path(tool, args)} if tool.is_path else args

    def _path(self, tool: Tool, args: Args) -> str:
        """The path as the gate resolves it."""
        return (
            places.resolve(args.get(tool.subject, "."), str(self.bench.cwd)) if tool.is_path else ""
        )

    def kinds(self, tool: Tool, **args: Any) -> list[str]:
        return [danger.kind for danger in self.dangers(tool, **args)]


MakeDesk = Callable[..., Desk]


@pytest.fixture
def make_desk(home: Home, tmp_path: Path) -> Iterator[MakeDesk]:
    store = SessionDB(tmp_path / "state.db")
    store.create_session("s1", "cli")
    opened: list[Processes] = []

    def make(sandbox: Sandbox | None = None, **tools: Any) -> Desk:
        workspace = tmp_path / "work"
        workspace.mkdir(exist_ok=True)
        processes = Processes(sandbox or Host())
        opened.append(processes)
        bench = ToolContext(
            home=home.create(),
            settings=Settings(tools=ToolSettings(**tools)),
            store=store,
            processes=processes,
            workspace=workspace,
            cwd=workspace,
            environment=config.command_environment(Settings()),
        )
        return Desk(bench)

    yield make
    for processes in opened:
        processes.close()
    store.close()


@pytest.fixture
def desk(make_desk: MakeDesk) -> Desk:
    return make_desk()
