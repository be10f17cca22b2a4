"""The endpoints of the API."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from gateway.platforms.api_server import exchange, openapi, parsing, responses
from gateway.platforms.api_server.authentication import HostCheck, TokenCheck, allowed_origins
from gateway.platforms.api_server.chat import ChatFormat
from gateway.platforms.api_server.exchange import Exchange, MakeFormat
from gateway.platforms.api_server.manifest import ApiSettings
from gateway.platforms.api_server.parsing import AgentRequest, Target
from gateway.platforms.api_server.replies import DEFAULT_MODEL
from gateway.platforms.api_server.responses import ResponseFormat
from gateway.platforms.base import Ingress, StoredTurn
from gateway.platforms.listener import read_body
from gateway.platforms.refusal import FINAL, RefusedRequest, answered, health, json, no_route
from hermes_core.errors import TurnNotFoundError, UsageError

_MODELS_CACHE_S = 60.0


class Api:
    """The endpoints over one ingress. Made inside an event loop."""

    def __init__(self, settings: ApiSettings, ingress: Ingress) -> None:
        self._settings, self._ingress = settings, ingress
        self._closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._models: Sequence[str] = ()
        self._models_read_at = -_MODELS_CACHE_S
        self._reader = parsing.source_of(Target("", ""), settings.user)

    def close(self) -> None:
        """Tell every client that waits that the gateway stops."""
        if not self._closing.done():
            self._closing.set_result(None)

    async def health(self, _request: Request) -> Response:
        return await health(self._ingress)

    async def describe(self, _request: Request) -> Response:
        return json(openapi.document())

    async def list_models(self, _request: Request) -> Response:
        names = await self._model_names()
        return json({"object": "list", "data": [_model(name) for name in names]})

    async def get_model(self, request: Request) -> Response:
        name = request.path_params["name"]
        await self._check_model(name)
        return json(_model(name))

    async def create_chat_completion(self, request: Request) -> Response:
        return await self._answer(request, parsing.chat, ChatFormat)

    async def create_response(self, request: Request) -> Response:
        return await self._answer(request, parsing.response, ResponseFormat)

    async def stored_response(self, request: Request) -> Response:
        if request.method == "DELETE":
            return await self._delete_response(request)
        if request.query_params.get("stream", "false").lower() not in ("false", "0"):
            text = "A stored response is not streamed: leave `stream` out."
            raise RefusedRequest(400, text, code="unsupported_parameter", param="stream")
        return json(_stored_response(*await self._find_turn(request)))

    async def _delete_response(self, request: Request) -> Response:
        turn_id, _ = await self._find_turn(request)
        try:
            await self._ingress.delete_turn(turn_id, self._reader)
        except UsageError as error:
            code = "response_in_use"
            raise RefusedRequest(409, str(error), code=code, headers=FINAL) from error
        return json({"id": request.path_params["id"], "object": "response", "deleted": True})

    async def _find_turn(self, request: Request) -> tuple[str, StoredTurn]:
        response_id = request.path_params["id"]
        try:
            turn = await exchange.find_turn(self._ingress, response_id, self._reader)
        except TurnNotFoundError:
            text = f"There is no response {response_id[:100]!r}."
            raise RefusedRequest(404, text, code="response_not_found") from None
        return responses.turn_in(response_id), turn

    async def _answer(
        self, request: Request, parse: Callable[..., AgentRequest], make_format: MakeFormat
    ) -> Response:
        body = await read_body(request, self._settings.body_limit_mb << 20)
        parsed = parse(body, ignores_tools=self._settings.client_tools == "ignore")
        this = Exchange(self._ingress, self._closing, self._settings.user)
        await this.accept(request.headers, parsed, make_format, self._check_model)
        return this.stream() if parsed.is_stream else await this.whole(request)

    async def _model_names(self) -> list[str]:
        """List all models, the agent's own choice first; to find them may take a while."""
        now = time.monotonic()
        if now - self._models_read_at >= _MODELS_CACHE_S:
            self._models, self._models_read_at = await self._ingress.models(), now
        return [DEFAULT_MODEL, *(name for name in self._models if name != DEFAULT_MODEL)]

    async def _check_model(self, name: str) -> str:
        """Return the model to use, empty for the agent's own; raises RefusedRequest."""
        if name in ("", DEFAULT_MODEL):
            return ""
        if name not in await self._model_names():
            raise RefusedRequest(
                404,
                f"There is no model {name[:100]!r}. Use {DEFAULT_MODEL!r}, which is the agent's "
                "own choice, or one of GET /v1/models.",
                code="model_not_found",
                param="model",
            )
        return name


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "hermes"}


def _stored_response(turn_id: str, turn: StoredTurn) -> dict[str, Any]:
    """Build a response from its turn; what only the request had (`metadata`) is not in the store."""
    request = AgentRequest("", instructions=turn.instructions, model=turn.model)
    response = ResponseFormat(turn_id, request, turn.accepted_at)
    if turn.result is None:
        return response.pending("in_progress")
    match turn.result.status:
        case "answered":
            reply = exchange.reply_of(turn.result)
            return response.whole(reply._replace(tool_calls=turn.tool_calls))
        case "interrupted":
            return response.pending("cancelled")
        case "failed":
            return response.failed(turn.result.reason or turn.result.text)


def application(api: Api, settings: ApiSettings, token: str) -> ASGIApp:
    """Build the ASGI application, with its authentication."""
    routes = [
        Route("/health", answered(api.health), methods=["GET"]),
        Route("/v1/health", answered(api.health), methods=["GET"]),
        Route("/openapi.json", answered(api.describe), methods=["GET"]),
        Route("/v1/models", answered(api.list_models), methods=["GET"]),
        Route("/v1/models/", answered(api.list_models), methods=["GET"]),
        Route("/v1/models/{name:path}", answered(api.get_model), methods=["GET"]),
        Route("/v1/chat/completions", answered(api.create_chat_completion), methods=["POST"]),
        Route("/v1/responses", answered(api.create_response), methods=["POST"]),
        Route("/v1/responses/{id}", answered(api.stored_response), methods=["GET", "DELETE"]),
    ]
    app = Starlette(
        routes=routes,
        middleware=[*_cors(settings), Middleware(TokenCheck, token)],
        exception_handlers={HTTPException: no_route},
    )
    return HostCheck(app, settings)


def _cors(settings: ApiSettings) -> list[Middleware]:
    """Build the middleware that lets pages of `origins` read the answers."""
    if not settings.origins:
        return []
    from starlette.middleware.cors import CORSMiddleware  # noqa: PLC0415 -- few have pages

    return [
        Middleware(
            CORSMiddleware,
            allow_origins=sorted(allowed_origins(settings)),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=[
                parsing.SESSION,
                parsing.CONVERSATION,
                exchange.TURN,
                *FINAL,
                "Retry-After",
            ],
        )
    ]
