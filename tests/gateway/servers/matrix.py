"""What tests of the Matrix platform share: an ingress that remembers, people, a process to kill."""

import asyncio
import contextlib
import json
import sys
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterator,
    Sequence,
)
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from nio import AsyncClient, AsyncClientConfig, MegolmEvent, TypingNoticeEvent
from nio.api import RoomPreset

from gateway.attachments import Attachments
from gateway.config import Platform, PlatformConfig
from gateway.locks import AccountLock
from gateway.platforms.base import MessageEvent, PlatformError, Receipt, StoredTurn, TurnResult
from gateway.platforms.matrix.adapter import MatrixAdapter
from gateway.platforms.matrix.manifest import MatrixSettings
from gateway.platforms.testing.network import Proxy
from gateway.source import SessionSource
from hermes_agent.turn.events import Event
from hermes_core.errors import StoreBusyError
from tests.gateway.servers.synapse import ROOT, Account, Synapse

BOUND_S = 60.0


@pytest.fixture(scope="module")
def synapse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Synapse]:
    started = Synapse(tmp_path_factory.mktemp("synapse"))
    started.start()
    yield started
    started.stop()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario to its end, or fail when it hangs."""

    async def bounded() -> None:
        async with asyncio.timeout(BOUND_S * 1.5):
            await scenario

    asyncio.run(bounded())


class Seen:
    """A list that can be waited on."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._changed = asyncio.Condition()

    async def add(self, *items: Any) -> None:
        async with self._changed:
            self.items += items
            self._changed.notify_all()

    async def until(self, is_enough: Callable[[list[Any]], Any]) -> Any:
        async with asyncio.timeout(BOUND_S), self._changed:
            await self._changed.wait_for(lambda: is_enough(self.items))
        return is_enough(self.items)


