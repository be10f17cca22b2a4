"""What a turn costs: beside the bare HTTP client, many at once, and how soon it stops.

The model server is a process of its own, so that its work is not counted as ours.
"""

import contextlib
import multiprocessing
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import httpx2

from bench.result import BenchmarkContext, Result, percentile, side_by_side
from hermes_agent import tokens
from hermes_agent.agent import Agent
from hermes_agent.models.base import Model
from hermes_agent.models.registry import Registry
from hermes_agent.testing.faults import Hold
from hermes_agent.testing.scripted import Quiet, ScriptedModel, say
from hermes_agent.testing.server import ScriptedServer
from hermes_agent.tools.registry import Toolbox, default_tools
from hermes_core.paths import Home
from hermes_core.settings import AgentSettings, ModelSettings, Settings
from hermes_state import SessionDB

_HERMES = str(Path(sys.executable).with_name("hermes"))
_SETTINGS = Settings(
    model=ModelSettings(name="scripted", provider="openai"), agent=AgentSettings(titles=False)
)
_QUESTION = "hello"


@contextlib.contextmanager
def served(*arguments: str) -> Generator[str]:
    """The scripted server in a process of its own; gives its address."""
    command = [sys.executable, "-m", "hermes_agent.testing.server", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().split()[-1]
        finally:
            server.terminate()


def _model(url: str) -> Model:
    keys = {"OPENAI_API_KEY": "sk-scripted-key", "OPENAI_BASE_URL": url}
    return Registry(_SETTINGS.model, keys, Home(Path("/none"))).build()


def _agent(store: SessionDB, model: Model, folder: Path) -> Agent:
    return Agent(model, Toolbox(default_tools(_SETTINGS)), store, _SETTINGS, Home(folder))


def _cpu(fn: object, times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        fn()  # type: ignore[operator]
    return (time.process_time() - began) / times


def overhead(bench: BenchmarkContext) -> list[Result]:
    """A turn without tools: a new conversation each time, so that every request is the same."""
    folder, times = bench.place("turns"), bench.size(60, 5)
    with served() as url, SessionDB(folder / "state.db") as store:
        model = _model(f"{url}/v1")
        recorded = _recorded_body(folder)
        client = httpx2.Client()

        def ours() -> None:
            told = _agent(store, model, folder).run_conversation(_QUESTION)
            assert told["completed"], told["error"]

        def bare() -> None:
            headers = {"authorization": "Bearer k", "content-type": "application/json"}
            address = f"{url}/v1/chat/completions"
            with client.stream("POST", address, content=recorded, headers=headers) as answer:
                for _ in answer.iter_lines():
                    pass

        ours()
        bare()
        cost, limit = side_by_side(
            bench.rounds(9), lambda: _cpu(ours, times), lambda: _cpu(bare, times)
        )
        peer = bench.ask_peer("turn", rounds=bench.rounds(5), times=10, url=f"{url}/v1")
    row = Result(
        "a turn without tools, durable commits included, CPU", cost, "s", 5, limit,
        against="the same request through the bare HTTP client", peer=peer.get("seconds"),
    )  # fmt: skip
    return [row, *_against_peer("a turn, CPU, against hermes-agent", cost, peer, 12)]


def _against_peer(what: str, ours: float, peer: dict[str, float], times: int) -> list[Result]:
    if "seconds" not in peer:
        return []
    theirs = peer["seconds"]
    return [
        Result(
            what, ours, "s", 1 / times, theirs, against="hermes-agent in the same run", peer=theirs
        )
    ]


def _recorded_body(folder: Path) -> bytes:
    """The request that a turn makes, byte for byte."""
    with ScriptedServer([say("hi")]) as server, SessionDB(folder / "one.db") as store:
        _agent(store, _model(server.openai_url), folder).run_conversation(_QUESTION)
        return server.model_requests[0].body


def hello(bench: BenchmarkContext) -> list[Result]:
    """What goes out with "hello" before the user has said anything."""
    folder = bench.place("hello")
    model = ScriptedModel([say("hi")])
    with SessionDB(folder / "state.db") as store:
        _agent(store, model, folder).run_conversation(_QUESTION)
    request = model.requests[0]
    characters = len(request.system) + sum(
        len(tool.name) + len(tool.description) + len(str(tool.parameters)) for tool in request.tools
    )
    counted = tokens.text_tokens(request.system) + sum(map(tokens.tool_tokens, request.tools))
    return [
        Result(
            'system prompt and tools of "hello", tokens', max(counted, characters / 4), "count", 2000,
            note=f"{characters} characters, {len(request.tools)} tools",
        )
    ]  # fmt: skip


def one_shot(bench: BenchmarkContext) -> list[Result]:
    """A whole process that answers once."""
    home = bench.place("one-shot")
    with served() as url:
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("HERMES_", "PYTHON"))},
            "HERMES_HOME": str(home), "OPENAI_API_KEY": "sk-scripted-key",
            "OPENAI_BASE_URL": f"{url}/v1", "HERMES_MODEL": "scripted",
        }  # fmt: skip
        command = [_HERMES, "chat", "-q", _QUESTION]
        _run(command, environment)
        runs = [_run(command, environment) for _ in range(bench.rounds(9))]
        peer = bench.ask_peer("one_shot", rounds=bench.rounds(3), url=f"{url}/v1")
    cpu = statistics.median(seconds for seconds, _ in runs)
    memory = max(size for _, size in runs)
    return [
        *_against_peer("`hermes chat -q`, whole process, CPU", cpu, peer, 10),
        Result(
            "`hermes chat -q`, memory", memory, "bytes", 60e6, note=f"{cpu:.2f} s CPU",
            peer=peer.get("bytes"),
        ),
    ]  # fmt: skip


