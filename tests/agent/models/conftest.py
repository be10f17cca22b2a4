"""A server, and models of both wire formats that talk to it."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from hermes_agent.models.anthropic import Anthropic
from hermes_agent.models.base import Facts, Model
from hermes_agent.models.openai_chat import OpenAIChat
from hermes_agent.testing.server import ScriptedServer

Format = Literal["openai", "anthropic"]
Make = Callable[..., Model]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer([]) as server:
        yield server


@pytest.fixture(params=["openai", "anthropic"])
def format_(request: pytest.FixtureRequest) -> Format:
    return request.param


@pytest.fixture
def connect() -> Iterator[Make]:
    """Makes models of one wire format and closes them afterwards."""
    models: list[Model] = []

    def make(format_: Format, url: str, **settings: Any) -> Model:
        facts = Facts(
            name=settings.pop("name", "scripted"),
            provider=settings.pop("provider", format_),
            window=8192,
            takes_images=settings.pop("takes_images", True),
        )
        settings = {"api_key": "sk-of-the-test", "key_name": "THE_KEY", **settings}
        if format_ == "openai":
            models.append(OpenAIChat(facts, base_url=f"{url}/v1", **settings))
        else:
            models.append(Anthropic(facts, base_url=url, **settings))
        return models[-1]

    yield make
    for model in models:
        model.close()


@pytest.fixture
def model(server: ScriptedServer, connect: Make, format_: Format) -> Model:
    return connect(format_, server.url)
