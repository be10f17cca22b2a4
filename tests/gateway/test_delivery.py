"""Sending what is in the outbox: once, in order, and again only as the platform allows."""

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from gateway.blocking import run_blocking
from gateway.config import Platform, PlatformConfig
from gateway.delivery import GIVEN_UP, UNSURE, Delivery
from gateway.platforms.base import (
    Abilities,
    BasePlatformAdapter,
    ErrorKind,
    PlatformError,
    Resend,
    SendMetadata,
    SendResult,
)
from gateway.replies import REPEAT_MARK
from gateway.streams import Streams
from hermes_core import clock
from hermes_state import SessionDB
from hermes_state.ledger import drafts, outbox, sessions, turns
from hermes_state.store import Tx
from hermes_state.values import OutboundPart, Row
from tests.gateway.harness import Inside, World
from tests.support.faults import disk_full_at, eventually

_HOUR = 3600.0


class _Fickle(BasePlatformAdapter):
    """A platform that does with each request what it is told; nothing told: it works."""

    abilities = Abilities(text_limit=4000, can_edit=True)

    def __init__(self, resend: Resend) -> None:
        super().__init__(PlatformConfig(), Platform.register("fickle"))
        self.abilities = msgspec.structs.replace(type(self).abilities, resend=resend)  # type: ignore[misc]
        self.next: deque[SendResult | Exception] = deque()
        self.sent: list[tuple[str, str, str]] = []
        self.edited: list[tuple[str, str]] = []
        self.found: deque[str | None | Exception] = deque()
        self.threads: list[str | None] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0
        self._ids = itertools.count(1)

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        return True

    async def disconnect(self) -> None: ...

    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: SendMetadata | None = None,
    ) -> SendResult:
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1
        self.sent.append((chat_id, content, (metadata or {}).get("key", "")))
        self.threads.append((metadata or {}).get("thread_id"))
        return self._do()

    async def edit_message(
        self, chat_id: str, message_id: str, content: str, metadata: SendMetadata | None = None
    ) -> SendResult:
        self.edited.append((message_id, content))
        return self._do()

    async def find_sent(self, chat_id: str, key: str) -> str | None:
        found = self.found.popleft() if self.found else None
        if isinstance(found, Exception):
            raise found
        return found

    def _do(self) -> SendResult:
        result = self.next.popleft() if self.next else SendResult(True, f"id{next(self._ids)}")
        if isinstance(result, Exception):
            raise result
        return result

    @property
    def texts(self) -> list[str]:
        return [text for _, text, _ in self.sent]


def _failed(kind: ErrorKind, retry_after: float | None = None) -> SendResult:
    return SendResult(False, error=kind, error_kind=kind, retry_after=retry_after)


class _Post:
    """A delivery whose clock the test turns: every round an hour passes."""

    def __init__(self, store: SessionDB, resend: Resend = "marked") -> None:
        self.store = store
        self.adapter = _Fickle(resend)
        self.now = 1_800_000_000.0
        streams = Streams(store, lambda: {"fickle": self.adapter}, is_on=True)
        self.delivery = Delivery(store, lambda: {"fickle": self.adapter}, streams)

    def rounds(self, number: int = 1, hours: float = 1.0) -> None:
        async def go() -> None:
            for _ in range(number):
                await self._round()
                self.now += hours * _HOUR

        self._run(go)

    def after_a_crash(self) -> None:
        """What a new process does when it is connected."""

        async def go() -> None:
            await self.delivery.resolve_unsure("fickle")
            await self._round()

        self._run(go)

    async def _round(self) -> None:
        await self.delivery._send_due()
        while self.delivery._sending:
            await asyncio.gather(*self.delivery._sending.values())
            await asyncio.sleep(0)

    def _run(self, job: Callable[[], Awaitable[None]]) -> None:
        with clock.replaced(lambda: self.now):
            asyncio.run(job())  # type: ignore[arg-type]

    def put(self, *texts: str, chat: str = "c", **more: str | None) -> list[int]:
        with clock.replaced(lambda: self.now):
            pieces = [OutboundPart("fickle", chat, text, **more) for text in texts]  # type: ignore[arg-type]
            return self.store.write(outbox.add, pieces)

    def reply(self, *texts: str) -> None:
        """A turn that ends with a reply of so many pieces."""
        with clock.replaced(lambda: self.now):
            self.store.create_session("s", "fickle")
            turn = self.store.write(turns.accept, "s", {"role": "user", "content": "x"}).turn_id
            self.store.write(turns.start, turn)
            pieces = [
                OutboundPart("fickle", "c", text, key=f"turn:{turn}:{text}") for text in texts
            ]
            self.store.write(turns.finish, turn, "answered", parts=pieces)

    def state(self, piece_id: int) -> tuple[str, str | None]:
        sql = "SELECT state, error FROM outbox WHERE id = ?"
        row = self.store.read(lambda tx: tx.row(sql, piece_id))
        assert row is not None
        return row["state"], row["error"]


