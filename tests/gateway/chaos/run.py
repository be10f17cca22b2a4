"""One run: questions are asked in every surface while the gateway is killed and everything fails."""

import contextlib
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hermes_agent.testing.server import ScriptedServer
from hermes_core.paths import Home
from hermes_state import SessionDB
from hermes_state.ledger import outbox
from tests.gateway.chaos import loopback, script, verdict
from tests.gateway.chaos.faults import Disk, Faults
from tests.gateway.chaos.gateway_process import MOMENTS, GatewayProcess, Moment
from tests.gateway.chaos.script import Question, Script
from tests.gateway.chaos.surface import Surface
from tests.gateway.chaos.verdict import Findings, Talk

_GLANCE_S = 0.002
_LOOK_S = 0.5
_UP_WITHIN_S = 60.0
_STAY_S = (0.5, 3.5)
_SHORT = ("starting", "send", "asked")
_MOMENT_S = 0.03
_QUIET_SHARE = 0.1
"""Of the questions that are asked at the end, when nothing is killed any more."""
_TROUBLE_S = 2.5
_SETTLE_S = 300.0


@dataclass
class Report:
    """What a run was, and what was found."""

    kills: Counter[str] = field(default_factory=Counter[str])
    """By the moment of the gateway's life."""
    faults: Counter[str] = field(default_factory=Counter[str])
    stops: int = 0
    """Lives that were asked to end, and ended before they were killed."""
    ended_alone: int = 0
    """Starts that came to nothing because the disk was full or the store locked."""
    found: Findings = field(default_factory=Findings)
    seconds: float = 0.0
    has_disk: bool = False
    model_calls: int = 0
    compactions: int = 0


