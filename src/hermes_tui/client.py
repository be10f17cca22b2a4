"""The client of the protocol: requests and their answers, events, and a server that comes back."""

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import msgspec

from hermes_protocol import results
from hermes_tui import wire
from hermes_tui.failures import CallError, ConnectionLostError
from hermes_tui.transport import Transport

logger = logging.getLogger(__name__)

T = TypeVar("T")

Connect = Callable[[], Awaitable[Transport]]

_DELAYS_S = (0.0, 0.5, 1.0, 2.0, 5.0)
"""How long to wait before each attempt to start the server again."""

_STEADY_S = 10.0
_AT_ONCE = 64


class Listener:
    """Receives events and the state of the connection; subclass and override."""

    def on_event(
        self, kind: str, session_id: str, payload: wire.Json, position: results.Position
    ) -> None:
        """The server reports an event; one of a conversation's log has a position."""

    def connected(self, attempt: int) -> None:
        """The server is there; `attempt` counts from 0, so that above 0 it is there again."""

    def lost(self, reason: str, delay_s: float | None) -> None:
        """The server went away; it is started again after the delay, or not at all."""


class Client:
    """One server, restarted when it dies, and the calls that are waiting for it."""

    def __init__(self, connect: Connect, listener: Listener, *, is_patient: bool = False) -> None:
        """`is_patient`: the server is somebody else's, who may start it again at any time."""
        self._connect = connect
        self._is_patient = is_patient
        self._listener = listener
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[object]] = {}
        self._transport: Transport | None = None
        self._ready = asyncio.Event()
        self._retry = asyncio.Event()
        self._is_leaving = False

    @property
    def transport(self) -> Transport | None:
        """The connection there is now."""
        return self._transport

    async def run(self) -> None:
        """Keep a connection until `close`; returns then."""
        starts = deaths = 0
        while not self._is_leaving:
            began = time.monotonic()
            reason = await self._live(starts)
            starts += 1
            if self._is_leaving:
                return
            # Who lived for a while gets the full number of attempts again.
            deaths = 1 if time.monotonic() - began > _STEADY_S else deaths + 1
            if self._is_patient:
                deaths = min(deaths, len(_DELAYS_S))
            delay = _DELAYS_S[deaths - 1] if deaths <= len(_DELAYS_S) else None
            deaths = 0 if delay is None else deaths
            logger.warning("lost the connection to the server: %s", reason)
            self._listener.lost(reason, delay)
            await self._pause(delay)

    async def _pause(self, delay_s: float | None) -> None:
        self._retry.clear()
        try:
            async with asyncio.timeout(delay_s):
                await self._retry.wait()
        except TimeoutError:
            return

    def retry(self) -> None:
        """Try again now, also after it was given up."""
        self._retry.set()

    async def _live(self, starts: int) -> str:
        """One connection from its opening to its end; returns why it ended."""
        try:
            self._transport = await self._connect()
            count = 0
            async for frame in self._transport.frames():
                is_answer = self._take(frame, starts)
                count += 1
                # Who was answered goes on first: what it does with the answer decides about events.
                # And a flood of events must leave time to draw.
                if is_answer or count % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            reason = self._transport.last_words()
        except (OSError, ValueError) as error:  # not to be started, or a line beyond every limit
            reason = str(error)
        self._ready.clear()
        await self._fail_pending(reason)
        return reason

    async def _fail_pending(self, reason: str) -> None:
        transport, self._transport = self._transport, None
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(
                    ConnectionLostError(f"Lost the connection to the server: {reason}.")
                )
        self._waiting.clear()
        if transport is not None and not self._is_leaving:
            await transport.close(0.1)

    def _take(self, frame: bytes, starts: int) -> bool:
        """Deal with one frame; True when somebody has waited for it."""
        try:
            decoded = msgspec.json.decode(frame)
        except msgspec.DecodeError:
            logger.warning("the server sent invalid JSON: %.200r", frame)
            return False
        message = cast("wire.Json", decoded) if isinstance(decoded, dict) else {}
        if message.get("method") == "event":
            if self._handle_event(message.get("params")) and not self._ready.is_set():
                self._ready.set()
                self._listener.connected(starts)
            return False
        future = self._waiting.pop(cast("int", message.get("id")), None)
        if future is not None and not future.done():
            _settle(future, message)
        return True

    def _handle_event(self, params: object) -> bool:
        """Pass an event on; True when it is the server's greeting."""
        event = cast("wire.Json", params) if isinstance(params, dict) else {}
        kind = str(event.get("type", ""))
        payload = wire.cleaned(event.get("payload"))
        inside = cast("wire.Json", payload) if isinstance(payload, dict) else {}
        position = results.Position(str(event.get("log") or ""), int(event.get("seq") or 0))
        self._listener.on_event(kind, str(event.get("session_id") or ""), inside, position)
        return kind == "gateway.ready"

    async def call(self, method: str, **params: Any) -> wire.Json:  # noqa: ANN401 -- JSON values
        """Ask the server and wait for its answer; waits for a server that is being started.

        Raises CallError when it refuses and ConnectionLostError when it goes away meanwhile.
        """
        await self._ready.wait()
        number = next(self._numbers)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        try:
            assert self._transport is not None
            await self._transport.send(msgspec.json.encode(request))
        except OSError as error:
            self._waiting.pop(number, None)
            raise ConnectionLostError(f"Lost the connection to the server: {error}.") from error
        result = await future
        return cast("wire.Json", result) if isinstance(result, dict) else {}

    async def ask(self, kind: type[T], method: str, **params: Any) -> T:  # noqa: ANN401 -- JSON values
        """The same with an answer of a type; raises CallError when it has another."""
        return read_answer(kind, method, await self.call(method, **params))

    async def close(self, grace_s: float = 1.0) -> None:
        """End the connection for good, and the server with it when it is ours."""
        self._is_leaving = True
        self._retry.set()
        if self._transport is not None:
            await self._transport.close(grace_s)


def read_answer(kind: type[T], method: str, result: wire.Json) -> T:
    """Clean and read the result of a method; raises CallError when it is of another type."""
    try:
        return wire.read(wire.cleaned(result), kind)
    except msgspec.ValidationError as error:
        raise CallError(f"The server's answer to {method} is not understood: {error}.") from error


def _settle(future: asyncio.Future[object], message: wire.Json) -> None:
    error = message.get("error")
    if not isinstance(error, dict):
        future.set_result(message.get("result"))
        return
    fields = cast("wire.Json", wire.cleaned(cast("object", error)))
    data = fields.get("data")
    fix = str(cast("wire.Json", data).get("fix") or "") if isinstance(data, dict) else ""
    code = fields.get("code")
    number = code if isinstance(code, int) else 0
    future.set_exception(CallError(str(fields.get("message") or "It failed."), number, fix=fix))