@pytest.fixture
def store() -> Iterator[SessionDB]:
    with SessionDB.in_memory() as memory_store:
        yield memory_store


def test_pieces_of_a_chat_go_out_one_after_the_other(store: SessionDB) -> None:
    post = _Post(store)
    post.put("one", "two", "three")
    post.put("elsewhere", chat="d")
    post.rounds(1)
    assert sorted(post.adapter.texts) == ["elsewhere", "one"]
    post.rounds(2)
    assert [text for chat, text, _ in post.adapter.sent if chat == "c"] == ["one", "two", "three"]


def test_a_clock_that_is_set_back_keeps_no_reply_waiting(store: SessionDB) -> None:
    post = _Post(store)
    post.adapter.next.append(_failed("network", retry_after=60.0))
    post.put("one", "two")
    post.rounds(1, hours=0)
    post.now -= 2 * _HOUR
    post.rounds(1, hours=0)
    assert post.adapter.texts == ["one"], "it waits as long as it was to"
    post.now += 61
    post.rounds(2, hours=0)
    assert post.adapter.texts == ["one", "one", "two"]


@pytest.mark.parametrize("resend", ["same", "checked", "marked"])
def test_a_piece_that_was_sent_since_it_was_looked_for_is_not_sent_again(
    store: SessionDB, caplog: pytest.LogCaptureFixture, resend: Resend
) -> None:
    post = _Post(store, resend)
    post.put("one")
    with clock.replaced(lambda: post.now):
        (stale,) = store.read(outbox.due, platform="fickle")
    post.rounds(1)
    asyncio.run(post.delivery._send(stale, post.adapter))
    assert post.adapter.texts == ["one"]
    assert not caplog.records


@pytest.mark.parametrize(
    ("resend", "noted"), [("same", "pending"), ("checked", "sending"), ("marked", "sending")]
)
def test_that_a_piece_is_being_sent_is_noted_where_its_key_does_not_fold_it(
    store: SessionDB, resend: Resend, noted: str
) -> None:
    post = _Post(store, resend)
    (piece,) = post.put("one")
    seen: list[str] = []

    async def look_while_it_is_sent() -> None:
        post.adapter.gate.clear()
        await post.delivery._send_due()
        while not post.adapter.waiting:
            await run_blocking(lambda: None)
        seen.append(post.state(piece)[0])
        post.adapter.gate.set()
        await asyncio.gather(*post.delivery._sending.values())

    post._run(look_while_it_is_sent)
    assert seen == [noted]
    assert post.state(piece)[0] == "sent"


def test_what_was_cut_off_where_the_key_folds_it_is_sent_again_under_that_key(
    store: SessionDB,
) -> None:
    post = _Post(store, "same")
    (piece,) = post.put("one")

    async def cut_off() -> None:
        post.adapter.gate.clear()
        await post.delivery._send_due()
        while not post.adapter.waiting:
            await run_blocking(lambda: None)
        await post.delivery.close()

    post._run(cut_off)
    post.adapter.gate.set()
    post.after_a_crash()
    assert [(text, key) for _, text, key in post.adapter.sent] == [("one", f"piece:{piece}")]
    assert post.state(piece) == ("sent", None)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("resend", ["same", "marked"])
