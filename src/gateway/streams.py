"""Streams: drafts show replies while they are written; edits turn a draft into its reply.

A draft is stored before it is sent. Its last edit is the delivery of the reply, so the two cannot
disagree. When a draft fails, the reply is sent as a message. The last line of a draft is the activity
of its turn, which nobody has to remove: the reply replaces it.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from gateway import reply_attachments
from gateway.activity import Activity
from gateway.adapter_calls import attempted
from gateway.blocking import run_blocking
from gateway.outline import closed
from gateway.platforms.base import BasePlatformAdapter, SendMetadata, SendResult
from gateway.reply_target import ReplyTarget
from gateway.splitting import split
from hermes_agent.turn.events import (
    Event,
    FellBack,
    Retrying,
    StepStored,
    TextDelta,
    TurnEnded,
)
from hermes_cli import plugins
from hermes_state.ledger import drafts as draft_ledger
from hermes_state.ledger import outbox, turns
from hermes_state.store import Store
from hermes_state.values import Row

_MIN_DRAFT = 24
"""Characters that are worth a first message."""
_CURSOR = " ▉"
_STOPPED = "⏹ Stopped."
_PAUSED = "⏸ Paused."
_RESUMED = "↻ Continuing after a restart"
_ACTIVITY_INTERVAL_S = 3.0
"""The shortest time between two edits for the activity alone: platforms limit the edits of a chat."""
_SETTLE_TIMEOUT_S = 3.0
_MAX_SETTLE_ATTEMPTS = 3
_SETTLE_RETRY_DELAY_S = 2.0


def draft_key(turn_id: str) -> str:
    """Return the name of a turn's draft."""
    return f"draft:{turn_id}"


class Streams:
    """The drafts of the turns that run in this process."""

    def __init__(
        self,
        store: Store,
        adapters: Callable[[], Mapping[str, BasePlatformAdapter]],
        *,
        is_on: bool,
        shows_activity: bool = False,
    ) -> None:
        self._store = store
        self._adapters = adapters
        self._is_on = is_on
        self._shows_activity = shows_activity
        self._open: dict[str, _Stream] = {}
        self._settling: dict[str, asyncio.Task[None]] = {}
        """Tasks that finish the drafts of ended turns, by turn."""

    def begin(
        self,
        turn_id: str,
        target: ReplyTarget,
        loop: asyncio.AbstractEventLoop,
        *,
        is_resumed: bool = False,
    ) -> None:
        """Open the stream of a turn; called in its thread."""
        adapter = self._adapters().get(target.source.platform.value)
        if adapter is None or adapter.abilities.answers_in_place or turn_id in self._open:
            return
        # A plugin could not rewrite or drop a text that is shown early.
        can_show = adapter.abilities.can_edit and not plugins.has_hook("pre_send")
        shows_text, shows_activity = can_show and self._is_on, can_show and self._shows_activity
        if not shows_text and not shows_activity and not adapter.abilities.has_typing:
            return
        stream = _Stream(
            self._store,
            adapter,
            turn_id,
            target,
            loop,
            shows_text=shows_text,
            shows_activity=shows_activity,
            is_resumed=is_resumed,
        )
        self._open[turn_id] = stream
        loop.call_soon_threadsafe(stream.start)

    def report(self, turn_id: str, event: Event) -> None:
        """Handle an event of a turn; called in its thread."""
        stream = self._open.get(turn_id)
        if stream is not None:
            stream.report(event)

    def end(self, turn_id: str, loop: asyncio.AbstractEventLoop) -> None:
        """Close the stream of a turn that has ended; called in its thread."""
        if turn_id in self._open and not loop.is_closed():
            loop.call_soon_threadsafe(self._ended, turn_id)

    def _ended(self, turn_id: str) -> None:
        stream = self._open.get(turn_id)
        if stream is not None:
            stream.stop()
            stream.when_quiet(partial(self._over, turn_id, stream))

    def _over(self, turn_id: str, stream: "_Stream") -> None:
        self._open.pop(turn_id, None)
        if stream.may_have_draft:
            task = self._settling[turn_id] = asyncio.create_task(
                attempted(f"Finishing the draft of turn {turn_id}", stream.settle)
            )
            task.add_done_callback(lambda _task: self._settling.pop(turn_id, None))

    def stopped(self, turn_id: str, platform: str, loop: asyncio.AbstractEventLoop) -> None:
        """Finish the draft of a stopped turn that an earlier process showed."""
        if turn_id not in self._open and not loop.is_closed():
            loop.call_soon_threadsafe(self._schedule_orphan_settling, turn_id, platform)

    def _schedule_orphan_settling(self, turn_id: str, platform: str) -> None:
        task = self._settling[f"left:{turn_id}"] = asyncio.create_task(
            attempted("Finishing drafts of stopped turns", self.settle_orphans, platform)
        )
        task.add_done_callback(lambda _task: self._settling.pop(f"left:{turn_id}", None))

    async def settle_orphans(self, platform: str) -> None:
        """Remove the cursor from drafts of killed processes without a reply; their text is lost."""
        adapter = self._adapters().get(platform)
        if adapter is None or not adapter.abilities.can_edit:
            return
        for row in await run_blocking(lambda: self._store.read(draft_ledger.orphaned, platform)):
            if row["turn_id"] not in self._open and row["turn_id"] not in self._settling:
                metadata: SendMetadata = {"key": f"turn:{row['turn_id']}:0"}
                await _settle(self._store, adapter, row, _STOPPED, metadata)

    async def drain(self) -> None:
        """Finish the drafts of ended and suspended turns, with a timeout."""
        if self._settling:
            await asyncio.wait(list(self._settling.values()), timeout=_SETTLE_TIMEOUT_S)

    async def closed(self, turn_id: str) -> None:
        """Wait until the draft of a turn is not edited any more."""
        stream = self._open.get(turn_id)
        if stream is not None:
            await stream.close()
            self._open.pop(turn_id, None)


