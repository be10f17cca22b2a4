"""Calls of the protocol about one open conversation: open, send, stop, run a command, answer."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from msgspec import structs

from hermes_protocol import results
from hermes_protocol.errors import NOT_STORED, UNKNOWN_METHOD, USE_DISPATCH
from hermes_tui import wire
from hermes_tui.client import Client, read_answer
from hermes_tui.conversation import Conversation
from hermes_tui.failures import CallError, ConnectionLostError
from hermes_tui.opening import Opening

T = TypeVar("T")

PAGE = 60
"""Messages that are asked for at a time."""


class Session:
    """One open conversation, and the calls it takes."""

    def __init__(self, client: Client, opening: Opening) -> None:
        self.client = client
        self.opened_as: Callable[[results.Opened], None] = _ignore
        """Called whenever it was opened, before any later event of it is heard."""
        self.conversation = Conversation()
        self._opening = opening
        self._is_open = asyncio.Event()

    # -- opening -----------------------------------------------------------------------------

    async def open(self, columns: int) -> None:
        """Open what was asked for, or after a crash what was open before it."""
        self._is_open.clear()
        opened = await self._reopen(columns) if self.conversation.stored_id else None
        self.adopt(opened if opened is not None else await self._first(columns))

    async def _reopen(self, columns: int) -> results.Opened | None:
        """The same conversation again; None when nothing was said in it, so that there is none."""
        stored = self.conversation.stored_id
        try:
            return await self._resume(stored, columns, self.conversation.position)
        except CallError as error:
            if error.number != NOT_STORED or self.conversation.has_spoken:
                raise
            return None

    async def _first(self, columns: int) -> results.Opened:
        opening = self._opening
        if opening.live is not None:
            return await self._join(opening.live, columns)
        name = opening.resume
        if opening.continues and not name:
            name = str((await self.client.call("session.most_recent")).get("session_id") or "")
        if not name:
            return await self._create(columns)
        opened = await self._resume(name, columns)
        if opening.model:
            live = opened.session_id
            await self.client.call("config.set", session_id=live, key="model", value=opening.model)
        return opened

    async def _create(self, columns: int) -> results.Opened:
        options = {"cwd": self._opening.cwd, "model": self._opening.model}
        params = {name: value for name, value in options.items() if value}
        return await self.client.ask(results.Opened, "session.create", cols=columns, **params)

    async def _resume(
        self, name: str, columns: int, position: results.Position | None = None
    ) -> results.Opened:
        """Resume a stored conversation; with a position, get only what came after it, if possible."""
        after = {"after": structs.asdict(position)} if position and position.log else {}
        return await self.client.ask(
            results.Opened, "session.resume", session_id=name, cols=columns, limit=PAGE, **after
        )

    async def _join(self, name: str, columns: int) -> results.Opened:
        """Join a conversation of a running server: the named one, else the one active last."""
        rows = (await self.client.ask(results.OpenRows, "session.active_list")).sessions
        latest = max(rows, key=lambda row: row.last_active or 0, default=None)
        row = next((row for row in rows if row.id == name), None if name else latest)
        if row is not None:
            return await self._activate(row.id)
        return await (self._resume(name, columns) if name else self._create(columns))

    async def _activate(self, live_id: str) -> results.Opened:
        return await self.client.ask(
            results.Opened, "session.activate", session_id=live_id, limit=PAGE
        )

    async def again(self, columns: int) -> None:
        """Show the open conversation as it is now, after something has rewritten it."""
        self.adopt(await self._resume(self.conversation.stored_id, columns))

    async def refresh(self) -> None:
        """Show it as it is now, after somebody else has rewritten it."""
        self.adopt(await self._activate(self.conversation.live_id))

    async def create(self, columns: int) -> None:
        """Open a new conversation, whatever was asked for."""
        self.adopt(await self._create(columns))

    async def join(self, live_id: str) -> None:
        """Open a conversation that is open on the server already."""
        self.adopt(await self._activate(live_id))

    def adopt(self, opened: results.Opened) -> None:
        """Be the conversation that the server has opened."""
        self.conversation.open(opened)
        self._is_open.set()
        self.opened_as(opened)

    def connection_lost(self) -> None:
        """Lost the connection to the server: calls wait until the conversation is open again."""
        self._is_open.clear()
        self.conversation.connection_lost()

    @property
    def is_open(self) -> bool:
        """Return whether the conversation is open on the server."""
        return self._is_open.is_set()

    async def opened(self) -> None:
        """Wait until there is one."""
        await self._is_open.wait()

    # -- inside it ---------------------------------------------------------------------------

    async def call(self, method: str, **params: Any) -> wire.Json:  # noqa: ANN401 -- JSON values
        """A call about the open conversation; waits until it is open."""
        await self._is_open.wait()
        return await self.client.call(method, session_id=self.conversation.live_id, **params)

    async def ask(self, kind: type[T], method: str, **params: Any) -> T:  # noqa: ANN401 -- JSON values
        """The same with an answer of a type."""
        await self._is_open.wait()
        live = self.conversation.live_id
        return await self.client.ask(kind, method, session_id=live, **params)

    async def say(
        self, text: str, key: str, images: Sequence[str], files: Sequence[str], busy: str = ""
    ) -> wire.Json:
        """Hand over a prompt with its pictures and files; returns once it is on disk.

        The server takes a prompt once, however often it is sent with the same key.
        """
        return await self.call(
            "prompt.submit",
            text=text,
            idempotency_key=key,
            waits_for_model=True,
            **({"images": list(images)} if images else {}),
            **({"files": list(files)} if files else {}),
            **({"busy": busy} if busy else {}),
        )

    async def stop(self) -> wire.Json:
        """Stop the turn that runs."""
        return await self.call("session.interrupt")

    async def command(self, name: str, argument: str) -> results.CommandOutcome:
        """Run a slash command of the server. Its `message` is to be sent exactly as it is."""
        try:
            answer = await self.call("slash.exec", command=f"/{name} {argument}".rstrip())
        except CallError as error:
            if error.number not in (USE_DISPATCH, UNKNOWN_METHOD):
                raise
            answer = await self.call("command.dispatch", name=name, arg=argument)
        outcome = read_answer(results.CommandOutcome, "slash.exec", answer)
        if outcome.session is not None:
            self.adopt(outcome.session)
        return structs.replace(outcome, message=answer.get("message"))

    async def page(self, before_id: int, count: int) -> results.History:
        """So many messages before the one with this id."""
        return await self.ask(results.History, "session.history", limit=count, before=before_id)

    async def answer(self, method: str, **params: Any) -> bool:  # noqa: ANN401 -- JSON values
        """Answer a question of the server; False when nobody waits for it any more."""
        try:
            await self.call(method, **params)
        except CallError:
            return False
        return True

    async def close(self) -> None:
        """End the conversation; a server that is gone has ended it by itself."""
        if live := self.conversation.live_id:
            with contextlib.suppress(CallError, ConnectionLostError):
                await self.client.call("session.close", session_id=live)


def _ignore(_opened: results.Opened) -> None:
    """Nobody looks."""
