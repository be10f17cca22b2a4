"""Delivery: sends the parts in the outbox, in the order of each chat. Nothing else sends replies.

A part is pending, then sending (stored before the request), then sent with the id of the platform. Where
a platform shows a part once however often it is sent under the same name, sending is not stored. A
temporary failure is retried. A part that a crash or a lost answer left unsure is sent again as its
platform allows: under the same name, after checking whether it is there, or marked as a repeat.
"""

import asyncio
import logging
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from gateway import replies
from gateway.adapter_calls import attempted
from gateway.blocking import run_blocking
from gateway.platforms.base import (
    BasePlatformAdapter,
    Button,
    PlatformError,
    Resend,
    SendMetadata,
    SendResult,
)
from gateway.streams import Streams, draft_key
from hermes_core import clock
from hermes_core.errors import IllegalTransitionError, RowGoneError, StoreError
from hermes_state.ledger import outbox as outbox_ledger
from hermes_state.ledger import questions
from hermes_state.store import Store, Tx
from hermes_state.store_retry import StoreRetry
from hermes_state.transitions import PartState
from hermes_state.values import OutboundPart, Row

T = TypeVar("T")

logger = logging.getLogger(__name__)

_POLL_INTERVAL_S = 2.0
"""Other processes add parts and cannot wake us."""
_MAX_RETRY_DELAY_S = 300.0
_GIVE_UP_AFTER_S = 24 * 3600.0
_MAX_SENDING = 64
_REFUSALS = ("refused", "too_long")
_SET_BACK_S = 1.0
"""A clock that jumps back further than this was set; a smaller step is a gradual correction."""
UNSURE = "unsure: it may have arrived"
"""The error of a part that may have arrived although no answer said so.

It is stored with the part, so that it outlives the process, together with the number of lost answers. An
attempt that a crash cut off is unsure too, but not counted: its request may never have been written.
"""
GIVEN_UP = "given up: delivery could not be confirmed"
_LOST_ANSWERS = re.compile(re.escape(UNSURE) + r"; answers lost: (\d+)")
_REPEAT_DELAYS_S = (0.0, 10.0, 120.0)
"""Delays of marked repeats: each lost answer may be one more visible copy in the chat. A network that is
down refuses connections, which leaves no doubt; a client that connects and gets no answer that often is
cut off after the request was carried out."""


