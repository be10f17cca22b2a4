"""Requests: what is none is refused, what breaks is told, and nothing ends the server."""

import json
import random
import threading
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import pytest

from hermes_core.errors import StoreError
from hermes_protocol.errors import CODES
from tests.rpc.harness import TIMEOUT_S, Inside, RefusedError
from tests.rpc.memory_transport import MemoryTransport
from tui_gateway import methods, server
from tui_gateway.pool import Pool


@pytest.mark.parametrize(
    ("request_", "number"),
    [
        ([], -32600),
        ("text", -32600),
        (None, -32600),
        (7, -32600),
        ([{"id": 1, "method": "session.list"}], -32600),
        ({"id": 1}, -32600),
        ({"id": 1, "method": 7}, -32600),
        ({"id": 1, "method": ""}, -32600),
        ({"id": 1, "method": "session.list", "params": []}, -32602),
        ({"id": 1, "method": "session.list", "params": "x"}, -32602),
        ({"id": 1, "method": "session.list", "params": {"limit": "many"}}, -32602),
        ({"id": 1, "method": "session.list", "params": {"limit": -1}}, -32602),
        ({"id": 1, "method": "prompt.submit", "params": {}}, -32602),
        ({"id": 1, "method": "prompt.submit", "params": {"session_id": {}}}, -32602),
        ({"id": 1, "method": "pet.feed"}, -32601),
        ({"id": 1, "method": "__class__"}, -32601),
        ({"id": 1, "method": "prompt.submit", "params": {"session_id": "x"}}, 4001),
        ({"id": 1, "method": "session.interrupt", "params": {"session_id": "x"}}, 4001),
    ],
)
def test_what_is_no_request_is_refused_with_its_code(
    client: Inside, request_: Any, number: int
) -> None:
    answer = server.handle_request(request_)
    assert answer is not None
    assert answer["error"]["code"] == number
    assert answer["id"] == (1 if isinstance(request_, dict) else None)
    assert client.call("session.active_list") == {"sessions": []}


@pytest.mark.parametrize(
    "line",
    [b"{", b"\xff\xfe", b'{"id": 1', b"[" * 200_000, b'"\xed\xa0\x80"', b"nonsense", b"1e999"],
    ids=lambda line: str(line[:8]),
)
def test_what_is_no_json_is_refused(client: Inside, line: bytes) -> None:
    client.send(line)
    with pytest.raises(RefusedError) as refused:
        client.answer(None)
    assert refused.value.number in (-32700, -32600)
    assert client.call("session.active_list") == {"sessions": []}


def test_any_id_is_given_back_and_a_notification_is_not_answered(client: Inside) -> None:
    for rid in ("a", 0, None, 1.5, [1], {"x": 1}, True):
        answer = server.handle_request({"id": rid, "method": "session.active_list"})
        assert answer == {"jsonrpc": "2.0", "id": rid, "result": {"sessions": []}}
    assert server.handle_request({"method": "session.active_list"}) is None
    assert server.handle_request({"method": "nonsense"}) is None
    assert server.dispatch({"id": 1, "method": "session.active_list"}) is not None
    assert client.frames == []


def test_null_counts_as_not_given_and_unknown_parameters_are_ignored(client: Inside) -> None:
    result = client.call("session.list", limit=None, query=None, profile="x", unknown=[1])
    assert result == {"sessions": []}


def whole_numbers() -> list[tuple[str, str]]:
    """Every parameter of every method that may be a whole number."""
    return [
        (name, field)
        for name in methods.TABLE
        for field, kind in get_type_hints(methods.load(name).params).items()
        if {int, Any} & {kind, *get_args(kind)}
    ]


@pytest.mark.parametrize("number", [2**53 + 1, 2**63 - 1, 10**25, -(10**25)])
def test_a_number_that_is_too_large_is_refused_wherever_it_is_taken(
    client: Inside, number: int
) -> None:
    sid, methods = client.open(), whole_numbers()
    assert {("session.history", "before"), ("session.list", "offset")} <= set(methods)
    for name, field in methods:
        params = {"session_id": sid, "text": "x", "query": "x", "key": "busy", field: number}
        with pytest.raises(RefusedError) as refused:
            client.call(name, **params)
        assert refused.value.number == -32602, (name, field)
    with pytest.raises(RefusedError) as refused:
        client.call("session.history", session_id=sid, before=str(number))
    assert refused.value.number == -32602, "numbers may come as text"


