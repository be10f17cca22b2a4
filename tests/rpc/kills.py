"""The server killed at random moments, again and again: `python -m tests.rpc.kills --kills 200`.

Several conversations run with tools, some are compacted on the way, prompts wait or interrupt. The
client behaves as a careful one does: what was not acknowledged is sent again under its key, and nothing
else is. At the end nothing that was acknowledged may be missing and nothing may have happened twice.
"""

import argparse
import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes_agent.testing.scripted import Step, call, say
from hermes_agent.testing.server import Recorded, ScriptedServer
from hermes_core.paths import Home
from hermes_state.ledger import effects as effect_ledger
from hermes_state.ledger import leases
from hermes_state.ledger import lineage as lineage_ledger
from hermes_state.ledger import messages as message_ledger
from hermes_state.ledger import turns as turn_ledger
from tests.rpc.harness import TIMEOUT_S, Json, Process, RefusedError, World
from tests.support import findings

ROUNDS = 10
"""Kills of one home before its last server is left to come to an end."""
TALKS = 3
_LONGEST_WAIT_S = 0.8
_PROMPT = re.compile(r"^(\w+) asks (\d+)$")
_ENDS = ("answered", "failed", "interrupted")
_STOPPED = "Stopped by the user"


@dataclass
class Findings(findings.Findings):
    """What happened; every note is an error."""

    harmless = frozenset({"kills", "acknowledged", "sent_again", "turns", "effects", "compactions"})
    kills: int = 0
    acknowledged: int = 0
    sent_again: int = 0
    turns: Counter[str] = field(default_factory=Counter[str])
    effects: Counter[str] = field(default_factory=Counter[str])
    compactions: int = 0

    def __str__(self) -> str:
        counted = {**self.turns, **{f"effects {k}": n for k, n in self.effects.items()}}
        return (
            f"{self.kills} kills, {self.acknowledged} prompts acknowledged, {self.sent_again} sent"
            f" again, {self.compactions} compactions, {dict(sorted(counted.items()))},"
            f" {len(self.notes)} wrong"
        )


@dataclass
class Talk:
    """A conversation as its client knows it."""

    name: str
    key: str = ""
    sent_count: int = 0
    """How many prompts were sent, with or without an answer."""
    acknowledged: list[str] = field(default_factory=list[str])
    sent_again: int = 0

    def prompt(self, number: int) -> str:
        return f"{self.name} asks {number}"


def reply(recorded: Recorded) -> Step:
    """What the model does, read from the transcript: an effect, a look, the answer."""
    messages: list[Json] = recorded.json["messages"]
    if not recorded.json.get("tools"):
        return say("## Goal\nAnswer each question.\n## Next step\nGo on with the last one.")
    position = max(i for i, m in enumerate(messages) if _PROMPT.match(_text(m)))
    prompt = _text(messages[position])
    steps = sum(bool(message.get("tool_calls")) for message in messages[position:])
    if steps == 0:
        mark = prompt.replace(" ", "-")
        # A file for each time: a line could be torn when its shell is stopped.
        return call("terminal", command=f": > effects/{mark}.$$; seq 1 300 | xargs")
    return call("read_file", path="notes") if steps == 1 else say(f"answer to {prompt}")


def _text(message: Json) -> str:
    return str(message["content"]) if message["role"] == "user" else ""


class _Killer:
    """Kills a server a moment after its client got so far, however slow the machine is."""

    def __init__(self, process: Process, wait_s: float, steps: int) -> None:
        self._timer = threading.Timer(wait_s, process.process.kill)
        self._steps = steps
        self._is_started = False

    def on_event(self) -> None:
        """The client has got a step further."""
        self._steps -= 1
        if self._steps < 0 and not self._is_started:
            self._is_started = True
            self._timer.start()

    def strike(self) -> None:
        """Wait for the kill; the client has nothing more to say."""
        self._steps = 0
        self.on_event()
        self._timer.join()


