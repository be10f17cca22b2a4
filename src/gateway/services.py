"""Services: the working parts of the gateway, put together; the ingress of adapters and commands.

Its life: recover what an earlier process left, connect the platforms, take in and deliver until it is to
stop, then begin no more turns, wait for those that run, put off what does not end, and disconnect.
"""

import asyncio
import logging
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from gateway import commands, config, log_fields, turn_results
from gateway.access import Access, are_alike, may_answer
from gateway.adapter_calls import called
from gateway.admin_chats import AdminChats
from gateway.attachments import Attachments
from gateway.blocking import run_blocking
from gateway.buttons import Buttons
from gateway.chat_migrations import ChatMigrations
from gateway.chat_turns import SURFACE, ChatTurns
from gateway.commands import Chat
from gateway.delivery import Delivery as Deliverer
from gateway.locks import AccountLock
from gateway.model_input import ModelInput
from gateway.pairing import Pairing
from gateway.pipeline import Pipeline
from gateway.platforms import registry
from gateway.platforms.base import (
    Abilities,
    BasePlatformAdapter,
    Manifest,
    MessageEvent,
    PlatformError,
    Receipt,
    SendMetadata,
    StoredTurn,
    TurnResult,
)
from gateway.recovery import Recovery, name_of
from gateway.replies import Replies
from gateway.reply_attachments import ReplyAttachments
from gateway.reply_target import ReplyTarget
from gateway.session import SessionEntry, SessionStore
from gateway.source import SessionSource
from gateway.store_monitor import StoreMonitor
from gateway.streams import Streams
from gateway.supervision import Supervisor, end
from gateway.turn_events import events_of
from hermes_agent import commands as shared
from hermes_agent import skills
from hermes_agent.assembly import Assembly
from hermes_agent.permissions import Permissions
from hermes_agent.turn.events import Event
from hermes_cli import plugins
from hermes_core import clock
from hermes_core import config as core
from hermes_core.errors import (
    ConfigError,
    HermesError,
    SessionNotFoundError,
    StoreError,
    StoreMemoryError,
    UsageError,
    is_exhausted,
)
from hermes_core.paths import Home
from hermes_engine.runner import STOPPED
from hermes_engine.surface import Running
from hermes_state.ledger import inbox, lineage, outbox, turns
from hermes_state.store_retry import StoreRetry, until_stored
from hermes_state.values import Accepted, InboundMessage, NewSession

logger = logging.getLogger(__name__)

_PUT_OFF = "⏸ I have to restart now. I go on with this afterwards; you need not send it again."
_OTHER_RIGHTS = (
    "What runs here was asked for by somebody with other rights. Yours is answered next."
)
_ANSWERED_ELSEWHERE = (
    "What runs here was asked for in another chat and is answered there."
    " It hears this if it can; else this is answered next."
)
_WAITS_FOR_ANOTHER = (
    "⏳ What was asked in another chat of this conversation is answered first, then this."
)
_NOT_WORDS = "A picture cannot be said to what runs. It is answered next."
_DRAIN_DELIVERY_S = 5.0
_SETTLE_S = 20.0
_LOOK_AGAIN_S = 0.5
_MAX_RECOVERY_ATTEMPTS = 6
_IN_ORDER_S = 5.0
_CHECK_S = 60.0
_ANNOUNCE_AGAIN_S = (1.0, 10.0, 60.0, 600.0)
_LONG_DASH = re.compile(r"(?<!\S)[–—](?=[A-Za-z])")