@pytest.mark.parametrize("kind", ["", "network", "refused"])
def test_a_piece_whose_conversation_is_deleted_while_it_is_sent_is_let_go(
    store: SessionDB, resend: Resend, kind: ErrorKind
) -> None:
    post = _Post(store, resend)
    post.reply("one")

    async def send(*_args: object) -> SendResult:
        store.write(sessions.delete, ["s"])
        return _failed(kind) if kind else SendResult(True, "id")

    post.adapter.send = send  # type: ignore[method-assign]
    post.rounds(1)
    post.put("two")
    post.adapter.send = partial(_Fickle.send, post.adapter)  # type: ignore[method-assign]
    post.rounds(1)
    assert post.adapter.texts == ["two"]


def test_a_limit_of_the_platform_is_waited_for_as_long_as_it_asks(store: SessionDB) -> None:
    post = _Post(store)
    first, _ = post.put("one", "two")
    post.adapter.next.append(_failed("rate_limited", 3 * _HOUR))
    post.rounds(3)
    assert post.adapter.texts == ["one"]
    assert post.state(first) == ("pending", "rate_limited")
    post.rounds(2)
    assert post.adapter.texts == ["one", "one", "two"]


@pytest.mark.parametrize("kind", ["refused", "too_long"])
def test_what_is_refused_is_given_up_and_the_next_piece_follows(
    store: SessionDB, kind: ErrorKind
) -> None:
    post = _Post(store)
    first, _ = post.put("one", "two")
    post.adapter.next.append(_failed(kind))
    post.rounds(2)
    assert post.state(first) == ("failed", kind)
    assert post.adapter.texts == ["one", "two"]
    assert post.delivery.failed_count == 1
    assert [row["id"] for row in store.read(outbox.failed)] == [first]


@pytest.mark.parametrize("lost", [(0,), (1,), (2,), (0, 2)])
def test_a_part_of_a_reply_that_is_refused_is_told_once_behind_the_others(
    store: SessionDB, lost: tuple[int, ...]
) -> None:
    post, texts = _Post(store), ["one", "two", "three"]
    post.reply(*texts)
    for number in range(len(texts)):
        post.adapter.next.append(_failed("refused") if number in lost else SendResult(True, "id"))
    post.rounds(6)
    text = "⚠️ A part of this reply could not be sent: refused"
    assert post.adapter.texts == [*texts, text]


def test_a_reply_of_which_nothing_arrives_leaves_no_notice(store: SessionDB) -> None:
    post = _Post(store)
    post.reply("one", "two")
    post.adapter.next.extend([_failed("refused")] * 2)
    post.rounds(4)
    assert post.adapter.texts == ["one", "two"]


def test_what_surely_did_not_arrive_is_sent_again_without_a_mark(store: SessionDB) -> None:
    post = _Post(store)
    post.put("one")
    post.adapter.next.extend([_failed("network"), _failed("network")])
    post.rounds(3)
    assert post.adapter.texts == ["one", "one", "one"]


def test_every_attempt_has_the_same_key(store: SessionDB) -> None:
    post = _Post(store, "same")
    post.put("one", key="k")
    post.put("two", chat="d")
    post.adapter.next.extend([_failed("unsure"), _failed("network"), _failed("network")])
    post.rounds(4)
    keys = {chat: {key for c, _, key in post.adapter.sent if c == chat} for chat in "cd"}
    assert keys["c"] == {"k"}
    assert len(keys["d"]) == 1


def test_what_may_have_arrived_is_marked_for_good_whatever_comes_between(store: SessionDB) -> None:
    post = _Post(store, "marked")
    (piece,) = post.put("one")
    post.adapter.next.extend([_failed("unsure"), _failed("network"), _failed("rate_limited", 1.0)])
    post.rounds(4)
    assert post.adapter.texts == ["one", *[f"{REPEAT_MARK}\none"] * 3]
    assert post.state(piece) == ("sent", None)


