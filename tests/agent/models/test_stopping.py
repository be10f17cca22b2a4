"""A stop ends a call wherever it hangs; real sockets that say nothing."""

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_agent.models.base import Model, Request
from hermes_agent.testing.faults import Hold
from hermes_agent.testing.scripted import TIMEOUT_S, Quiet, RecordingSink, silence
from hermes_agent.testing.server import ScriptedServer
from hermes_agent.turn.events import ignore
from hermes_agent.turn.stop import Stop
from hermes_core.errors import Interrupted, ModelError
from tests.agent.models.conftest import Format, Make

HELLO = Request("You help.", [], [{"role": "user", "content": "hello"}])


@contextlib.contextmanager
def request_in_thread(
    model: Model, stop: Stop, request: Request = HELLO, sink: Any = ignore
) -> Generator[None]:
    """Ask in another thread; at the end of the block the call must have been interrupted."""
    outcome: list[object] = []

    def ask() -> None:
        try:
            outcome.append(model.ask(request, stop, sink))
        except (Interrupted, ModelError) as error:
            outcome.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    yield
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()
    assert isinstance(outcome[0], Interrupted)


@pytest.fixture
def deaf() -> Iterator["Deaf"]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Deaf(listener)


class Deaf:
    """Accepts one connection and never answers."""

    def __init__(self, listener: socket.socket) -> None:
        self.port = listener.getsockname()[1]
        self._listener = listener
        self._listener.settimeout(TIMEOUT_S)

    @contextlib.contextmanager
    def accepting(self) -> Generator[socket.socket]:
        """The connection, once its first bytes have come."""
        line, _ = self._listener.accept()
        with line:
            line.settimeout(TIMEOUT_S)
            assert line.recv(1)
            yield line


def until(is_true: Callable[[], bool]) -> None:
    """Wait for something that only the system knows."""
    never, end = threading.Event(), time.monotonic() + TIMEOUT_S
    while not is_true():
        assert time.monotonic() < end
        never.wait(0.01)


def test_a_stop_before_the_first_byte(server: ScriptedServer, model: Model):
    quiet, stop = Quiet(), Stop()
    server.add(Hold(quiet))
    with request_in_thread(model, stop):
        assert quiet.started.wait(TIMEOUT_S)
        stop.set()


def test_a_stop_in_the_middle_of_a_stream(server: ScriptedServer, model: Model):
    stop, sink = Stop(), RecordingSink()
    quiet = Quiet()
    server.add(silence(quiet, after="Half of"))
    with request_in_thread(model, stop, sink=sink):
        until(lambda: sink.text == "Half of" and quiet.started.is_set())
        stop.set()


def test_a_stop_between_two_chunks_that_are_there_already(server: ScriptedServer, model: Model):
    stop = Stop()
    server.add("one two three four")
    events: list[Any] = []

    def stop_at_once(event: Any) -> None:
        events.append(event)
        stop.set()

    with pytest.raises(Interrupted):
        model.ask(HELLO, stop, stop_at_once)
    assert len(events) == 1


def test_a_stop_in_the_tls_handshake(deaf: Deaf, connect: Make, format_: Format):
    stop = Stop()
    with (
        request_in_thread(connect(format_, f"https://127.0.0.1:{deaf.port}"), stop),
        deaf.accepting(),
    ):
        stop.set()


def test_a_stop_while_a_long_request_is_sent(deaf: Deaf, connect: Make, format_: Format):
    stop = Stop()
    long = HELLO._replace(messages=[{"role": "user", "content": "x" * 30_000_000}])
    with (
        request_in_thread(connect(format_, f"http://127.0.0.1:{deaf.port}"), stop, long),
        deaf.accepting(),
    ):
        stop.set()


@pytest.mark.skipif(sys.platform != "linux", reason="how a queue overflows is the system's own")
def test_a_stop_while_connecting(connect: Make, format_: Format):
    stop = Stop()
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        while _is_accepted(stack, port):  # fill the queue, after which the system drops what comes
            pass
        with request_in_thread(connect(format_, f"http://127.0.0.1:{port}"), stop):
            until(lambda: _connecting_to(port) >= 2)
            stop.set()


def _is_accepted(stack: contextlib.ExitStack, port: int) -> bool:
    line = stack.enter_context(socket.socket())
    line.setblocking(False)
    line.connect_ex(("127.0.0.1", port))
    line.settimeout(0.2)
    with contextlib.suppress(OSError):
        line.getpeername()
        return True
    return False


def _connecting_to(port: int) -> int:
    """How many sockets of this machine wait for that port."""
    sent = f":{port:04X} 02"
    return Path("/proc/net/tcp").read_text().count(sent)


def test_a_stop_while_a_name_is_looked_up(
    connect: Make, format_: Format, monkeypatch: pytest.MonkeyPatch
):
    stop, is_begun, over = Stop(), threading.Event(), threading.Event()
    real = socket.getaddrinfo

    def slow(host: str, *args: Any, **more: Any) -> Any:
        if host == "slow.test":
            is_begun.set()
            over.wait(TIMEOUT_S)
        return real(host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with request_in_thread(connect(format_, "http://slow.test"), stop):
        assert is_begun.wait(TIMEOUT_S)
        stop.set()
    over.set()


def test_a_turn_that_was_stopped_before_asks_nothing(server: ScriptedServer, model: Model):
    stop = Stop()
    stop.set()
    with pytest.raises(Interrupted):
        model.ask(HELLO, stop, ignore)
    assert server.requests == []


def test_after_a_stop_the_next_turn_works(server: ScriptedServer, model: Model):
    quiet, stop = Quiet(), Stop()
    server.add(silence(quiet, after="Half"), "whole")
    with request_in_thread(model, stop):
        assert quiet.started.wait(TIMEOUT_S)
        stop.set()
    assert model.ask(HELLO, Stop(), ignore).text == "whole"


def test_a_late_stop_leaves_the_connection_to_whoever_has_it_now(
    server: ScriptedServer, model: Model
):
    early, late = Stop(), Quiet()
    server.add("one", silence(late, after="two ", then="three"))
    model.ask(HELLO, early, ignore)
    replies: list[str] = []
    thread = threading.Thread(
        target=lambda: replies.append(model.ask(HELLO, Stop(), ignore).text), daemon=True
    )
    thread.start()
    assert late.started.wait(TIMEOUT_S)
    early.set()
    late.release()
    thread.join(TIMEOUT_S)
    assert replies == ["two three"]
    assert len(server.clients) == 1


def test_a_stop_ends_only_its_own_call(server: ScriptedServer, model: Model):
    first, second = Quiet(), Quiet()
    server.add(silence(first), silence(second, then="still here"))
    stop = Stop()
    replies: list[str] = []
    with request_in_thread(model, stop):
        assert first.started.wait(TIMEOUT_S)
        other = threading.Thread(
            target=lambda: replies.append(model.ask(HELLO, Stop(), ignore).text), daemon=True
        )
        other.start()
        assert second.started.wait(TIMEOUT_S)
        stop.set()
    second.release()
    other.join(TIMEOUT_S)
    assert replies == ["still here"]
