"""The routes of the API."""

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from gateway.platforms.api_server import door, exchange, models, place, translate
from gateway.platforms.api_server.chat import ChatForm
from gateway.platforms.api_server.door import Door, Lock
from gateway.platforms.api_server.exchange import Exchanges
from gateway.platforms.api_server.form import Form
from gateway.platforms.api_server.manifest import ApiSettings
from gateway.platforms.api_server.models import Models
from gateway.platforms.api_server.responses import ResponseForm
from gateway.platforms.api_server.translate import Asked
from gateway.platforms.base import Ingress
from gateway.platforms.listener import read_body
from gateway.platforms.refusal import FINAL, answered, json, no_route


class Api:
    """The endpoints, over one ingress."""

    def __init__(self, settings: ApiSettings, ingress: Ingress) -> None:
        self._settings = settings
        self._models = Models(ingress)
        self._exchanges = Exchanges(ingress, self._models, settings.user)

    def close(self) -> None:
        """Have everybody who waits told that we stop."""
        self._exchanges.close()

    async def health(self, _request: Request) -> Response:
        return json({"status": "ok"})

    async def list_models(self, _request: Request) -> Response:
        names = await self._models.names()
        return json({"object": "list", "data": [models.described(name) for name in names]})

    async def get_model(self, request: Request) -> Response:
        name = request.path_params["name"]
        await self._models.checked(name)
        return json(models.described(name))

    async def chat(self, request: Request) -> Response:
        return await self._answer(request, translate.chat, ChatForm)

    async def response(self, request: Request) -> Response:
        return await self._answer(request, translate.response, ResponseForm)

    async def _answer(
        self,
        request: Request,
        read: Callable[..., Asked],
        make: Callable[[str, Asked], Form],
    ) -> Response:
        body = await read_body(request, self._settings.body_limit_mb << 20)
        asked = read(body, may_bring_tools=self._settings.client_tools == "ignore")
        begun = await self._exchanges.begin(request.headers, asked, make)
        return begun.stream() if asked.is_stream else await begun.whole(request)


def application(api: Api, settings: ApiSettings, token: str) -> ASGIApp:
    """The routes, behind the door."""
    routes = [
        Route("/health", answered(api.health), methods=["GET"]),
        Route("/v1/models", answered(api.list_models), methods=["GET"]),
        Route("/v1/models/", answered(api.list_models), methods=["GET"]),
        Route("/v1/models/{name:path}", answered(api.get_model), methods=["GET"]),
        Route("/v1/chat/completions", answered(api.chat), methods=["POST"]),
        Route("/v1/responses", answered(api.response), methods=["POST"]),
    ]
    app = Starlette(
        routes=routes,
        middleware=[*_for_pages(settings), Middleware(Lock, token)],
        exception_handlers={HTTPException: no_route},
    )
    return Door(app, settings)


def _for_pages(settings: ApiSettings) -> list[Middleware]:
    """What a browser must be told so that pages of `origins` may read the answers."""
    if not settings.origins:
        return []
    from starlette.middleware.cors import CORSMiddleware  # noqa: PLC0415 -- few have pages

    return [
        Middleware(
            CORSMiddleware,
            allow_origins=sorted(door.pages(settings)),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=[
                place.SESSION,
                place.CONVERSATION,
                exchange.TURN,
                *FINAL,
                "Retry-After",
            ],
        )
    ]
