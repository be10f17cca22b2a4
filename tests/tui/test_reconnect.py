"""A client that lost its connection shows exactly what an uninterrupted one shows."""

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from hermes_core.paths import Home
from hermes_protocol import results
from hermes_tui import client as client_module
from hermes_tui.conversation import Conversation
from hermes_tui.entries import Call, Entry, Note, Welcome
from hermes_tui.opening import Opening
from tests.tui.harness import DOUBLE, TIMEOUT_S, Interface, running

pytestmark = pytest.mark.anyio

PROMPTS = ("hello", "tool", "markdown", "retried", "many 20", "fail", "goodbye")


Shape = list[tuple[object, ...]]


class CutTransport:
    """A connection to the double that ends after so many frames."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frames: float
    ) -> None:
        self._reader, self._writer, self._frames = reader, writer, frames

    @classmethod
    async def connect(cls, path: Path, lengths: list[int]) -> "CutTransport":
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                    reader, writer = await asyncio.open_unix_connection(path)
                    return cls(reader, writer, lengths.pop() if lengths else float("inf"))
                await asyncio.sleep(0.01)

    async def send(self, frame: bytes) -> None:
        self._writer.write(frame + b"\n")
        await self._writer.drain()

    async def frames(self) -> AsyncIterator[bytes]:
        with contextlib.suppress(ConnectionError):
            async for line in self._reader:
                if self._frames <= 0:
                    break
                self._frames -= 1
                yield line
        self._writer.close()

    async def close(self, grace_s: float) -> None:
        del grace_s
        self._writer.close()

    def last_words(self) -> str:
        return "it was cut"


@contextlib.asynccontextmanager
async def connected(
    folder: Path, home: Home, lengths: Sequence[int] = ()
) -> AsyncGenerator[Interface]:
    """Run the interface on a double; its connections end after so many frames each."""
    path = folder / "socket"
    double = await asyncio.create_subprocess_exec(sys.executable, DOUBLE, folder, path)
    try:
        connect = partial(CutTransport.connect, path, list(reversed(lengths)))
        async with running(folder, home, connect=connect, opening=Opening(live="")) as ui:
            yield ui
    finally:
        double.kill()
        await double.wait()


def shape(entries: Sequence[Entry]) -> Shape:
    """What a person sees of a transcript."""
    return [
        (type(e).__name__, e.name, e.context, e.output, e.result, e.diff, e.state)
        if isinstance(e, Call)
        else (type(e).__name__, getattr(e, "text", ""))
        for e in entries
        if not isinstance(e, Welcome)
    ]


async def converse(ui: Interface, expected: Sequence[Shape] = ()) -> list[Shape]:
    """Send all prompts, each after the end of the one before; returns what is shown after each."""
    shapes: list[Shape] = []
    for number, prompt in enumerate(PROMPTS):
        await ui.send(prompt)
        if expected:  # a server that is reached again is ready before it has sent what was missed
            with contextlib.suppress(TimeoutError):
                await ui.until(lambda number=number: shape(ui.entries) == expected[number])
        await ui.until(lambda number=number: len(ui.prompts) > number and _is_answered(ui))
        await ui.rest()
        shapes.append(shape(ui.entries))
    return shapes


def _is_answered(ui: Interface) -> bool:
    prompts = ui.app.tabs.current.prompts
    last = ui.entries[-1]
    is_over = not isinstance(last, Note) or last.tone == "error"
    return ui.state == "ready" and not prompts.are_under_way and is_over and len(ui.entries) > 0


@pytest.mark.parametrize("seed", range(4))
async def test_a_connection_that_is_cut_at_random_shows_what_an_uninterrupted_one_shows(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(client_module, "_DELAYS_S", (0.0,) * 5)
    chance = random.Random(seed)
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    async with connected(tmp_path / "whole", home) as ui:
        expected = await converse(ui)
    lengths = [chance.randint(8, 30) for _ in range(12)]
    async with connected(tmp_path / "cut", home, lengths) as ui:
        assert await converse(ui, expected) == expected
        resumed = ui.requests("session.resume")
        assert len(resumed) >= 3 and all(params["after"]["seq"] for params in resumed)


def test_an_event_is_taken_once() -> None:
    conversation = Conversation()
    conversation.open(results.Opened(session_id="s", events=results.Resumption("a", 5)))
    assert not conversation.advance(results.Position("a", 5))
    assert conversation.advance(results.Position("a", 7))
    assert not conversation.advance(results.Position("a", 6))
    assert conversation.advance(results.Position("", 0)), "a snapshot of a state has no position"
    assert conversation.advance(results.Position("b", 1)), "the numbers began anew"