class Services:
    """Everything that works while the gateway runs."""

    def __init__(
        self,
        assembly: Assembly,
        sessions: SessionStore,
        manifests: Sequence[Manifest],
        reset: Callable[[MessageEvent], str],
        on_moved: Callable[[str, str, str], None],
    ) -> None:
        settings = assembly.settings.gateway
        self.assembly = assembly
        self.settings = settings
        self.store = assembly.store
        self.sessions = sessions
        self._manifests = manifests
        self._reset = reset
        self._abilities: dict[str, Abilities] = {}
        self.supervisors: list[Supervisor] = []
        self._locks: dict[str, AccountLock] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = threading.Event()
        self.on_restart: Callable[[], object] = lambda: None
        self.changed = asyncio.Event()
        """Set when a platform came or went, or a turn began or ended."""
        self.received_count = 0

        trusted = [one.name for one in manifests if not one.needs_pairing]
        self.access = Access(self.store, assembly.settings, trusted)
        self.pairing = Pairing(self.store, assembly.settings)
        limit_bytes = settings.attachment_limit_mb * 1024 * 1024
        enclosures = ReplyAttachments(assembly.home, limit_bytes, self.access.permissions_of)
        names = [one.name for one in commands.TABLE]
        self.replies = Replies(self.store, self._abilities.get, enclosures, Path.home(), names)
        self.migrations = ChatMigrations(
            self.store, [one.name for one in manifests], sessions.is_spoken_in
        )
        self.streams = Streams(self.store, self._reached, is_on=settings.streaming)
        self.delivery = Deliverer(self.store, self._reached, self.streams)
        self.admin_chats = AdminChats(
            self.store, self.replies, lambda: self._abilities, self.delivery.wake
        )
        self.buttons = Buttons(self.store, self._reached)
        self.turns = ChatTurns(
            assembly,
            sessions,
            self.replies,
            self.streams,
            on_moved=on_moved,
            on_change=self._stir,
            on_question_over=self.question_over,
            wake_delivery=self.delivery.wake,
            permissions_of=self.access.permissions_of,
            workspace=Path.home(),
        )
        self.attachments = Attachments(assembly.home.attachments, limit_bytes)
        self.model_input = ModelInput(self.store, sessions)
        self.pipeline = Pipeline(
            home=assembly.home,
            store=self.store,
            sessions=sessions,
            turns=self.turns,
            replies=self.replies,
            model_input=self.model_input,
            access=self.access,
            pairing=self.pairing,
            busy=self,
            run_command=self.run_command,
            send_now=self.send_now,
            wake_delivery=self.delivery.wake,
            tell_stranger=self.admin_chats.tell_stranger,
            busy_mode=settings.busy,
            groups_need_mention=settings.groups_need_mention,
            quiet=[one.name for one in manifests if not one.greets_strangers],
        )
        self.recovery = Recovery(
            self.store, sessions, self.replies, lambda: self._sending_platforms
        )
        self._commands = ThreadPoolExecutor(max_workers=16, thread_name_prefix="command")

    # -- life cycle ------------------------------------------------------------------

    async def open(self, leaving: asyncio.Event | None = None) -> list[str]:
        """Recover, then connect; returns the platforms that are connected, after a moment, or as soon as
        it is known that we leave.
        """
        self._loop = self.turns.loop = asyncio.get_running_loop()
        for manifest in self._manifests:
            table = self.settings.platforms.get(manifest.name, {})
            own = {name: value for name, value in table.items() if name != "enabled"}
            values = registry.settings_of(manifest, own)
            make = partial(self._make, manifest, values)
            self.supervisors.append(Supervisor(manifest, make, self, self._connected, self._stir))
        for supervisor in self.supervisors:
            supervisor.prepare()  # what a platform can do is known before anything is said there
        await self._recovered()
        self.turns.engine.start()
        self._spawn(self.store_monitor.watch())
        self._spawn(self.delivery.run())
        self._spawn(self.buttons.run())
        for supervisor in self.supervisors:
            self._spawn(self._supervise(supervisor))
        waits: list[asyncio.Task[Any]] = [asyncio.create_task(self._settled())]
        if leaving is not None:
            waits.append(asyncio.create_task(leaving.wait()))
        await asyncio.wait(waits, timeout=_SETTLE_S, return_when=asyncio.FIRST_COMPLETED)
        await end(waits)
        return sorted(self.connected())

    async def _settled(self) -> None:
        """Wait until each platform was tried once."""
        for one in self.supervisors:
            await one.settled.wait()

    async def _supervise(self, supervisor: Supervisor) -> None:
        await supervisor.run()
        if supervisor.error is not None:  # it is no use to try again
            name, error = supervisor.manifest.name, supervisor.error
            await run_blocking(partial(self.admin_chats.tell_refused, name, error))

    def _make(self, manifest: Manifest, values: Any) -> BasePlatformAdapter:  # noqa: ANN401 -- the platform's own
        lock = self._locks.get(manifest.name)
        if lock is None:
            lock = AccountLock(manifest.name, registry.account_of(manifest, values))
            self._locks[manifest.name] = lock
        lock.take()
        adapter = registry.make(manifest, values, self.assembly.home)
        adapter.mark = lock.mark
        self._abilities[manifest.name] = adapter.abilities
        return adapter

    async def _connected(self, name: str) -> None:
        supervisor = next(one for one in self.supervisors if one.manifest.name == name)
        if supervisor.adapter is None:
            return
        await self.delivery.resolve_unsure(name)
        self.buttons.wanted.set()
        self._spawn(self.streams.settle_left(name))
        self._spawn(self._announce(name, supervisor.adapter))

    async def _announce(self, name: str, adapter: BasePlatformAdapter) -> None:
        """Offer our commands; a platform that does not take them now is asked again while it is here."""
        for pause_s in _ANNOUNCE_AGAIN_S:
            try:
                return await called(adapter.announce_commands, await run_blocking(self._offer))
            except PlatformError as error:
                logger.warning("%s does not know our commands yet: %s", name, error)
            except Exception:
                logger.warning("%s does not know our commands", name, exc_info=True)
            await asyncio.sleep(pause_s)
            if self.connected().get(name) is not adapter:
                return None
        return None

    def _offer(self) -> list[tuple[str, str]]:
        found = skills.found(self.assembly.home)
        usable = shared.skills_of(found, plugins.commands("chat"), commands.TABLE)
        return [*commands.menu(), *((skill.name, skill.description) for skill in usable)]

    def question_over(self) -> None:
        """Take the buttons off questions that are over, soon; from any thread."""
        self._on_loop(self.buttons.wanted.set)

    def queued_count(self) -> int:
        """Return how many turns of chats wait."""
        count = self.store.read(lambda tx: turns.count_open(tx, SURFACE))
        return max(0, count - len(self.turns.engine.work))

    def _stir(self) -> None:
        if not self.changed.is_set():  # every turn says so twice, and is not held up by it
            self._on_loop(self.changed.set)

    def _on_loop(self, do: Callable[[], object]) -> None:
        """Have something done in the event loop; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(do)

    @property
    def is_whole(self) -> bool:
        """Whether every platform is connected."""
        return all(one.adapter is not None for one in self.supervisors)

    @property
    def _sending_platforms(self) -> list[str]:
        return [name for name, able in self._abilities.items() if not able.answers_in_place]

    def connected(self) -> dict[str, BasePlatformAdapter]:
        """The adapters that can be spoken through now, by platform."""
        return {one.manifest.name: one.adapter for one in self.supervisors if one.adapter}

    def _reached(self) -> dict[str, BasePlatformAdapter]:
        """The same, for chats as they are stored."""
        return self.migrations.through(self.connected())

    async def drain(self, seconds: float) -> set[str]:
        """Begin no more turns and wait for those that run; what does not end is put off and told so.

        Returns the keys of the conversations whose turns were.
        """
        self._closing.set()
        keys = set[str]()
        drain = partial(self.turns.engine.drain, seconds, partial(self._tell_suspended, keys))
        await run_blocking(drain)
        await self.delivery.drain(_DRAIN_DELIVERY_S)
        return keys

    def _tell_suspended(self, keys: set[str], running: Running) -> None:
        """Tell a chat that its turn is suspended; note the session key."""
        turn = running.turn
        target = self.turns.target_of(turn.id)
        if target is None:
            return
        keys.add(target.session_key)
        try:
            self.sessions.mark_resume_pending(target.session_key)
            name = f"putoff:{turn.id}:{clock.now():.3f}"
            self.store.write(outbox.put, self.replies.pieces(target, _PUT_OFF, name=name))
        except StoreError:
            logger.exception("could not notify the chat that turn %s was suspended", turn.id)
        self.delivery.wake()

    async def close(self) -> None:
        """Disconnect and let go of everything."""
        await end(self._tasks)
        await self.delivery.close()
        for lock in self._locks.values():
            lock.release()
        self._commands.shutdown(wait=False, cancel_futures=True)
        await run_blocking(self._let_go)

    def _let_go(self) -> None:
        self.turns.engine.close()
        try:
            self.sessions.close()
        except StoreError:
            logger.exception("the last changes of routes are not stored")
        self.assembly.close()

    def _spawn(self, job: Any) -> None:  # noqa: ANN401 -- any coroutine
        task = asyncio.create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- recovery -------------------------------------------------------------------------------

    async def _recovered(self) -> None:
        """Recover; a store that cannot be written yet is waited for, as no message may overtake."""
        retry = StoreRetry("Recovery")
        for _ in range(_MAX_RECOVERY_ATTEMPTS):
            try:
                return await run_blocking(self.recovery.at_start)
            except StoreError as error:
                if not error.is_temporary:
                    raise
                await asyncio.sleep(retry.pause_after(error))
        return await run_blocking(self.recovery.at_start)

    # -- the ingress of adapters -------------------------------------------------------------------

    async def accept(self, event: MessageEvent) -> Receipt:
        """The boundary of a message: one that nobody foresaw is told of, and holds up no other."""
        self.received_count += 1
        self.migrations.heard(event)
        try:
            with ExitStack() as held:
                if event.files and await run_blocking(partial(self.pipeline.wants_files, event)):
                    await self.attachments.collect(event, held)
                return await run_blocking(partial(log_fields.take_in, self.pipeline.take, event))
        except HermesError:
            raise
        except Exception as error:
            if is_exhausted(error):  # the same message can be accepted later
                text = "The gateway is short of memory or open files; nothing was accepted."
                raise StoreMemoryError(text, fix="Send it again.") from error
            logger.exception("message could not be taken in", extra=log_fields.of_message(event))
            return await run_blocking(partial(self.pipeline.give_up, event))

    async def moved(self, platform: config.Platform, old_chat: str, new_chat: str) -> None:
        await self.migrations.note(platform, old_chat, new_chat)

    async def watch(self, turn_id: str) -> AsyncIterator[Event]:
        row = await run_blocking(lambda: self.store.read(turns.find, turn_id))
        if row is None or row["ended_at"] is not None:
            return
        root_of = partial(self.store.read, lineage.root)
        conversation_id = await run_blocking(partial(root_of, row["session_id"]))
        is_over = partial(self.turns.is_over, turn_id)
        async for event in events_of(self.turns.engine, conversation_id, turn_id, is_over):
            yield event

    async def find_turn(self, turn_id: str, reader: SessionSource) -> StoredTurn:
        scope = self.access.permissions_of(reader).scope
        model = self._running_model(turn_id)  # first: when the turn has ended, the store has it
        found = await run_blocking(partial(turn_results.find, self.store, turn_id, scope))
        return found._replace(model=model or found.model)

    def _running_model(self, turn_id: str) -> str:
        """Return the model of a turn that runs here: its session has it after the first answer."""
        running = self.turns.engine.work.find(turn_id)
        agent = running.agent if running is not None else None
        return agent.model.facts.name if agent is not None else ""

    async def delete_turn(self, turn_id: str, reader: SessionSource) -> None:
        scope = self.access.permissions_of(reader).scope
        await run_blocking(partial(turn_results.delete, self.store, turn_id, scope))

    @cached_property
    def store_monitor(self) -> StoreMonitor:
        return StoreMonitor(self.store)

    async def check_health(self) -> None:
        """Raise StoreError when the store does not work now."""
        await self.store_monitor.check()

    async def wait_for_result(self, turn_id: str) -> TurnResult:
        """Wait for the end of a turn; raises StoreGoneError when the store is taken away meanwhile."""
        return await self.store_monitor.unless_lost(self._wait_for_result(turn_id))

    async def _wait_for_result(self, turn_id: str) -> TurnResult:
        while True:
            found = await run_blocking(partial(turn_results.of_turn, self.store, turn_id))
            if found is not None:
                return found
            with suppress(TimeoutError):  # one that another process runs is looked at again
                async with asyncio.timeout(_LOOK_AGAIN_S):
                    async for _ in self.watch(turn_id):
                        pass

    async def stop(self, turn_id: str) -> None:
        await run_blocking(partial(self._stop, turn_id))

    def _stop(self, turn_id: str) -> None:
        if not self.turns.cancel(turn_id, STOPPED):
            running = self.turns.engine.work.find(turn_id)
            if running is not None:
                self.turns.engine.interrupt(running.turn.conversation_id)

    async def models(self) -> Sequence[str]:
        found = await run_blocking(lambda: self.assembly.registry().discovery.found())
        own = self.assembly.settings.model.name  # as the settings call it, which people know it by
        names = [own, *(one.label for one in found if one.model)]
        return list(dict.fromkeys(name for name in names if name))

    # -- what a message does to a turn that runs -------------------------------------------------

    def steer(self, accepted: Accepted, target: ReplyTarget, text: str) -> str:
        """Offer a queued message to the turn that runs in its conversation, whichever chat that is for.

        Returns why it has to wait nevertheless, or where it is answered, when that is elsewhere. A turn
        does what its own person may: others are answered in a turn of their own.
        """
        running = self.turns.engine.work.get(accepted.conversation_id)
        agent = running.agent if running is not None else None
        if running is None or agent is None or running.turn.id == accepted.turn_id:
            return ""
        theirs = self.permissions_of(target)
        if agent.permissions is not None and not are_alike(agent.permissions, theirs):
            return _OTHER_RIGHTS
        if not text:
            return _NOT_WORDS
        self.turns.engine.steer(accepted.turn_id, accepted.conversation_id, text)
        return "" if self._runs_for(running, target) else _ANSWERED_ELSEWHERE

    def _runs_for(self, running: Running, target: ReplyTarget) -> bool:
        """Return whether a turn runs for the chat of a message."""
        own = self.turns.target_of(running.turn.id)
        return own is not None and own.session_key == target.session_key

    def held_up(self, accepted: Accepted, target: ReplyTarget) -> str:
        """Return why nothing happens in a chat whose message is queued, when that does not show there.

        It is told with the first message that waits.
        """
        running = self.turns.engine.work.get(accepted.conversation_id)
        if running is None or self._runs_for(running, target):
            return ""
        queued = self.turns.queued(target.session_key)
        return _WAITS_FOR_ANOTHER if [row["id"] for row in queued] == [accepted.turn_id] else ""

    def make_way(self, accepted: Accepted, target: ReplyTarget) -> None:
        """Stop the turn that runs in a conversation for a message that is queued there.

        A compaction is finished: what waits is the better for it.
        """
        running = self.turns.engine.work.get(accepted.conversation_id)
        if running is not None and running.turn.id != accepted.turn_id:
            self.turns.engine.interrupt(accepted.conversation_id, target.session_key)

    def send_now(self, source: SessionSource, text: str) -> bool:
        """Send something past the outbox, from a thread; tells whether it arrived."""
        adapter = self._reached().get(source.platform.value)
        if adapter is None or self._loop is None:
            return False
        metadata: SendMetadata = {"key": uuid4().hex}
        if source.thread_id:
            metadata["thread_id"] = source.thread_id
        job = adapter.send(source.chat_id, text, None, metadata)
        try:
            return asyncio.run_coroutine_threadsafe(job, self._loop).result(_SETTLE_S).success
        except Exception:  # the boundary of an adapter
            logger.warning("%s did not show something", source.platform.value, exc_info=True)
            return False

    # -- commands -------------------------------------------------------------------------------

    def run_command(
        self, event: MessageEvent, delivery: InboundMessage, target: ReplyTarget
    ) -> str:
        """Do a command beside the way of messages; one that answers in place is waited for.

        Others are waited for a while, so that what is said after /new is said in the new conversation;
        one that takes long says itself when what follows may be taken in.
        """
        chat = Chat(self, target, delivery, event)
        done = self._commands.submit(self._obey, event, chat)
        if target.is_in_place:
            return done.result()
        futures.wait([done, chat.is_under_way], _IN_ORDER_S, futures.FIRST_COMPLETED)
        return ""

    def _obey(self, event: MessageEvent, chat: Chat) -> str:
        """The boundary of a command: whatever happens, it has a reply and is settled."""
        about = log_fields.of_command(event, commands.TABLE, chat.plugins)
        try:
            text = self._do(event, chat) if event.answers is None else chat.answer(event)
            logger.info("command done", extra=about)
        except HermesError as error:
            logger.info("command refused", extra=about | {"code": error.code})
            text = f"⚠️ {error}"
        except Exception as error:
            logger.exception("command failed", extra=about)
            text = f"⚠️ Something went wrong inside Hermes: {error!r}"
        self._until_stored(partial(self._settle, chat, text))
        self.delivery.wake()
        return text

    def _settle(self, chat: Chat, text: str) -> None:
        """Note the reply of a command, then that it is done; to do so again changes nothing.

        On a request there is one answer: what has become a turn is answered by that alone.
        """
        is_told = chat.target.is_in_place and not chat.is_settled
        if chat.target.is_in_place and chat.is_settled:
            text = ""
        session_id = ""
        with suppress(SessionNotFoundError):  # somebody deleted it meanwhile
            session_id = chat.begun() if is_told else ""
        name = name_of(chat.delivery)
        is_plain = shared.find(chat.event.get_command() or "", commands.TABLE) is not None
        pieces = self.replies.answer(
            chat.target, text, name=name, session_id=session_id, is_plain=is_plain
        )
        self.store.write(outbox.put, pieces)
        if not chat.is_settled:
            self.store.write(inbox.settle, chat.delivery, "command")

    def _until_stored(self, note: Callable[[], None]) -> None:
        """Note what was done, when the store can be written; at a stop it is left to the next start."""
        until_stored("The reply of a command", note, self._closing.wait)

    def _do(self, event: MessageEvent, chat: Chat) -> str:
        parsed = shared.Parsed(event.get_command() or "", event.get_command_args())
        command = shared.find(parsed.name, commands.TABLE)
        if command is None:
            parsed = parsed._replace(argument=_with_options(parsed.argument))
        role = self.access.role_of(chat.target.source)
        if command is not None and command.owner_only and role != "owner":
            raise UsageError(f"/{command.name} is for owners.", fix="/whoami shows what you are.")
        return shared.run(chat, parsed, commands.TABLE)

    def reset(self, target: ReplyTarget) -> str:
        return self._reset(MessageEvent(text="/new", source=target.source))

    def describe(self, target: ReplyTarget) -> str:
        place = target.source
        role = self.access.role_of(place) or "stranger"
        name = place.user_name or place.user_id
        return f"You are {name} ({place.user_id}), {role} on {place.description}."

    def pair(self, target: ReplyTarget, argument: str) -> str:
        permissions = self.permissions_of(target)
        return self.pairing.command(argument, permissions.role, permissions.person)

    def set_home(self, target: ReplyTarget) -> str:
        return self.admin_chats.choose(target)

    def permissions_of(self, target: ReplyTarget) -> Permissions:
        return self.access.permissions_of(target.source)

    def may_answer(self, target: ReplyTarget, asker: SessionSource) -> bool:
        """Whether somebody may tell the turn of another one what it wants to know."""
        return may_answer(self.permissions_of(target), self.access.permissions_of(asker))

    def fields_of(self, target: ReplyTarget, session_key: str) -> dict[str, Any]:
        """What a session that a command makes says about whose it is."""
        return {**self.access.fields_of(target.source), "session_key": session_key}

    def tell_reset(self, entry: SessionEntry, target: ReplyTarget) -> None:
        """Say once in a chat that its conversation began by itself."""
        self.pipeline.tell_reset(entry, target)

    def placed(self, event: MessageEvent) -> SessionSource:
        return self.pipeline.placed(event)

    def entry_of(self, event: MessageEvent, target: ReplyTarget) -> SessionEntry:
        """The conversation that a command is about."""
        return self.pipeline.entry_of(event, target.source, is_command=True)

    def opening_of(
        self, entry: SessionEntry, event: MessageEvent, target: ReplyTarget
    ) -> NewSession:
        """The session that a command makes."""
        return self.pipeline.opening_of(entry, event, target.source)

    def check_restart(self) -> None:
        ask_for_start()

    def restart(self) -> None:
        self.on_restart()


def _with_options(argument: str) -> str:
    """The argument of a plugin's command, whose options a telephone may have given a longer dash."""
    return _LONG_DASH.sub("--", argument)


