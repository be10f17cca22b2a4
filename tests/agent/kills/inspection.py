"""The verdict on a store after its agents were killed and the last one recovered.

Nothing acknowledged is lost, every turn has its end, no effect happened twice, the ledger is true
about each, limits held, transcripts are valid.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_agent.testing import validity
from hermes_state import SessionDB
from hermes_state.ledger import budgets, lineage
from hermes_state.ledger import effects as effect_ledger
from hermes_state.ledger import turns as turn_ledger
from tests.agent.kills import script
from tests.agent.kills.worker import turns_of
from tests.support import findings

_ENDS = ("answered", "failed", "interrupted")


@dataclass
class Findings(findings.Findings):
    """What happened, and what is wrong."""

    harmless = frozenset({"acknowledged", "turns", "answered", "effects", "unknown"})
    acknowledged: int = 0
    turns: int = 0
    answered: int = 0
    effects: int = 0
    """Effects that did happen, by their own trace."""
    unknown: int = 0
    """Effects that the ledger calls unknown: reported to the model, so nothing is wrong with them."""
    lost: int = 0
    repeated: int = 0
    mistold: int = 0
    unfinished: int = 0
    exceeded: int = 0
    invalid: int = 0
    integrity: int = 0
    errors: int = 0


def inspect(database: Path, acknowledged: dict[str, int]) -> Findings:
    """Look at a store that has recovered; `acknowledged` is what each conversation reported last."""
    found = Findings(acknowledged=sum(acknowledged.values()))
    happened = _happened(database)
    found.effects = happened.total()
    with SessionDB(database) as store:
        for problem in store.check():
            found.note("integrity", problem)
        for name, steps in acknowledged.items():
            _inspect_conversation(store, name, steps, happened, found)
    return found


def _happened(database: Path) -> Counter[tuple[str, int, int]]:
    """How often each effect did happen."""
    trace = script.effects_file(database)
    lines = trace.read_text("utf-8").splitlines() if trace.exists() else []
    return Counter((n, int(t), int(s)) for n, t, s in (line.split() for line in lines))


def _inspect_conversation(
    store: SessionDB,
    name: str,
    steps: int,
    happened: Counter[tuple[str, int, int]],
    found: Findings,
) -> None:
    turns = [store.read(turn_ledger.find, turn_id) or {} for turn_id in turns_of(store, name)]
    texts = [store.read(turn_ledger.user_text, turn["id"]) for turn in turns]
    expected = [script.prompt(name, number) for number in range(1, len(turns) + 1)]
    if texts != expected or len(turns) < (steps + 1) // 2:
        found.note("lost", f"{name} reported {steps} and has {texts}")
    found.turns += len(turns)
    for number, turn in enumerate(turns, 1):
        if turn["state"] not in _ENDS:
            found.note("unfinished", f"{name} turn {number} is {turn['state']}")
        found.answered += turn["state"] == "answered"
        _inspect_effects(store, name, number, turn, happened, found)
        _inspect_limits(store, name, number, turn, found)
    _inspect_transcript(store, name, found)


def _inspect_effects(
    store: SessionDB,
    name: str,
    number: int,
    turn: dict[str, Any],
    happened: Counter[tuple[str, int, int]],
    found: Findings,
) -> None:
    """Compare the ledger with what did happen: the tool's own trace."""
    for effect in store.read(effect_ledger.of_turn, turn["id"]):
        if effect["tool_name"] != "effect":
            continue
        step = int(effect["arguments"].rpartition('"step":')[2].rstrip("}"))
        times = happened[name, number, step]
        about = f"{name} turn {number} step {step} is {effect['state']} and happened {times} times"
        if times > 1:
            found.note("repeated", about)
        if (effect["state"] == "done" and not times) or (effect["state"] == "cancelled" and times):
            found.note("mistold", about)
        found.unknown += effect["state"] == "unknown"


def _inspect_limits(
    store: SessionDB, name: str, number: int, turn: dict[str, Any], found: Findings
) -> None:
    spent = store.read(budgets.of_turn, turn["id"])
    limits = script.LIMITS
    if (
        spent["steps"] > limits.max_steps
        or spent["cost_usd"] > limits.max_cost_usd + 1e-9
        or spent["tokens"] > limits.max_tokens
        or turn["attempts"] > 4
    ):
        found.note("exceeded", f"{name} turn {number}: {spent}, {turn['attempts']} attempts")


def _inspect_transcript(store: SessionDB, name: str, found: Findings) -> None:
    for session_id in store.read(lineage.members, name):
        messages = store.get_messages_as_conversation(session_id)
        for problem in (*validity.problems(messages), *validity.problems_on_the_wire(messages)):
            found.note("invalid", f"{session_id}: {problem}")
