"""The gateway in many chats: all at once, after a crash, and for long. An error fails the row."""

import itertools
import re
import statistics
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from tests.support.loopback.server import LoopbackServer

from bench import gateway_home
from bench.gateway_home import running
from bench.gateway_process import Gateway, free_port
from bench.result import BenchmarkContext, Result
from hermes_agent.testing.faults import Hold
from hermes_agent.testing.scripted import Quiet
from hermes_agent.testing.server import ScriptedServer

_CHATS = 1000
_AT_ONCE = 64
_PENDING = 1000
_LASTING_CHATS = 280
"""More than the agents that are kept awake, so that they come and go."""
_TURNS_EACH = 100
"""In half of them a conversation has filled the model's window, and grows no more."""
_IN_FLIGHT = 32
_TIMEOUT_S = 600.0
_REPLY = re.compile(r"You said: (\d+) of (\S+)\.")
_MODEL = "bench.gateway_model"


class Chats:
    """Numbered messages in many chats, and a look at the replies."""

    def __init__(self, server: LoopbackServer, chats: int) -> None:
        self._server = server
        self._names = [f"c{number}" for number in range(chats)]
        self._next = itertools.cycle(self._names)
        self._said = dict.fromkeys(self._names, 0)
        self.count = 0

    def say(self, messages: int) -> None:
        """Write so many more, in one chat after the other."""
        for _ in range(messages):
            chat = next(self._next)
            self._said[chat] += 1
            self.count += 1
            self._server.say(chat, f"{self._said[chat]} of {chat}.")

    @property
    def reply_count(self) -> int:
        """How many replies were sent, some of them perhaps still being written."""
        return len(self._server.attempts)

    def wait_for_replies(self, number: int) -> None:
        self._server.wait_until(lambda: self.reply_count >= number, f"{number} replies", _TIMEOUT_S)

    def faults(self) -> list[str]:
        """What is wrong with the replies: lost, doubled, mixed, out of order, or not a reply."""
        found: list[str] = []
        for chat, said in self._said.items():
            shown = [_REPLY.match(one.text) for one in self._server.shown(chat)]
            got = [(one[2], int(one[1])) if one else None for one in shown]
            if got != [(chat, number + 1) for number in range(said)]:
                found.append(f"{chat} shows {[one.text[:60] for one in self._server.shown(chat)]}")
        return found


@contextmanager
def _home(
    home: Path, *, seconds: float, streaming: bool, health: int = 0
) -> Generator[LoopbackServer]:
    """A home with a loopback platform and a model that takes some seconds for an answer."""
    with running(_MODEL, str(seconds)) as model, LoopbackServer() as platform:
        table = gateway_home.loopback(platform.address)
        gateway_home.configure(home, model, table, streaming=streaming, health=health)
        yield platform


def crowd(bench: BenchmarkContext) -> list[Result]:
    """Some messages in each of many chats, as fast as they are taken."""
    home, chats, port = bench.place("gateway-crowd"), bench.size(_CHATS, 70), free_port()
    each = 2
    with _home(home, seconds=2.0, streaming=False, health=port) as platform, Gateway(home) as ours:
        ours.wait_until_up()
        spoken = Chats(platform, chats)
        began = time.perf_counter()
        spoken.say(each * chats)
        with _watching(port) as seen:
            spoken.wait_for_replies(spoken.count)
        seconds = time.perf_counter() - began
        memory = ours.greatest_memory
        faults = spoken.faults()
    at_once = max(seen, default=0)
    if at_once < _AT_ONCE:
        faults.append(f"only {at_once} turns ran at once")
    return [
        Result(
            f"gateway: {chats:,} conversations, {_AT_ONCE} turns at once, memory", memory, "bytes",
            400e6, failure="; ".join(faults)[:300],
            note=f"{each} messages each, no error, in order; {spoken.count / seconds:.0f} turns a"
            " second with a model that takes two seconds",
        )
    ]  # fmt: skip


@contextmanager
def _watching(port: int) -> Generator[list[int]]:
    """How many turns run, looked at again and again during a block."""
    seen: list[int] = []
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(0.2):
            with urlopen(f"http://127.0.0.1:{port}/metrics") as page:
                text = page.read().decode()
            seen.append(int(re.findall(r"^hermes_gateway_turns_running (\d+)", text, re.M)[0]))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()


def recovery(bench: BenchmarkContext) -> list[Result]:
    """Kill it while it has taken many messages and answered none; start it again."""
    home, pending = bench.place("gateway-recovery"), bench.size(_PENDING, 50)
    with _home(home, seconds=0.0, streaming=False) as platform:
        settings = (home / "config.toml").read_text()
        spoken = Chats(platform, pending // 5)
        with ScriptedServer(lambda _asked: Hold(Quiet())) as silent:
            table = gateway_home.loopback(platform.address)
            gateway_home.configure(home, silent.url, table, streaming=False)
            with Gateway(home) as first:
                first.wait_until_up()
                spoken.say(pending)
                platform.wait_until(
                    lambda: not platform.unacknowledged(), "the messages to be taken", _TIMEOUT_S
                )
        (home / "config.toml").write_text(settings)
        with Gateway(home) as second:
            spoken.wait_for_replies(1)
            replied_at = time.perf_counter()
            second.wait_until_up()
            spoken.wait_for_replies(pending)
            seconds = time.perf_counter() - second.up_at
            faults = spoken.faults()
    return [
        Result(
            f"gateway: killed with {pending:,} messages pending, start to first reply",
            replied_at - second.started_at, "s", 2.0, failure="; ".join(faults)[:300],
            note=f"each answered once and in order; the last {seconds:.1f} s after ready, which was"
            f" {second.up_at - second.started_at:.1f} s after the start",
        )
    ]  # fmt: skip


def memory(bench: BenchmarkContext) -> list[Result]:
    """Turn after turn for long: the second half must not take more than the first.

    The first half fills the caches. `--scale 3.6` makes 100,000 turns of it, in 1,000 conversations.
    """
    home, chats = bench.place("gateway-memory"), bench.size(_LASTING_CHATS, 10)
    turns = chats * _TURNS_EACH
    with _home(home, seconds=0.0, streaming=True) as platform, Gateway(home) as ours:
        ours.wait_until_up()
        spoken = Chats(platform, chats)
        sizes: list[float] = []
        while spoken.count < turns:
            spoken.say(1)
            spoken.wait_for_replies(spoken.count - _IN_FLIGHT)
            if spoken.count % max(1, turns // 40) == 0:
                sizes.append(ours.memory)
        spoken.wait_for_replies(turns)
    half, end = (statistics.median(sizes[at - 4 : at]) for at in (len(sizes) // 2, len(sizes)))
    grown = (end - half) / (turns / 2)
    return [
        Result(
            f"gateway: memory after {turns:,} turns in {chats:,} conversations",
            end, "bytes", 1.05, half, against="the same after half of them",
            note=f"{grown:,.0f} bytes per turn in the second half",
            reason=f"{grown:,.0f} bytes per turn stay; what they are is not known yet",
        )
    ]  # fmt: skip
