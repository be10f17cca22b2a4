import asyncio
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from hermes_agent.models import providers
from hermes_agent.models.base import Facts, Model, Reply, Request
from hermes_agent.models.embedded import model_files
from hermes_agent.models.providers import Credentials
from hermes_agent.models.registry import Registry
from hermes_agent.models.small import SmallModel
from hermes_agent.testing import faults
from hermes_agent.testing.scripted import TIMEOUT_S, RecordingSink, ScriptedModel
from hermes_agent.testing.server import ScriptedServer
from hermes_agent.turn.events import FellBack, Retrying, Sink, ignore
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ConfigError, ModelError, ModelMissingError, ModelRefusedError
from hermes_core.paths import Home
from hermes_core.settings import ModelSettings

HELLO = Request("You help.", [], [{"role": "user", "content": "hello"}])


@pytest.fixture
def home(tmp_path: Any) -> Home:
    return Home(tmp_path / "home").create()


def built(
    home: Home, credentials: Credentials | None = None, plugins: Any = None, **settings: Any
) -> Model:
    model = ModelSettings(**settings)
    return Registry(model, credentials or {}, home, plugins=plugins, ports={}).build()


def test_an_address_in_the_environment_gives_a_model_that_answers(home: Home):
    with ScriptedServer(["Hi."], models={"theirs": {"max_model_len": 4000}}) as server:
        model = built(home, {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "k1234567"})
        assert model.facts.name == "theirs"
        assert model.facts.window == 4000
        assert model.ask(HELLO, Stop(), ignore).text == "Hi."
        model.close()
        assert server.model_requests[0].headers["authorization"] == "Bearer k1234567"


def test_the_settings_reach_the_model(home: Home):
    with ScriptedServer(["Hi."]) as server:
        model = built(
            home,
            name="scripted",
            base_url=server.openai_url,
            api_key="own-key",
            context_window=5000,
            max_output_tokens=70,
        )
        assert (model.facts.window, model.facts.max_output) == (5000, 70)
        model.ask(HELLO, Stop(), ignore)
        model.close()
        assert server.model_requests[0].headers["authorization"] == "Bearer own-key"


def test_anthropic_is_asked_in_its_own_format(home: Home):
    with ScriptedServer(["Hi."]) as server:
        environment = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "sk-ant-key"}
        model = built(home, environment, name="claude-opus-4-5")
        assert (model.facts.provider, model.facts.window) == ("anthropic", 200_000)
        assert model.ask(HELLO, Stop(), ignore).text == "Hi."
        model.close()
        assert server.model_requests[0].path == "/v1/messages"
        assert server.model_requests[0].headers["x-api-key"] == "sk-ant-key"


def test_a_failed_call_is_made_again(home: Home):
    with ScriptedServer([faults.rate_limited(0), "Hi."]) as server:
        model = built(home, name="scripted", base_url=server.openai_url)
        sink = RecordingSink()
        assert model.ask(HELLO, Stop(), sink).text == "Hi."
        model.close()
        assert len(sink.of(Retrying)) == 1


def test_a_fallback_answers_under_its_name_and_price(home: Home):
    with ScriptedServer([faults.no_quota()]) as first, ScriptedServer(["Hi."]) as second:
        environment = {"ANTHROPIC_BASE_URL": second.url, "ANTHROPIC_API_KEY": "sk-ant-key"}
        model = built(
            home,
            environment,
            name="scripted",
            base_url=first.openai_url,
            fallbacks=["anthropic/claude-opus-4-5"],
        )
        sink = RecordingSink()
        reply = model.ask(HELLO, Stop(), sink)
        model.close()
    assert (reply.text, reply.model, reply.provider) == ("Hi.", "claude-opus-4-5", "anthropic")
    assert reply.cost_usd
    assert [event.model for event in sink.of(FellBack)] == ["claude-opus-4-5"]


def test_a_fallback_that_is_not_there_leaves_the_first_error(home: Home):
    with ScriptedServer([faults.no_quota()]) as server:
        model = built(
            home, name="scripted", base_url=server.openai_url, fallbacks=["anthropic/claude-x"]
        )
        with pytest.raises(ModelRefusedError, match="no quota"):
            model.ask(HELLO, Stop(), ignore)
        model.close()


def test_a_weak_local_model_is_led_by_the_hand(home: Home):
    with ScriptedServer([], models={"tiny-1b": {}}) as server:
        registry = Registry(
            ModelSettings(), {}, home, ports={server.port: "Kind"}, probe_timeout_s=TIMEOUT_S
        )
        model = registry.make(registry.discovery.chosen())
        assert isinstance(model, SmallModel)
        assert model.facts.is_small
        model.close()


