"""What each kind of server says about the room its models have."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from hermes_agent.models.model_facts import Prices, ServerFacts
from hermes_agent.models.servers import OLLAMA_WINDOW, Server
from hermes_agent.testing.server import ScriptedServer
from hermes_core.errors import ModelError


@contextmanager
def facts_from(
    fields: dict[str, Any] | None = None, pages: dict[str, Any] | None = None
) -> Generator[ServerFacts]:
    with ScriptedServer([], models={"m": fields or {}}, pages=pages or {}) as scripted:
        server = Server(scripted.openai_url)
        try:
            yield server.facts(server.models()[0])
        finally:
            server.close()


@pytest.mark.parametrize(
    "fields",
    [
        {"max_model_len": 4000},
        {"context_length": 4000},
        {"meta": {"n_ctx": 4000, "n_ctx_train": 32768}},
        {"context_length": 99999, "top_provider": {"context_length": 4000}},
    ],
)
def test_a_list_may_tell_the_window(fields: dict[str, Any]):
    with facts_from(fields) as facts:
        assert facts.window == 4000


def test_openrouter_tells_prices_and_abilities():
    fields = {
        "context_length": 4000,
        "top_provider": {"max_completion_tokens": 900},
        "architecture": {"input_modalities": ["text", "image"]},
        "supported_parameters": ["tools"],
        "pricing": {"prompt": "0.000002", "completion": "0.00001", "input_cache_read": "0.0000002"},
    }
    with facts_from(fields) as facts:
        assert (facts.max_output, facts.images, facts.tools) == (900, True, True)
        assert facts.prices is not None
        assert facts.prices == pytest.approx(Prices(2, 10, 0.2, 0))


def test_a_price_that_is_known_only_afterwards_is_no_price():
    with facts_from(
        {"context_length": 4000, "pricing": {"prompt": "-1", "completion": "-1"}}
    ) as facts:
        assert facts.prices is None


def test_llama_cpp_tells_what_is_loaded_on_another_page():
    meta = {"n_ctx_train": 32768, "n_params": 1_500_000_000}
    props = {"default_generation_settings": {"n_ctx": 4096}, "modalities": {"vision": True}}
    with facts_from({"owned_by": "llamacpp", "meta": meta}, {"/props": props}) as facts:
        assert (facts.window, facts.images, facts.billions) == (4096, True, 1.5)


def test_llama_cpp_without_that_page_tells_what_the_model_was_made_for():
    with facts_from({"owned_by": "llamacpp", "meta": {"n_ctx_train": 32768}}) as facts:
        assert facts.window == 32768


@pytest.mark.parametrize("fields", [{"n_ctx_train": 32768}, {"meta": {"n_ctx_train": 32768}}])
def test_what_a_model_was_made_for_counts_when_nothing_else_is_told(fields: dict[str, Any]):
    with facts_from(fields) as facts:
        assert facts.window == 32768
        assert facts.note


def test_ollama_tells_what_is_loaded():
    pages = {
        "/api/show": {
            "capabilities": ["completion", "vision"],
            "details": {"parameter_size": "7.6B"},
        },
        "/api/ps": {"models": [{"name": "m", "context_length": 16384}]},
    }
    with facts_from({"owned_by": "library"}, pages) as facts:
        assert (facts.window, facts.images, facts.tools, facts.billions) == (
            16384,
            True,
            False,
            7.6,
        )
        assert not facts.note


def test_ollama_tells_what_its_model_file_asks_for():
    pages = {"/api/show": {"parameters": "stop x\nnum_ctx    12000"}, "/api/ps": {"models": []}}
    with facts_from({"owned_by": "library"}, pages) as facts:
        assert facts.window == 12000


def test_ollama_that_tells_nothing_has_its_own_small_default():
    with facts_from({"owned_by": "library"}, {"/api/show": {}, "/api/ps": {}}) as facts:
        assert facts.window == OLLAMA_WINDOW
        assert "OLLAMA_CONTEXT_LENGTH" in facts.note


def test_lm_studio_tells_what_is_loaded_on_its_own_page():
    entry = {"id": "m", "type": "vlm", "max_context_length": 99999, "loaded_context_length": 5000}
    with facts_from({}, {"/api/v0/models": {"data": [entry]}}) as facts:
        assert (facts.window, facts.images) == (5000, True)


def test_a_server_that_tells_nothing_is_no_error():
    with facts_from() as facts:
        assert facts.window == 0


@pytest.mark.parametrize(
    "fields", [{"meta": 5}, {"pricing": "free"}, {"context_length": "many"}, {"top_provider": []}]
)
def test_odd_fields_are_passed_over(fields: dict[str, Any]):
    with facts_from(fields) as facts:
        assert facts.window == 0


@pytest.mark.parametrize("page", [{"data": 3}, [1], {"models": []}])
def test_what_is_no_list_of_models_is_told(page: Any):
    with ScriptedServer([], pages={"/v1/models": page}) as scripted:
        server = Server(scripted.openai_url)
        with pytest.raises(ModelError, match="does not list models"):
            server.models()
        server.close()
