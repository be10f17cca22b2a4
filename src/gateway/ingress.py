"""GatewayIngress: the gateway as its adapters see it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from functools import partial

from gateway import log_fields, turn_results
from gateway.attachments import Attachments
from gateway.blocking import run_blocking
from gateway.chat_migrations import ChatMigrations
from gateway.config import Platform
from gateway.parts import GatewayParts
from gateway.pipeline import Pipeline
from gateway.platforms.base import MessageEvent, Receipt, StoredTurn, TurnResult
from gateway.source import SessionSource
from gateway.store_monitor import StoreMonitor
from gateway.turn_events import events_of
from hermes_agent.turn.events import Event
from hermes_core.errors import HermesError, StoreMemoryError, is_exhausted
from hermes_engine.runner import STOPPED
from hermes_state.ledger import lineage, turns

logger = logging.getLogger(__name__)


class GatewayIngress:
    """Implements `platforms.base.Ingress`; its methods run in the event loop."""

    def __init__(
        self,
        parts: GatewayParts,
        pipeline: Pipeline,
        attachments: Attachments,
        migrations: ChatMigrations,
        monitor: StoreMonitor,
    ) -> None:
        self._parts = parts
        self._store = parts.assembly.store
        self._turns = parts.turns
        self._pipeline = pipeline
        self._attachments = attachments
        self._migrations = migrations
        self._monitor = monitor
        self.received_count = 0

    async def accept(self, event: MessageEvent) -> Receipt:
        """Error boundary of a message: a bug is reported in its chat and does not block others."""
        self.received_count += 1
        self._migrations.translate(event)
        try:
            with ExitStack() as held:
                if event.files and await run_blocking(partial(self._pipeline.wants_files, event)):
                    await self._attachments.collect(event, held)
                receipt = await run_blocking(partial(self._pipeline.accept, event))
        except HermesError:
            raise
        except Exception as error:
            if is_exhausted(error):  # the same message can be accepted later
                text = "The gateway is short of memory or open files; nothing was accepted."
                raise StoreMemoryError(text, fix="Send it again.") from error
            logger.exception("Message not accepted", extra=log_fields.of_message(event))
            return await run_blocking(partial(self._pipeline.give_up, event))
        logger.info("message accepted", extra=log_fields.of_receipt(event, receipt))
        return receipt

    async def may_invite(self, source: SessionSource) -> bool:
        return await run_blocking(partial(self._parts.access.may_invite, source))

    async def moved(self, platform: Platform, old_chat: str, new_chat: str) -> None:
        await self._migrations.record(platform, old_chat, new_chat)

    async def watch(self, turn_id: str) -> AsyncIterator[Event]:
        row = await run_blocking(lambda: self._store.read(turns.find, turn_id))
        if row is None or row["ended_at"] is not None:
            return
        root_of = partial(self._store.read, lineage.root)
        conversation_id = await run_blocking(partial(root_of, row["session_id"]))
        is_over = partial(self._turns.engine.is_over, turn_id)
        async for event in events_of(self._turns.engine, conversation_id, turn_id, is_over):
            yield event

    async def find_turn(self, turn_id: str, reader: SessionSource) -> StoredTurn:
        scope = self._parts.access.permissions_of(reader).scope
        model = self._running_model(turn_id)  # first: when the turn has ended, the store has it
        found = await run_blocking(partial(turn_results.find, self._store, turn_id, scope))
        return found._replace(model=model or found.model)

    def _running_model(self, turn_id: str) -> str:
        """Return the model of a turn that runs here: its session has it after the first answer."""
        running = self._turns.engine.work.find(turn_id)
        agent = running.agent if running is not None else None
        return agent.model.facts.name if agent is not None else ""

    async def delete_turn(self, turn_id: str, reader: SessionSource) -> None:
        scope = self._parts.access.permissions_of(reader).scope
        await run_blocking(partial(turn_results.delete, self._store, turn_id, scope))

    async def check_health(self) -> None:
        await self._monitor.check()

    async def wait_for_result(self, turn_id: str) -> TurnResult:
        """Wait for the end of a turn; raises StoreGoneError when the store is gone meanwhile."""
        return await self._monitor.cancel_when_lost(self._wait_for_result(turn_id))

    async def _wait_for_result(self, turn_id: str) -> TurnResult:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        read = partial(turn_results.of_turn, self._store, turn_id)
        with self._turns.on_end(turn_id, lambda: loop.call_soon_threadsafe(ended.set)):
            while (result := await run_blocking(read)) is None:
                await ended.wait()
                ended.clear()
        return result

    async def stop(self, turn_id: str) -> None:
        await run_blocking(partial(self._stop, turn_id))

    def _stop(self, turn_id: str) -> None:
        if not self._turns.cancel(turn_id, STOPPED):
            running = self._turns.engine.work.find(turn_id)
            if running is not None:
                self._turns.engine.interrupt(running.turn.conversation_id)

    async def models(self) -> Sequence[str]:
        assembly = self._parts.assembly
        found = await run_blocking(lambda: assembly.registry().discovery.found())
        default = assembly.settings.model.name  # the name that people know it by
        names = [default, *(provider.label for provider in found if provider.model)]
        return list(dict.fromkeys(name for name in names if name))
