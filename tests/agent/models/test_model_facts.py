import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.models.base import Usage
from hermes_agent.models.model_facts import (
    UNKNOWN_HOSTED_WINDOW,
    UNKNOWN_LOCAL_WINDOW,
    Prices,
    ServerFacts,
    billions_in,
    facts_for,
    find_row,
)
from hermes_agent.models.providers import OURS, Provider
from hermes_core.settings import ModelSettings

AUTO = ModelSettings()


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("gpt-5-mini", "gpt-5-mini"),
        ("gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("openai/gpt-4.1", "gpt-4.1"),
        ("gpt-4o-mini", "gpt-4o-mini"),
        ("o4-mini", "o4-mini"),
        ("claude-3-5-sonnet-latest", "claude-3.5-sonnet"),
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4"),
        ("claude-opus-4-5-20251101", "claude-opus-4.5"),
        ("google/gemini-2.5-pro", "gemini-2.5-pro"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1"),
        ("llama3.1:8b", "llama3.1"),
        ("Qwen2.5-Coder-7B-Instruct-Q4_K_M.gguf", "qwen2.5"),
        ("deepseek/deepseek-chat", "deepseek-chat"),
        ("mistralai/mistral-large", "mistral-large"),
    ],
)
def test_a_name_is_known_by_its_longest_beginning(name: str, match: str):
    row = find_row(name)
    assert row is not None
    assert row.match == match


def test_a_name_that_nobody_knows_is_not_known():
    assert find_row("my-own-model") is None


def test_the_default_models_of_the_providers_are_known_and_priced():
    for provider in OURS.hosted:
        assert provider.default_model
        if not provider.is_router:
            row = find_row(provider.default_model, provider)
            assert row is not None
            assert row.input > 0


@given(st.text())
def test_any_name_can_be_looked_up(name: str):
    find_row(name)
    assert billions_in(name) >= 0


def test_the_user_comes_before_the_server_and_the_server_before_the_table():
    server_facts = ServerFacts(window=40_000, images=False, max_output=999)
    facts = facts_for("gpt-4o", Provider("x"), AUTO, served=server_facts)
    assert (facts.window, facts.takes_images, facts.max_output) == (40_000, False, 999)
    own = ModelSettings(context_window=9000, max_output_tokens=100)
    facts = facts_for("gpt-4o", Provider("x"), own, served=server_facts)
    assert (facts.window, facts.max_output) == (9000, 100)


def test_what_nobody_knows_is_guessed_with_care():
    hosted = facts_for("mine", Provider("x"), AUTO)
    assert (hosted.window, hosted.takes_images) == (UNKNOWN_HOSTED_WINDOW, True)
    local = facts_for("mine", Provider("local", is_local=True), AUTO)
    assert (local.window, local.takes_images) == (UNKNOWN_LOCAL_WINDOW, False)
    assert local.max_output == UNKNOWN_LOCAL_WINDOW // 4


def test_a_local_server_may_have_less_room_than_its_model_was_made_for():
    facts = facts_for("llama3.1:8b", Provider("local", is_local=True), AUTO)
    assert facts.window == UNKNOWN_LOCAL_WINDOW


def test_a_hosted_model_behind_a_local_address_is_that_of_its_maker():
    facts = facts_for("gpt-6.1-terra", Provider("local", is_local=True), AUTO)
    assert (facts.window, facts.input_price, facts.takes_images) == (1_050_000, 1, True)
    assert not facts.is_free
    assert not facts.is_window_guessed


def test_a_guess_says_that_it_is_one_and_how_to_replace_it():
    local = Provider("local", is_local=True)
    guessed = facts_for("mine", local, AUTO)
    assert "8,192 tokens is a guess" in guessed.window_advice
    assert "model.context_window" in guessed.window_advice
    assert facts_for("llama3.1:8b", local, AUTO).is_window_guessed
    assert facts_for("mine", Provider("x"), AUTO).is_window_guessed
    assert not facts_for("mine", local, ModelSettings(context_window=9000)).window_advice
    assert not facts_for("mine", local, AUTO, ServerFacts(window=9000)).window_advice


@pytest.mark.parametrize(("choice", "expected"), [("on", True), ("off", False)])
def test_the_user_says_whether_a_model_sees(choice: str, expected: bool):
    settings = ModelSettings(images=choice)  # pyright: ignore[reportArgumentType]
    for name in ("mine", "gpt-4o"):
        facts = facts_for(name, Provider("x", is_local=True), settings, ServerFacts(images=None))
        assert facts.takes_images is expected


def test_local_models_cost_nothing_and_hosted_ones_what_is_told():
    used = Usage(1_000_000, 1_000_000)
    assert facts_for("deepseek-chat", Provider("local", is_local=True), AUTO).cost_usd(used) == 0
    facts = ServerFacts(prices=Prices(1, 2, 0.1, 1))
    assert facts_for("mine", Provider("x"), AUTO, served=facts).cost_usd(used) == 3


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("qwen2.5-coder:1.5b", 1.5),
        ("smollm2:135m", 0.135),
        ("Qwen3-30B-A3B", 30),
        ("llama3.1", 0),
        ("Phi-3.5-mini", 0),
    ],
)
def test_a_name_tells_its_size(name: str, billions: float):
    assert billions_in(name) == billions


@pytest.mark.parametrize(
    ("name", "facts", "small", "expected"),
    [
        ("llama3.2:1b", ServerFacts(), "auto", True),
        ("llama3.2:3b", ServerFacts(), "auto", True),
        ("llama3.1:8b", ServerFacts(), "auto", False),
        ("llama3.1:8b", ServerFacts(tools=False), "auto", True),
        ("mine", ServerFacts(billions=1.5), "auto", True),
        ("llama3.2:1b", ServerFacts(), "off", False),
        ("llama3.1:8b", ServerFacts(), "on", True),
    ],
)
def test_weak_local_models_are_small(name: str, facts: ServerFacts, small: str, expected: bool):
    settings = ModelSettings(small=small)  # pyright: ignore[reportArgumentType]
    assert (
        facts_for(name, Provider("local", is_local=True), settings, served=facts).is_small
        is expected
    )


def test_hosted_models_are_never_small_by_themselves():
    assert not facts_for("some-1b", Provider("openrouter"), AUTO).is_small


@given(st.integers(1, 2_000_000))
def test_a_reply_always_leaves_room_for_the_request(window: int):
    facts = facts_for("mine", Provider("x", is_local=True), ModelSettings(context_window=window))
    assert 0 < facts.max_output <= max(window // 4, min(window, 512))
