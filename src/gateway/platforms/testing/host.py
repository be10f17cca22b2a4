"""The gateway's part in the conformance kit: an ingress, and a loop that keeps one adapter connected."""

import asyncio
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from uuid import uuid4

from gateway.attachments import Attachments
from gateway.config import Platform
from gateway.platforms.base import (
    BasePlatformAdapter,
    MessageEvent,
    PlatformError,
    Receipt,
    SendMetadata,
    SendResult,
    StoredTurn,
    TurnResult,
)
from gateway.platforms.testing.background import Background
from gateway.platforms.testing.world import World
from gateway.source import SessionSource
from hermes_agent.turn.events import Event
from hermes_core.errors import StoreBusyError

_GLANCE_S = 0.02
_NOTICED_S = 0.3
_MAX_WAIT_S = 2.0
_FILE_LIMIT = 5 * 1024 * 1024
_T = TypeVar("_T")
Identity = tuple[str, str]


class KeepingIngress:
    """Takes messages in as the gateway does, once by chat and id, and remembers every delivery."""

    def __init__(self, folder: Path, patience_s: float) -> None:
        self.deliveries: list[MessageEvent] = []
        """Everything that was handed in, also when it could not be taken or was known."""
        self.accepted: list[MessageEvent] = []
        """What was taken in, each message once."""
        self.moves: dict[str, str] = {}
        """The chats that got another id, and that one."""
        self._accepted_before: set[Identity] = set()
        self._refusals = 0
        self._holds = False
        self._turns_away = False
        self._held: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._changed = threading.Condition()
        self._folder = folder
        self._attachments = Attachments(folder, _FILE_LIMIT)
        self._patience_s = patience_s

    def refuse(self, times: int) -> None:
        """Fail for the next messages, as a store does that is locked."""
        with self._changed:
            self._refusals = times

    def hold(self, *, is_on: bool = True) -> None:
        """Take messages in, but do not come back to the adapter to say so."""
        with self._changed:
            self._holds = is_on
            held, self._held = self._held, []
        for loop, event in held:
            loop.call_soon_threadsafe(event.set)

    def turn_away(self) -> None:
        """Treat every sender as a stranger from now on."""
        self._turns_away = True

    def stored_files(self) -> list[Path]:
        """The files of people that are on disk."""
        return list(self._folder.iterdir())

    async def accept(self, event: MessageEvent) -> Receipt:
        if not self._turns_away and identity(event) not in self._accepted_before:
            await self._attachments.collect(event)
        is_new = self._take(event)
        if self._holds:
            held = asyncio.Event()
            self._held.append((asyncio.get_running_loop(), held))
            await held.wait()
        if self._turns_away:
            return Receipt("ignored", is_new=is_new)
        return Receipt("turn", turn_id="", session_id="", is_new=is_new)

    def _take(self, event: MessageEvent) -> bool:
        name = identity(event)
        with self._changed:
            self.deliveries.append(event)
            self._changed.notify_all()
            if self._refusals:
                self._refusals -= 1
                raise StoreBusyError("The store is locked.")
            is_new = name not in self._accepted_before
            if is_new:
                self._accepted_before.add(name)
                self.accepted.append(event)
            return is_new

    def texts(self) -> list[str]:
        """The texts of what was taken in, in that order."""
        with self._changed:
            return [event.text for event in self.accepted]

    def wait_for(self, text: str, deliveries: int = 1) -> MessageEvent:
        """Wait until a message with this text was handed in so often; raises TimeoutError."""

        def found() -> list[MessageEvent]:
            return [event for event in self.deliveries if text in event.text]

        with self._changed:
            if not self._changed.wait_for(lambda: len(found()) >= deliveries, self._patience_s):
                came = [event.text for event in self.deliveries]
                raise TimeoutError(f"{text!r} did not come {deliveries} times; there came {came}.")
            return found()[-1]

    async def moved(self, platform: Platform, old_chat: str, new_chat: str) -> None:
        del platform
        self.moves[old_chat] = new_chat

    async def watch(self, turn_id: str) -> AsyncIterator[Event]:
        """Nothing is reported: nobody works on these turns."""
        del turn_id
        for event in ():
            yield event

    async def find_turn(self, turn_id: str, reader: SessionSource) -> StoredTurn:
        return StoredTurn(turn_id, 0.0, "", "", (), None)

    async def delete_turn(self, turn_id: str, reader: SessionSource) -> None:
        """There is nothing to delete."""

    async def wait_for_result(self, turn_id: str) -> TurnResult:
        return TurnResult("answered", "", "", turn_id, {})

    async def stop(self, turn_id: str) -> None:
        """There is nothing to stop."""

    async def may_invite(self, source: SessionSource) -> bool:
        del source
        return True

    async def check_health(self) -> None:
        """The store works."""

    async def models(self) -> Sequence[str]:
        return ["scripted"]