def test_what_everybody_sees_again_is_repeated_a_few_times_and_then_given_up(
    store: SessionDB,
) -> None:
    post = _Post(store, "marked")
    first, _ = post.put("one", "two")
    lost = [_failed("unsure")] * 3
    post.adapter.next.extend(
        [*lost, _failed("network"), _failed("rate_limited"), _failed("unsure")]
    )
    post.rounds(7)
    assert post.adapter.texts == ["one", *[f"{REPEAT_MARK}\none"] * 5, "two"]
    assert post.state(first) == ("failed", GIVEN_UP)
    assert [row["id"] for row in store.read(outbox.failed)] == [first]


def test_repeats_that_everybody_sees_leave_the_network_time_to_come_back(store: SessionDB) -> None:
    post = _Post(store, "marked")
    post.put("one")
    post.adapter.next.extend([_failed("unsure")] * 3)
    seen: list[int] = []
    for _ in range(4):
        post.rounds(hours=30 / _HOUR)
        seen.append(len(post.adapter.texts))
    assert seen == [1, 2, 3, 3]
    post.rounds(2)
    assert len(post.adapter.texts) == 4
    assert store.read(outbox.waiting) == []


def test_a_crash_does_not_forget_how_many_answers_were_lost_and_is_not_counted_itself(
    store: SessionDB,
) -> None:
    post = _Post(store, "marked")
    (piece,) = post.put("one")
    post.adapter.next.extend([_failed("unsure")] * 3)
    post.rounds(3)
    with clock.replaced(lambda: post.now):
        store.write(outbox.begin, piece)
    post.adapter.next.append(_failed("network"))
    post.after_a_crash()
    assert post.state(piece)[0] == "pending"
    post.adapter.next.append(_failed("unsure"))
    post.now += _HOUR
    post.rounds()
    assert post.state(piece) == ("failed", GIVEN_UP)


def test_what_may_have_arrived_is_not_marked_where_the_key_folds_it(store: SessionDB) -> None:
    post = _Post(store, "same")
    post.put("one")
    post.adapter.next.append(_failed("unsure"))
    post.rounds(2)
    assert post.adapter.texts == ["one", "one"]
    assert post.delivery.repeat_count == 0


def test_what_may_have_arrived_is_looked_for_first(store: SessionDB) -> None:
    post = _Post(store, "checked")
    found, lost = post.put("one", "two")
    post.adapter.next.append(_failed("unsure"))
    post.adapter.found.append("there")
    post.rounds(2)
    assert post.adapter.texts == ["one"]
    assert post.state(found) == ("sent", None)
    post.adapter.next.append(_failed("unsure"))
    post.adapter.found.append(None)
    post.rounds(2)
    assert post.adapter.texts == ["one", "two", "two"]
    assert post.state(lost) == ("sent", None)


def test_nothing_is_sent_again_while_nobody_can_look_for_it(store: SessionDB) -> None:
    post = _Post(store, "checked")
    post.put("one")
    post.adapter.next.append(_failed("unsure"))
    post.adapter.found.extend([PlatformError("down"), PlatformError("down"), "there"])
    post.rounds(5)
    assert post.adapter.texts == ["one"]
    assert store.read(outbox.unsure) == []
    assert store.read(outbox.due) == []


@pytest.mark.parametrize(
    ("resend", "found", "texts"),
    [
        ("same", None, ["one"]),
        ("marked", None, [f"{REPEAT_MARK}\none"]),
        ("checked", None, ["one"]),
        ("checked", "there", []),
    ],
)
def test_what_a_crash_left_unsure_is_sent_as_the_platform_allows(
    store: SessionDB, resend: Resend, found: str | None, texts: list[str]
) -> None:
    post = _Post(store, resend)
    (piece,) = post.put("one")
    store.write(outbox.begin, piece)
    post.adapter.found.append(found)
    post.rounds()
    assert post.adapter.texts == []
    post.after_a_crash()
    assert post.adapter.texts == texts
    assert post.state(piece) == ("sent", None)


