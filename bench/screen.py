"""The terminal UI on a real terminal: its first frame, a fast stream, a long conversation."""

import contextlib
import fcntl
import json
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Generator
from pathlib import Path

from bench.result import BenchmarkContext, Result, side_by_side
from bench.rpc import cpu_of, family, plain
from bench.server import environment
from bench.text import Writer
from bench.turns import served
from hermes_state import SessionDB

_HERMES = str(Path(sys.executable).with_name("hermes"))
_EMPTY = [sys.executable, "-c", "from textual.app import App; App().run()"]
_LINES, _COLUMNS = 24, 80
_LAST_LINE = f"\x1b[{_LINES};1H".encode()
"""Where the last line of a whole frame begins."""
_TIMEOUT_S = 60.0
_TOKENS_A_SECOND = 200
_PARAGRAPH = 50


class Screen:
    """A program on a terminal, and when it wrote what."""

    def __init__(self, command: list[str], told: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        size = struct.pack("HHHH", _LINES, _COLUMNS, 0, 0)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
        self.began = time.perf_counter()
        self._process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env={**plain(), "TERM": "xterm-256color", "COLORTERM": "truecolor", **told},
        )  # fmt: skip
        os.close(slave)
        self.written = b""
        self.times: list[float] = []
        """When something was written."""

    @property
    def cpu(self) -> float:
        """Seconds that the program itself has worked."""
        return cpu_of(self._process.pid)

    @property
    def cpu_of_all(self) -> float:
        """The same with the processes it has started."""
        return sum(map(cpu_of, family(self._process.pid)))

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait(self, wanted: bytes) -> float:
        """Read until something was written; returns the seconds since the start."""
        end = time.perf_counter() + _TIMEOUT_S
        start = len(self.written)
        while wanted not in self.written[max(0, start - len(wanted)) :]:
            ready, _, _ = select.select([self._master], [], [], end - time.perf_counter())
            if not ready:
                raise RuntimeError(f"{wanted!r} was not written")
            self.written += os.read(self._master, 1 << 16)
            self.times.append(time.perf_counter())
        return self.times[-1] - self.began

    def close(self) -> None:
        for pid in reversed(family(self._process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        self._process.wait()
        os.close(self._master)


@contextlib.contextmanager
def shown(command: list[str], told: dict[str, str]) -> Generator[Screen]:
    screen = Screen(command, told)
    try:
        yield screen
    finally:
        screen.close()


def first_frame(bench: BenchmarkContext) -> list[Result]:
    """From the start to the first whole frame."""
    home = bench.place("first-frame")
    (home / "config.toml").touch()  # in a home without settings, the set-up is offered first
    told = environment(home)
    waits: dict[str, list[float]] = {"ours": [], "empty": []}

    def side(name: str, command: list[str]) -> Callable[[], float]:
        def measure() -> float:
            with shown(command, told) as screen:
                waits[name].append(screen.wait(_LAST_LINE))
                return screen.cpu

        return measure

    ours, empty = side("ours", [_HERMES]), side("empty", _EMPTY)
    ours()
    cpu, limit = side_by_side(bench.rounds(15), ours, empty)
    seconds = {name: statistics.median(found) for name, found in waits.items()}
    return [
        Result(
            "first frame of the UI, CPU", cpu, "s", 1.2, limit,
            against="an empty Textual application",
            note=f"on the clock {seconds['ours']:.2f} s and {seconds['empty']:.2f} s",
        )
    ]  # fmt: skip


def stream(bench: BenchmarkContext) -> list[Result]:
    """A reply of 200 tokens a second at the end of a long conversation."""
    home, tokens = bench.place("stream"), bench.size(2_000, 400)
    messages = bench.size(2_000, 100)
    last = _converse(home, messages)
    script = home / "script.json"
    words = Writer(3).words[:_PARAGRAPH]
    text = "\n\n".join([" ".join(words)] * (tokens // _PARAGRAPH))
    # The pause is a little shorter than a token's time, because making a token takes time, too.
    say = {"say": f"Begin\n\n{text}\n\nDone.", "delay_s": 0.93 / _TOKENS_A_SECOND}
    script.write_text(json.dumps({"steps": [say], "repeat": True}))
    with served("--script", str(script)) as url:
        told = {**environment(home, url), "HERMES_MODEL_CONTEXT_WINDOW": "1000000"}
        share, times = _streamed(told, last)
    gaps = [after - before for before, after in zip(times, times[1:], strict=False)]
    rate = f"{tokens / (times[-1] - times[0]):.0f} tokens a second, {messages:,} messages before"
    return [
        Result("streaming 200 tokens a second, longest gap between frames", max(gaps), "s", 0.1,
               note=f"{rate}; {len(gaps)} frames"),
        Result("streaming 200 tokens a second, share of a core", share, "ratio", 0.6, note=rate),
    ]  # fmt: skip


def _streamed(told: dict[str, str], last: bytes) -> tuple[float, list[float]]:
    """The share of a core that the UI takes while a reply comes in, and when it wrote frames."""
    with shown([_HERMES, "tui", "-r", "long"], told) as screen:
        screen.wait(last)
        screen.type("go on\r")
        screen.wait(b"Begin")
        began, worked, first = time.perf_counter(), screen.cpu, len(screen.times)
        screen.wait(b"Done.")
        share = (screen.cpu - worked) / (time.perf_counter() - began)
        return share, screen.times[first:]


def resume(bench: BenchmarkContext) -> list[Result]:
    """From the start to the end of the conversation on the screen."""
    sizes = bench.size(10_000, 200), 100
    homes = [bench.place(f"resume-{size}") for size in sizes]
    lasts = [_converse(home, size) for home, size in zip(homes, sizes, strict=True)]
    waits: list[list[float]] = [[], []]

    def side(number: int) -> Callable[[], float]:
        def measure() -> float:
            command, told = [_HERMES, "tui", "-r", "long"], environment(homes[number], url)
            with shown(command, told) as screen:
                waits[number].append(screen.wait(lasts[number]))
                return screen.cpu_of_all

        return measure

    with served() as url:
        side(0)()
        long, short = side_by_side(bench.rounds(9), side(0), side(1))
    clock = [statistics.median(found) for found in waits]
    return [
        Result(
            f"resume a conversation of {sizes[0]:,} messages, first screen, CPU", long, "s", 1.2,
            short, against=f"one of {sizes[1]} messages",
            note=f"UI and server; on the clock {clock[0]:.2f} s and {clock[1]:.2f} s",
        )
    ]  # fmt: skip


def _converse(home: Path, messages: int) -> bytes:
    """Store a conversation with the title `long`; returns the end of it."""
    writer = Writer(5)
    with SessionDB(home / "state.db") as store:
        store.create_session("s0", "tui", cwd=str(home))
        store.set_session_title("s0", "long")
        said = [
            {"role": "assistant" if n % 2 else "user", "content": writer.text(400)}
            for n in range(messages - 1)
        ]
        store.append_messages("s0", [*said, {"role": "assistant", "content": "theveryend"}])
        store.end_session("s0", "tui_close")
    return b"theveryend"