def identity(event: MessageEvent) -> Identity:
    """Return the identity of a message: a second delivery has the same."""
    assert event.source, f"{event.text!r} comes from nowhere."
    assert event.message_id, f"{event.text!r} has no id."
    return event.source.chat_id, event.message_id


class Host:
    """Runs the adapters of a world, one after the other, on one ingress."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._folder = tempfile.TemporaryDirectory(prefix="conformance-")
        self._background = Background("conformance")
        self._adapter: BasePlatformAdapter | None = None
        self._killed: list[tuple[Background, BasePlatformAdapter]] = []
        self._mending: asyncio.Task[None] | None = None
        self._is_lost = threading.Event()
        self.ingress = KeepingIngress(Path(self._folder.name), world.patience_s)

    def __enter__(self) -> "Host":
        self._background.start()
        with ExitStack() as undo:
            undo.callback(self._close)
            self.start()
            undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        self.ingress.refuse(0)
        self.ingress.hold(is_on=False)
        try:
            self.stop()
        finally:
            self._background.stop()
            self._reap()
            self._folder.cleanup()

    def _reap(self) -> None:
        """Let those that were killed give back what the system would have taken from a process."""
        for background, adapter in self._killed:
            background.start()
            try:
                background.run(adapter.disconnect(), self._world.patience_s)
            finally:
                background.stop()

    @property
    def adapter(self) -> BasePlatformAdapter:
        assert self._adapter, "The host does not run."
        return self._adapter

    def start(self) -> None:
        """Make an adapter and connect it."""
        self._is_lost.clear()
        self._adapter = self._world.make()
        self._adapter.set_ingress(self.ingress, self._on_lost)
        self.run(self._adapter.connect())

    def stop(self) -> None:
        """Disconnect, as a gateway does that ends in good order."""
        adapter, self._adapter = self._adapter, None
        if adapter:
            self.run(self._stop_mending())
            self.run(adapter.disconnect())

    def crash(self) -> None:
        """Stop in the middle of everything, as a killed process does."""
        self._background.kill()
        self._killed.append((self._background, self.adapter))
        self._adapter, self._mending = None, None
        self._background = Background("conformance")
        self._background.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return self._background.run(work, self._world.patience_s)

    def tasks(self) -> set[str]:
        """Return the tasks that still run in the loop."""
        return self._background.tasks()

    def send(
        self, text: str, metadata: SendMetadata | None = None, chat: str | None = None
    ) -> SendResult:
        """Send a piece, under a key of its own unless one is given."""
        options: SendMetadata = {"key": uuid4().hex}
        options.update(metadata or {})
        return self.run(self.adapter.send(chat or self._world.chat, text, None, options))

    def until(self, met: Callable[[], object], what: str) -> None:
        """Wait until something has become so; raises TimeoutError.

        Servers of others tell nobody when they change, so this looks again and again.
        """
        end = time.monotonic() + self._world.patience_s
        while not met():
            if time.monotonic() > end:
                raise TimeoutError(f"{what} did not happen: {self._world.visible_texts()}")
            threading.Event().wait(_GLANCE_S)

    def send_when_connected(self, text: str, key: str) -> SendResult:
        """Send a piece as soon as the platform takes it; raises TimeoutError."""
        results: list[SendResult] = []

        def is_through() -> bool:
            results.append(self.send(text, {"key": key}))
            if wait_s := results[-1].retry_after:
                threading.Event().wait(min(wait_s, _MAX_WAIT_S))
            return not results[-1].retryable

        self.until(is_through, "A send that gets through")
        return results[-1]

    def wait_for_loss(self) -> None:
        """Wait until the adapter says that it is lost, or, as it may well mend itself, for a moment.

        A reader that ends without a word has noticed by then too, and hears nothing afterwards.
        """
        self._is_lost.wait(_NOTICED_S)

    def _on_lost(self, error: PlatformError) -> None:
        """Do what the gateway does: disconnect, and connect again as soon as that is possible; not when
        the adapter says that it never will be.
        """
        self._is_lost.set()
        adapter = self._adapter
        if adapter and not error.is_fatal and (self._mending is None or self._mending.done()):
            self._mending = asyncio.get_running_loop().create_task(self._mend(adapter))

    async def _mend(self, adapter: BasePlatformAdapter) -> None:
        while True:
            await adapter.disconnect()
            try:
                await adapter.connect(is_reconnect=True)
            except PlatformError as error:
                if error.is_fatal:
                    return
            else:
                return
            await asyncio.sleep(_GLANCE_S)

    async def _stop_mending(self) -> None:
        mending, self._mending = self._mending, None
        if mending:
            mending.cancel()
            await asyncio.gather(mending, return_exceptions=True)