def test_an_adapter_that_breaks_leaves_its_piece_unsure_and_not_stuck(store: SessionDB) -> None:
    post = _Post(store, "marked")
    post.put("one", "two")
    post.adapter.next.append(RuntimeError("nobody foresaw this"))
    post.rounds(3)
    assert post.adapter.texts == ["one", f"{REPEAT_MARK}\none", "two"]


@pytest.mark.parametrize(
    ("kind", "resend"),
    [("network", "marked"), ("rate_limited", "marked"), ("unsure", "same"), ("unsure", "checked")],
)
def test_what_does_not_arrive_within_a_day_is_given_up(
    store: SessionDB, kind: ErrorKind, resend: Resend
) -> None:
    post = _Post(store, resend)
    (piece,) = post.put("one")
    post.adapter.next.extend([_failed(kind)] * 40)
    post.rounds(24)
    assert post.state(piece)[0] == "pending"
    post.rounds(2)
    assert post.state(piece)[0] == "failed"


def test_a_platform_that_was_off_for_days_still_gets_what_is_for_it(store: SessionDB) -> None:
    post = _Post(store)
    post.put("one")
    post.now += 5 * 24 * _HOUR
    post.rounds()
    assert post.adapter.texts == ["one"]


def test_what_waits_for_a_platform_that_is_off_holds_up_no_other(store: SessionDB) -> None:
    post = _Post(store)
    with clock.replaced(lambda: post.now - 1):
        store.write(outbox.add, [OutboundPart("off", f"c{number}", "x") for number in range(700)])
    post.put("ours")
    post.rounds()
    assert post.adapter.texts == ["ours"]


# -- when it looks for what is due -------------------------------------------------------------------


class _Live:
    """A delivery that runs, without the look every two seconds; counts how often it looks."""

    def __init__(self, store: SessionDB, monkeypatch: pytest.MonkeyPatch) -> None:
        self.post = _Post(store)
        self.store = store
        self.adapter, self.delivery = self.post.adapter, self.post.delivery
        self.looks = 0
        self._is_looking = True  # it looks as it starts
        self._due = outbox.due
        monkeypatch.setattr("gateway.delivery._POLL_INTERVAL_S", 3600.0)
        monkeypatch.setattr(outbox, "due", self._counted)

    def _counted(self, tx: Tx, limit: int = 100, platform: str | None = None) -> list[Row]:
        self._is_looking = True
        self.looks += 1
        found = self._due(tx, limit, platform)
        self._is_looking = False
        return found

    def run(self, job: Callable[[], Awaitable[None]]) -> None:
        async def go() -> None:
            async with asyncio.timeout(20.0):
                running = asyncio.create_task(self.delivery.run())
                await self.rest()
                self.looks = 0
                await job()
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

        asyncio.run(go())

    async def put(self, *texts: str, chat: str = "c") -> None:
        """As a turn does that ends."""
        pieces = [OutboundPart("fickle", chat, text) for text in texts]
        await run_blocking(lambda: self.store.write(outbox.add, pieces))
        self.delivery.wake()

    async def rest_at_gate(self, number: int = 1) -> None:
        """Wait until so many pieces are on their way, and no more follow."""
        while self.adapter.waiting < number:
            await run_blocking(lambda: None)
        for _ in range(10):
            await run_blocking(lambda: None)
        assert self.adapter.waiting == number

    async def rest(self, *, sent: int = 0) -> None:
        """Wait until so many were sent and nothing is looked for any more."""
        while len(self.adapter.sent) < sent:
            await run_blocking(lambda: None)
        looks = -1
        while self._is_busy() or looks != self.looks:
            looks = self.looks
            for _ in range(3):
                await run_blocking(lambda: None)

    def _is_busy(self) -> bool:
        return bool(self.delivery._sending) or self.delivery._wake.is_set() or self._is_looking


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Live]:
    with SessionDB(tmp_path / "live.db") as store:
        yield _Live(store, monkeypatch)


