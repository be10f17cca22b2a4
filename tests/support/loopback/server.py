"""Loopback's server: chats, the people in them, and everything that can go wrong.

    with LoopbackServer() as server:
        ...  # a gateway with `address = server.address` runs, here or in another process
        server.say("c1", "hello")
        server.wait_for("c1", lambda shown: bool(shown))

It lives in the process of the test and remembers everything, so that a gateway may be killed at any
time. What came in is delivered to the newest listener until it is acknowledged, in order.
"""

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, NamedTuple

import msgspec

from gateway.platforms.testing.background import TIMEOUT_S, Background
from gateway.platforms.testing.network import reset
from hermes_core import clock
from tests.support.loopback import wire


@dataclass(frozen=True)
class ShownMessage:
    """A message of the gateway, as people see it."""

    message_id: str
    text: str
    key: str
    edits: tuple[str, ...] = ()
    """Its earlier texts."""
    buttons: tuple[tuple[str, str], ...] = ()
    question: str | None = None
    in_reply_to: str | None = None
    thread: str | None = None
    files: tuple[wire.File, ...] = ()


class Attempt(NamedTuple):
    """A request to show something, also one that came to nothing."""

    chat: str
    key: str
    text: str


@dataclass
class _Faults:
    limited: list[float] = field(default_factory=list[float])
    """Seconds to wait, one for each send that will be put off."""
    lost_requests: int = 0
    lost_answers: int = 0
    closed: set[str] = field(default_factory=set[str])