class RecordingIngress:
    """Takes messages in as the gateway does: each once, and not while the store is busy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._attachments = Attachments(folder, 1_000_000)
        self.accepted = Seen()
        self.deliveries = Seen()
        self.moves = Seen()
        self.refusals = Seen()
        """The moves that the store did not take."""
        self.is_busy = False
        self.is_stuck = False
        self.strangers: set[str] = set()
        """The people whose invitations are refused."""

    async def accept(self, event: MessageEvent) -> Receipt:
        await self.deliveries.add(event)
        if self.is_stuck:
            await asyncio.Event().wait()
        if self.is_busy:
            raise StoreBusyError("busy, for a test")
        if event.message_id in [other.message_id for other in self.accepted.items]:
            return Receipt("turn", is_new=False)
        await self._attachments.collect(event)
        await self.accepted.add(event)
        return Receipt("turn")

    async def message(self, text: str) -> MessageEvent:
        """The accepted message with this text, when it comes."""
        return cast(
            "MessageEvent",
            await self.accepted.until(
                lambda items: next((event for event in items if event.text == text), None)
            ),
        )

    def texts(self) -> list[str]:
        return [event.text for event in self.accepted.items]

    async def moved(self, platform: Platform, old_chat: str, new_chat: str) -> None:
        del platform
        if self.is_busy:
            await self.refusals.add((old_chat, new_chat))
            raise StoreBusyError("busy, for a test")
        await self.moves.add((old_chat, new_chat))

    def watch(self, turn_id: str) -> AsyncIterator[Event]:
        raise NotImplementedError(turn_id)

    async def find_turn(self, turn_id: str, reader: SessionSource) -> StoredTurn:
        raise NotImplementedError(turn_id)

    async def delete_turn(self, turn_id: str, reader: SessionSource) -> None:
        raise NotImplementedError(turn_id)

    async def wait_for_result(self, turn_id: str) -> TurnResult:
        raise NotImplementedError(turn_id)

    async def stop(self, turn_id: str) -> None:
        raise NotImplementedError(turn_id)

    async def may_invite(self, source: SessionSource) -> bool:
        return source.user_id not in self.strangers

    async def check_health(self) -> None:
        """The store works."""

    async def models(self) -> Sequence[str]:
        return []


class Bot:
    """Our adapter with an ingress, in a folder that outlives it."""

    def __init__(self, synapse: Synapse, account: Account, folder: Path, **settings: Any) -> None:
        self.account = account
        self.folder = folder
        self.settings: dict[str, Any] = {
            "homeserver": synapse.url,
            "access_token": account.access_token,
        } | settings
        self.ingress = RecordingIngress(folder / "attachments")
        self.lost = Seen()
        self.lock: AccountLock | None = None
        """The account as the gateways of all homes hold it."""

    @asynccontextmanager
    async def running(
        self, ingress: RecordingIngress | None = None
    ) -> AsyncGenerator[MatrixAdapter]:
        """One run of the gateway, from connect to disconnect."""
        adapter = self.adapter()
        adapter.set_ingress(ingress or self.ingress, self._on_lost)
        if self.lock is not None:
            self.lock.take()
            adapter.mark = self.lock.mark
        await adapter.connect()
        try:
            yield adapter
        finally:
            await adapter.disconnect()
            if self.lock is not None:
                self.lock.release()

    def adapter(self) -> MatrixAdapter:
        return MatrixAdapter(
            PlatformConfig(enabled=True), MatrixSettings(**self.settings), self.folder / "matrix"
        )

    @asynccontextmanager
    async def child(self) -> AsyncGenerator["Child"]:
        """The same in a process of its own, which is killed at the end."""
        about = json.dumps({"folder": str(self.folder), "settings": self.settings})
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.gateway.servers.matrix", about),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            yield Child(process, self)
        finally:
            process.kill()
            await process.wait()

    def accepted_by_children(self) -> list[str]:
        lines = (self.folder / "accepted").read_text().splitlines()
        return [line.partition(" ")[2] for line in lines]

    async def until_locked(self, count: int) -> None:
        """Wait until so many messages without a key are on disk."""
        path = self.folder / "matrix" / "locked.json"
        async with asyncio.timeout(BOUND_S):
            while not path.exists() or len(json.loads(path.read_text())) != count:  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # a file has nothing else to wait on

    def _on_lost(self, error: PlatformError) -> None:
        self._telling = asyncio.ensure_future(self.lost.add(error))


class Child:
    """A run of the adapter in another process."""

    def __init__(self, process: asyncio.subprocess.Process, bot: Bot) -> None:
        self._process = process
        self._bot = bot

    async def line(self) -> str:
        """The next message that it was delivered."""
        assert self._process.stdout
        async with asyncio.timeout(BOUND_S):
            return (await self._process.stdout.readline()).decode().strip()

    async def until_accepted(self, text: str) -> None:
        while text not in self._bot.accepted_by_children():
            assert await self.line(), "the child ended"


class FileIngress(RecordingIngress):
    """An ingress whose memory outlives its process."""

    async def accept(self, event: MessageEvent) -> Receipt:
        with (self.folder / "accepted").open("a+") as f:
            f.seek(0)
            if is_new := f"{event.message_id} " not in f.read():
                f.write(f"{event.message_id} {event.text}\n")
        sys.stdout.write(f"{event.text}\n")
        sys.stdout.flush()
        return Receipt("turn", is_new=is_new)


async def _be_a_child(about: dict[str, Any]) -> None:
    folder = Path(about["folder"])
    adapter = MatrixAdapter(
        PlatformConfig(enabled=True), MatrixSettings(**about["settings"]), folder / "matrix"
    )
    adapter.set_ingress(FileIngress(folder))
    await adapter.connect()
    await asyncio.Event().wait()


@pytest.fixture
def bot(synapse: Synapse, tmp_path: Path) -> Bot:
    return Bot(synapse, synapse.register("hermes"), tmp_path / "bot")


class LossyProxy(Proxy):
    """A network that can lose the answers to a request however often it is made.

    The HTTP client makes a request again by itself when a connection that it had used before is cut.
    """

    _lost = b""

    def lose(self, request: bytes) -> threading.Event:
        self._lost = request
        return self.cut_before_response(request)

    def find(self) -> None:
        self._lost, self._trap = b"", None

    def _spring(self, trap: Any, connection: Any) -> None:
        if self._lost:
            self.cut_before_response(self._lost)
        super()._spring(trap, connection)


@pytest.fixture
def proxy(synapse: Synapse, bot: Bot) -> Iterator[LossyProxy]:
    """A network between the bot and the server, which can be broken."""
    lossy_proxy = LossyProxy("127.0.0.1", synapse.port)
    with lossy_proxy:
        bot.settings["homeserver"] = f"http://{lossy_proxy.address}"
        yield lossy_proxy


class Person:
    """Somebody with a client of their own, who sees what their client shows."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.user_id = client.user_id
        self.seen = Seen()
        """Events of all rooms, decrypted where that is possible."""
        self.typing = Seen()
        self.synced = Seen()

    async def invite(self, *user_ids: str, encrypted: bool = False) -> str:
        """A new room, to which others are invited."""
        state: list[dict[str, Any]] = []
        if encrypted:
            content = {"algorithm": "m.megolm.v1.aes-sha2"}
            state = [{"type": "m.room.encryption", "state_key": "", "content": content}]
        response = await self.client.room_create(
            preset=RoomPreset.private_chat, invite=list(user_ids), initial_state=state
        )
        return str(cast("Any", response).room_id)

    async def with_bot(self, bot: Bot, *others: str, encrypted: bool = False) -> str:
        """A room that the bot has joined and knows about."""
        room_id = await self.invite(bot.account.user_id, *others, encrypted=encrypted)
        await self.until_joined(room_id, bot.account.user_id)
        await self.say(room_id, "are you there?")
        bot.ingress.accepted.items.remove(await bot.ingress.message("are you there?"))
        return room_id

    async def until_joined(self, room_id: str, user_id: str) -> None:
        def joined(items: list[Any]) -> bool:
            return any(
                event["type"] == "m.room.member"
                and event["state_key"] == user_id
                and event["content"]["membership"] == "join"
                and event["room"] == room_id
                for event in items
            )

        await self.seen.until(joined)

    async def say(self, room_id: str, body: str, **content: Any) -> str:
        whole = {"msgtype": "m.text", "body": body} | content
        sent = await self.client.room_send(
            room_id, "m.room.message", whole, ignore_unverified_devices=True
        )
        return str(cast("Any", sent).event_id)

    async def read(self, body: str) -> dict[str, Any]:
        """The message with this body, when it comes."""
        return cast(
            "dict[str, Any]",
            await self.seen.until(
                lambda items: next(
                    (event for event in items if event["content"].get("body") == body), None
                )
            ),
        )

    async def until_knows_device(self, user_id: str, device_id: str) -> None:
        """Wait until the client would hand its keys to this device."""
        await self.synced.until(
            lambda _: (
                device_id
                in [device.id for device in self.client.device_store.active_user_devices(user_id)]
            )
        )

    async def until_typing(self, room_id: str, user_ids: list[str]) -> None:
        await self.typing.until(lambda items: bool(items) and items[-1] == (room_id, user_ids))

    def bodies(self, room_id: str) -> list[str]:
        return [
            event["content"]["body"]
            for event in self.seen.items
            if event["room"] == room_id and event["type"] == "m.room.message"
        ]

    async def listen(self) -> None:
        """Sync for ever."""
        client = self.client
        while True:
            news = cast("Any", await client.sync(timeout=10_000))
            if client.should_upload_keys:
                await client.keys_upload()
            if client.should_query_keys:
                await client.keys_query()
            await self.synced.add(news.next_batch)
            for room_id, info in news.rooms.join.items():
                found = [
                    event.source | {"room": room_id, "locked": isinstance(event, MegolmEvent)}
                    for event in info.timeline.events
                ]
                await self.seen.add(*found)
                for event in info.ephemeral:
                    if isinstance(event, TypingNoticeEvent):
                        await self.typing.add((room_id, event.users))


@asynccontextmanager
async def person(synapse: Synapse, name: str, folder: Path) -> AsyncGenerator[Person]:
    """A new person, online."""
    account = synapse.register(name)
    async with device(synapse, account, folder) as opened:
        yield opened


@asynccontextmanager
async def device(synapse: Synapse, account: Account, folder: Path) -> AsyncGenerator[Person]:
    """A client of somebody, online."""
    store = folder / f"{account.device_id}-keys"
    store.mkdir(parents=True)
    config = AsyncClientConfig(encryption_enabled=True)
    client = AsyncClient(synapse.url, store_path=str(store), config=config)
    client.restore_login(account.user_id, account.device_id, account.access_token)
    opened = Person(client)
    listening = asyncio.create_task(opened.listen())
    try:
        yield opened
    finally:
        listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await listening
        await client.close()
        cast("Any", client.store).database.close()


if __name__ == "__main__":
    asyncio.run(_be_a_child(json.loads(sys.argv[1])))
