"""One request and its reply: accept the message, wait for its turn, and answer, whole or as a stream."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.platforms.api_server import parsing, responses
from gateway.platforms.api_server.json_mode import JsonFormat
from gateway.platforms.api_server.parsing import AgentRequest, Target
from gateway.platforms.api_server.replies import Reply, ReplyFormat, StreamedText, encode
from gateway.platforms.base import Ingress, MessageEvent, Receipt, StoredTurn, ToolCall, TurnResult
from gateway.platforms.refusal import BROKEN, FINAL, RefusedRequest, json, refusal
from gateway.source import SessionSource
from hermes_agent.turn.events import (
    Event,
    FellBack,
    QuestionAsked,
    ReasoningDelta,
    ToolEnded,
    ToolStarted,
)
from hermes_core.errors import HermesError, StoreError, TurnNotFoundError

logger = logging.getLogger(__name__)

T = TypeVar("T")
Put = Callable[[bytes], Awaitable[None]]
MakeFormat = Callable[[str, AgentRequest], ReplyFormat]

TURN = "X-Hermes-Turn-Id"
KEEP_ALIVE_S = 15.0
_KEEP_ALIVE_COMMENT = b": working\n\n"


class ClientGone(Exception):
    """The client hung up."""


class Closing(Exception):
    """The gateway stops; the turn is on disk and continues after the next start."""


class Exchange:
    """One request. `accept` comes first, then `whole` or `stream`."""

    def __init__(self, ingress: Ingress, closing: asyncio.Future[None], user: str) -> None:
        self._ingress, self._closing, self._user = ingress, closing, user
        self._target: Target
        self._source: SessionSource
        self._receipt: Receipt
        self._format: ReplyFormat
        self._json_format: JsonFormat | None = None
        self._turn_id = ""
        """Empty when a command answered."""
        self._started = set[str]()
        """The tool calls that run or ran; one that was denied only ends."""

    async def accept(
        self,
        headers: Mapping[str, str],
        request: AgentRequest,
        make_format: MakeFormat,
        check_model: Callable[[str], Awaitable[str]],
    ) -> None:
        """Store the message; raises RefusedRequest and HermesError, and then there is no turn."""
        previous = request.previous_response_id
        session_id = await self._session_of_response(previous) if previous else ""
        target = parsing.find_target(
            headers, conversation=request.conversation, session_id=session_id
        )
        self._target, self._source = target, parsing.source_of(target, self._user)
        unknown_model = None
        try:
            request.model = await check_model(request.model)
        except RefusedRequest as error:
            if not target.has_key:
                raise
            unknown_model = error  # a repeat gets its reply, whatever models there are now
        message = parsing.to_message(request, target, self._source)
        message.must_be_known = unknown_model is not None
        receipt = self._receipt = await self._accept(message)
        _check(receipt, unknown_model)
        if receipt.outcome == "turn":
            self._turn_id = receipt.turn_id or ""
        else:
            request.instructions = ""  # no model was sent them
        session_id = receipt.session_id or (None if target.has_history else "")
        name = self._turn_id or responses.command_name(session_id, target.message_id)
        self._format = make_format(name, request)
        self._json_format = request.json_format if self._turn_id else None

    async def whole(self, request: Request) -> Response:
        """Answer with one object."""
        try:
            reply = await self._while_connected(self._reply(), request.receive)
        except ClientGone:
            await self._hang_up()
            return Response(status_code=499)
        except Closing:
            raise self._stopping() from None
        return json(self._format.whole(reply), headers=self._headers(reply.session_id))

    def stream(self) -> Response:
        """Answer with events, while the reply is written."""
        return _EventStream(self._stream, self._headers())

    async def _session_of_response(self, response_id: str) -> str:
        """Return the session of an earlier response; empty when it belongs to none."""
        if (session_id := responses.session_in(response_id)) is not None:
            return session_id
        reader = parsing.source_of(Target("", ""), self._user)
        try:
            return (await find_turn(self._ingress, response_id, reader)).session_id
        except TurnNotFoundError:
            text = "There is no response with this id."
            code, param = "previous_response_not_found", "previous_response_id"
            raise RefusedRequest(404, text, code=code, param=param) from None

    async def _accept(self, message: MessageEvent) -> Receipt:
        """Hand the message to the gateway; a command may run longer than the gateway does."""
        accepting = asyncio.create_task(self._ingress.accept(message))
        awaited: set[asyncio.Future[Any]] = {accepting, self._closing}
        try:
            await asyncio.wait(awaited, return_when="FIRST_COMPLETED")
            if accepting.done():
                return accepting.result()
        finally:
            accepting.cancel()
        how = (
            "repeat the request with the same Idempotency-Key."
            if self._target.has_key
            else "check whether it was, before you repeat it."
        )
        text = f"Hermes is stopping, and the request may not have been accepted; {how}"
        raise RefusedRequest(503, text, code="restarting", headers=self._retry_headers())

    async def _while_connected(
        self,
        work: Coroutine[Any, Any, T],
        receive: Receive,
        keep_alive: Callable[[], Awaitable[None]] | None = None,
    ) -> T:
        """Await `work` while both sides are there; raises ClientGone and Closing."""
        task, hung_up = (
            asyncio.create_task(work),
            asyncio.create_task(_wait_for_disconnect(receive)),
        )
        awaited: set[asyncio.Future[Any]] = {task, hung_up, self._closing}
        timeout = KEEP_ALIVE_S if keep_alive else None
        try:
            while True:
                done, _ = await asyncio.wait(
                    awaited, timeout=timeout, return_when="FIRST_COMPLETED"
                )
                if done:
                    break
                if keep_alive:
                    await keep_alive()
            if task.done():
                return task.result()
            raise ClientGone if hung_up.done() else Closing
        finally:
            awaited.remove(self._closing)
            task.cancel()
            hung_up.cancel()
            await asyncio.gather(*awaited, return_exceptions=True)

    async def _stream(self, receive: Receive, put: Put) -> None:
        """Write a stream; what fails after its start is reported in it."""

        async def keep_alive() -> None:
            await put(_KEEP_ALIVE_COMMENT)

        try:
            await self._while_connected(self._write(put), receive, keep_alive)
        except ClientGone:
            await self._hang_up()
        except Closing:
            await put(self._format.fail(self._stopping()))
        except (RefusedRequest, HermesError) as error:
            await put(self._format.fail(refusal(error)))
        except Exception:
            logger.exception("API stream failed")
            await put(self._format.fail(BROKEN))

    async def _write(self, put: Put) -> None:
        text, is_model_known = StreamedText(), False
        await put(self._format.begin())
        async for event in self._events():
            if not is_model_known:
                self._format.model = (await self._stored()).model or self._format.model
                is_model_known = True
            if isinstance(event, FellBack):
                self._format.model = event.model
            if data := self._encode(event, text):
                await put(data)
        reply = await self._reply()
        self._format.model = reply.model or self._format.model
        for call in reply.tool_calls:
            await put(self._format.tool_call(call))
        if rest := text.end(reply.text):
            await put(self._format.text(rest))
        await put(self._format.end(reply))

    def _encode(self, event: Event, text: StreamedText) -> bytes:
        match event:
            case ReasoningDelta():
                return self._format.reasoning(event.text)
            case ToolStarted(call_id=call_id, name=name, arguments=arguments):
                self._started.add(call_id)
                call = ToolCall(call_id, name, _as_json(arguments), "in_progress")
                return self._format.tool_call(call)
            case ToolEnded(call_id=call_id, name=name, arguments=arguments, result=result):
                status = "completed" if call_id in self._started else "incomplete"
                call = ToolCall(call_id, name, _as_json(arguments), status, result)
                return self._format.tool_call(call)
            case _ if self._json_format is not None:
                return b""  # only the end shows whether it is JSON
            case _:
                added = text.add(event)
                return self._format.text(added) if added else b""

    async def _events(self) -> AsyncIterator[Event]:
        """Yield the events of the turn while it runs.

        A repeat may come in the middle of the first request: it waits and is sent the whole reply at
        once, after the questions that wait for an answer.
        """
        if not self._turn_id:
            return
        async for event in self._ingress.watch(self._turn_id):
            if self._receipt.is_new or isinstance(event, QuestionAsked):
                yield event

    async def _reply(self) -> Reply:
        if not self._turn_id:
            default = "Done." if self._receipt.is_new else "That was done before."
            return Reply(self._receipt.reply or default, {}, "")
        try:
            result = await self._ingress.wait_for_result(self._turn_id)
            calls = (await self._stored()).tool_calls if self._format.has_tool_calls else ()
        except TurnNotFoundError as error:
            raise _deleted() from error
        except StoreError as error:
            raise self._later(f"The reply cannot be read now: {error}", error.code) from error
        if result.status != "answered":
            raise _unanswered(result)
        text = self._json_format.extract(result.text) if self._json_format else result.text
        return reply_of(result)._replace(text=text, tool_calls=calls)

    async def _stored(self) -> StoredTurn:
        return await self._ingress.find_turn(self._turn_id, self._source)

    async def _hang_up(self) -> None:
        """Stop a turn whose client hung up and cannot ask for the reply again."""
        if not self._turn_id or self._target.has_key:
            return
        try:
            await self._ingress.stop(self._turn_id)
        except HermesError as error:
            logger.warning("turn %s could not be stopped: %s", self._turn_id, error)

    def _headers(self, session_id: str = "") -> dict[str, str]:
        """Return the headers of an answer; a message that waited may have moved to another session."""
        session_id = session_id or self._receipt.session_id or ""
        headers = {TURN: self._turn_id, parsing.SESSION: session_id}
        if self._target.is_named:
            headers[parsing.CONVERSATION] = self._target.chat_id
        return {name: value for name, value in headers.items() if value}

    def _retry_headers(self) -> dict[str, str]:
        """Let a client repeat a request only when that does not begin another turn."""
        return {"Retry-After": "5"} if self._target.has_key else FINAL

    def _stopping(self) -> RefusedRequest:
        how = (
            "repeat the request with the same Idempotency-Key."
            if self._target.has_key
            else "the reply will be in its session. The same request again would be another turn."
        )
        text = f"Hermes is stopping and answers after its restart; {how}"
        return self._later(text, "restarting")

    def _later(self, message: str, code: str) -> RefusedRequest:
        """Return the error for a turn that is on disk and whose reply cannot be had now."""
        headers = self._retry_headers() | self._headers()
        return RefusedRequest(503, message, code=code, headers=headers)


async def find_turn(ingress: Ingress, response_id: str, reader: SessionSource) -> StoredTurn:
    """Look up the turn of a response; raises TurnNotFoundError."""
    if not (turn_id := responses.turn_in(response_id)):
        raise TurnNotFoundError("There is no response with this id.")
    return await ingress.find_turn(turn_id, reader)


def reply_of(result: TurnResult) -> Reply:
    """Convert the result of a turn."""
    return Reply(result.text, result.usage, result.model, result.finish, result.session_id)


def _check(receipt: Receipt, unknown_model: RefusedRequest | None) -> None:
    """Raise RefusedRequest when a message has neither a turn nor the output of a command."""
    if receipt.outcome == "ignored":
        text = receipt.reply or "You are not allowed to send messages."
        raise unknown_model or RefusedRequest(403, text, code="not_allowed", headers=FINAL)
    if not receipt.is_over:
        text = "This command still runs; repeat the request with the same Idempotency-Key."
        raise RefusedRequest(409, text, code="still_running", headers={"Retry-After": "1"})
    if receipt.outcome == "turn" and receipt.turn_id is None:
        raise _deleted()


def _unanswered(result: TurnResult) -> RefusedRequest:
    is_stopped = result.status == "interrupted"
    default = "The turn was stopped." if is_stopped else "The turn failed."
    return RefusedRequest(
        409 if is_stopped else 502,
        result.reason or result.text or default,
        code="turn_interrupted" if is_stopped else "turn_failed",
        headers={**FINAL, parsing.SESSION: result.session_id},
    )


def _as_json(arguments: Mapping[str, object]) -> str:
    return encode(arguments).decode()


def _deleted() -> RefusedRequest:
    text = "The conversation was deleted, and the reply with it. The message is not answered again."
    return RefusedRequest(410, text, code="answer_deleted", headers=FINAL)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _EventStream(Response):
    """Server-sent events; `run` writes them."""

    media_type = "text/event-stream"

    def __init__(
        self, run: Callable[[Receive, Put], Awaitable[None]], headers: dict[str, str]
    ) -> None:
        self._run = run
        self.status_code, self.background = 200, None
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no", **headers})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def put(data: bytes) -> None:
            if data:
                message = {"type": "http.response.body", "body": data, "more_body": True}
                await send(message)

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await self._run(receive, put)
        await send({"type": "http.response.body", "body": b"", "more_body": False})
