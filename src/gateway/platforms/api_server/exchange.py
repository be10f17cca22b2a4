"""An exchange: a request is taken in, run and answered, whole or as a stream, once whatever breaks."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from gateway.platforms.api_server import place as places
from gateway.platforms.api_server import responses, translate
from gateway.platforms.api_server.client import (
    ClientGone,
    Closing,
    EventStream,
    Put,
    attended,
    keep_alive,
)
from gateway.platforms.api_server.form import Form, Reply
from gateway.platforms.api_server.models import Models
from gateway.platforms.api_server.place import Place
from gateway.platforms.api_server.telling import Telling
from gateway.platforms.api_server.translate import Asked
from gateway.platforms.base import Ended, Ingress, MessageEvent, Receipt
from gateway.platforms.refusal import BROKEN, FINAL, RefusedRequest, json, refusal
from hermes_agent.events import Event, QuestionAsked, ReasoningDelta
from hermes_core.errors import HermesError, StoreError

logger = logging.getLogger(__name__)

TURN = "X-Hermes-Turn-Id"


class Exchange(NamedTuple):
    """One request that is on disk, and the form that its answer has."""

    ingress: Ingress
    closing: asyncio.Future[None]
    receipt: Receipt
    place: Place
    form: Form
    turn_id: str
    """Empty when a command answered."""

    def headers(self, session_id: str = "") -> dict[str, str]:
        """What is said beside the answer; a message that waited may have been answered elsewhere."""
        session_id = session_id or self.receipt.session_id or ""
        said = {TURN: self.turn_id, places.SESSION: session_id}
        if self.place.is_named:
            said[places.CONVERSATION] = self.place.chat_id
        return {name: value for name, value in said.items() if value}

    async def whole(self, request: Request) -> Response:
        """The answer as one object."""
        try:
            reply = await attended(self._reply(), request.receive, self.closing)
        except ClientGone:
            await self._leave()
            return Response(status_code=499)
        except Closing:
            raise self._put_off() from None
        return json(self.form.whole(reply), headers=self.headers(reply.session_id))

    def stream(self) -> Response:
        """The answer as it is written."""
        return EventStream(self._stream, self.headers())

    async def _stream(self, receive: Receive, put: Put) -> None:
        """The boundary of a stream: what fails after its beginning is told in it."""
        try:
            await attended(self._tell(put), receive, self.closing, lambda: keep_alive(put))
        except ClientGone:
            await self._leave()
        except Closing:
            await put(self.form.fail(self._put_off()))
        except (RefusedRequest, HermesError) as error:
            await put(self.form.fail(refusal(error)))
        except Exception:
            logger.exception("a stream broke; the others go on")
            await put(self.form.fail(BROKEN))

    async def _tell(self, put: Put) -> None:
        form, telling = self.form, Telling()
        await put(form.begin())
        if self.turn_id:
            async for event in self._events():
                if isinstance(event, ReasoningDelta):
                    await put(form.think(event.text))
                elif text := telling.hear(event):
                    await put(form.say(text))
        reply = await self._reply()
        if rest := telling.end(reply.text):
            await put(form.say(rest))
        await put(form.end(reply._replace(text=telling.whole)))

    async def _events(self) -> AsyncIterator[Event]:
        """What is told of the turn while it runs.

        A repeat may come in the middle of the first: it waits, and is told the whole at once. Only what
        is asked it must hear before, as nobody else may.
        """
        async for event in self.ingress.watch(self.turn_id):
            if self.receipt.is_new or isinstance(event, QuestionAsked):
                yield event

    async def _reply(self) -> Reply:
        if not self.turn_id:
            said = "Done." if self.receipt.is_new else "That was done before."
            return Reply(self.receipt.reply or said, {}, "")
        try:
            ended = await self.ingress.ended(self.turn_id)
        except StoreError as error:
            if error.code == StoreError.code:  # there is no such turn (any more)
                raise _gone() from error
            raise self._later(f"The reply cannot be read now: {error}", error.code) from error
        if ended.status != "answered":
            raise _unanswered(ended)
        return Reply(ended.text, ended.usage, ended.model, ended.finish, ended.session_id)

    async def _leave(self) -> None:
        """The client hung up: a turn that it cannot ask for again is stopped."""
        if not self.turn_id or self.place.has_key:
            return
        try:
            await self.ingress.stop(self.turn_id)
        except HermesError as error:
            logger.warning("turn %s could not be stopped: %s", self.turn_id, error)

    def _put_off(self) -> RefusedRequest:
        how = (
            "ask again with the same Idempotency-Key."
            if self.place.has_key
            else "the answer will be in its session. The same request again would be another turn."
        )
        return self._later(f"Hermes stops now and answers when it is back; {how}", "restarting")

    def _later(self, message: str, code: str) -> RefusedRequest:
        """The turn is on disk, its reply not to be had now. Without a key a retry is another turn."""
        again = {"Retry-After": "5"} if self.place.has_key else FINAL
        return RefusedRequest(503, message, code=code, headers=again | self.headers())


def _unanswered(ended: Ended) -> RefusedRequest:
    is_stopped = ended.status == "interrupted"
    said = ended.reason or ended.text or ("It was stopped." if is_stopped else "The turn failed.")
    return RefusedRequest(
        409 if is_stopped else 502,
        said,
        code="turn_interrupted" if is_stopped else "turn_failed",
        headers={**FINAL, places.SESSION: ended.session_id},
    )


def _gone() -> RefusedRequest:
    said = "The conversation was deleted, and the answer with it. It is not answered again."
    return RefusedRequest(410, said, code="answer_deleted", headers=FINAL)


def _still_running() -> RefusedRequest:
    said = "This command is still being done; ask again with the same Idempotency-Key."
    return RefusedRequest(409, said, code="still_running", headers={"Retry-After": "1"})


def _unfinished(place: Place) -> RefusedRequest:
    how = (
        "ask again with the same Idempotency-Key."
        if place.has_key
        else "look whether it was, before you send it again."
    )
    said = f"Hermes stops now, and this may not have been done; {how}"
    again = {"Retry-After": "5"} if place.has_key else FINAL
    return RefusedRequest(503, said, code="restarting", headers=again)


class Exchanges:
    """Begins exchanges, all of which end when this is closed. Made inside an event loop."""

    def __init__(self, ingress: Ingress, models: Models, user: str) -> None:
        self._ingress, self._models, self._user = ingress, models, user
        self._closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def close(self) -> None:
        """Have everybody who waits told that we stop."""
        if not self._closing.done():
            self._closing.set_result(None)

    async def begin(
        self, headers: Mapping[str, str], asked: Asked, make: Callable[[str, Asked], Form]
    ) -> Exchange:
        """Take a request in; raises RefusedRequest and HermesError, and then no turn was made."""
        session_id = await _previous(self._ingress, asked.previous)
        place = places.find(headers, conversation=asked.conversation, session_id=session_id)
        no_model = None
        try:
            asked.model = await self._models.checked(asked.model)
        except RefusedRequest as error:
            if not place.has_key:
                raise
            no_model = error  # a repeat gets its answer, whatever model there is now
        event = translate.event(asked, place, self._user)
        event.must_be_known = no_model is not None
        receipt = await self._accepted(event, place)
        if receipt.outcome == "ignored":
            raise no_model or RefusedRequest(
                403, receipt.reply or "You may not speak here.", code="not_allowed", headers=FINAL
            )
        if not receipt.is_over:
            raise _still_running()
        if receipt.outcome == "turn" and receipt.turn_id is None:
            raise _gone()
        turn_id = receipt.turn_id if receipt.outcome == "turn" else None
        if turn_id is None:
            asked.instructions = ""  # no model was told them
        session_id = receipt.session_id or (None if place.is_lasting else "")
        name = turn_id or responses.name_of(session_id, place.message_id)
        form = make(name, asked)
        return Exchange(self._ingress, self._closing, receipt, place, form, turn_id or "")

    async def _accepted(self, event: MessageEvent, place: Place) -> Receipt:
        """What became of a message; a command may take longer than the gateway is there for."""
        accepting = asyncio.create_task(self._ingress.accept(event))
        awaited: set[asyncio.Future[Any]] = {accepting, self._closing}
        try:
            await asyncio.wait(awaited, return_when="FIRST_COMPLETED")
            if accepting.done():
                return accepting.result()
        finally:
            accepting.cancel()
        raise _unfinished(place)


async def _previous(ingress: Ingress, response_id: str) -> str:
    """The session in which an earlier response was given; empty when that was in none."""
    if not response_id:
        return ""
    if (session_id := responses.session_in(response_id)) is not None:
        return session_id
    try:
        if turn_id := responses.turn_in(response_id):
            return await ingress.session_of(turn_id)
    except StoreError as error:
        if error.code != StoreError.code:  # the store fails; that says nothing about the response
            raise
    raise RefusedRequest(
        404,
        "There is no such response here.",
        code="previous_response_not_found",
        param="previous_response_id",
    )
