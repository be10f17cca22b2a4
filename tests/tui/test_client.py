"""The client of the protocol, over the pipes of real processes."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from functools import partial
from pathlib import Path

import pytest

from hermes_protocol import results
from hermes_tui import client as module
from hermes_tui import wire
from hermes_tui.client import Client, Connect, Listener
from hermes_tui.failures import CallError, ConnectionLostError
from hermes_tui.transport import ChildTransport
from tests.tui.harness import TIMEOUT_S, connection

pytestmark = pytest.mark.anyio


class Notes(Listener):
    """Writes down what a client tells."""

    def __init__(self) -> None:
        self.events: list[tuple[str, wire.Json]] = []
        self.connections: list[int] = []
        self.losses: list[tuple[str, float | None]] = []
        self._news = asyncio.Event()

    def on_event(
        self, kind: str, session_id: str, payload: wire.Json, position: results.Position
    ) -> None:
        del session_id, position
        self.events.append((kind, payload))
        self._news.set()

    def connected(self, attempt: int) -> None:
        self.connections.append(attempt)
        self._news.set()

    def lost(self, reason: str, delay_s: float | None) -> None:
        self.losses.append((reason, delay_s))
        self._news.set()

    async def until(self, is_so: Callable[[], object]) -> None:
        """Wait for news until something is so."""
        while not is_so():
            self._news.clear()
            await self._news.wait()


@contextlib.asynccontextmanager
async def connected(connect: Connect) -> AsyncGenerator[tuple[Client, Notes]]:
    notes = Notes()
    client = Client(connect, notes)
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(client.run())
        yield client, notes
        await client.close()


def script(text: str) -> Connect:
    """A server that is this Python program."""
    return partial(ChildTransport.start, [sys.executable, "-c", text])


READY = (
    'import sys, time; print(\'{"method":"event","params":{"type":"gateway.ready"}}\', flush=True);'
)


def pid_of(client: Client) -> int:
    assert isinstance(client.transport, ChildTransport)
    return client.transport.pid


async def test_calls_are_answered_and_events_are_heard(folder: Path) -> None:
    async with connected(connection(folder)) as (client, notes):
        opened = await client.ask(results.Opened, "session.create", cols=80)
        result = await client.call(
            "prompt.submit", session_id=opened.session_id, text="hi", idempotency_key="1"
        )
        assert result == {"status": "streaming"}
        await notes.until(lambda: "message.complete" in [kind for kind, _ in notes.events])
    assert notes.connections == [0]
    assert notes.losses == []


async def test_a_refusal_is_an_error_with_number_and_fix(folder: Path) -> None:
    async with connected(connection(folder)) as (client, _):
        opened = await client.ask(results.Opened, "session.create")
        with pytest.raises(CallError) as refused:
            await client.call(
                "prompt.submit", session_id=opened.session_id, text="refuse", idempotency_key="1"
            )
        assert (refused.value.number, refused.value.fix) == (5032, "Say it again.")
        with pytest.raises(CallError, match="no method"):
            await client.call("no.such.method")


async def test_calls_wait_for_a_server_that_is_being_started(folder: Path) -> None:
    notes = Notes()
    client = Client(connection(folder), notes)
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(client.call("session.create", cols=80))
        await asyncio.sleep(0)
        tasks.create_task(client.run())
        assert "session_id" in await waiting
        await client.close()


async def test_a_server_that_is_killed_is_started_again(folder: Path) -> None:
    async with connected(connection(folder)) as (client, notes):
        await client.call("session.create", cols=80)
        os.kill(pid_of(client), signal.SIGKILL)
        await notes.until(lambda: notes.connections == [0, 1])
        await client.call("session.create", cols=80)
    assert notes.losses == [("it was killed by signal 9", 0.0)]


async def test_who_waits_for_a_server_that_dies_is_told() -> None:
    server = script(READY + "sys.stdin.readline(); sys.exit('no more')")
    async with connected(server) as (client, notes):
        with pytest.raises(ConnectionLostError):
            await client.call("anything")
        await notes.until(lambda: notes.losses)
    assert notes.losses[0][0] == "it ended with status 1: no more"


async def test_a_server_that_does_not_start_is_given_up_and_tried_again_on_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_DELAYS_S", (0.0, 0.0))
    async with connected(script("import sys; sys.exit('broken')")) as (client, notes):
        await notes.until(lambda: notes.losses and notes.losses[-1][1] is None)
        given_up = len(notes.losses)
        assert given_up == 3
        client.retry()
        await notes.until(lambda: len(notes.losses) > given_up)
    assert notes.connections == []
    assert all("broken" in reason for reason, _ in notes.losses)


async def test_a_command_that_is_not_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_DELAYS_S", ())
    nowhere = partial(ChildTransport.start, ["/nowhere/at/all"])
    async with connected(nowhere) as (_, notes):
        await notes.until(lambda: notes.losses)
    assert "/nowhere/at/all" in notes.losses[0][0]


async def test_lines_that_are_no_frames_are_passed_over() -> None:
    noise = "print('noise'); print('[1, 2]'); print('{\"id\": 99, \"result\": {}}');"
    answer = 'print(\'{"id": 1, "result": {"fine": true}}\', flush=True); sys.stdin.read()'
    server = script(READY + "sys.stdin.readline();" + noise + answer)
    async with connected(server) as (client, _):
        assert await client.call("anything") == {"fine": True}


async def test_ten_megabytes_in_one_line_arrive() -> None:
    big = (
        'sys.stdin.readline(); print(\'{"id": 1, "result": {"text": "%s"}}\' % ("x" * 10_000_000),'
    )
    server = script(READY + big + " flush=True); sys.stdin.read()")
    async with connected(server) as (client, _):
        result = await client.call("anything")
        assert len(result["text"]) == 10_000_000


async def test_an_answer_of_the_wrong_kind_is_an_error() -> None:
    wrong = 'sys.stdin.readline(); print(\'{"id": 1, "result": {"sessions": 7}}\', flush=True);'
    async with connected(script(READY + wrong + "sys.stdin.read()")) as (client, _):
        with pytest.raises(CallError, match="not understood"):
            await client.ask(results.Rows, "session.list")


async def test_a_server_that_does_not_leave_is_made_to() -> None:
    stubborn = "import signal; signal.pause()"
    notes = Notes()
    client = Client(script(READY + stubborn), notes)
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(client.run())
        await notes.until(lambda: notes.connections)
        transport = client.transport
        assert isinstance(transport, ChildTransport)
        await client.close(0.1)
        assert await transport._process.wait() == -signal.SIGTERM


async def test_a_flood_of_complaints_does_not_stop_the_server() -> None:
    chatter = "sys.stderr.write('x' * 1_000_000); sys.stderr.flush(); sys.stdin.readline();"
    answer = 'print(\'{"id": 1, "result": {}}\', flush=True); sys.stdin.read()'
    async with connected(script(READY + chatter + answer)) as (client, _):
        assert await client.call("anything") == {}
