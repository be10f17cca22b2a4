"""Loopback's adapter: one connection, on which messages come in and replies go out."""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from gateway.config import Platform, PlatformConfig
from gateway.platforms.base import (
    Abilities,
    BasePlatformAdapter,
    ErrorKind,
    PlatformError,
    Resend,
    SendMetadata,
    SendResult,
)
from hermes_core.errors import StoreError
from tests.support.loopback import translate, wire
from tests.support.loopback.manifest import LoopbackSettings

_log = logging.getLogger(__name__)


class _Unsent(Exception):
    """There is no connection; nothing was written."""


class _Unanswered(Exception):
    """The request was written, but the answer did not come."""


class LoopbackAdapter(BasePlatformAdapter):
    """A connection to a loopback server."""

    abilities = Abilities(
        text_limit=4000,
        resend="same",
        can_edit=True,
        edit_every_s=0.0,
        has_typing=True,
        has_buttons=True,
        can_send_files=True,
    )

    def __init__(self, config: PlatformConfig, settings: LoopbackSettings) -> None:
        super().__init__(config, Platform.register("loopback"))
        self._settings = settings
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: dict[int, asyncio.Future[wire.Reply]] = {}
        self._numbers = itertools.count(1)

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        del is_reconnect
        await self.disconnect()
        host, _, port = self._settings.address.rpartition(":")
        try:
            reader, self._writer = await asyncio.open_connection(
                host, int(port), limit=wire.LINE_LIMIT
            )
        except (OSError, ValueError) as error:
            raise PlatformError(
                f"No loopback server answers at {self._settings.address}: {error}.",
                fix="Start it, or correct `address`.",
            ) from error
        arrived: asyncio.Queue[wire.Delivery] = asyncio.Queue()
        self._tasks = [self._start(self._read(reader, arrived)), self._start(self._take(arrived))]
        await self._connected(lambda number: wire.Listen(number))
        return True

    async def _connected(self, make: Callable[[int], wire.Answerable]) -> None:
        try:
            await self._ask(make)
        except (_Unsent, _Unanswered) as error:
            await self.disconnect()
            raise PlatformError("The loopback server hung up at once.") from error

    async def disconnect(self) -> None:
        tasks, writer = self._tasks, self._writer
        self._hang_up()
        await asyncio.gather(*tasks, return_exceptions=True)
        if writer:
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _hang_up(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._writer:
            self._writer.close()
        self._tasks, self._writer = [], None
        for waiting in self._waiting.values():
            _give_up(waiting)
        self._waiting.clear()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Nobody waits for these tasks, so their end must be told."""
        if task.cancelled() or task not in self._tasks:
            return
        self._hang_up()
        error = task.exception()
        reason = f": {error}" if error else ""
        self.lost(PlatformError(f"The connection to the loopback server ended{reason}."))

    async def _read(
        self, reader: asyncio.StreamReader, arrived: asyncio.Queue[wire.Delivery]
    ) -> None:
        """Sort what the server says, until it says no more."""
        while line := await reader.readline():
            try:
                came = wire.news.decode(line)
            except msgspec.DecodeError:
                _log.warning("The loopback server said something unknown: %.200r", line)
                continue
            if isinstance(came, wire.Delivery):
                arrived.put_nowait(came)
            elif (waiting := self._waiting.pop(came.id, None)) and not waiting.done():
                waiting.set_result(came)

    async def _take(self, arrived: asyncio.Queue[wire.Delivery]) -> None:
        """Hand in what arrives, one after the other, and acknowledge what is on disk."""
        while True:
            delivery = await arrived.get()
            came = translate.understand(delivery.message)
            if came is None:
                _log.warning("Skipped something unknown: %.200r", bytes(delivery.message))
            else:
                await self._hand_in(came)
            self._write(wire.Ack(delivery.number))

    async def _hand_in(self, came: wire.Incoming) -> None:
        """Have the gateway take a message, however long that takes: its followers must wait."""
        event = translate.event(came, self.platform)
        while True:
            try:
                await self.ingress.accept(event)
            except StoreError as error:
                _log.warning("%s could not be stored, and is kept: %s", came.message_id, error)
                await asyncio.sleep(self._settings.retry_s)
            else:
                return

    def _write(self, request: wire.Request) -> None:
        if self._writer is None or self._writer.is_closing():
            raise _Unsent
        self._writer.write(wire.line(request))

    async def _ask(self, make: Callable[[int], wire.Answerable]) -> wire.Reply:
        """Make a request and wait for the answer; raises _Unsent and _Unanswered."""
        number = next(self._numbers)
        self._write(make(number))
        loop = asyncio.get_running_loop()
        waiting = self._waiting[number] = loop.create_future()
        patience = loop.call_later(self._settings.timeout_s, _give_up, waiting)
        try:
            return await waiting
        finally:
            patience.cancel()
            self._waiting.pop(number, None)

    async def _result(self, make: Callable[[int], wire.Answerable]) -> SendResult:
        try:
            reply = await self._ask(make)
        except _Unsent:
            return SendResult(success=False, error="There is no connection.", error_kind="network")
        except _Unanswered:
            return SendResult(success=False, error="No answer came.", error_kind="unsure")
        return SendResult(
            success=not reply.kind,
            message_id=reply.message_id,
            error=reply.error or None,
            error_kind=cast("ErrorKind", reply.kind),
            retry_after=reply.retry_after,
        )

    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: SendMetadata | None = None,
    ) -> SendResult:
        more = metadata or {}
        paths = more.get("files")
        try:
            files = await asyncio.to_thread(_load, paths) if paths else []
        except OSError as error:
            return SendResult(success=False, error=str(error), error_kind="refused")
        return await self._result(
            lambda number: wire.Send(
                id=number,
                chat=chat_id,
                text=content,
                key=more.get("key", ""),
                reply_to=reply_to,
                thread=more.get("thread_id"),
                question=more.get("question"),
                buttons=[(button.label, button.choice) for button in more.get("buttons", [])],
                files=files,
            )
        )

    async def edit_message(
        self, chat_id: str, message_id: str, content: str, metadata: SendMetadata | None = None
    ) -> SendResult:
        return await self._result(lambda number: wire.Edit(number, chat_id, message_id, content))

    async def find_sent(self, chat_id: str, key: str) -> str | None:
        found = await self._result(lambda number: wire.Find(number, chat_id, key))
        if not found.success:
            raise PlatformError(f"The loopback server cannot be asked: {found.error}")
        return found.message_id

    async def send_typing(self, chat_id: str, metadata: SendMetadata | None = None) -> None:
        await self._result(lambda number: wire.Typing(number, chat_id, is_on=True))

    async def stop_typing(self, chat_id: str, metadata: SendMetadata | None = None) -> None:
        await self._result(lambda number: wire.Typing(number, chat_id, is_on=False))

    async def announce_commands(self, commands: Sequence[tuple[str, str]]) -> None:
        await self._result(lambda number: wire.Commands(number, list(commands)))


class CheckedLoopbackAdapter(LoopbackAdapter):
    """The same for a server that can be asked what it has."""

    abilities = msgspec.structs.replace(LoopbackAdapter.abilities, resend="checked")


class MarkedLoopbackAdapter(LoopbackAdapter):
    """The same for a server that knows nothing of keys."""

    abilities = msgspec.structs.replace(LoopbackAdapter.abilities, resend="marked")


KINDS: dict[Resend, type[LoopbackAdapter]] = {
    "same": LoopbackAdapter,
    "checked": CheckedLoopbackAdapter,
    "marked": MarkedLoopbackAdapter,
}


def _give_up(waiting: asyncio.Future[wire.Reply]) -> None:
    if not waiting.done():
        waiting.set_exception(_Unanswered)


def _load(paths: Sequence[str]) -> list[wire.File]:
    return [wire.File(Path(path).name, Path(path).read_bytes()) for path in paths]
