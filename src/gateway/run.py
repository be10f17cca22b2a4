"""GatewayRunner: the gateway from start to stop. `Services` does the work.

Tests outside use names that begin with an underscore, and build a runner without calling `__init__`:
missing parts then have defaults.
"""

# Names of SessionStore that scenarios pin are used here.
# pyright: reportPrivateUsage=false
import asyncio
import contextlib
import logging
import resource
import signal
import time
from collections.abc import Callable, Collection, Sequence
from functools import cached_property, partial
from typing import Any

import msgspec

import hermes_state
from gateway import access, closing, health, preflight, status
from gateway.adapter_calls import attempted
from gateway.blocking import run_blocking
from gateway.config import GatewayConfig, Platform, load
from gateway.platforms import registry
from gateway.platforms.base import BasePlatformAdapter, MessageEvent
from gateway.reply_text import normalize_empty_agent_response as _normalize_empty_agent_response
from gateway.services import Services
from gateway.session import SessionEntry, SessionStore
from gateway.source import SessionSource
from gateway.supervision import end
from hermes_agent.agent import Agent
from hermes_agent.assembly import Assembly
from hermes_agent.sandbox import detect
from hermes_agent.tools.registry import default_tools
from hermes_cli import plugins
from hermes_core import gc_tuning
from hermes_core.paths import Home
from hermes_core.settings import Settings, ToolSettings
from hermes_core.text import counted
from hermes_core.version import VERSION
from hermes_state.ledger import leases, lineage
from hermes_state.store import Store

__all__ = ["GatewayRunner", "_normalize_empty_agent_response"]

logger = logging.getLogger(__name__)

RESTART_EXIT_CODE = 75
_MAX_FILES = 65_536
_FIRST_CHECK_DELAY_S = 60
_PRUNE_INTERVAL_S = 3600.0
_BATCH = 500
_STATUS_DELAY_S = 0.5
"""How long a change must last before the status file is updated."""
_STATUS_CHECK_INTERVAL_S = 5.0
"""How often to check that the status file is still there."""