def test_one_reply_is_looked_for_once(live: _Live) -> None:
    async def go() -> None:
        await live.put("one")
        await live.rest(sent=1)

    live.run(go)
    assert (live.adapter.texts, live.looks) == (["one"], 1)


@pytest.mark.parametrize("kind", ["", "refused"])
def test_of_three_pieces_for_a_chat_each_is_looked_for_once(live: _Live, kind: ErrorKind) -> None:
    if kind:
        live.adapter.next.append(_failed(kind))

    async def go() -> None:
        await live.put("one", "two", "three")
        await live.rest(sent=3)

    live.run(go)
    assert (live.adapter.texts, live.looks) == (["one", "two", "three"], 3)


def test_what_is_put_while_its_chat_waits_for_an_earlier_piece_follows_it(live: _Live) -> None:
    async def go() -> None:
        live.adapter.gate.clear()
        await live.put("one")
        await live.rest_at_gate()
        await live.put("two")
        await live.put("elsewhere", chat="d")
        await live.rest_at_gate(2)
        live.adapter.gate.set()
        await live.rest(sent=3)

    live.run(go)
    assert [text for chat, text, _ in live.adapter.sent if chat == "c"] == ["one", "two"]
    assert live.store.read(outbox.waiting) == []


def test_more_than_fit_at_once_are_all_sent(live: _Live) -> None:
    async def go() -> None:
        live.adapter.gate.clear()
        pieces = [OutboundPart("fickle", f"c{number}", str(number)) for number in range(200)]
        await run_blocking(lambda: live.store.write(outbox.add, pieces))
        live.delivery.wake()
        await live.rest_at_gate(64)
        live.adapter.gate.set()
        await live.rest(sent=200)

    live.run(go)
    assert sorted(map(int, live.adapter.texts)) == list(range(200))
    assert live.store.read(outbox.waiting) == []


def test_what_is_put_off_is_sent_when_its_time_has_come(live: _Live) -> None:
    live.adapter.next.extend([_failed("rate_limited", 0.05), _failed("network")])

    async def go() -> None:
        await live.put("one", "two")
        await live.rest(sent=4)

    live.run(go)
    assert live.adapter.texts == ["one", "one", "one", "two"]


def test_what_may_have_arrived_since_it_was_looked_for_is_marked(store: SessionDB) -> None:
    post = _Post(store, "marked")
    (piece,) = post.put("one")
    with clock.replaced(lambda: post.now):
        (stale,) = store.read(outbox.due, platform="fickle")
        store.write(outbox.begin, piece)
        store.write(outbox.retry, piece, UNSURE, post.now)
        asyncio.run(post.delivery._send(stale, post.adapter))
    assert post.adapter.texts == [f"{REPEAT_MARK}\none"]


# -- drafts ------------------------------------------------------------------------------------------


def _with_draft(post: _Post, message_id: str | None, **more: str | None) -> None:
    """A turn whose reply is in the outbox, and whose draft is known under this id."""
    with clock.replaced(lambda: post.now):
        post.store.create_session("s", "fickle")
        turn = post.store.write(turns.accept, "s", {"role": "user", "content": "x"}).turn_id
        post.store.write(turns.start, turn)
        post.store.write(drafts.begin, turn, "fickle", "c")
        if message_id is not None:
            post.store.write(drafts.set_message_id, turn, message_id)
        piece = OutboundPart("fickle", "c", "the reply", key="k", **more)  # type: ignore[arg-type]
        post.store.write(turns.finish, turn, "answered", parts=[piece])


def test_a_draft_becomes_the_reply_by_its_last_edit(store: SessionDB) -> None:
    post = _Post(store)
    _with_draft(post, "d1")
    post.adapter.next.extend([_failed("unsure"), _failed("rate_limited", 1.0)])
    post.rounds(3)
    assert post.adapter.edited == [("d1", "the reply")] * 3
    assert post.adapter.sent == []
    assert store.read(lambda c: c.value("SELECT count(*) FROM drafts")) == 0