def test_half_characters_do_no_harm(client: Inside) -> None:
    client.send(b'{"id": 9, "method": "session.create", "params": {"title": "a \\ud83d b"}}')
    sid = client.answer(9)["session_id"]
    assert client.call("session.title", session_id=sid)["title"] == "a ? b"
    memory = MemoryTransport()
    memory.write({"text": "half \ud83d", "list": ["\udc00"], "key": {"\udc00": 1}})
    assert memory.frames[0]["text"] == "half ?"


def test_a_method_that_breaks_is_told_and_the_next_request_is_answered(
    client: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(rid: Any, params: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setitem(server._methods, "session.usage", broken)
    with pytest.raises(RefusedError) as refused:
        client.call("session.usage", session_id="x")
    assert refused.value.number == -32603
    assert client.call("session.active_list") == {"sessions": []}


def test_a_store_that_fails_is_told_with_the_code_of_the_method(
    client: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise StoreError("The disk is gone.", fix="Put it back.")

    monkeypatch.setattr(server, "_get_db", broken)
    with pytest.raises(RefusedError) as refused:
        client.call("session.list")
    assert refused.value.number == 5006
    assert refused.value.data == {"code": "store", "fix": "Put it back."}
    assert client.call("session.most_recent")["session_id"] is None
    sid = client.open()
    with pytest.raises(RefusedError) as refused:
        client.call("prompt.submit", session_id=sid, text="lost?")
    assert str(refused.value) == "The disk is gone.", "it is not taken in, and the client knows"


def test_what_takes_long_does_not_keep_others_waiting(client: Inside) -> None:
    is_running, over = threading.Event(), threading.Event()

    def slow(rid: Any, params: Any) -> Any:
        is_running.set()
        over.wait(TIMEOUT_S)
        return {"id": rid, "result": {}}

    before = server._methods["session.usage"]
    server._methods["session.usage"] = slow
    try:
        number = client.post("session.usage")
        assert is_running.wait(TIMEOUT_S)
        assert client.open()
        over.set()
        client.answer(number)
    finally:
        server._methods["session.usage"] = before


def test_a_pool_runs_what_it_is_given_and_refuses_too_much() -> None:
    pool = Pool(threads=2, waiting=3)
    over, done = threading.Event(), threading.Semaphore(0)

    def work() -> None:
        over.wait(TIMEOUT_S)
        done.release()

    accepted = [pool.run(work) for _ in range(20)]
    assert 3 <= sum(accepted) <= 5
    over.set()
    for _ in range(sum(accepted)):
        assert done.acquire(timeout=TIMEOUT_S)
    assert pool.run(done.release)
    assert done.acquire(timeout=TIMEOUT_S)


def test_a_pool_keeps_its_threads_for_the_next_time_whatever_happens_in_them() -> None:
    pool, used = Pool(), list[threading.Thread]()

    def work() -> None:
        used.append(threading.current_thread())
        raise RuntimeError("on purpose")

    for _ in range(5):
        assert pool.run(work)
        assert pool.drain(TIMEOUT_S)
    assert len(set(used)) == 1


def test_a_thread_that_has_nothing_to_do_ends_and_another_takes_its_place() -> None:
    pool, used = Pool(threads=1, idle_s=0), list[threading.Thread]()
    for number in range(2):
        assert pool.run(lambda: used.append(threading.current_thread()))
        assert pool.drain(TIMEOUT_S)
        used[number].join(TIMEOUT_S)
        assert not used[number].is_alive()


class Immediate:
    """A thread that runs where it is started, as some scenarios have them."""

    def __init__(self, target: Callable[[], None], **_options: object) -> None:
        self.start = target


def test_what_runs_at_once_is_not_waited_for_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "Thread", Immediate)
    pool, done = Pool(idle_s=threading.TIMEOUT_MAX), list[int]()
    for number in range(2):
        assert pool.run(lambda number=number: done.append(number))
    assert done == [0, 1]


def test_every_code_that_is_used_is_explained() -> None:
    assert {entry.code for entry in methods.TABLE.values()} <= set(CODES)


# -- fuzzing -----------------------------------------------------------------------------------------

JUNK: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    "",
    "x",
    "\0",
    "ä" * 300,
    [],
    [[]],
    {},
    {"a": {"b": []}},
    "../../etc/passwd",
    "/",
    "~",
    "%s%n",
    "'; DROP TABLE sessions; --",
)


class Fuzz:
    """Makes frames that are nearly right, from the methods that there are."""

    def __init__(self, seed: int, sids: list[str]) -> None:
        self._random = random.Random(seed)
        self._sids = sids
        self._fields = {
            name: list(methods.load(name).params.__struct_fields__) for name in methods.TABLE
        }
        # What these do is tried elsewhere; here they would make the test a test of the disk.
        self._names = [
            name
            for name in methods.TABLE
            if name not in ("config.set", "session.create", "session.branch", "session.resume")
        ]
        self._mutations: list[Callable[[bytes], bytes]] = [
            lambda line: line,
            lambda line: line,
            self._cut,
            self._flip,
            self._repeat,
            self._swap,
        ]

    def line(self) -> bytes:
        frame = self._frame()
        line = json.dumps(frame).encode()
        return self._random.choice(self._mutations)(line)

    def _frame(self) -> Any:
        pick = self._random
        name = pick.choice(self._names)
        params = {field: self._value(field) for field in self._fields[name] if pick.random() < 0.8}
        frame: dict[str, Any] = {"jsonrpc": "2.0", "id": pick.choice(JUNK), "method": name}
        frame["params"] = params if pick.random() < 0.9 else pick.choice(JUNK)
        if pick.random() < 0.1:
            frame[pick.choice(list(frame))] = pick.choice(JUNK)
        if pick.random() < 0.05:
            del frame[pick.choice(list(frame))]
        return frame if pick.random() < 0.97 else pick.choice(JUNK)

    def _value(self, field: str) -> Any:
        if field == "session_id" and self._random.random() < 0.5:
            return self._random.choice(self._sids)
        return self._random.choice(JUNK)

    def _cut(self, line: bytes) -> bytes:
        return line[: self._random.randrange(len(line) + 1)]

    def _flip(self, line: bytes) -> bytes:
        changed = bytearray(line)
        for _ in range(self._random.randint(1, 8)):
            changed[self._random.randrange(len(changed))] = self._random.randrange(256)
        return bytes(changed)

    def _repeat(self, line: bytes) -> bytes:
        return line * self._random.randint(2, 4)

    def _swap(self, line: bytes) -> bytes:
        middle = self._random.randrange(len(line) + 1)
        return line[middle:] + line[:middle]


class Counting:
    """A client that looks at every answer and keeps none."""

    def __init__(self) -> None:
        self.answers = 0

    def write(self, frame: dict[str, Any]) -> bool:
        if "method" not in frame:
            assert ("result" in frame) != ("error" in frame)
            self.answers += 1
        return True


@pytest.mark.parametrize("frames", [5_000, pytest.param(100_000, marks=pytest.mark.proof)])
def test_broken_frames_do_not_end_the_server(
    client: Inside, monkeypatch: pytest.MonkeyPatch, frames: int
) -> None:
    sids = [client.open() for _ in range(3)]
    fuzz, transport = Fuzz(4, sids), Counting()
    # One after the other, so that each is dealt with and none is refused because others wait.
    monkeypatch.setattr(server, "_pool", SameThread())
    for _ in range(frames):
        server.receive(fuzz.line(), transport)
    assert transport.answers > frames / 2
    assert client.call("session.active_list")["sessions"] is not None
    assert client.open()


class SameThread(Pool):
    """A pool without threads."""

    def run(self, work: Callable[[], None]) -> bool:
        work()
        return True


def test_a_flood_is_answered_or_refused_and_then_goes_on(client: Inside) -> None:
    fuzz, transport = Fuzz(5, [client.open()]), Counting()
    for _ in range(3000):
        server.receive(fuzz.line(), transport)
    while True:  # until the pool has caught up
        try:
            assert client.call("session.list")["sessions"] is not None
        except RefusedError as refused:
            assert refused.number == -32000
        else:
            return