class Trial:
    """One home that is killed some times over, and the clients of its conversations."""

    def __init__(self, world: World, dice: random.Random) -> None:
        self._world = world
        self._dice = dice
        self._talks = [Talk(f"t{number}") for number in range(TALKS)]
        self._completed = Counter[str]()
        self._found = Findings()
        world.environment |= {
            "HERMES_APPROVALS_MODE": "allow",
            "HERMES_TOOLS_SANDBOX": "host",
            "HERMES_MODEL_CONTEXT_WINDOW": "9000",
            "HERMES_TERMINAL_BUSY": dice.choice(["queue", "queue", "interrupt"]),
        }
        (world.workspace / "notes").write_text("nothing of note\n")
        (world.workspace / "effects").mkdir()

    def run(self, kills: int) -> Findings:
        """Kill so often, then let the last server come to an end; returns the verdict."""
        for _ in range(kills):
            process = self._world.start()
            killer = _Killer(
                process, self._dice.uniform(0, _LONGEST_WAIT_S), self._dice.randint(0, 6)
            )
            self._talk(process, self._dice.randint(1, 3), killer.on_event)
            killer.strike()
            self._check_and_close(process)
            self._found.kills += 1
        process = self._world.start()
        self._talk(process, 0, lambda: None)
        self._settle(process)
        self._check_and_close(process)
        self._inspect()
        return self._found

    def _talk(self, process: Process, prompts: int, tell: Callable[[], None]) -> None:
        """Open every conversation, send what nobody acknowledged, then something new."""
        tell()
        sids = [self._opened(process, talk) for talk in self._talks]
        for _ in range(prompts + 1):
            for talk, sid in zip(self._talks, sids, strict=True):
                if sid is not None:
                    self._say(process, talk, sid, is_new=prompts > 0)
                    tell()

    def _opened(self, process: Process, talk: Talk) -> str | None:
        """The session of a conversation; None when the server is gone."""
        if talk.key:
            try:
                resumed = _result_of(process, "session.resume", session_id=talk.key, limit=20)
            except RefusedError as refused:
                assert refused.number == 4007, refused
                if talk.acknowledged:
                    self._found.notes.append(f"lost: {talk.name} with {len(talk.acknowledged)}")
            else:
                return resumed["session_id"] if resumed else None
        opened = _result_of(process, "session.create")
        if opened is None:
            return None
        talk.key = opened["stored_session_id"]
        return opened["session_id"]

    def _say(self, process: Process, talk: Talk, sid: str, *, is_new: bool) -> None:
        is_again = talk.sent_count > len(talk.acknowledged)
        if not is_again:
            if not is_new:
                return
            talk.sent_count += 1
        text = talk.prompt(talk.sent_count)
        talk.sent_again += is_again
        result = _result_of(
            process, "prompt.submit", session_id=sid, text=text, idempotency_key=text
        )
        if result is not None:
            talk.acknowledged.append(text)

    def _settle(self, process: Process) -> None:
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            with self._world.store() as store:
                if not store.read(turn_ledger.unfinished) and not store.read(leases.held):
                    break
            threading.Event().wait(0.05)
        process.hang_up()
        process.wait_for_end()

    def _check_and_close(self, process: Process) -> None:
        process.kill()
        for event in process.events("message.complete"):
            self._completed[event["turn_id"]] += event["status"] == "complete"

    # -- the verdict -----------------------------------------------------------------------------

    def _inspect(self) -> None:
        happened = Counter(path.stem for path in (self._world.workspace / "effects").iterdir())
        wrong = self._found.notes
        wrong += [f"happened {n} times: {mark}" for mark, n in happened.items() if n > 1]
        wrong += [f"told as answered {n} times: {t}" for t, n in self._completed.items() if n > 1]
        with self._world.store() as store:
            wrong += store.check()
            rows = store.list_sessions_rich(limit=100)
            wrong += [f"left open: {row['id']}" for row in rows if row["ended_at"] is None]
            wrong += [f"empty: {row['id']}" for row in rows if not row["message_count"]]
            if len(rows) != sum(bool(talk.sent_count) for talk in self._talks):
                wrong.append(f"{len(rows)} conversations are stored")
            for talk in self._talks:
                self._inspect_talk(store, talk, happened)

    def _inspect_talk(self, store: Any, talk: Talk, happened: Counter[str]) -> None:
        found, wrong = self._found, self._found.notes
        found.acknowledged += len(talk.acknowledged)
        found.sent_again += talk.sent_again
        lineage = store.read(lineage_ledger.members, talk.key) if talk.sent_count else []
        found.compactions += max(len(lineage) - 1, 0)
        turns = [
            turn
            for session_id in lineage
            for turn in store.read(turn_ledger.of_session, session_id)
        ]
        prompts = [store.read(turn_ledger.user_text, turn["id"]) for turn in turns]
        expected = [talk.prompt(number) for number in range(1, talk.sent_count + 1)]
        if sorted(prompts) != sorted(expected) or talk.acknowledged != expected:
            wrong.append(f"{talk.name} said {expected} and has {prompts}")
        ended = sorted(zip((turn["ended_at"] or 0 for turn in turns), prompts, strict=True))
        if [prompt for _, prompt in ended] != expected:
            wrong.append(f"{talk.name} was answered out of order: {ended}")
        tip = store.read(lineage_ledger.tip, talk.key) if talk.sent_count else talk.key
        whole = store.get_messages_as_conversation(tip, include_ancestors=True)
        answers = Counter(str(m["content"]) for m in whole if m["role"] == "assistant")
        for turn, prompt in zip(turns, prompts, strict=True):
            found.turns[turn["state"]] += 1
            if turn["state"] not in _ENDS or (turn["state"] == "failed" and turn["attempts"] < 4):
                wrong.append(f"{prompt} is {turn['state']}: {turn['reason']}")
            if answers[f"answer to {prompt}"] != (turn["state"] == "answered"):
                wrong.append(f"{prompt} has {answers[f'answer to {prompt}']} answers")
            self._inspect_effects(store, turn, happened[prompt.replace(" ", "-")])

    def _inspect_effects(self, store: Any, turn: Json, times: int) -> None:
        """Compare the ledger with the trace; a command that was stopped may have done nothing yet.

        It says so in its result. Its turn may have gone on all the same: a kill can come before its end.
        """
        results = {
            row["id"]: row["content"]
            for row in store.read(
                message_ledger.of_session, turn["session_id"], include_inactive=True
            )
        }
        for effect in store.read(effect_ledger.of_turn, turn["id"]):
            if effect["tool_name"] != "terminal":
                continue
            self._found.effects[effect["state"]] += 1
            state, result_text = effect["state"], results.get(effect["result_message_id"])
            is_missing = state == "done" and not times and not str(result_text).startswith(_STOPPED)
            if is_missing or (state == "cancelled" and times):
                self._found.notes.append(
                    f"{effect['id']} is {state}, happened {times} times: {effect['arguments']} in a"
                    f" turn that is {turn['state']} after {turn['attempts']} attempts and asked"
                    f" {store.read(turn_ledger.user_text, turn['id'])!r}, its result is {result_text!r}"
                )


