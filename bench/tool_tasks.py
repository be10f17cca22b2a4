"""`python -m bench.tool_tasks`: how many of the twenty tasks the embedded model does in the real agent.

Every task has a folder and a conversation of its own. Approvals are given for all of them: the folders
are thrown away. The model is not asked whether it succeeded.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench.tasks import TASKS, Task
from hermes_agent.agent import Agent
from hermes_agent.models.base import Model
from hermes_agent.models.embedded.model import EmbeddedModel, open_model
from hermes_agent.models.small import SmallModel
from hermes_agent.tools.registry import Toolbox, default_tools
from hermes_agent.turn.events import Event, ToolEnded, ToolStarted
from hermes_core import config
from hermes_core.paths import Home
from hermes_core.settings import AgentSettings, ApprovalSettings, Settings
from hermes_state import SessionDB

MUST = 14
_SETTINGS = Settings(agent=AgentSettings(titles=False), approvals=ApprovalSettings(mode="allow"))


class Score(NamedTuple):
    """How a task went."""

    task: Task
    is_done: bool
    seconds: float
    reply: str
    calls: list[str]


def attempt(task: Task, model: Model, place: Path) -> Score:
    """Have a task done in a folder of its own, and look at what came out."""
    folder = place / "work"
    for name, content in task.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8")
    folder.mkdir(exist_ok=True)
    calls: list[str] = []
    asked: dict[str, str] = {}

    def hear(event: Event) -> None:
        if isinstance(event, ToolStarted):
            asked[event.call_id] = f"{event.name}{event.arguments}"
        elif isinstance(event, ToolEnded):
            calls.append(f"{asked.pop(event.call_id, event.name)} -> {event.result[:70]!r}")

    home = Home(place / "home").create()
    with SessionDB(home.database) as store:
        toolbox = Toolbox(default_tools(_SETTINGS))
        agent = Agent(model, toolbox, store, _SETTINGS, home, workspace=folder, sink=hear)
        began = time.perf_counter()
        outcome = agent.run_conversation(task.ask)
        seconds = time.perf_counter() - began
        agent.close()
    reply = outcome["final_response"] or ""
    return Score(task, task.is_done(folder, reply), seconds, reply, calls)


def _model(name: str) -> Model:
    path = Path(name).expanduser()
    home = config.home()
    if path.is_file():
        return SmallModel(EmbeddedModel(path, cache=home.cache / "prompts"))
    return SmallModel(open_model(home, name))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.tool_tasks", description=__doc__)
    parser.add_argument("--model", default="", help="name of a pulled model, or a GGUF file")
    parser.add_argument("--only", metavar="NAME[,NAME]", help="do some tasks")
    parser.add_argument("--verbose", action="store_true", help="show calls and replies")
    given = parser.parse_args()
    given.names = given.only.split(",") if given.only else [task.name for task in TASKS]
    if unknown := set(given.names) - {task.name for task in TASKS}:
        parser.error(f"no such task: {', '.join(sorted(unknown))}")
    return given


def main() -> int:
    given = _arguments()
    model = _model(given.model)
    done = 0
    chosen = [task for task in TASKS if task.name in given.names]
    for task in chosen:
        with tempfile.TemporaryDirectory(prefix="hermes-task-") as folder:
            score = attempt(task, model, Path(folder))
        done += score.is_done
        outcome = "done" if score.is_done else "MISSED"
        print(
            f"{task.name:15} {outcome:7} {score.seconds:6.1f} s  {len(score.calls)} calls",
            flush=True,
        )
        if given.verbose:
            for line in [*score.calls, f"reply: {score.reply[:200]!r}"]:
                print(f"    {line}", flush=True)
    print(f"{model.facts.name}: {done} of {len(chosen)} done, {MUST} of {len(TASKS)} must be")
    return 0 if done * len(TASKS) >= MUST * len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
