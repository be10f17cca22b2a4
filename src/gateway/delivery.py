"""Delivery: what is in the outbox is sent, piece by piece, in the order of each chat.

pending → sending (noted before) → sent with the platform's id. What fails for now is tried again; what
a crash or a lost answer left unsure is sent again as its platform allows: under the same name, after a
look whether it is there, or with a visible mark. Nobody else sends replies.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping

from gateway import replies
from gateway.platforms.base import BasePlatformAdapter, SendMetadata, SendResult
from gateway.streams import Streams, draft_key
from gateway.threads import run_blocking
from hermes_core import clock
from hermes_state.protocol import Store
from hermes_state.records import Row

logger = logging.getLogger(__name__)

REPEAT_MARK = "(This may be a repeat.)"
_UNSURE = "unsure: it may have arrived"
_LOOK_AGAIN_S = 2.0
"""Pieces may come from other processes, who cannot wake us."""
_LONGEST_WAIT_S = 300.0
_GIVE_UP_AFTER_S = 24 * 3600.0
_AT_ONCE = 64
_REFUSALS = ("refused", "too_long")


class Delivery:
    """Sends what is due on the platforms that are connected."""

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
        self.sent_count = self.failed_count = self.repeat_count = 0

    def wake(self) -> None:
        """Something may be due; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    async def run(self) -> None:
        """Send what is due until cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            try:
                await self._send_due()
            except Exception:
                logger.exception("the outbox could not be read; it is tried again")
            try:
                await asyncio.wait_for(self._wake.wait(), _LOOK_AGAIN_S)
            except TimeoutError:
                continue

    async def drain(self, seconds: float) -> None:
        """Wait for what is being sent and what is due now."""
        deadline = clock.now() + seconds
        while clock.now() < deadline:
            if self._sending:
                await asyncio.wait(list(self._sending.values()), timeout=deadline - clock.now())
            elif await run_blocking(self._due_here):
                await self._send_due()
            else:
                return

    async def resolve_unsure(self, platform: str) -> None:
        """Have what an earlier process was sending when it ended sent again, as far as it must be."""
        adapter = self._adapters().get(platform)
        for row in await run_blocking(self._store.outbox.unsure):
            if (
                row["platform"] == platform
                and adapter is not None
                and row["id"] not in self._sending
            ):
                await self._settle_unsure(row, adapter)
        self._wake.set()

    def _due_here(self) -> list[Row]:
        here = self._adapters()
        return [
            row
            for row in self._store.outbox.due(limit=500)
            if row["platform"] in here and row["id"] not in self._sending
        ]

    async def _send_due(self) -> None:
        for row in await run_blocking(self._due_here):
            if len(self._sending) >= _AT_ONCE:
                return  # the end of any of them wakes us
            adapter = self._adapters().get(row["platform"])
            if adapter is not None and row["id"] not in self._sending:
                task = asyncio.create_task(self._send(row, adapter))
                self._sending[row["id"]] = task
                task.add_done_callback(lambda _task, id_=row["id"]: self._done(id_))

    def _done(self, piece_id: int) -> None:
        self._sending.pop(piece_id, None)
        self._wake.set()

    async def _send(self, row: Row, adapter: BasePlatformAdapter) -> None:
        """The boundary of a piece: whatever goes wrong, it has a state afterwards."""
        try:
            if row["turn_id"] is not None:
                await self._streams.closed(row["turn_id"])
            was_unsure = row["error"] == _UNSURE
            await run_blocking(lambda: self._store.outbox.begin(row["id"]))
            result = await self._hand_over(row, adapter, is_repeat=was_unsure)
            await self._note(row, result, adapter)
        except asyncio.CancelledError:
            raise  # the piece stays as it is; the next start looks at it
        except Exception:
            logger.exception("piece %s stays unsure", row["id"])

    async def _hand_over(
        self, row: Row, adapter: BasePlatformAdapter, *, is_repeat: bool
    ) -> SendResult:
        extra = replies.decode(row["extra"])
        metadata: SendMetadata = {"key": row["key"] or f"piece:{row['id']}", "final": True}
        if row["thread_id"]:
            metadata["thread_id"] = row["thread_id"]
        if extra.question and extra.buttons:
            metadata["question"], metadata["buttons"] = extra.question, extra.buttons
        if extra.subject:
            metadata["subject"] = extra.subject
        if extra.files:
            metadata["files"] = extra.files
        draft_id, may_be_there = await self._draft_of(row, adapter)
        if draft_id is not None:
            result = await adapter.edit_message(row["chat_id"], draft_id, row["content"], metadata)
            if result.success or result.error_kind not in _REFUSALS:
                return _named(result, draft_id)
        text = row["content"]
        if (is_repeat or may_be_there) and adapter.abilities.resend == "marked":
            text = f"{REPEAT_MARK}\n{text}"
            self.repeat_count += 1
        return await adapter.send(row["chat_id"], text, extra.reply_to, metadata)

    async def _draft_of(self, row: Row, adapter: BasePlatformAdapter) -> tuple[str | None, bool]:
        """The message that shows the reply already, and whether one may be there under no name."""
        if row["turn_id"] is None or row["piece"] != 0:
            return None, False
        draft = await run_blocking(lambda: self._store.drafts.get(row["turn_id"]))
        if draft is None or draft["message_id"]:
            return (draft["message_id"] if draft else None), False
        key, found = draft_key(row["turn_id"]), None
        if adapter.abilities.resend == "checked":
            found = await adapter.find_sent(row["chat_id"], key)
        elif adapter.abilities.resend == "same":  # the platform tells the one that is there
            again = await adapter.send(row["chat_id"], row["content"], None, {"key": key})
            found = again.message_id if again.success else None
        return found, found is None

    async def _note(self, row: Row, result: SendResult, adapter: BasePlatformAdapter) -> None:
        outbox, id_ = self._store.outbox, row["id"]
        error = result.error or "unknown"
        if result.success:
            self.sent_count += 1
            await run_blocking(lambda: outbox.sent(id_, result.message_id))
        elif result.error_kind == "unsure":
            await self._settle_unsure(row, adapter)
        elif result.error_kind in _REFUSALS or _is_old(row):
            self.failed_count += 1
            logger.warning(
                "a reply to %s %s is given up: %s", row["platform"], row["chat_id"], error
            )
            await run_blocking(lambda: outbox.fail(id_, error))
        else:
            due_at = clock.now() + _wait(row["attempts"], result.retry_after)
            # What may have arrived once may have, whatever became of the attempts after it.
            reason = _UNSURE if row["error"] == _UNSURE else error
            await run_blocking(lambda: outbox.retry(id_, reason, due_at))

    async def _settle_unsure(self, row: Row, adapter: BasePlatformAdapter) -> None:
        """Decide about a piece that may have arrived."""
        outbox, id_ = self._store.outbox, row["id"]
        if adapter.abilities.resend == "checked":
            found = await adapter.find_sent(row["chat_id"], row["key"] or f"piece:{id_}")
            if found is not None:
                await run_blocking(lambda: outbox.sent(id_, found))
                return
        due_at = clock.now() + _wait(row["attempts"], None)
        await run_blocking(lambda: outbox.retry(id_, _UNSURE, due_at))


def _named(result: SendResult, message_id: str) -> SendResult:
    """The result of an edit: what it is about keeps its id; to edit once more is always safe."""
    kind = "network" if result.error_kind == "unsure" else result.error_kind
    return SendResult(result.success, message_id, result.error, None, result.retry_after, kind)


def _is_old(row: Row) -> bool:
    return clock.now() - row["created_at"] > _GIVE_UP_AFTER_S


def _wait(attempts: int, asked_for: float | None) -> float:
    if asked_for is not None:
        return asked_for
    if attempts == 0:
        return 0.0
    return min(_LONGEST_WAIT_S, 0.5 * 2 ** min(attempts, 10)) * random.uniform(0.5, 1.0)
