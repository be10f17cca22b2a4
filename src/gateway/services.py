"""Services: everything that works while the gateway runs, built once and in order.

Life cycle: recover what an earlier process left, connect the platforms, accept and deliver; at a stop,
begin no more turns, wait for the running ones, suspend what does not end, and disconnect.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from gateway import commands
from gateway.access import Access
from gateway.adapter_calls import attempted, called
from gateway.admin_chats import AdminChats
from gateway.attachments import Attachments
from gateway.blocking import run_blocking
from gateway.buttons import Buttons
from gateway.chat_migrations import ChatMigrations
from gateway.chat_turns import SURFACE, ChatTurns, Moved
from gateway.command_runner import CommandRunner
from gateway.connections import Connections
from gateway.conversations import Conversations
from gateway.delivery import Delivery
from gateway.ingress import GatewayIngress
from gateway.model_input import ModelInput
from gateway.pairing import Pairing
from gateway.parts import GatewayParts
from gateway.pipeline import Pipeline
from gateway.platforms.base import BasePlatformAdapter, Manifest, PlatformError, SendMetadata
from gateway.recovery import Recovery
from gateway.replies import Replies
from gateway.reply_attachments import ReplyAttachments
from gateway.reply_target import ReplyTarget
from gateway.session import SessionStore
from gateway.source import SessionSource
from gateway.store_monitor import StoreMonitor
from gateway.streams import Streams
from gateway.supervision import Supervisor, end
from gateway.workspaces import Workspaces
from hermes_agent import commands as shared
from hermes_agent import skills
from hermes_agent.assembly import Assembly
from hermes_cli import plugins
from hermes_core import clock
from hermes_core.errors import StoreError
from hermes_core.paths import Home, make_folder
from hermes_engine.surface import Running
from hermes_state.ledger import turns
from hermes_state.store_retry import StoreRetry

logger = logging.getLogger(__name__)

_SUSPENDED = "⏸ I have to restart. I continue with this afterwards; you need not send it again."
_DRAIN_DELIVERY_TIMEOUT_S = 5.0
_CONNECT_TIMEOUT_S = 20.0
_SEND_TIMEOUT_S = 20.0
_MAX_RECOVERY_ATTEMPTS = 6
_ANNOUNCE_DELAYS_S = (1.0, 10.0, 60.0, 600.0)


class Services:
    """The working parts of a gateway. Made inside its event loop."""

    def __init__(
        self,
        assembly: Assembly,
        sessions: SessionStore,
        manifests: Sequence[Manifest],
        reset: Callable[[ReplyTarget], str],
        restart: Callable[[], object],
        on_moved: Moved,
    ) -> None:
        settings, home = assembly.settings.gateway, assembly.home
        store = self.store = assembly.store
        self.assembly = assembly
        self.sessions = sessions
        self.changed = asyncio.Event()
        """Set when a platform connected or disconnected, or a turn began or ended."""
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()

        trusted = [manifest.name for manifest in manifests if not manifest.needs_pairing]
        quiet = [manifest.name for manifest in manifests if not manifest.greets_strangers]
        platforms = [manifest.name for manifest in manifests]
        limit_bytes = settings.attachment_limit_mb * 1024 * 1024
        carriers = [manifest.name for manifest in manifests if manifest.carries_outside_text]
        access = Access(store, assembly.settings, trusted, carriers)
        migrations = ChatMigrations(store, platforms, sessions.has_conversation)
        self.connections = Connections(home, settings, manifests, migrations)
        adapters = self.connections.for_stored_chats
        workspaces = _opened(Workspaces(home, assembly.settings), home)
        self.replies = Replies(
            store,
            self.connections.abilities_of,
            ReplyAttachments(home, limit_bytes, access.permissions_of, workspaces),
            [command.name for command in commands.TABLE],
        )
        self.streams = Streams(
            store, adapters, is_on=settings.streaming, shows_activity=settings.tool_activity
        )
        self.delivery = Delivery(store, adapters, self.streams)
        self.buttons = Buttons(store, adapters)
        self.admin_chats = AdminChats(store, self.replies, self.connections.names, self.delivery)
        self.model_input = ModelInput(store, sessions)
        conversations = Conversations(store, sessions, access, self.replies, self.delivery)
        self.turns = ChatTurns(
            assembly,
            sessions,
            self.replies,
            self.streams,
            delivery=self.delivery,
            buttons=self.buttons,
            access=access,
            loop=self._loop,
            on_moved=on_moved,
            on_change=self._set_changed,
            workspaces=workspaces,
        )
        parts = GatewayParts(
            assembly,
            sessions,
            access,
            Pairing(store, assembly.settings),
            self.replies,
            self.model_input,
            self.delivery,
            self.admin_chats,
            conversations,
            self.turns,
            reset,
            restart,
        )
        self._commands = CommandRunner(parts)
        self.pipeline = Pipeline(parts, self._commands, self._send_now, quiet)
        self.monitor = StoreMonitor(store)
        attachments = Attachments(home.attachments, limit_bytes)
        self.ingress = GatewayIngress(parts, self.pipeline, attachments, migrations, self.monitor)
        self.recovery = Recovery(store, sessions, self.replies, self.connections.sending)

    # -- life cycle -------------------------------------------------------------------------------

    async def open(self, leaving: asyncio.Event | None = None) -> list[str]:
        """Recover, then connect; return the platforms that are connected.

        Each platform is tried once first, unless that takes too long or `leaving` is set.
        """
        self.connections.prepare(self.ingress, self._connected, self._set_changed)
        await self._recover()
        self.turns.engine.start()
        self._spawn(self.monitor.watch())
        self._spawn(self.delivery.run())
        self._spawn(self.buttons.run())
        for supervisor in self.connections.supervisors:
            self._spawn(self._supervise(supervisor))
        waits: list[asyncio.Task[Any]] = [asyncio.create_task(self.connections.wait_until_tried())]
        if leaving is not None:
            waits.append(asyncio.create_task(leaving.wait()))
        await asyncio.wait(waits, timeout=_CONNECT_TIMEOUT_S, return_when="FIRST_COMPLETED")
        await end(waits)
        return sorted(self.connections.connected())

    async def _recover(self) -> None:
        """Recover; wait for a store that cannot be written yet, as no message may overtake."""
        retry = StoreRetry("Recovery")
        for _ in range(_MAX_RECOVERY_ATTEMPTS):
            try:
                return await run_blocking(self.recovery.at_start)
            except StoreError as error:
                if not error.is_temporary:
                    raise
                await asyncio.sleep(retry.pause_after(error))
        return await run_blocking(self.recovery.at_start)

    async def drain(self, seconds: float) -> set[str]:
        """Begin no more turns and wait for the running ones; suspend what does not end in time.

        Returns the session keys of the suspended turns.
        """
        self._commands.stop()
        keys = set[str]()
        before_suspend = partial(self._report_suspended, keys)
        await run_blocking(partial(self.turns.engine.drain, seconds, before_suspend))
        await self.streams.drain()
        await self.delivery.drain(_DRAIN_DELIVERY_TIMEOUT_S)
        return keys

    def _report_suspended(self, keys: set[str], running: Running) -> None:
        """Tell a chat that its turn is suspended; add its session key to `keys`."""
        turn_id = running.turn.id
        target = self.turns.target_of(turn_id)
        if target is None:
            return
        keys.add(target.session_key)
        try:
            name = f"putoff:{turn_id}:{clock.now():.3f}"
            self.delivery.enqueue(self.replies.pieces(target, _SUSPENDED, name=name))
        except StoreError:
            logger.exception("Could not notify the chat that turn %s was suspended", turn_id)

    async def close(self) -> None:
        """Disconnect and release everything."""
        await end(self._tasks)
        await self.delivery.close()
        self.connections.release()
        self._commands.close()
        await run_blocking(self._close)

    def _close(self) -> None:
        self.turns.engine.close()
        try:
            self.sessions.close()
        except StoreError:
            logger.exception("Could not store the last changes of routes")
        self.assembly.close()

    def _spawn(self, job: Any) -> None:  # noqa: ANN401 -- any coroutine
        task = asyncio.create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _set_changed(self) -> None:
        """Set `changed`, from any thread."""
        if not self.changed.is_set() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.changed.set)

    def queued_count(self) -> int:
        """Return how many turns of chats wait."""
        count = self.store.read(lambda tx: turns.count_open(tx, SURFACE))
        return max(0, count - len(self.turns.engine.work))

    def tidy(self) -> None:
        """Do what is due from time to time. Raises StoreError."""
        self.recovery.send_foreign_answers()
        self.delivery.wake()
        self.buttons.check()
        self.turns.engine.agents.sweep()
        self.sessions.save_changes()

    # -- platforms --------------------------------------------------------------------------------

    async def _supervise(self, supervisor: Supervisor) -> None:
        await supervisor.run()
        if supervisor.error is not None:  # it cannot get better
            name, error = supervisor.manifest.name, supervisor.error
            await run_blocking(partial(self.admin_chats.report_failed, name, error))

    async def _connected(self, name: str, adapter: BasePlatformAdapter) -> None:
        await self.delivery.resolve_unsure(name)
        self.buttons.check()
        self._spawn(
            attempted("Finishing drafts of stopped turns", self.streams.settle_orphans, name)
        )
        self._spawn(self._announce(name, adapter))

    async def _announce(self, name: str, adapter: BasePlatformAdapter) -> None:
        """Register our commands on a platform; retry while the adapter is connected."""
        for delay_s in _ANNOUNCE_DELAYS_S:
            try:
                return await called(adapter.announce_commands, await run_blocking(self._menu))
            except PlatformError as error:
                logger.warning("Commands not registered on %s yet: %s", name, error)
            except Exception:
                logger.warning("Commands not registered on %s", name, exc_info=True)
            await asyncio.sleep(delay_s)
            if not self.connections.is_current(name, adapter):
                return None
        return None

    def _menu(self) -> list[tuple[str, str]]:
        found = skills.load(self.assembly.home)
        usable = skills.usable(found, shared.names(plugins.commands("chat"), table=commands.TABLE))
        return [*commands.menu(), *((skill.name, skill.description) for skill in usable)]

    def _send_now(self, source: SessionSource, text: str) -> bool:
        """Send a text that must not be stored, from a thread; return whether it arrived."""
        platform = source.platform.value
        adapter = self.connections.for_stored_chats().get(platform)
        if adapter is None:
            return False
        metadata: SendMetadata = {"key": uuid4().hex}
        if source.thread_id:
            metadata["thread_id"] = source.thread_id
        job = adapter.send(source.chat_id, text, None, metadata)
        try:
            sending = asyncio.run_coroutine_threadsafe(job, self._loop)
            return sending.result(_SEND_TIMEOUT_S).success
        except Exception:  # the boundary of an adapter
            logger.warning("%s: sending the pairing code failed", platform, exc_info=True)
            return False


def _opened(workspaces: Workspaces, home: Home) -> Workspaces:
    """Create the default workspace; log where chats work, and when that is new or broad."""
    if workspaces.default == home.workspace and not home.workspace.is_dir():
        logger.warning(
            "%s They no longer work in your home folder; files elsewhere need an approval.",
            workspaces.describe(),
        )
    else:
        logger.info("%s", workspaces.describe())
    for folder in workspaces.broad:
        logger.warning(
            "Chats may change everything in %s without approval (broad_workspace).", folder
        )
    make_folder(workspaces.default)
    return workspaces
