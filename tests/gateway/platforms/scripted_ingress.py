"""An ingress whose turns are scripted, and an event loop in a thread for adapters that serve HTTP."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gateway.attachments import Attachments
from gateway.config import Platform
from gateway.platforms.base import (
    Attachment,
    BasePlatformAdapter,
    MessageEvent,
    PlatformError,
    Receipt,
    StoredTurn,
    ToolCall,
    TurnResult,
)
from gateway.source import SessionSource
from hermes_agent.turn.events import Event, StepStored, TextDelta, TurnEnded
from hermes_core.errors import TurnNotFoundError, UsageError

T = TypeVar("T")

TIMEOUT_S = 20.0


@dataclass
class Script:
    """How one turn goes."""

    events: Sequence[Event] = ()
    text: str = ""
    status: Any = "answered"
    reason: str = ""
    finish: Any = "stop"
    tool_calls: Sequence[ToolCall] = ()
    hold: bool = False
    """Whether it waits for `Scripted.go_on` before it ends."""


@dataclass
class Turn:
    """A turn that was accepted."""

    id: str
    session_id: str
    script: Script
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    is_stopped: bool = False


def says(*pieces: str) -> Script:
    """A turn of one step that streams its text in pieces."""
    text = "".join(pieces)
    events = [*map(TextDelta, pieces), StepStored(1, text, 0), TurnEnded("answered", text, "")]
    return Script(events, text)


class Remembered(Attachments):
    """Files that are kept in memory."""

    def __init__(self) -> None:
        super().__init__(Path(), 1_000_000)
        self.contents: list[bytes] = []

    def save(self, content: bytes, name: str, held: ExitStack | None = None) -> Attachment:
        if len(content) > 1_000_000:
            raise PlatformError(f"{name} is larger than 1 MB.")
        self.contents.append(content)
        return Attachment(Path(name), "image/png", name)


class ScriptedIngress:
    """Takes messages in as the gateway does: once by chat and message id, in memory."""

    def __init__(self, script: Callable[[MessageEvent], Script] | None = None) -> None:
        self.script = script or (lambda event: says("You said: ", event.text))
        self.events: list[MessageEvent] = []
        self.turns: dict[str, Turn] = {}
        self.attachments = Remembered()
        self.saved = self.attachments.contents
        self.error: Exception | None = None
        self.receipt: Receipt | None = None
        """What becomes of every message instead of a turn."""
        self.stopped = threading.Event()
        self.watched = threading.Event()
        self.accepted = threading.Semaphore(0)
        self.model_calls = 0
        self.strangers: set[str] = set()
        """The people whose invitations are refused."""
        self.moves: list[tuple[str, str]] = []
        """The chats that got another id, and that one."""
        self._receipts: dict[tuple[str, str], Receipt] = {}

    async def accept(self, event: MessageEvent) -> Receipt:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        assert event.source is not None and event.message_id is not None
        place = (event.source.chat_id, event.message_id)
        if place in self._receipts:
            return self._receipts[place]._replace(is_new=False)
        await self.attachments.collect(event)
        self.events.append(event)
        receipt = self.receipt or self._begin(event)
        self._receipts[place] = receipt
        self.accepted.release()
        return receipt

    def _begin(self, event: MessageEvent) -> Receipt:
        assert event.source is not None
        turn_id = f"{len(self.turns):032x}"
        session_id = event.options.get("session_id") or f"s-{len(self.turns)}"
        turn = self.turns[turn_id] = Turn(turn_id, session_id, self.script(event))
        if not turn.script.hold:
            turn.ended.set()
        return Receipt("turn", turn_id, session_id)

    async def moved(self, platform: Platform, old_chat: str, new_chat: str) -> None:
        del platform
        if self.error is not None:
            raise self.error
        self.moves.append((old_chat, new_chat))

    async def watch(self, turn_id: str) -> AsyncIterator[Event]:
        turn = self.turns[turn_id]
        for event in turn.script.events:
            await asyncio.sleep(0)
            yield event
        self.watched.set()
        await turn.ended.wait()

    async def find_turn(self, turn_id: str, reader: SessionSource) -> StoredTurn:
        del reader
        turn = self._turn(turn_id)
        result = await self.wait_for_result(turn_id) if turn.ended.is_set() else None
        calls = turn.script.tool_calls
        return StoredTurn(turn.session_id, 1.0, "scripted-1", "", calls, result)

    async def delete_turn(self, turn_id: str, reader: SessionSource) -> None:
        turn = self._turn(turn_id)
        if len([other for other in self.turns.values() if other.session_id == turn.session_id]) > 1:
            raise UsageError("The conversation has other turns.")
        del reader, self.turns[turn_id]

    async def wait_for_result(self, turn_id: str) -> TurnResult:
        turn = self._turn(turn_id)
        self.watched.set()
        await turn.ended.wait()
        script = turn.script
        status, reason = script.status, script.reason
        if turn.is_stopped:
            status, reason = "interrupted", "Stopped."
        usage = {
            "input_tokens": 100,
            "output_tokens": 20,
            "cache_read_tokens": 60,
            "cache_write_tokens": 5,
            "reasoning_tokens": 7,
        }
        return TurnResult(
            status, script.text, reason, turn.session_id, usage, "scripted-1", script.finish
        )

    def _turn(self, turn_id: str) -> Turn:
        if self.error is not None:
            raise self.error
        if turn_id not in self.turns:
            raise TurnNotFoundError(f"There is no turn {turn_id}.")
        return self.turns[turn_id]

    async def stop(self, turn_id: str) -> None:
        turn = self.turns[turn_id]
        turn.is_stopped = True
        turn.ended.set()
        self.stopped.set()

    async def may_invite(self, source: SessionSource) -> bool:
        return source.user_id not in self.strangers

    async def check_health(self) -> None:
        if self.error is not None:
            raise self.error

    async def models(self) -> Sequence[str]:
        self.model_calls += 1
        return ["scripted-1", "vendor/scripted-2"]


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)

    def call(self, fn: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(fn)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()


@contextmanager
def connected(adapter: BasePlatformAdapter, ingress: Any) -> Generator[Loop]:
    """An adapter that serves, in a loop of its own."""
    loop = Loop()
    try:
        adapter.set_ingress(ingress)
        loop.run(adapter.connect())
        yield loop
        loop.run(adapter.disconnect())
    finally:
        loop.close()
