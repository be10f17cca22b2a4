"""What starting costs, in CPU seconds of the child; and what a hook costs that nobody listens to."""

import os
import resource
import subprocess
import sys
import timeit
from pathlib import Path

from bench.result import BenchmarkContext, Result, side_by_side
from bench.text import Writer
from hermes_cli import plugins
from hermes_state import SessionDB

python = [sys.executable, "-c", "pass"]
"""The bare limit of every start."""
_HERMES = str(Path(sys.executable).with_name("hermes"))
CONVERSATIONS = 300


def child_cpu(command: list[str], home: Path) -> float:
    """User and system seconds of one run."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HERMES_", "PYTHON"))}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command, env={**environment, "HERMES_HOME": str(home)}, capture_output=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        shown = " ".join([Path(command[0]).name, *command[1:]])
        said = done.stderr.decode().strip().splitlines() or [""]
        raise RuntimeError(f"`{shown}` failed: {said[0]}")
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def _start(bench: BenchmarkContext, home: Path, arguments: list[str]) -> tuple[float, float]:
    child_cpu([_HERMES, *arguments], home)  # the first run writes the compiled modules
    ours, limit = side_by_side(
        bench.rounds(15),
        lambda: child_cpu([_HERMES, *arguments], home),
        lambda: child_cpu(python, home),
    )
    return ours, limit


def version(bench: BenchmarkContext) -> list[Result]:
    ours, limit = _start(bench, bench.place("version"), ["--version"])
    peer = bench.ask_peer("version", rounds=bench.rounds(5))
    return [
        Result(
            "`hermes --version`, CPU", ours, "s", 4, limit, against="python -c pass",
            peer=peer.get("seconds"),
        )
    ]  # fmt: skip


def sessions_list(bench: BenchmarkContext) -> list[Result]:
    home = bench.place("home")
    count = bench.size(CONVERSATIONS, 20)
    writer = Writer()
    with SessionDB(home / "state.db") as db:
        for number in range(count):
            db.create_session(f"s{number}", "cli")
            db.set_session_title(f"s{number}", f"Conversation {number}")
            db.append_message(f"s{number}", "user", writer.text(200))
    ours, limit = _start(bench, home, ["sessions", "list"])
    peer = bench.ask_peer("sessions_list", rounds=bench.rounds(5), conversations=count)
    return [
        Result(
            f"`hermes sessions list` of {count} conversations, CPU", ours, "s", 10, limit,
            against="python -c pass", peer=peer.get("seconds"),
        )
    ]  # fmt: skip


def hook(bench: BenchmarkContext) -> list[Result]:
    plugins.host.reset()
    arguments = {"session_id": "s0", "platform": "cli", "model": "m"}

    def empty(name: str, /, **kwargs: object) -> list[object]:
        return []

    def cost(fn: object) -> float:
        times = bench.size(100_000, 1_000)
        call = "fn('on_session_start', **arguments)"
        return timeit.timeit(call, globals={"fn": fn, "arguments": arguments}, number=times) / times

    ours, _limit = side_by_side(
        bench.rounds(9), lambda: cost(plugins.invoke_hook), lambda: cost(empty)
    )
    return [
        Result(
            "a hook without listeners", ours, "s", 2e-6,
            note=f"an empty function takes {_limit * 1e9:.0f} ns",
        )
    ]  # fmt: skip
