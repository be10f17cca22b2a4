import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from hermes_agent.models.discovery import Discovery, Finding, key_of
from hermes_agent.models.embedded import model_files
from hermes_agent.models.providers import OURS, Credentials
from hermes_agent.testing.scripted import TIMEOUT_S
from hermes_agent.testing.server import ScriptedServer
from hermes_core.errors import ModelMissingError
from hermes_core.paths import Home
from hermes_core.settings import ModelSettings

NOTHING = {}
KEYS = {"OPENAI_API_KEY": "sk-o", "ANTHROPIC_API_KEY": "sk-a", "OPENROUTER_API_KEY": "sk-r"}


@pytest.fixture
def home(tmp_path: Any) -> Home:
    return Home(tmp_path / "home").create()


def look(
    home: Home,
    credentials: Credentials = NOTHING,
    *,
    ports: dict[int, str] | None = None,
    plugins: tuple[str, ...] = (),
    probe_timeout_s: float = TIMEOUT_S,
    **settings: Any,
) -> Discovery:
    return Discovery(
        ModelSettings(**settings),
        credentials,
        home,
        plugins=plugins,
        ports=ports or {},
        probe_timeout_s=probe_timeout_s,
    )


@contextmanager
def serving(*lists: list[str]) -> Generator[dict[int, str]]:
    """Local servers with these models, under the ports they have."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(ScriptedServer([], models={name: {} for name in names}))
            for names in lists
        ]
        yield {server.port: f"Kind{n}" for n, server in enumerate(servers)}


def put_embedded(home: Home, name: str) -> None:
    home.models.mkdir(parents=True, exist_ok=True)
    model_files.file_of(home, name).write_bytes(b"GGUF")
    model_files.put_record(home, name, sha256="0", source="test", notice="")


def test_nothing_found_is_told_with_every_way_out(home: Home):
    with pytest.raises(ModelMissingError) as caught:
        look(home).chosen()
    assert caught.value.exit_status == 3
    for word in ("hermes model pull", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY"):
        assert word in caught.value.fix
    assert look(home).found() == []


@pytest.mark.parametrize(
    ("credentials", "provider", "key_name"),
    [
        (KEYS, "openai", "OPENAI_API_KEY"),
        (
            {"ANTHROPIC_API_KEY": "x", "OPENROUTER_API_KEY": "y"},
            "anthropic",
            "ANTHROPIC_API_KEY",
        ),
        ({"OPENROUTER_API_KEY": "x"}, "openrouter", "OPENROUTER_API_KEY"),
    ],
)
def test_a_key_in_the_environment_is_enough(
    home: Home, credentials: Credentials, provider: str, key_name: str
):
    finding = look(home, credentials).chosen()
    assert (finding.provider, finding.key_name) == (provider, key_name)
    assert finding.reason == f"{key_name} is set"
    assert finding.model
    assert not OURS.get(finding.provider).is_local


def test_a_key_comes_before_a_local_server_and_that_before_the_embedded_model(home: Home):
    put_embedded(home, "tiny")
    with serving(["a", "b"]) as ports:
        everything = look(home, {"ANTHROPIC_API_KEY": "x"}, ports=ports)
        assert [f.provider for f in everything.found()] == ["anthropic", "local", "embedded"]
        assert everything.chosen().provider == "anthropic"
        without_key = look(home, ports=ports).chosen()
        assert (without_key.provider, without_key.model, without_key.others) == (
            "local",
            "a",
            ["b"],
        )
        assert without_key.reason.startswith("Kind0 answers on port")
    embedded = look(home).chosen()
    assert (embedded.provider, embedded.model) == ("embedded", "tiny")


def test_no_server_is_asked_when_a_key_decides(home: Home):
    with ScriptedServer([]) as server:
        look(home, KEYS, ports={server.port: "Ollama"}).chosen()
        assert server.requests == []


def test_a_server_without_a_model_that_can_chat_is_passed_over(home: Home):
    with serving([], ["nomic-embed-text"], ["good"]) as ports:
        assert [f.model for f in look(home, ports=ports).found()] == ["good"]


def test_a_server_that_is_silent_is_not_waited_for(home: Home):
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        assert look(home, ports={deaf.getsockname()[1]: "Kind"}, probe_timeout_s=0.05).found() == []


def test_the_address_in_the_environment_is_asked_what_it_has(home: Home):
    with ScriptedServer([], key="sk-x", models={"theirs": {}, "too": {}}) as server:
        environment = {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "sk-x"}
        finding = look(home, environment).chosen()
    assert finding == Finding(
        "local",
        "theirs",
        "OPENAI_BASE_URL is set",
        server.openai_url,
        "OPENAI_API_KEY",
        ["too"],
    )


def test_an_address_where_nobody_answers_is_told(home: Home):
    with ScriptedServer([]) as server:
        url = server.openai_url
    environment = {"OPENAI_BASE_URL": url}
    with pytest.raises(ModelMissingError, match=url):
        look(home, environment).chosen()
    assert [finding.model for finding in look(home, environment).found()] == [""]


@pytest.mark.parametrize(
    ("name", "credentials", "provider", "model"),
    [
        ("claude-opus-4-5", KEYS, "anthropic", "claude-opus-4-5"),
        ("anthropic/claude-opus-4-5", KEYS, "anthropic", "claude-opus-4-5"),
        ("gpt-4o", KEYS, "openai", "gpt-4o"),
        ("o4-mini", KEYS, "openai", "o4-mini"),
        ("openai/gpt-4o", KEYS, "openai", "gpt-4o"),
        ("openrouter/openai/gpt-4o", KEYS, "openrouter", "openai/gpt-4o"),
        ("openrouter/auto", KEYS, "openrouter", "openrouter/auto"),
        ("qwen/qwen3-32b", KEYS, "openrouter", "qwen/qwen3-32b"),
        (
            "anthropic/claude-opus-4.5",
            {"OPENROUTER_API_KEY": "x"},
            "openrouter",
            "anthropic/claude-opus-4.5",
        ),
    ],
)
def test_a_name_says_who_serves_it(
    home: Home, name: str, credentials: Credentials, provider: str, model: str
):
    finding = look(home, credentials, name=name).chosen()
    assert (finding.provider, finding.model) == (provider, model)


def test_a_service_without_its_key_is_told_with_the_variable(home: Home):
    with pytest.raises(ModelMissingError) as caught:
        look(home, {"OPENAI_API_KEY": "x"}, name="claude-opus-4-5").chosen()
    assert "ANTHROPIC_API_KEY" in caught.value.fix


def test_a_local_model_is_found_on_whichever_server_has_it(home: Home):
    with serving(["a"], ["b", "c:latest"]) as ports:
        second = list(ports)[1]
        found = look(home, ports=ports)
        assert found.named("b").base_url == f"http://127.0.0.1:{second}/v1"
        assert found.named("local/c").model == "c:latest"
        assert found.named("", "local").model == "a"
        with pytest.raises(ModelMissingError, match="models found: a, b, c:latest"):
            found.named("d")


def test_the_address_in_the_settings_wins(home: Home):
    url = "http://127.0.0.1:9/v1"
    finding = look(home, KEYS, name="mine", base_url=url, api_key="own").chosen()
    assert (finding.provider, finding.model, finding.base_url) == ("local", "mine", url)
    assert finding.key_name == "model.api_key"


def test_what_is_listed_at_an_address_is_found_there_under_its_label(home: Home):
    url = "https://models.example/v1"
    for found in (
        look(home, name="m", base_url=url).named("models.example/m", base_url=url),
        look(home, {"OPENAI_BASE_URL": url}).named("models.example/m"),
    ):
        assert (found.provider, found.model, found.base_url) == ("models.example", "m", url)


def test_a_local_label_means_whichever_server_has_it(home: Home):
    with serving(["mine"], ["theirs"]) as ports:
        own, usual = ports
        url = f"http://127.0.0.1:{own}/v1"
        found = look(home, ports={usual: "Kind"}, base_url=url)
        assert found.named("local/mine", base_url=url).base_url == url
        assert found.named("local/theirs", base_url=url).base_url == f"http://127.0.0.1:{usual}/v1"
        assert found.named("local/unlisted", base_url=url).base_url == url


def test_a_key_is_sent_to_no_address_it_was_not_given_for(home: Home):
    elsewhere = look(home, KEYS, name="m", base_url="https://other.example/v1").chosen()
    assert (elsewhere.provider, elsewhere.key_name) == ("other.example", "")
    meant = look(home, KEYS, name="m", provider="openai", base_url="https://other.example/v1")
    assert meant.chosen().key_name == "OPENAI_API_KEY"
    own = look(home, name="gpt-4o", api_key="own", base_url="https://other.example/v1")
    own_elsewhere = own.named("local/x", base_url="http://127.0.0.1:9/v1")
    assert own_elsewhere.key_name == ""


def test_other_people_in_the_house_count_as_local(home: Home):
    for host in ("192.168.1.5", "box.local", "localhost", "10.0.0.2", "gpu"):
        url = f"http://{host}:8000/v1"
        assert look(home, name="m", base_url=url).chosen().provider == "local"
    groq = look(home, name="m", base_url="https://api.groq.com/openai/v1").chosen()
    assert groq.provider == "api.groq.com"


def test_anthropic_may_have_another_address(home: Home):
    environment = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "ANTHROPIC_API_KEY": "k"}
    finding = look(home, environment).chosen()
    assert (finding.provider, finding.base_url) == ("anthropic", "http://127.0.0.1:9")
    named = look(home, KEYS, provider="anthropic", base_url="http://127.0.0.1:9", api_key="own")
    assert named.chosen().key_name == "model.api_key"


def test_the_embedded_model_can_be_named(home: Home):
    with pytest.raises(ModelMissingError, match="not downloaded yet"):
        look(home, KEYS, name="embedded").chosen()
    put_embedded(home, "tiny")
    put_embedded(home, "other")
    assert look(home, KEYS, name="embedded").chosen().provider == "embedded"
    assert look(home, KEYS, name="tiny").chosen().model == "tiny"
    assert look(home, KEYS, name="embedded/other").chosen().model == "other"
    with pytest.raises(ModelMissingError, match="no embedded model third"):
        look(home, KEYS, provider="embedded", name="third").chosen()


def test_models_of_plugins_are_known_by_their_names(home: Home):
    found = look(home, KEYS, plugins=("theirs",), name="theirs")
    assert (found.chosen().provider, found.chosen().model) == ("plugin", "theirs")
    assert "theirs" in [finding.model for finding in found.found()]


def test_the_key_is_looked_up_by_its_name():
    settings = ModelSettings(api_key="own")
    assert key_of("model.api_key", settings, KEYS) == "own"
    assert key_of("ANTHROPIC_API_KEY", settings, KEYS) == "sk-a"
    assert key_of("", settings, KEYS) == ""