class GatewayRunner:
    """The gateway of one home."""

    _running = False
    _draining = False
    _exit_reason: str | None = None
    _last_state: status.State = "stopped"
    _stop_task: "asyncio.Task[None] | None" = None
    _status_task: "asyncio.Task[None] | None" = None
    _restart_drain_timeout = 0.0
    _last_session_store_prune_ts = 0.0
    _services: Services | None = None
    _started: Services | None = None
    """The services whose health is reported, once they have started."""

    def __init__(self, home: Home, settings: Settings, store: Store | None = None) -> None:
        self.home = home
        self.settings = settings
        self.store: Store = store or hermes_state.SessionDB(
            home.database, busy_timeout_s=settings.store.busy_timeout_s
        )
        self._restart_drain_timeout = settings.gateway.drain_s

    @cached_property
    def config(self) -> GatewayConfig:
        return load(self.settings.gateway, self.home.sessions)

    @cached_property
    def session_store(self) -> SessionStore:
        return SessionStore(
            self.home.sessions, self.config, self._is_at_work, self.store, on_renewed=self._renewed
        )

    @cached_property
    def adapters(self) -> dict[Platform, BasePlatformAdapter]:
        return {}

    @cached_property
    def _running_agents(self) -> dict[str, Any]:
        return {}

    @cached_property
    def _shutdown_event(self) -> asyncio.Event:
        return asyncio.Event()

    def _is_at_work(self, session_key: str) -> bool:
        """Return whether a conversation has open turns or background processes, here or elsewhere."""
        if self._services is None:
            return False
        turns = self._services.turns
        if turns.is_busy(session_key):
            return True
        if turns.engine.agents.has_processes(turns.conversation_of(session_key)):
            return True
        entry = self.session_store.peek(session_key)
        return entry is not None and self._is_held(entry.session_id)

    def _agents_at_work(self) -> dict[str, Any]:
        """Return the agents that run turns now, by session key."""
        if self._services is not None:
            return self._services.turns.running_agents()
        return dict(self._running_agents)

    def _is_held(self, session_id: str) -> bool:
        """Return whether a process runs the conversation of a session now."""
        return (
            self.store.read(leases.holder_of, self.store.read(lineage.root, session_id)) is not None
        )

    # -- the life of the gateway ----------------------------------------------------------------

    async def start(self) -> list[str]:
        """Recover and connect; returns the platforms that are connected."""
        self._running = True
        has_crashed = status.read_runtime_status().get("gateway_state") in status.ALIVE
        self._update_runtime_status("starting")
        try:
            connected = await self._start()
        except Exception as error:
            self._exit_reason, self._last_state = str(error), "startup_failed"
            logger.warning("Gateway start failed", extra={"reason": str(error)})
            raise
        if has_crashed and self._services is not None:
            await run_blocking(self._services.admin_chats.report_crash)
        return connected

    async def _start(self) -> list[str]:
        loop = asyncio.get_running_loop()
        assembly = Assembly(self.home, self.settings, self.store, plugins)
        manifests = preflight.configured(self.settings.gateway)
        self._check_people(assembly)
        names = ", ".join(manifest.name for manifest in manifests)
        logger.info("gateway starts", extra={"version": VERSION, "platforms": names})
        await run_blocking(self.session_store._ensure_loaded)
        services = self._services = Services(
            assembly,
            self.session_store,
            manifests,
            reset=lambda target: self._reset(MessageEvent(text="/new", source=target.source)),
            restart=lambda: loop.call_soon_threadsafe(self._request_stop, "restart"),
            on_moved=self._follow,
        )
        connected = await services.open(self._shutdown_event)
        self._update_runtime_status(self._state)
        self._status_task = asyncio.create_task(self._update_status_file(services))
        logger.info("gateway started", extra={"connected": ", ".join(connected)})
        await run_blocking(lambda: plugins.invoke_hook("on_gateway_start", platforms=connected))
        await run_blocking(self._report_sandbox)
        gc_tuning.use_small_generations()
        gc_tuning.freeze()
        return connected

    def _report_sandbox(self) -> None:
        """Log where commands run, and keep it for `hermes gateway status`."""
        summary = detect.summary(self.settings)
        logger.info("%s", summary)
        status.write_runtime_status(sandbox=summary)

    def _check_people(self, assembly: Assembly) -> None:
        """Check the people and roles of the settings; raises ConfigError.

        Unknown names are only logged: they may belong to a plugin that is off or cannot be loaded.
        """
        platforms = registry.manifests()
        for setting in access.unknown_platforms(self.settings.gateway, platforms):
            logger.warning("%s, an unknown platform; known: %s", setting, _listed(platforms))
        every = msgspec.structs.replace(self.settings, tools=ToolSettings())
        tools = {tool.name for tool in default_tools(every)} | set(assembly.plugins.tools())
        for setting in access.unknown_tools(self.settings.roles, tools):
            logger.warning("%s, an unknown tool; known: %s", setting, _listed(tools))

    @property
    def _state(self) -> status.State:
        services = self._services
        return "running" if services is None or services.connections.is_complete else "degraded"

    async def _update_status_file(self, services: Services) -> None:
        """Update the status file after changes that last, and when it is lost."""
        written: tuple[status.State, int] | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STATUS_CHECK_INTERVAL_S):
                    await services.changed.wait()
                await asyncio.sleep(_STATUS_DELAY_S)
            services.changed.clear()
            now = (self._state, len(self._agents_at_work()))
            if now != written or not await run_blocking(status.is_written):
                await run_blocking(partial(self._update_runtime_status, now[0]))
                written = now

    async def run(self, on_ready: Callable[[list[str]], None] = lambda _platforms: None) -> int:
        """Serve until a signal or a command ends it; returns the exit status."""
        gc_tuning.limit_arenas()
        _raise_file_limit()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._request_stop, signal.Signals(number).name)
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
        status.write_pid_file()
        try:
            # A port in use must show before a platform is connected.
            async with health.serving(lambda: self._started, self.settings.gateway.health_port):
                connected = await self.start()
                self._started = self._services
                watcher = asyncio.create_task(self._session_expiry_watcher())
                if not self._shutdown_event.is_set():
                    on_ready(connected)
                await self._shutdown_event.wait()
            watcher.cancel()
        except health.PortTakenError as error:
            self._exit_reason, self._last_state = str(error), "startup_failed"
            raise
        finally:
            await self.stop()
        return RESTART_EXIT_CODE if self._exit_reason == "restart" else 0

    def _request_stop(self, reason: str) -> None:
        self._exit_reason = reason
        self._shutdown_event.set()

    async def stop(self) -> None:
        """Drain, close the running conversations and disconnect; once, also when called again."""
        if self._stop_task is None:
            self._stop_task = asyncio.create_task(self._stop())
        await asyncio.shield(self._stop_task)

    async def _stop(self) -> None:
        self._running = False
        self._draining = True
        if self._status_task is not None:
            await end([self._status_task])
        self._update_runtime_status("draining")
        fields = {"reason": self._exit_reason or "stopped", "turns": len(self._agents_at_work())}
        logger.info("gateway drains", extra=fields)
        agents = self._agents_at_work()
        cut_off: Collection[str] = ()
        if self._services is not None:
            cut_off = await self._services.drain(self._restart_drain_timeout)
        for key, agent in agents.items():
            await run_blocking(partial(self._finalize, key, agent, key in cut_off))
        if self._services is not None:
            await self._services.close()
        reason = self._exit_reason or "stopped"
        await run_blocking(lambda: plugins.invoke_hook("on_gateway_stop", reason=reason))
        gc_tuning.unfreeze()
        status.remove_pid_file()
        self._update_runtime_status(self._last_state)
        logger.info("gateway stopped", extra={"reason": reason})

    def _finalize(
        self,
        session_key: str,
        agent: Any,  # noqa: ANN401 -- ours, or a scenario's
        is_cut_off: bool,
    ) -> None:
        """Close a conversation that was running; it stays open and continues after a start."""
        if self._services is not None:
            turns = self._services.turns
            turns.engine.agents.drop(turns.conversation_of(session_key))
        platform = _platform_of(session_key)
        closing.close_chat(agent.session_id, platform, agent, lambda: None, interrupted=is_cut_off)

    def _update_runtime_status(self, state: status.State) -> None:
        status.write_runtime_status(
            gateway_state=state,
            exit_reason=self._exit_reason,
            active_agents=len(self._agents_at_work()),
        )

    # -- boundaries of conversations -------------------------------------------------------------

    async def _handle_message(self, event: MessageEvent) -> None:
        """Accept a message, as an adapter does."""
        if self._services is not None:
            await self._services.ingress.accept(event)

    async def _handle_reset_command(self, event: MessageEvent) -> str:
        """End the conversation of a chat and start a new one; returns what the person reads."""
        return await run_blocking(partial(self._reset, event))

    def _reset(self, event: MessageEvent) -> str:
        source = event.source
        if source is None:
            raise ValueError("A reset needs a chat.")
        self.session_store._ensure_loaded()
        key = self.session_store._generate_session_key(source)
        old = self.session_store._entries.get(key)
        queued, is_cut_off = self._renew(key, old, source)
        word = "Session reset." if old is not None else "New session."
        cut_off = "The running turn was stopped." if is_cut_off else ""
        rest = f"{counted(queued, 'queued message')} will be answered in it." if queued else ""
        texts = ("✨", word, self._format_session_info(), cut_off, rest)
        return " ".join(text for text in texts if text)

    def _renew(self, key: str, old: SessionEntry | None, source: SessionSource) -> tuple[int, bool]:
        """Close a conversation and start another.

        Returns how many queued turns move along, and whether a turn was cut off. The queued turns begin
        after the hooks of the new conversation.
        """
        if self._services is None:
            self._replace(old, source, None, is_cut_off=False)
            return 0, False
        turns = self._services.turns
        conversation_id = turns.conversation_of(key)
        with closing.at_rest(turns, key, conversation_id) as is_cut_off:
            queued = len(turns.queued(key))
            agent = self._dropped_agent(old) if old is not None else None
            self._replace(old, source, agent, is_cut_off=is_cut_off)
            return queued, is_cut_off

    def _replace(
        self,
        old: SessionEntry | None,
        source: SessionSource,
        agent: Agent | None,
        *,
        is_cut_off: bool,
    ) -> None:
        entry = self._first(source) if old is None else self._next(old, source, agent, is_cut_off)
        self._report_reset(entry, source.platform.value)

    def _next(
        self, old: SessionEntry, source: SessionSource, agent: Agent | None, is_cut_off: bool
    ) -> SessionEntry:
        new: list[SessionEntry | None] = []
        self.session_store.catch_up(old)
        closing.close_chat(
            old.session_id,
            source.platform.value,
            agent,
            lambda: new.append(self.session_store.reset_session(old.session_key)),
            model=self.session_store.model_of(old.session_id),
            interrupted=is_cut_off,
            is_reported=not (self._is_in_other_chats(old) or old.expiry_finalized is True),
            assembly=self._assembly,
        )
        return (new[0] if new else None) or self._first(source)

    def _first(self, source: SessionSource) -> SessionEntry:
        return self.session_store.get_or_create_session(source, force_new=True)

    def _renewed(self, old: SessionEntry, new: SessionEntry) -> None:
        """Close the conversation that a message found over, unless it was closed when it expired, and
        report the new one.
        """
        platform = _platform_of(new.session_key)
        if new.was_auto_reset and not old.expiry_finalized:
            agent = self._dropped_agent(old)
            model = self.session_store.model_of(old.session_id)
            closing.close_chat(
                old.session_id,
                platform,
                agent,
                lambda: None,
                model=model,
                is_reported=not self._is_in_other_chats(old),
                assembly=self._assembly,
            )
        self._report_reset(new, platform)

    def _dropped_agent(self, entry: SessionEntry) -> Agent | None:
        """Return the agent of a conversation that its chat leaves, unless another chat is in it."""
        if self._services is None or self._is_in_other_chats(entry):
            return None
        conversation_id = self.store.read(lineage.root, entry.session_id)
        return self._services.turns.engine.agents.drop(conversation_id)

    def _report_reset(self, entry: SessionEntry, platform: str) -> None:
        try:
            plugins.invoke_hook("on_session_reset", session_id=entry.session_id, platform=platform)
        except Exception:
            logger.exception("Hook on_session_reset failed for session %s", entry.session_id)

    def _format_session_info(self) -> str:
        name = self.settings.model.name
        return f"Model: {name}." if name else ""

    def _follow(self, session_key: str, before: str, after: str) -> None:
        """Update the route of a conversation that a turn moved, as the store did with the turn."""
        session_entry = self.session_store._entries.get(session_key)
        if session_entry is None or after == before or session_entry.session_id != before:
            return
        session_entry.session_id = after
        self.session_store._save(session_key)

    # -- the watcher ----------------------------------------------------------------------------

    async def _session_expiry_watcher(self, interval: float = 300) -> None:
        """Close expired conversations, forget unused routes and release idle agents."""
        await asyncio.sleep(_FIRST_CHECK_DELAY_S)
        while self._running:
            await attempted("Closing expired conversations", self._look_after_routes)
            for _ in range(int(interval)):
                if not self._running:
                    return
                await asyncio.sleep(1)

    async def _look_after_routes(self) -> None:
        await self._look_for_expired()
        await run_blocking(self._tidy)

    async def _look_for_expired(self) -> None:
        await run_blocking(self.session_store._ensure_loaded)
        with self.session_store._lock:
            entries = list(self.session_store._entries.values())
        for begin in range(0, len(entries), _BATCH):
            batch = entries[begin : begin + _BATCH]
            for entry in await run_blocking(partial(self._expired, batch)):
                await run_blocking(partial(self._expire, entry))

    def _expired(self, entries: Sequence[SessionEntry]) -> list[SessionEntry]:
        """Return the entries that expired and are not at work."""
        routes = self.session_store
        return [
            entry
            for entry in entries
            if not entry.expiry_finalized and routes._is_session_expired(entry)
        ]

    def _expire(self, entry: SessionEntry) -> None:
        agent = None
        if self._services is not None:
            if not self.session_store._is_session_expired(entry):
                return  # somebody has just written
            agent = self._dropped_agent(entry)
        self.session_store.catch_up(entry)
        closing.close_chat(
            entry.session_id,
            _platform_of(entry.session_key),
            agent,
            lambda: self.session_store.set_expiry_finalized(entry),
            model=self.session_store.model_of(entry.session_id),
            is_reported=not self._is_in_other_chats(entry),
            assembly=self._assembly,
        )

    @property
    def _assembly(self) -> Assembly | None:
        return self._services.assembly if self._services is not None else None

    def _is_in_other_chats(self, entry: SessionEntry) -> bool:
        """Return whether other chats are in the conversation of a route."""
        return self.session_store.is_in_other_chats(entry) is True  # a scenario's store cannot say

    def _tidy(self) -> None:
        if self._services is None:
            return
        self._services.tidy()
        now = time.time()
        if now - self._last_session_store_prune_ts > _PRUNE_INTERVAL_S:
            self._last_session_store_prune_ts = now
            gc_tuning.freeze()
            self.session_store.prune_old_entries(self.config.session_store_max_age_days)


def _raise_file_limit() -> None:
    """Allow as many open files as the system permits: each client and chat needs some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names))


def _platform_of(session_key: str) -> str:
    """Return the platform in a session key: its third part."""
    parts = session_key.split(":")
    return parts[2] if len(parts) > 2 else "gateway"