class LoopbackServer:
    """A platform on a port of this machine."""

    def __init__(self, *, folds_keys: bool = True, text_limit: int = 4000) -> None:
        """With `folds_keys` two sends under one key are one message."""
        self._folds_keys = folds_keys
        self._text_limit = text_limit
        self._changed = threading.Condition()
        self._background = Background("loopback-server")
        self._listening: asyncio.Server | None = None
        self._port = 0
        self._connections: dict[asyncio.StreamWriter, asyncio.Task[Any]] = {}
        self._listener: asyncio.StreamWriter | None = None
        self._pushed = 0
        self._pending: dict[int, msgspec.Raw] = {}
        self._names: dict[int, str] = {}
        self._incoming: dict[tuple[str, str], wire.Incoming] = {}
        self._last: dict[str, wire.Incoming] = {}
        self._chats: dict[str, dict[str, ShownMessage]] = {}
        self._keys: dict[tuple[str, str], str] = {}
        self._faults = _Faults()
        self._numbers = itertools.count(1)
        self.attempts: list[Attempt] = []
        self.commands: list[tuple[str, str]] = []
        self.typed: Counter[str] = Counter()
        """How often it was shown in a chat that an answer is being written."""

    def __enter__(self) -> "LoopbackServer":
        self._background.start()
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._background.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    # What people do.

    def say(
        self,
        chat: str,
        text: str,
        user: str = "u1",
        chat_type: str = "dm",
        thread: str | None = None,
        *,
        mention: bool = True,
        message_id: str | None = None,
        reply_to: str | None = None,
        files: Sequence[tuple[str, bytes]] = (),
    ) -> str:
        """Write a message; returns its id. The same id again is a second delivery."""
        return self._came(
            wire.Incoming(
                chat=chat,
                message_id=message_id or self._new_id(),
                text=text,
                user=user,
                chat_type=chat_type,
                thread=thread,
                mention=mention,
                reply_to=reply_to,
                files=[wire.File(name, content) for name, content in files],
                at=clock.now(),
            )
        )

    def edit(self, chat: str, message_id: str, text: str) -> str:
        """Change a message that was written; returns the id of the change."""
        with self._changed:
            old = self._incoming[chat, message_id]
        return self._came(
            msgspec.structs.replace(
                old,
                message_id=self._new_id(),
                text=text,
                edits=message_id,
                files=[],
                at=clock.now(),
            )
        )

    def press(self, chat: str, question: str, choice: str, user: str = "u1") -> str:
        """Press a button, where the chat was last spoken in; returns the id of the press."""
        with self._changed:
            last = self._last[chat]
        return self._came(
            wire.Incoming(
                chat=chat,
                message_id=self._new_id(),
                text=choice,
                user=user,
                chat_type=last.chat_type,
                thread=last.thread,
                answers=question,
                at=clock.now(),
            )
        )

    def deliver_again(self, chat: str, message_id: str) -> None:
        """Deliver a message again, acknowledged or not."""
        with self._changed:
            message = self._incoming[chat, message_id]
        self._came(message)

    def deliver(self, content: object) -> None:
        """Deliver anything at all, as a platform does that is newer than its adapter."""
        self._queue(f"odd{next(self._numbers)}", msgspec.Raw(msgspec.json.encode(content)))

    # What people see.

    def shown(self, chat: str) -> list[ShownMessage]:
        """The gateway's messages in a chat, oldest first."""
        with self._changed:
            return list(self._chats.get(chat, {}).values())

    def wait_for(
        self, chat: str, met: Callable[[list[ShownMessage]], bool], timeout: float = TIMEOUT_S
    ) -> list[ShownMessage]:
        """Wait until a chat shows what is wanted; raises TimeoutError with what it shows."""
        self.wait_until(lambda: met(self.shown(chat)), f"chat {chat}", timeout)
        return self.shown(chat)

    def wait_until(
        self, met: Callable[[], bool], what: str = "this", timeout: float = TIMEOUT_S
    ) -> None:
        """Wait for anything that a change of the server makes true; raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(met, timeout):
                chats = {chat: list(each.values()) for chat, each in self._chats.items()}
                waits = self.unacknowledged()
                raise TimeoutError(f"Waited in vain for {what}. {chats=}, unacknowledged={waits}")

    def unacknowledged(self) -> list[str]:
        """The ids of what came in and nobody has taken, oldest first."""
        with self._changed:
            return [self._names[number] for number in self._pending]

    @property
    def has_listener(self) -> bool:
        with self._changed:
            return self._listener is not None

    # What goes wrong.

    def rate_limit(self, retry_after: float, times: int = 1) -> None:
        """Put the next sends and edits off."""
        with self._changed:
            self._faults.limited += [retry_after] * times

    def lose_requests(self, times: int = 1) -> None:
        """Hang up on the next sends before they are looked at."""
        with self._changed:
            self._faults.lost_requests += times

    def lose_answers(self, times: int = 1) -> None:
        """Show the next sends, and hang up instead of saying so."""
        with self._changed:
            self._faults.lost_answers += times

    def close_chat(self, chat: str) -> None:
        """Refuse everything that is sent to a chat."""
        with self._changed:
            self._faults.closed.add(chat)

    def cut(self) -> None:
        """Break every connection."""
        self._background.run(self._cut())

    def stop(self) -> None:
        """Break every connection and take no new ones."""
        self._background.run(self._stop())

    def start(self) -> None:
        """Take connections again, at the same address."""
        self._background.run(self._start())

    # The machinery.

    def _new_id(self) -> str:
        return f"m{next(self._numbers)}"

    def _came(self, incoming: wire.Incoming) -> str:
        with self._changed:
            self._incoming[incoming.chat, incoming.message_id] = incoming
            self._last[incoming.chat] = incoming
        self._queue(incoming.message_id, msgspec.Raw(msgspec.json.encode(incoming)))
        return incoming.message_id

    def _queue(self, name: str, message: msgspec.Raw) -> None:
        with self._changed:
            number = next(self._numbers)
            self._pending[number], self._names[number] = message, name
            self._background.call(self._push, number)

    def _push(self, number: int) -> None:
        with self._changed:
            if not self._listener or number <= self._pushed:
                return
            self._pushed = number
            if message := self._pending.get(number):
                self._listener.write(wire.line(wire.Delivery(number, message)))

    async def _start(self) -> None:
        if self._listening:
            return
        self._listening = await asyncio.start_server(
            self._serve, "127.0.0.1", self._port, limit=wire.LINE_LIMIT
        )
        self._port = self._listening.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        if self._listening:
            self._listening.close()
            self._listening = None
        await self._cut()

    async def _cut(self) -> None:
        tasks = list(self._connections.values())
        for writer in self._connections:
            reset(writer)
        await asyncio.gather(*tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if task := asyncio.current_task():
            self._connections[writer] = task
        try:
            while line := await reader.readline():
                self._do(wire.requests.decode(line), writer)
        except (OSError, ValueError, msgspec.DecodeError):
            pass  # a client that breaks off or talks nonsense is let go
        finally:
            self._connections.pop(writer, None)
            with self._changed:
                if self._listener is writer:
                    self._listener = None
                self._changed.notify_all()
            writer.close()

    def _do(self, request: wire.Request, writer: asyncio.StreamWriter) -> None:
        with self._changed:
            match request:
                case wire.Listen():
                    self._listen(request, writer)
                case wire.Ack():
                    self._pending.pop(request.delivery, None)
                case wire.Send() | wire.Edit():
                    self._do_or_fail(request, writer)
                case wire.Find():
                    found = self._keys.get((request.chat, request.key))
                    writer.write(wire.line(wire.Reply(request.id, found)))
                case wire.Typing():
                    self.typed[request.chat] += request.is_on
                    writer.write(wire.line(wire.Reply(request.id)))
                case wire.Commands():
                    self.commands = request.commands
                    writer.write(wire.line(wire.Reply(request.id)))
            self._changed.notify_all()

    def _listen(self, request: wire.Listen, writer: asyncio.StreamWriter) -> None:
        if self._listener:
            reset(self._listener)
        self._listener, self._pushed = writer, 0
        writer.write(wire.line(wire.Reply(request.id)))
        for number in self._pending:
            self._push(number)

    def _do_or_fail(self, request: wire.Send | wire.Edit, writer: asyncio.StreamWriter) -> None:
        faults = self._faults
        if isinstance(request, wire.Send):
            self.attempts.append(Attempt(request.chat, request.key, request.text))
        if faults.lost_requests:
            faults.lost_requests -= 1
            reset(writer)
            return
        reply = self._refusal(request) or (
            self._show(request) if isinstance(request, wire.Send) else self._change(request)
        )
        if faults.lost_answers and not reply.kind:
            faults.lost_answers -= 1
            reset(writer)
        else:
            writer.write(wire.line(reply))

    def _refusal(self, request: wire.Send | wire.Edit) -> wire.Reply | None:
        if request.chat in self._faults.closed:
            return wire.Reply(request.id, kind="refused", error="The chat is closed.")
        if self._faults.limited:
            wait_s = self._faults.limited.pop(0)
            return wire.Reply(
                request.id, kind="rate_limited", error="Too many messages.", retry_after=wait_s
            )
        if len(request.text) > self._text_limit:
            return wire.Reply(request.id, kind="too_long", error="The text is too long.")
        return None

    def _show(self, request: wire.Send) -> wire.Reply:
        known_id = self._keys.get((request.chat, request.key)) if request.key else None
        if known_id and self._folds_keys:
            return wire.Reply(request.id, known_id)
        message_id = self._new_id()
        self._keys[request.chat, request.key] = message_id
        self._chats.setdefault(request.chat, {})[message_id] = ShownMessage(
            message_id=message_id,
            text=request.text,
            key=request.key,
            buttons=tuple(request.buttons),
            question=request.question,
            in_reply_to=request.reply_to,
            thread=request.thread,
            files=tuple(request.files),
        )
        return wire.Reply(request.id, message_id)

    def _change(self, request: wire.Edit) -> wire.Reply:
        chat = self._chats.get(request.chat, {})
        if (old := chat.get(request.message_id)) is None:
            return wire.Reply(request.id, kind="refused", error="There is no such message.")
        edits = (*old.edits, old.text)
        chat[request.message_id] = replace(old, text=request.text, edits=edits, buttons=())
        return wire.Reply(request.id, request.message_id)