class Run:
    """The surfaces, the gateway and the dice of one run."""

    def __init__(
        self,
        surfaces: Sequence[Surface],
        gateway: GatewayProcess,
        faults: Faults,
        dice: random.Random,
    ) -> None:
        self._places = surfaces
        self._gateway = gateway
        self._troubles = faults
        self._dice = dice
        self._was_short = False
        self._start_s = 0.0
        self._had: set[str] = set()
        """The faults of this life of the gateway."""
        self.talks: list[Talk] = []
        self.report = Report(faults=faults.counts)

    def begin(self, talks: int) -> None:
        """Make the conversations, as many in each surface."""
        for number, surface in enumerate(self._places):
            share = talks // len(self._places) + (number < talks % len(self._places))
            self.talks += [Talk(surface, name) for name in surface.begin(share)]

    def warm_up(self) -> None:
        """A first life without fault: mailboxes are looked at, rooms are joined."""
        began = time.monotonic()
        self._start()
        self._until(self._gateway.is_up.is_set, _UP_WITHIN_S)
        self._start_s = time.monotonic() - began
        if not self._until(
            lambda: all(surface.is_ready() for surface in self._places), _UP_WITHIN_S
        ):
            raise RuntimeError("The gateway does not come up:\n" + self._gateway.words())
        self._gateway.kill()

    def ask(self, questions: Sequence[Question]) -> None:
        for question in questions:
            talk = self.talks[question.talk]
            question.id = talk.surface.say(talk.name, question.text(talk.surface.command_prefix))
            talk.questions.append(question)

    def live(self, questions: Sequence[Question]) -> None:
        """One life of the gateway, in which some questions are asked, and its end."""
        half = self._dice.randint(0, len(questions))
        self.ask(questions[:half])
        self._had = {self._troubles.now}
        self._start()
        if self._troubles.now == "none":
            self._troubles.begin()
        self._had.add(self._troubles.now)
        moment = self._next_moment()
        slowly = () if moment == "asked" else questions[half:]
        asker = threading.Thread(target=self._ask_slowly, args=(slowly,))
        asker.start()
        self._wait_for(moment)
        if moment == "asked":
            self.ask(questions[half:])
            _pause(self._dice.uniform(0, _MOMENT_S))
        self._kill(moment)
        asker.join()

    def _next_moment(self) -> Moment:
        """When this life ends. No two short ones follow each other: a turn is tried three times only."""
        chosen: list[Moment] = [
            name for name in MOMENTS if not (self._was_short and name in _SHORT)
        ]
        (moment,) = self._dice.choices(chosen, [MOMENTS[name] for name in chosen])
        self._was_short = moment in _SHORT
        return moment

    def _ask_slowly(self, questions: Sequence[Question]) -> None:
        for question in questions:
            _pause(0.2)
            self.ask([question])

    def _start(self) -> None:
        self._gateway.configure(streaming=self._dice.random() < 0.6)
        self._gateway.start()

    def _wait_for(self, moment: Moment) -> None:
        if moment == "starting":
            _pause(self._dice.uniform(0, self._start_s))
            return
        self._until(self._gateway.is_up.is_set, _UP_WITHIN_S)
        if moment == "send":
            before = self._sends()
            self._until(lambda: self._sends() > before, _STAY_S[1])
        elif moment != "asked":
            _pause(self._dice.uniform(*_STAY_S))
        if moment == "stopping":
            self._gateway.ask_to_stop()
            _pause(self._dice.uniform(0, 1.0))

    def _sends(self) -> int:
        return sum(surface.sends() for surface in self._places)

    def _until(self, met: Callable[[], bool], seconds: float) -> bool:
        """Wait for something, as long as the gateway lives; tells whether it has come."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self._gateway.is_alive:
            if met():
                return True
            _pause(_GLANCE_S)
        return met()

    def _kill(self, moment: Moment) -> None:
        code = self._gateway.kill()
        if code == -signal.SIGKILL:
            self.report.kills[moment] += 1
        elif moment == "stopping":
            self.report.stops += 1
        else:
            self.report.ended_alone += 1
            if not self._had & {"disk full", "store locked"}:
                words = self._gateway.words()
                self.report.found.wrong.append(f"the gateway ended by itself ({code}):\n{words}")

    def calm(self, questions: Sequence[Question]) -> None:
        """A last life, in which every fault comes once and nothing is killed."""
        self._troubles.end()
        self._start()
        self._until(self._gateway.is_up.is_set, _UP_WITHIN_S)
        kinds = self._troubles.kinds
        for number, kind in enumerate(kinds):
            self._troubles.begin(kind)
            self.ask(_share(questions, number, len(kinds)))
            _pause(_TROUBLE_S)
        self._troubles.end()
        end = time.monotonic() + _SETTLE_S
        while time.monotonic() < end and not self._is_settled():
            _pause(_LOOK_S)
        self._stop()

    def _is_settled(self) -> bool:
        """Return whether everybody has a whole reply, and nothing is still to be sent again."""
        if not all(talk.is_complete for talk in self.talks):
            return False
        with SessionDB(self._gateway.home.database) as store:
            return store.read(outbox.next_due_at) is None

    def _stop(self) -> None:
        """Stop in good order: what is settled must not be told anything more."""
        if not self._gateway.is_alive:
            self.report.found.wrong.append(f"the gateway ended:\n{self._gateway.words()}")
            return
        self._gateway.ask_to_stop()
        if (code := self._gateway.wait()) != 0:
            self.report.found.wrong.append(f"the gateway stopped with status {code}")


def run(
    surfaces: Sequence[Surface], *, messages: int, talks: int, kills: int, seed: int, log: Path
) -> Report:
    """Do it all, and verdict."""
    began = time.monotonic()
    dice = random.Random(seed)
    questions = script.questions(messages, talks, dice)
    with _home() as (home, disk), contextlib.ExitStack() as opened:
        model = Script()
        server = opened.enter_context(ScriptedServer(model))
        for surface in surfaces:
            opened.enter_context(surface)
        loopback.install(home)
        gateway = GatewayProcess(home, surfaces, server.openai_url, log)
        opened.callback(gateway.kill)
        going = Run(surfaces, gateway, Faults(surfaces, home, disk, dice), dice)
        going.begin(talks)
        going.warm_up()
        last = len(questions) - int(len(questions) * _QUIET_SHARE)
        parts = [_share(questions[:last], number, kills) for number in range(kills)]
        while parts or going.report.kills.total() < kills:
            going.live(parts.pop(0) if parts else ())
        going.calm(questions[last:])
        _judge(going, home, model, questions)
        _keep(home, log)
        going.report.has_disk = disk.is_real
    going.report.seconds = time.monotonic() - began
    return going.report


def _share(questions: Sequence[Question], number: int, count: int) -> Sequence[Question]:
    """One of so many equal parts, in order."""
    return questions[len(questions) * number // count : len(questions) * (number + 1) // count]


def _judge(going: Run, home: Home, model: Script, questions: Sequence[Question]) -> None:
    found = going.report.found
    for talk in going.talks:
        verdict.of_talk(talk, found)
    verdict.of_store(home, questions, found)
    found.wrong += model.mixed
    going.report.model_calls = model.call_counts.total()
    going.report.compactions = model.compactions


def _keep(home: Home, log: Path) -> None:
    """Put what was logged beside what was said, for whoever wants to know why."""
    with log.open("ab") as copy:
        for path in sorted(home.logs.glob("*.log*")):
            copy.write(path.read_bytes())


@contextlib.contextmanager
def _home() -> Generator[tuple[Home, Disk]]:
    with (
        tempfile.TemporaryDirectory(prefix="hermes-chaos-") as name,
        Disk(Path(name) / "home") as disk,
    ):
        home = Home(disk.folder)
        home.create()
        yield home, disk


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)