def test_a_draft_that_is_gone_is_replaced_by_a_message(store: SessionDB) -> None:
    post = _Post(store)
    _with_draft(post, "d1")
    post.adapter.next.append(_failed("refused"))
    post.rounds()
    assert post.adapter.texts == ["the reply"]


def test_a_draft_without_an_id_is_found_by_its_key_where_it_folds(store: SessionDB) -> None:
    post = _Post(store, "same")
    _with_draft(post, None, thread_id="t")
    post.adapter.next.append(_failed("network"))
    post.rounds(2)
    assert [text for _, text, _ in post.adapter.sent] == ["the reply"] * 2
    assert {key for _, _, key in post.adapter.sent} != {"k"}
    assert post.adapter.threads == ["t", "t"]
    assert post.adapter.edited == [("id1", "the reply")]


@pytest.mark.parametrize(
    ("found", "sent", "edited"), [("d9", [], [("d9", "the reply")]), (None, ["the reply"], [])]
)
def test_a_draft_without_an_id_is_looked_for_where_that_is_possible(
    store: SessionDB, found: str | None, sent: list[str], edited: list[tuple[str, str]]
) -> None:
    post = _Post(store, "checked")
    _with_draft(post, None)
    post.adapter.found.extend([PlatformError("down"), found])
    post.rounds(2)
    assert post.adapter.texts == sent
    assert post.adapter.edited == edited


def test_a_draft_without_an_id_makes_the_reply_a_marked_one_elsewhere(store: SessionDB) -> None:
    post = _Post(store, "marked")
    _with_draft(post, None)
    post.rounds()
    assert post.adapter.texts == [f"{REPEAT_MARK}\nthe reply"]


# -- in the gateway ------------------------------------------------------------------------------------


def test_replies_keep_their_order_when_the_first_is_put_off(world: World) -> None:
    with Inside(world):
        world.platform.rate_limit(0.5)
        world.platform.say("a", "one")
        world.platform.say("a", "two")
        first, second = world.wait_for_replies("a", 2)
        assert "You said: one" in first
        assert "You said: two" in second


def test_what_another_process_puts_into_the_outbox_is_sent(world: World) -> None:
    with Inside(world), SessionDB(world.home.database) as other:
        other.write(outbox.add, [OutboundPart("loopback", "a", "from elsewhere")])
        assert world.wait_for_replies("a", 1) == ["from elsewhere"]


def test_a_closed_chat_does_not_hold_up_the_others(world: World) -> None:
    with Inside(world) as inside:
        world.platform.close_chat("closed")
        world.platform.say("closed", "one")
        world.platform.say("a", "two")
        assert "two" in world.wait_for_replies("a", 1)[0]
        eventually(lambda: len(inside.store.read(outbox.failed)) == 1)


@pytest.mark.parametrize("state", ["sending", "sent"])
def test_a_reply_is_shown_once_though_the_store_cannot_note_it(world: World, state: str) -> None:
    with Inside(world) as inside:
        with disk_full_at(inside.store, f"UPDATE OF state ON outbox WHEN NEW.state = '{state}'"):
            world.platform.say("a", "one")
            world.platform.say("a", "two")
            eventually(
                lambda: len(inside.store.read(outbox.due) + inside.store.read(outbox.unsure)) > 0
            )
            if state == "sent":
                world.wait_for_replies("a", 1)
        first, second = world.wait_for_replies("a", 2)
        assert "You said: one" in first
        assert "You said: two" in second
        assert len(world.platform.attempts) == 2


def test_a_connection_that_breaks_does_not_lose_the_reply(world: World) -> None:
    with Inside(world):
        world.platform.lose_requests(1)
        world.platform.say("a", "hello")
        assert "hello" in world.wait_for_replies("a", 1)[0]
        world.platform.stop()
        world.platform.start()
        world.platform.say("a", "still there?")
        assert "still there?" in world.wait_for_replies("a", 2)[1]
