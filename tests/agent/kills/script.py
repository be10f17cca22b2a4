"""What the killed agents do: turns with tools that leave a trace outside of the store.

The scripted model decides by the transcript alone, as a real one would, so it can go on from whatever a
crash left. A turn asks for an effect, two look-ups at once, another effect whose output is long (so that
conversations are compacted on the way), and then answers.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from hermes_agent.agent import Agent
from hermes_agent.models.base import Facts, Request, Usage
from hermes_agent.testing.scripted import ScriptedModel, Step, call, say, together
from hermes_agent.tools.base import Args, Call, Tool
from hermes_agent.tools.registry import Toolbox
from hermes_core.paths import Home
from hermes_core.settings import AgentSettings, CompactionSettings, Settings
from hermes_state import SessionDB

LIMITS = AgentSettings(
    titles=False, max_steps=9, max_cost_usd=0.2, max_cost_per_day_usd=1_000.0, max_tokens=200_000
)
SETTINGS = Settings(agent=LIMITS, compaction=CompactionSettings(threshold=0.6))
FACTS = Facts(
    "scripted", "scripted", window=6_000, max_output=400, input_price=1.0, output_price=10.0
)

_PROMPT = re.compile(r"^(\S+) turn (\d+)$")
_LAST_STEP = 4


def prompt(name: str, number: int) -> str:
    """What the user says: which conversation, and the how manieth turn of it."""
    return f"{name} turn {number}"


def effects_file(database: Path) -> Path:
    """Where effects leave their trace."""
    return database.with_suffix(".effects")


def next_step(request: Request) -> Step:
    """What the model does, read from the transcript."""
    if not request.tools:
        return say("## Goal\nFinish every turn.\n## Next step\nGo on with the current turn.")
    name, number = _current(request)
    done = _steps_made(request, number)
    usage = Usage(200, 40)
    if done >= _LAST_STEP:
        return say(f"{name} answer {number}", usage=usage)
    arguments = {"name": name, "turn": number, "step": done + 1}
    if done + 1 == 2:
        return together(call("look", **arguments), call("look", **arguments, again=True))
    return call("effect", **arguments)


def _current(request: Request) -> tuple[str, int]:
    found = [
        match
        for message in request.messages
        if message["role"] == "user" and (match := _PROMPT.match(str(message["content"])))
    ]
    return found[-1][1], int(found[-1][2])


def _steps_made(request: Request, turn: int) -> int:
    """How far the current turn has got, by the calls that can still be seen of it."""
    steps = [
        msgspec.json.decode(tool_call["function"]["arguments"])
        for message in request.messages
        for tool_call in message.get("tool_calls") or ()
    ]
    return max((args["step"] for args in steps if args["turn"] == turn), default=0)


def tools(database: Path, reach: Callable[[str], None]) -> list[Tool]:
    """An effect that leaves a line in a file, and a look-up that leaves none."""
    trace = effects_file(database)

    def effect(args: Args, _call: Call) -> str:
        reach("effect begins")
        line = f"{args['name']} {args['turn']} {args['step']}\n"
        descriptor = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, line.encode())
        os.close(descriptor)
        reach("effect happened")
        return f"done {line.strip()} " + "and this is what came out " * 60

    def look(args: Args, _call: Call) -> str:
        reach("look")
        return f"seen {args['turn']}"

    names = {"name": "string", "turn": "integer", "step": "integer", "again": "boolean"}
    schema = {"type": "object", "properties": {n: {"type": kind} for n, kind in names.items()}}
    return [
        Tool("effect", "Do it.", schema, effect),
        Tool("look", "Look.", schema, look, read_only=True),
    ]


def agent(store: SessionDB, database: Path, session_id: str, reach: Callable[[str], None]) -> Agent:
    """An agent as a process that starts would make it."""
    return Agent(
        ScriptedModel(next_step, facts=FACTS),
        Toolbox(tools(database, reach)),
        store,
        SETTINGS,
        Home(database.parent / "home"),
        session_id=session_id,
        workspace=database.parent,
    )