class Delivery:
    """Sends due parts on the connected platforms."""

    def __init__(
        self,
        store: Store,
        adapters: Callable[[], Mapping[str, BasePlatformAdapter]],
        streams: Streams,
    ) -> None:
        self._store = store
        self._adapters = adapters
        self._streams = streams
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sending: dict[int, asyncio.Task[None]] = {}
        self._crowded: set[str] = set()
        """The platforms that may have more due parts than were allowed at once."""
        self._ahead_s: float | None = None
        """How far the wall clock was ahead of the monotonic clock at the last poll."""
        self.sent_count = self.failed_count = self.repeat_count = 0

    def enqueue(self, parts: Sequence[OutboundPart]) -> int:
        """Store parts in the outbox and wake delivery; return how many are new. Raises StoreError.

        Blocks; may be called from any thread. A part whose name is in the outbox is not stored again.
        """
        ids = self._store.write(outbox_ledger.add, parts) if parts else ()
        self.wake()
        return len(ids)

    def wake(self) -> None:
        """Look for due parts soon; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    async def run(self) -> None:
        """Send due parts until cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            await attempted("Reading the outbox", self._send_due)
            look = self._loop.call_later(_POLL_INTERVAL_S, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                look.cancel()

    async def drain(self, seconds: float) -> None:
        """Send what is due now and wait for it, with a timeout."""
        try:
            async with asyncio.timeout(seconds):
                while await self._send_due() or self._sending:
                    if self._sending:
                        await asyncio.wait(list(self._sending.values()))
        except TimeoutError:
            logger.warning("Some replies wait for the next start")
        except StoreError:
            logger.exception("Could not read the outbox; its replies wait for the next start")

    async def close(self) -> None:
        """Abandon what is being sent; the next start resolves it."""
        tasks = list(self._sending.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def resolve_unsure(self, platform: str) -> None:
        """Send again what an earlier process was sending when it ended."""
        now = clock.now()
        for row in await run_blocking(lambda: self._store.read(outbox_ledger.unsure)):
            if row["platform"] == platform and row["id"] not in self._sending:
                error = _unsure_error(row) or UNSURE
                await run_blocking(partial(self._retry, row["id"], error, now, is_claimed=True))
        self._wake.set()

    async def _send_due(self) -> int:
        """Begin to send due parts, a limited number per platform; return how many."""
        await self._follow_clock()
        count = 0
        for platform, adapter in self._adapters().items():
            if not self._room(platform):
                self._crowded.add(platform)
                continue
            due = partial(
                self._store.read, outbox_ledger.due, limit=_MAX_SENDING, platform=platform
            )
            found = await run_blocking(due)
            new = [row for row in found if row["id"] not in self._sending]
            room = self._room(platform)
            for row in new[:room]:
                task = asyncio.create_task(self._attempt(row, adapter), name=platform)
                self._sending[row["id"]] = task
                count += 1
            if len(new) > room or len(found) == _MAX_SENDING:
                self._crowded.add(platform)
            else:
                self._crowded.discard(platform)
        return count

    async def _follow_clock(self) -> None:
        """Bring delayed parts forward when the clock is set back, so that they wait as planned."""
        ahead_s = clock.now() - time.monotonic()
        set_back_s = 0.0 if self._ahead_s is None else self._ahead_s - ahead_s
        if set_back_s > _SET_BACK_S:
            await run_blocking(
                lambda: self._store.write(outbox_ledger.advance_due_times, set_back_s)
            )
        self._ahead_s = ahead_s

    def _room(self, platform: str) -> int:
        """Return how many more parts may be sent on a platform now."""
        sending = sum(task.get_name() == platform for task in self._sending.values())
        return max(0, _MAX_SENDING - sending)

    async def _attempt(self, row: Row, adapter: BasePlatformAdapter) -> None:
        """Send a part, then look for parts that are due by then."""
        is_more = True
        try:
            is_more = await self._send(row, adapter)
        finally:
            del self._sending[row["id"]]
            if is_more or row["platform"] in self._crowded:
                self._wake.set()

    async def _send(self, row: Row, adapter: BasePlatformAdapter) -> bool:
        """Try once to send a part; return whether more may be due now.

        A cancelled attempt is resolved by the next start.
        """
        if row["turn_id"] is not None:
            await self._streams.closed(row["turn_id"])
        is_claimed = adapter.abilities.resend != "same"
        claimed = await self._begin(row["id"], is_claimed=is_claimed)
        if claimed is None:
            return True
        try:
            result = await self._hand_over(claimed, adapter)
        except PlatformError as error:  # cannot check now whether it is there
            result = SendResult(success=False, error=str(error), error_kind="network")
        except Exception as error:  # the boundary of an adapter: it may have sent the part
            logger.exception("%s: sending part %s failed", row["platform"], row["id"])
            result = SendResult(success=False, error=repr(error), error_kind="unsure")
        return await self._note(claimed, result, adapter.abilities.resend)

    async def _begin(self, piece_id: int, *, is_claimed: bool) -> Row | None:
        """Store that a part is being sent, if need be; return None when it is not to be sent."""
        store = self._store
        try:
            if is_claimed:
                return await _retried("A part", lambda: store.write(outbox_ledger.begin, piece_id))
            return await _retried("A part", lambda: store.read(outbox_ledger.look, piece_id))
        except (IllegalTransitionError, RowGoneError):
            return None  # sent or deleted since the outbox was read

    async def _until_stored(self, note: Callable[[], T]) -> T | None:
        """Store the outcome of a part, however long that takes: no later part may overtake it."""
        try:
            return await _retried("The outcome of a part", note)
        except IllegalTransitionError:
            return logger.exception("The outcome of a part was already stored")
        except RowGoneError:
            return None  # its conversation was deleted while it was sent

    async def _hand_over(self, row: Row, adapter: BasePlatformAdapter) -> SendResult:
        """Send a part; raises PlatformError when it cannot be checked whether it is there."""
        is_repeat = _unsure_error(row) is not None
        if is_repeat and adapter.abilities.resend == "checked":
            found = await adapter.find_sent(row["chat_id"], _key(row))
            if found is not None:
                return SendResult(success=True, message_id=found)
        extra = replies.decode(row["extra"])
        metadata = _metadata(row, extra)
        draft: Row | None = row["draft"]
        may_be_there = draft is not None and draft["message_id"] is None
        if draft is not None:
            result = await self._become_reply(row, draft, adapter, metadata, extra.reply_to)
            if result is not None:
                return result
        text = row["content"]
        if (is_repeat or may_be_there) and adapter.abilities.resend == "marked":
            text = f"{replies.REPEAT_MARK}\n{text}"
            self.repeat_count += 1
        return await adapter.send(row["chat_id"], text, extra.reply_to, metadata)

    async def _become_reply(
        self,
        row: Row,
        draft: Row,
        adapter: BasePlatformAdapter,
        metadata: SendMetadata,
        reply_to: str | None,
    ) -> SendResult | None:
        """Turn a draft into the reply by its last edit; return None when it cannot be edited.

        A draft without an id may or may not be there: the platform is asked.
        """
        chat_id, key, message_id = row["chat_id"], draft_key(row["turn_id"]), draft["message_id"]
        if message_id is None and adapter.abilities.resend == "checked":
            message_id = await adapter.find_sent(chat_id, key)
        elif message_id is None and adapter.abilities.resend == "same":
            again: SendMetadata = {**metadata, "key": key}
            result = await adapter.send(chat_id, row["content"], reply_to, again)
            if not result.success:
                return result
            message_id = result.message_id
        if message_id is None:
            return None
        result = await adapter.edit_message(chat_id, message_id, row["content"], metadata)
        is_shown = result.success or result.error_kind not in _REFUSALS
        return _named(result, message_id) if is_shown else None

    async def _note(self, row: Row, result: SendResult, resend: Resend) -> bool:
        """Store the outcome of an attempt; return whether more may be due now."""
        store, id_, is_claimed = self._store, row["id"], resend != "same"
        if result.success:
            self.sent_count += 1
            message_id = result.message_id
            has_more = await self._until_stored(
                lambda: store.write(outbox_ledger.sent, id_, message_id, is_claimed=is_claimed)
            )
            is_new = row["piece"] and await self._until_stored(partial(self._report_gap, row))
            return bool(is_new) or has_more is not False
        wait_s, error = _next_attempt(row, result, resend)
        if wait_s is None:
            self.failed_count += 1
            logger.warning(
                "Part %s to %s %s given up: %s", id_, row["platform"], row["chat_id"], error
            )
            has_more = await self._until_stored(lambda: store.write(_fail, row, error))
            is_new = await self._until_stored(partial(self._report_gap, row))
            return bool(is_new) or has_more is not False
        due_at = clock.now() + wait_s
        await self._until_stored(partial(self._retry, id_, error, due_at, is_claimed=is_claimed))
        asyncio.get_running_loop().call_later(wait_s, self._wake.set)
        return False

    def _retry(self, piece_id: int, error: str, due_at: float, *, is_claimed: bool) -> None:
        self._store.write(outbox_ledger.retry, piece_id, error, due_at, is_claimed=is_claimed)

    def _report_gap(self, row: Row) -> bool:
        """Tell the chat, once, that a part of a reply is missing when other parts were sent."""
        parts = self._store.read(outbox_ledger.of_turn, row["turn_id"]) if row["turn_id"] else []
        lost = [part["error"] for part in parts if part["state"] == PartState.FAILED]
        if not lost or all(part["state"] != PartState.SENT for part in parts):
            return False
        text = f"⚠️ A part of this reply could not be sent: {lost[0]}"
        key = f"hole:{row['turn_id']}"
        part = OutboundPart(row["platform"], row["chat_id"], text, row["thread_id"], key)
        return bool(self._store.write(outbox_ledger.add, [part]))


def _fail(tx: Tx, row: Row, error: str) -> bool:
    """Give up a part; the approval that it belongs to is refused, as nobody can see all of it."""
    has_more = outbox_ledger.fail(tx, row["id"], error)
    if question_id := questions.id_of_part(row["key"]):
        questions.fail(tx, question_id, error)
    return has_more


async def _retried(subject: str, use: Callable[[], T]) -> T:
    """Use the store until it works; raise what says that the part has changed or is gone."""
    retry = StoreRetry(subject)
    while True:
        try:
            return await run_blocking(use)
        except (IllegalTransitionError, RowGoneError):
            raise
        except StoreError as error:
            await asyncio.sleep(retry.pause_after(error))


def _next_attempt(row: Row, result: SendResult, resend: Resend) -> tuple[float | None, str]:
    """Return the delay before a failed part is retried, or None, and its error until then."""
    error = result.error or "unknown"
    if result.error_kind in _REFUSALS or _is_old(row):
        return None, error
    wait_s = _wait(row["attempts"], result.retry_after)
    if result.error_kind != "unsure":
        # A part that may have arrived once stays unsure, whatever later attempts report.
        return wait_s, _unsure_error(row) or error
    if resend != "marked":
        return wait_s, _next_unsure_error(row)
    marked_s = _repeat_delay_s(row)
    return marked_s, GIVEN_UP if marked_s is None else _next_unsure_error(row)


def _unsure_error(row: Row) -> str | None:
    """Return the error of a part that may have arrived; None when it certainly did not."""
    error: str = row["error"] or ""
    return error if error.startswith(UNSURE) else None


def _lost_answers(row: Row) -> int:
    """Return how many answers about a part were lost."""
    match = _LOST_ANSWERS.fullmatch(row["error"] or "")
    return int(match[1]) if match is not None else 0


def _next_unsure_error(row: Row) -> str:
    """Return the error of a part after one more lost answer."""
    return f"{UNSURE}; answers lost: {_lost_answers(row) + 1}"


def _repeat_delay_s(row: Row) -> float | None:
    """Return the delay of a marked repeat after one more lost answer; None when there is none."""
    number = _lost_answers(row)
    return _REPEAT_DELAYS_S[number] if number < len(_REPEAT_DELAYS_S) else None


def _metadata(row: Row, extra: replies.Extra) -> SendMetadata:
    """Return the metadata of a part for its platform."""
    metadata: SendMetadata = {"key": _key(row), "final": True}
    if row["thread_id"]:
        metadata["thread_id"] = row["thread_id"]
    if row["question_id"] and row["buttons"]:
        metadata["question"] = row["question_id"]
        metadata["buttons"] = msgspec.json.decode(row["buttons"], type=list[Button])
    if extra.subject:
        metadata["subject"] = extra.subject
    if extra.files:
        metadata["files"] = extra.files
        metadata["whole"] = extra.is_whole
    if extra.is_plain:
        metadata["plain"] = True
    return metadata


def _key(row: Row) -> str:
    return row["key"] or f"piece:{row['id']}"


def _named(result: SendResult, message_id: str) -> SendResult:
    """Return the result of an edit with the id of its message; repeating an edit is always safe."""
    kind = "network" if result.error_kind == "unsure" else result.error_kind
    return SendResult(result.success, message_id, result.error, None, result.retry_after, kind)


def _is_old(row: Row) -> bool:
    return clock.now() - row["created_at"] > _GIVE_UP_AFTER_S


def _wait(attempts: int, asked_for: float | None) -> float:
    if asked_for is not None:
        return asked_for
    if attempts == 1:
        return 0.0
    return min(_MAX_RETRY_DELAY_S, 0.25 * 2 ** min(attempts, 11)) * random.uniform(0.5, 1.0)
