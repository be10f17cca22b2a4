"""Ways to a client: in order, joined while they wait, bounded, and never waited for."""

import json
import os
import threading
from typing import Any

import pytest

from hermes_protocol.events import Delta, ToolProgress
from hermes_protocol.results import Position
from tests.rpc.harness import TIMEOUT_S
from tui_gateway import protocol
from tui_gateway.transport import DescriptorWriter, LineReader, QueuedTransport


class Slow:
    """Somebody who reads only when told to."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.reads = threading.Semaphore(0)
        self.waits = threading.Event()

    def send(self, data: bytes) -> None:
        self.waits.set()
        if not self.reads.acquire(timeout=TIMEOUT_S):
            raise TimeoutError
        self.got += [json.loads(line) for line in data.splitlines()]


def delta(text: str, sid: str = "s") -> dict[str, Any]:
    return protocol.event(sid, Delta(text))


def numbered(text: str, seq: int, log: str = "log") -> dict[str, Any]:
    return protocol.event("s", Delta(text), Position(log, seq))


def progress(tool: str, text: str) -> dict[str, Any]:
    return protocol.event("s", ToolProgress(tool, text))


def test_pieces_that_wait_are_joined_and_the_order_stays() -> None:
    slow = Slow()
    transport = QueuedTransport(slow.send, pytest.fail)
    transport.write(protocol.answer(1, {}))
    assert slow.waits.wait(TIMEOUT_S)
    for frame in (
        delta("a"),
        delta("b"),
        delta("x", "other"),
        delta("c"),
        delta("d"),
        progress("t1", "1"),
        progress("t1", "2"),
        progress("t2", "3"),
        protocol.answer(2, {}),
        delta("e"),
    ):
        assert transport.write(frame)
    for _ in range(20):
        slow.reads.release()
    assert transport.drain(TIMEOUT_S)
    texts = [
        (f["params"]["session_id"], f["params"]["payload"]["text"]) if "params" in f else f["id"]
        for f in slow.got
    ]
    assert texts == [
        1, ("s", "ab"), ("other", "x"), ("s", "cd"), ("s", "12"), ("s", "3"), 2, ("s", "e"),
    ]  # fmt: skip


def test_a_piece_that_no_other_follows_is_sent_all_the_same() -> None:
    slow = Slow()
    slow.reads.release()
    transport = QueuedTransport(slow.send, pytest.fail)
    transport.write(delta("a"))
    assert transport.drain(TIMEOUT_S)
    assert [frame["params"]["payload"]["text"] for frame in slow.got] == ["a"]


def test_joined_pieces_have_the_number_of_the_last_one() -> None:
    slow = Slow()
    transport = QueuedTransport(slow.send, pytest.fail)
    transport.write(numbered("a", 1))
    assert slow.waits.wait(TIMEOUT_S)
    for frame in (numbered("b", 2), numbered("c", 3), numbered("d", 1, "another log")):
        assert transport.write(frame)
    for _ in range(20):
        slow.reads.release()
    assert transport.drain(TIMEOUT_S)
    received = [(p["log"], p["seq"], p["payload"]["text"]) for p in (f["params"] for f in slow.got)]
    assert received == [("log", 1, "a"), ("log", 3, "bc"), ("another log", 1, "d")]


def test_a_client_that_never_reads_is_given_up_and_told_once() -> None:
    slow = Slow()
    reasons: list[str] = []
    transport = QueuedTransport(slow.send, reasons.append, limit_bytes=10_000)
    while transport.write(protocol.answer(1, {"text": "x" * 100})):
        assert len(reasons) == 0
    assert reasons == ["it does not read its events"]
    assert not transport.write(protocol.answer(1, {}))
    assert transport.is_gone
    slow.reads.release()


def test_an_answer_that_is_larger_than_all_that_may_wait_is_sent() -> None:
    slow = Slow()
    transport = QueuedTransport(slow.send, pytest.fail, limit_bytes=10_000)
    for number in range(3):
        assert transport.write(protocol.answer(number, {"text": "x" * 20_000}))
        assert transport.write(delta("y"))
    for _ in range(20):
        slow.reads.release()
    assert transport.drain(TIMEOUT_S)
    assert [frame["id"] for frame in slow.got if "id" in frame] == [0, 1, 2]


def test_a_client_that_is_gone_is_noticed() -> None:
    reading, writing = os.pipe()
    is_gone = threading.Event()
    transport = QueuedTransport(DescriptorWriter(writing).send, lambda _reason: is_gone.set())
    os.close(reading)
    transport.write(protocol.answer(1, {}))
    assert is_gone.wait(TIMEOUT_S)
    assert not transport.write(protocol.answer(2, {}))
    assert transport.drain(TIMEOUT_S)
    os.close(writing)


def test_a_pipe_that_somebody_made_non_blocking_still_carries_everything() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    sent = b"x" * 1_000_000
    got = bytearray()

    def read() -> None:
        while len(got) < len(sent):
            got.extend(os.read(reading, 65536))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    DescriptorWriter(writing).send(sent)
    thread.join(TIMEOUT_S)
    assert bytes(got) == sent
    os.close(reading)
    os.close(writing)


def test_lines_are_read_whole_and_too_long_ones_are_left_out() -> None:
    reading, writing = os.pipe()

    def write() -> None:
        for piece in (
            b"one\ntw",
            b"o\n\n",
            b"x" * 150,
            b"y" * 150 + b"\nthree\n",
            b"z" * 101,
            b"\n",
        ):
            os.write(writing, piece)
        os.write(writing, b"w" * 100 + b"\nlast")
        os.close(writing)

    threading.Thread(target=write, daemon=True).start()
    os.set_blocking(reading, False)
    lines = list(LineReader(reading, 100))
    assert lines == [b"one", b"two", b"", None, b"three", None, b"w" * 100, b"last"]
    os.close(reading)


def test_a_closed_descriptor_is_the_end() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    assert list(LineReader(reading, 10)) == []
    os.close(reading)
    assert list(LineReader(reading, 10)) == []