class _Stream:
    """The draft of one turn, and its typing indicator."""

    def __init__(
        self,
        store: Store,
        adapter: BasePlatformAdapter,
        turn_id: str,
        target: ReplyTarget,
        loop: asyncio.AbstractEventLoop,
        *,
        shows_text: bool,
        shows_activity: bool,
        is_resumed: bool,
    ) -> None:
        self._store = store
        self._loop = loop
        self._adapter = adapter
        self._turn_id = turn_id
        place = target.source
        self._chat_id = place.chat_id
        self._reply_to = target.message_id
        self._metadata: SendMetadata = {"key": f"turn:{turn_id}:0"}
        if place.thread_id:
            self._metadata["thread_id"] = place.thread_id
        self._shows_text = shows_text
        self._shows_activity = shows_activity
        self._is_resumed = is_resumed
        # What a group reads about a command of one person is its name.
        self._activity = Activity(shows_arguments=not place.is_group)
        self._text = ""
        self._draft = ("", "")
        """The text and the activity that the draft shows."""
        self._message_id: str | None = None
        self._is_signaled = False
        self._is_over = False
        self._is_stopped = False
        self._news = asyncio.Event()
        self._pauses: set[asyncio.Future[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the tasks; called in the event loop."""
        if self._is_over:
            return
        if self._shows_text or self._shows_activity:
            self._tasks.append(
                asyncio.create_task(
                    attempted(f"Showing the draft of turn {self._turn_id}", self._show)
                )
            )
        if self._adapter.abilities.has_typing:
            self._tasks.append(asyncio.create_task(self._type()))

    def report(self, event: Event) -> None:
        """Handle an event in the thread of the turn; the loop is not woken for each word."""
        is_end = isinstance(event, TurnEnded)
        if is_end:
            self._is_stopped = event.status == "interrupted"
        if not (self._shows_text or self._shows_activity) and not is_end:
            return
        if self._shows_activity:
            self._activity.report(event)
        if isinstance(event, TextDelta):
            self._text += event.text
        elif isinstance(event, Retrying | FellBack):
            self._text = ""
        elif isinstance(event, StepStored):
            self._text = _step(event.text) if event.tool_calls else self._text
        if (is_end or not self._is_signaled) and not self._loop.is_closed():
            self._is_signaled = True
            self._loop.call_soon_threadsafe(self.stop if is_end else self._news.set)

    def stop(self) -> None:
        """Stop editing; called in the event loop."""
        self._is_over = True
        self._news.set()
        for pause in self._pauses:
            _release(pause)

    def when_quiet(self, do: Callable[[], None]) -> None:
        """Call a function once no request to the platform is running."""
        if under_way := self._under_way():
            under_way[0].add_done_callback(lambda _task: self.when_quiet(do))
        else:
            do()

    async def close(self) -> None:
        """Stop editing; wait for running requests."""
        self.stop()
        if under_way := self._under_way():
            await asyncio.gather(*under_way, return_exceptions=True)

    def _under_way(self) -> list[asyncio.Task[None]]:
        return [task for task in self._tasks if not task.done()]

    @property
    def may_have_draft(self) -> bool:
        """Return whether there may be a draft: shown here, or by an earlier process before a stop."""
        return self._message_id is not None or self._is_stopped

    async def settle(self) -> None:
        """Give the draft of a stopped or suspended turn a last text that claims nothing to run."""
        draft = await run_blocking(lambda: self._store.read(draft_ledger.find, self._turn_id))
        if draft is None or not draft["message_id"]:
            return
        text = self._fitting(self._text, "") if self._is_shown_text else ""
        if await run_blocking(self._is_open):
            if self._activity.line():
                message = (draft["chat_id"], draft["message_id"], text or _PAUSED, self._metadata)
                await self._adapter.edit_message(*message)
        elif not await run_blocking(lambda: self._store.read(outbox.of_turn, self._turn_id)):
            await _settle(self._store, self._adapter, draft, text or _STOPPED, self._metadata)

    def _is_open(self) -> bool:
        """Return whether the turn resumes later."""
        row = self._store.read(turns.find, self._turn_id)
        return row is not None and row["ended_at"] is None

    @property
    def _is_shown_text(self) -> bool:
        return self._shows_text and len(self._text) >= _MIN_DRAFT

    async def _show(self) -> None:
        """Show the draft while it grows; a failure ends it, and the reply is sent as a message."""
        if self._is_resumed and self._shows_activity:
            await self._show_resumed()
        while not self._is_over:
            await self._wait_for_news()
            self._is_signaled = False
            text = self._text if self._is_shown_text else ""
            line = self._activity.line() if self._message_id or self._activity.is_due else ""
            text = closed(text.rstrip()) if line else text
            if self._is_over or not (text or line) or (text, line) == self._draft:
                continue
            is_activity = text == self._draft[0]
            if not await self._put(text, line):
                return
            every_s = self._adapter.abilities.edit_every_s
            await self._pause(max(every_s, _ACTIVITY_INTERVAL_S) if is_activity else every_s)

    async def _show_resumed(self) -> None:
        """Take over the draft of an earlier process, which says what ran then."""
        draft = await run_blocking(lambda: self._store.read(draft_ledger.find, self._turn_id))
        if draft is not None and draft["message_id"]:
            self._message_id = draft["message_id"]
            if not self._activity.line():
                self._activity.note(_RESUMED)
            self._news.set()

    async def _wait_for_news(self) -> None:
        """Wait until something is to be shown, or the activity changes by itself."""
        change_s = self._activity.next_change_s() if self._shows_activity else None
        alarm = None if change_s is None else self._loop.call_later(change_s, self._news.set)
        await self._news.wait()
        self._news.clear()
        if alarm is not None:
            alarm.cancel()

    async def _put(self, text: str, line: str) -> bool:
        if self._message_id is None and await run_blocking(self._is_behind):
            self._news.set()  # looked at again, also when the model falls silent now
            return True  # a draft must not overtake what was said before it
        gap = "\n\n" if text and line else ""
        content = self._fitting(text, f"{gap}{line}{_CURSOR}") if text else f"{line}{_CURSOR}"
        self._draft = text, line
        if self._message_id is not None:
            result = await self._adapter.edit_message(
                self._chat_id, self._message_id, content, self._metadata
            )
            if result.retry_after is not None:
                await self._pause(result.retry_after)
            return result.success or result.retryable or result.error_kind == "unsure"
        return await self._open(content)

    def _is_behind(self) -> bool:
        """Return whether earlier replies are still being sent to the chat."""
        platform = self._adapter.platform.value
        return self._store.read(outbox.is_open, platform, self._chat_id)

    def _fitting(self, text: str, end: str) -> str:
        """Return as much of a text as fits one message with its end: the activity and the cursor."""
        abilities = self._adapter.abilities
        visible = reply_attachments.without(text) if abilities.can_send_files else text
        room = abilities.text_limit - abilities.measure(end)
        return split(visible or text, room, abilities.measure)[0] + end

    async def _open(self, text: str) -> bool:
        turn_id = self._turn_id
        is_first = await run_blocking(
            lambda: self._store.write(
                draft_ledger.begin, turn_id, self._adapter.platform.value, self._chat_id
            )
        )
        if not is_first:  # it is of an earlier attempt at this turn
            row = await run_blocking(lambda: self._store.read(draft_ledger.find, turn_id))
            self._message_id = row["message_id"] if row is not None else None
            return self._message_id is not None
        metadata: SendMetadata = {**self._metadata, "key": draft_key(turn_id)}
        result = await self._adapter.send(self._chat_id, text, self._reply_to, metadata)
        if result.success and result.message_id:
            self._message_id = message_id = result.message_id
            await run_blocking(
                lambda: self._store.write(draft_ledger.set_message_id, turn_id, message_id)
            )
        elif self._is_surely_not_there(result):
            await run_blocking(lambda: self._store.write(draft_ledger.delete, turn_id))
            if result.error_kind == "rate_limited":
                self._draft = ("", "")
                await self._pause(result.retry_after or _ACTIVITY_INTERVAL_S)
                self._news.set()
                return True
        return result.success

    def _is_surely_not_there(self, result: SendResult) -> bool:
        """Return whether a draft certainly does not exist; `same` makes a vain check harmless."""
        if self._adapter.abilities.resend == "same":
            return result.error_kind in ("refused", "too_long", "rate_limited")
        return result.error_kind != "unsure"

    async def _type(self) -> None:
        adapter, place = self._adapter, (self._chat_id, self._metadata)
        while not self._is_over:
            await attempted("Showing typing", adapter.send_typing, *place)
            await self._pause(self._adapter.abilities.typing_every_s)
        await attempted("Ending typing", adapter.stop_typing, *place)

    async def _pause(self, seconds: float) -> None:
        """Wait, at most until the end of the stream."""
        if self._is_over:
            return
        pause: asyncio.Future[None] = self._loop.create_future()
        alarm = self._loop.call_later(seconds, _release, pause)
        self._pauses.add(pause)
        try:
            await pause
        finally:
            alarm.cancel()
            self._pauses.discard(pause)


async def _settle(
    store: Store, adapter: BasePlatformAdapter, draft: Row, text: str, metadata: SendMetadata
) -> None:
    """Give a draft its final text; one that cannot be edited now is left to the next start."""
    for _ in range(_MAX_SETTLE_ATTEMPTS):
        result = await adapter.edit_message(draft["chat_id"], draft["message_id"], text, metadata)
        if not result.retryable:
            await run_blocking(lambda: store.write(draft_ledger.delete, draft["turn_id"]))
            return
        await asyncio.sleep(result.retry_after or _SETTLE_RETRY_DELAY_S)


def _step(text: str) -> str:
    """Return the text of a step, with room for the next one."""
    return f"{closed(text.rstrip())}\n\n" if text.strip() else ""


def _release(pause: asyncio.Future[None]) -> None:
    if not pause.done():
        pause.set_result(None)