def configured(settings: config.GatewaySettings) -> list[Manifest]:
    """The platforms that the settings or the environment switch on; raises ConfigError.

    One whose plugin fails is left out, as the log says: the others are not to be silent for it.
    """
    on = [name for name, table in settings.platforms.items() if table.get("enabled", True)]
    on += [name for name in registry.in_environment() if name not in settings.platforms]
    left_out = registry.unusable()
    return [registry.find(name) for name in sorted(on) if name not in left_out]


def check_start(home: Home) -> None:
    """Raise ConfigError when no gateway can start with the settings as they are on disk now.

    Loads the plugins that are enabled there, as a start does: some platforms are theirs.
    """
    settings = core.load(home)
    plugins.load_enabled(home, settings)
    on = configured(settings.gateway)
    check_platforms(home, settings.gateway, on)
    if not on:
        raise ConfigError(
            "No platform is configured.", fix="Add one with: hermes gateway setup telegram"
        )


def check_platforms(
    home: Home, settings: config.GatewaySettings, platforms: Sequence[Manifest]
) -> None:
    """Raise ConfigError when a platform lacks something, or has what it could not be connected with.

    Where something else fails, as in a plugin, a gateway tells it and goes on without that platform.
    """
    for one in platforms:
        values = registry.settings_of(one, settings.platforms.get(one.name, {}))
        try:
            registry.make(one, values, home).check()
        except PlatformError as error:
            raise ConfigError(f"{one.title}: {error.message}", fix=error.fix) from error
        except Exception:
            logger.warning("%s cannot be made", one.name, exc_info=True)


def ask_for_start() -> None:
    """The same, asked of another process: what this one has loaded are the plugins of its own start."""
    try:
        asked = subprocess.run(
            [sys.executable, "-m", "hermes_cli.main", "gateway", "check", "--json"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_CHECK_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"Loading the settings and the plugins takes more than {_CHECK_S:g} seconds.",
            fix="See what holds it up with: hermes gateway check",
        ) from None
    if asked.returncode:
        raise _refusal(asked.stderr)


def _refusal(told: bytes) -> ConfigError:
    """What a command line said last, which told in JSON why it failed."""
    try:
        said = msgspec.json.decode(told.splitlines()[-1], type=dict[str, dict[str, str]])["error"]
        return ConfigError(said["message"], fix=said["fix"])
    except (msgspec.MsgspecError, LookupError):
        return ConfigError("The settings cannot be used.", fix="See: hermes gateway check")