def test_a_server_that_cannot_tell_is_asked_anyway(home: Home):
    with ScriptedServer([], pages={"/v1/models": []}) as server:
        model = built(home, name="scripted", base_url=server.openai_url)
        assert model.facts.window == 8192
        model.close()


def test_a_model_of_a_plugin_is_made_by_its_factory(home: Home):
    model = built(home, plugins={"theirs": lambda: ScriptedModel(["Hi."])}, name="theirs")
    assert model.ask(HELLO, Stop(), ignore).text == "Hi."


@pytest.mark.parametrize("error", [ZeroDivisionError(), asyncio.CancelledError(), SystemExit(3)])
def test_a_model_of_a_plugin_that_raises_anything_has_failed(home: Home, error: BaseException):
    def explode(_request: Request) -> str:
        raise error

    model = built(home, plugins={"theirs": lambda: ScriptedModel(explode)}, name="theirs")
    with pytest.raises(ModelError, match="The model theirs of a plugin failed"):
        model.ask(HELLO, Stop(), ignore)


@pytest.mark.parametrize(
    ("factory", "complaint"),
    [(lambda: 1 / 0, "ZeroDivisionError"), (lambda: None, "it has no facts")],
)
def test_a_model_that_a_plugin_does_not_make_is_told(
    home: Home, factory: Callable[[], object], complaint: str
):
    with pytest.raises(ModelError, match=complaint):
        built(home, plugins={"theirs": factory}, name="theirs")


class Reserved(ScriptedModel):
    """A model that leaves when it is asked what it is."""

    @property
    def facts(self) -> Facts:
        raise SystemExit(3)

    @facts.setter
    def facts(self, facts: Facts) -> None: ...


class Odd(ScriptedModel):
    """A model that answers with anything."""

    def __init__(self, answer: Any) -> None:
        super().__init__([])
        self._answer = answer

    def ask(self, request: Request, stop: Stop, report: Sink) -> Reply:
        return self._answer


def unset() -> object:
    raise ConfigError("It needs a key.")


def not_made() -> object:
    return 1 / 0


@pytest.mark.parametrize(
    "factory",
    [
        not_made,
        unset,
        lambda: None,
        lambda: Reserved([]),
        lambda: Odd("text"),
        lambda: Odd(None),
        lambda: Odd(Reply(5)),  # type: ignore[arg-type]
        lambda: Odd(Reply("Hi.", tool_calls=["x"])),  # type: ignore[list-item]
        lambda: Odd(Reply("Hi.", extra={"x": object()})),
    ],
)
def test_a_fallback_answers_for_a_model_that_its_plugin_got_wrong(
    home: Home, factory: Callable[[], object]
):
    factories = {"theirs": factory, "sound": lambda: ScriptedModel(["Hi."])}
    model = built(home, plugins=factories, name="theirs", fallbacks=["sound"])
    sink = RecordingSink()
    assert model.ask(HELLO, Stop(), sink).text == "Hi."
    [fell] = sink.of(FellBack)
    assert "theirs" in fell.reason


def test_the_embedded_model_is_small(home: Home):
    home.models.mkdir()
    path = model_files.file_of(home, "tiny")
    path.write_bytes(b"GGUF\x03\x00\x00\x00" + bytes(16))
    model_files.put_record(home, "tiny", sha256="0", source="test", notice="")
    model = built(home, name="embedded", context_window=2048)
    assert (model.facts.provider, model.facts.is_small) == ("embedded", True)


def test_a_module_of_models_is_listed_and_opened_by_its_provider(
    home: Home, monkeypatch: pytest.MonkeyPatch
):
    own = ModuleType("own_models")
    vars(own).update(
        installed=lambda _home: ["first", "second"],
        open_model=lambda _home, name, window: ScriptedModel([f"{name} {window}"]),
    )
    monkeypatch.setitem(sys.modules, "own_models", own)
    monkeypatch.setattr(providers, "IN_PROCESS", {"embedded": "own_models"})
    for name, answer in (("", "first 5000"), ("second", "second 5000"), ("embedded", "first 5000")):
        model = built(home, name=name, context_window=5000)
        assert model.ask(HELLO, Stop(), ignore).text == answer


def test_nothing_to_ask_is_told_at_once(home: Home):
    with pytest.raises(ModelMissingError, match="There is no model"):
        built(home)