def _result_of(process: Process, method: str, **params: Any) -> Json | None:
    """The answer of a server that may be killed at any moment; None when it was."""
    try:
        return process.call(method, **params)
    except (OSError, AssertionError):
        if process.is_over or process.process.poll() is not None:
            return None
        raise


def kill(folder: Path, kills: int, seed: int) -> Findings:
    """Kill so often, in one home after the other."""
    found = Findings()
    for first in range(0, kills, ROUNDS):
        dice = random.Random(f"{seed} {first}")
        place = folder / f"home-{first}"
        (place / "work").mkdir(parents=True)
        with ScriptedServer(reply) as model:
            world = World(Home(place / "home"), place / "work", model)
            try:
                found.add(Trial(world, dice).run(min(ROUNDS, kills - first)))
            finally:
                world.close()
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Kill, say what was found, and by the exit status whether anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.rpc.kills")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="another seed, other moments")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hermes-kills-") as folder:
        found = kill(Path(folder), options.kills, options.seed)
    sys.stdout.write(f"{found}\nseed {options.seed}, {time.monotonic() - began:.0f} s\n")
    for line in found.notes[:20]:
        sys.stdout.write(f"  {line}\n")
    return 1 if found.notes else 0


if __name__ == "__main__":
    sys.exit(main())