_MEASURE = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(child.pid, 0)
print(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, status)
"""
"""A small process between: what is counted for a child begins with the size of its parent."""


def _run(command: Sequence[str], environment: dict[str, str]) -> tuple[float, float]:
    """CPU seconds and greatest memory of one run."""
    measured = subprocess.run(
        [sys.executable, "-c", _MEASURE, *command],
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    seconds, size, status = measured.stdout.split()
    if int(status):
        raise RuntimeError(f"`hermes chat -q` ended with {int(status)}")
    return float(seconds), float(size)


def together(bench: BenchmarkContext) -> list[Result]:
    """Many turns at once in one process, each waiting for its model most of the time."""
    folder, count, chunks, delay = bench.place("together"), bench.size(64, 4), 40, 0.05
    # A fresh process: this one may reuse what an earlier row has freed.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        seconds, grown = pool.submit(_run_together, folder, count, chunks, delay).result()
    ideal = chunks * delay
    return [
        Result(
            f"{count} turns at once, 50 ms per chunk", count / seconds, "/s", 0.9, count / ideal,
            at_least=True, against="no work at all between the chunks",
        ),
        Result("memory of one of them", grown / count, "bytes", 2e6),
    ]  # fmt: skip


def _run_together(folder: Path, count: int, chunks: int, delay: float) -> tuple[float, float]:
    """The seconds that the turns took, and the bytes by which the process grew."""
    text = "word " * chunks
    with SessionDB(folder / "state.db") as store:
        Path("/proc/self/clear_refs").write_text("5")  # the greatest memory counts from here
        before = _greatest_memory()
        agents = [
            _agent(store, ScriptedModel([say(text, delay_s=delay)]), folder) for _ in range(count)
        ]
        start = threading.Barrier(count + 1)

        def run(agent: Agent) -> None:
            start.wait()
            assert agent.run_conversation(_QUESTION)["completed"]

        threads = [threading.Thread(target=run, args=(agent,)) for agent in agents]
        for thread in threads:
            thread.start()
        start.wait()
        began = time.perf_counter()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - began
    return seconds, _greatest_memory() - before


def _greatest_memory() -> float:
    status = Path("/proc/self/status").read_text()
    return float(status.partition("VmHWM:")[2].split()[0]) * 1024


def stop(bench: BenchmarkContext) -> list[Result]:
    """From the stop to the end of the turn, while the model says nothing at all."""
    folder, waited = bench.place("stop"), list[float]()
    with SessionDB(folder / "state.db") as store:
        for _ in range(bench.rounds(15)):
            with ScriptedServer([Hold(Quiet())]) as server:
                agent = _agent(store, _model(server.openai_url), folder)
                thread = threading.Thread(target=agent.run_conversation, args=(_QUESTION,))
                thread.start()
                server.wait_for_requests(1)
                began = time.perf_counter()
                agent.interrupt()
                thread.join()
                waited.append(time.perf_counter() - began)
    return [
        Result(
            "stopping a silent model", max(waited), "s", 0.2,
            note=f"the longest of {len(waited)}; half took {percentile(waited, 0.5) * 1000:.0f} ms",
        )
    ]  # fmt: skip
