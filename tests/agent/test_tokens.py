"""The estimate of tokens, and how it learns from what providers report."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_agent import tokens
from hermes_agent.models.base import Request, ToolSpec
from hermes_agent.tokens import (
    IMAGE,
    MAX_RATIO,
    MIN_RATIO,
    Estimator,
    message_tokens,
    text_tokens,
)
from hermes_state import SessionDB
from hermes_state.ledger import meta

# Counted with the tokenizers of SmolLM2 and of Qwen2.5, which between them span what models do.
COUNTED = {
    "English": (
        "The quick brown fox jumps over the lazy dog. Whatever happens to the process, the"
        " conversation is never lost, and nobody has to ask for it a second time.",
        33, 33,
    ),
    "Python": (
        "def total(prices: list[float], tax: float = 0.19) -> float:\n"
        '    """The sum with tax."""\n    if not prices:\n        raise ValueError("no prices")\n'
        "    return sum(prices) * (1 + tax)\n",
        52, 60,
    ),
    "JSON": (
        '{"id": 4711, "name": "Ada Lovelace", "tags": ["math", "engine"], "active": true,'
        ' "score": 99.5}',
        41, 42,
    ),
    "a log": (
        "2025-03-14 09:26:53,589 INFO [worker-3] request handled path=/api/v1/items/1741 status=200"
        " dur=35ms",
        52, 56,
    ),
    "a shell": (
        "$ git commit -m 'Fix the build' && make -j4 test | tee build.log\n"
        "[main 3f2a9c1] Fix the build\n 2 files changed, 17 insertions(+), 3 deletions(-)",
        54, 60,
    ),
    "German": (
        "Heute ist das Wetter schön, lass uns im Park spazieren gehen und danach einen Kaffee trinken.",
        28, 31,
    ),
    "Chinese": ("今天天气很好，我们一起去公园散步吧。编程语言的设计需要考虑很多因素。", 18, 69),
    "Russian": ("Сегодня хорошая погода, давайте прогуляемся по парку и выпьем кофе.", 24, 53),
    "base64": (
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5Erk"
        "Jggg==",
        55, 68,
    ),
}  # fmt: skip

TOOL = ToolSpec("read_file", "Read a file.", {"type": "object", "properties": {"path": {}}})


@pytest.mark.parametrize("kind", COUNTED)
def test_the_estimate_is_near_what_tokenizers_count(kind: str) -> None:
    text, least, most = COUNTED[kind]
    assert 0.75 * least <= text_tokens(text) <= 1.25 * most


def test_a_han_character_is_about_a_token_and_an_emoji_is_several() -> None:
    assert text_tokens("漢字" * 50) == 100
    assert text_tokens("😀" * 10) >= 20
    assert text_tokens("") == 0


@given(st.text(), st.text())
def test_a_longer_text_never_has_fewer_tokens(text: str, other: str) -> None:
    assert text_tokens(f"{text}\n{other}") >= max(text_tokens(text), text_tokens(other))


def test_a_huge_text_is_counted_in_slices_to_about_the_same() -> None:
    text = "some words and 12 numbers\n"
    assert text_tokens(text * 20_000) == pytest.approx(text_tokens(text) * 20_000, rel=0.001)


def test_a_message_costs_its_words_its_calls_and_its_wrapping() -> None:
    bare = message_tokens({"role": "user", "content": "hello"})
    call = {"id": "c", "function": {"name": "read_file", "arguments": '{"path": "a"}'}}
    assert bare > text_tokens("hello")
    assert message_tokens({"role": "assistant", "content": None, "tool_calls": [call]}) > 12
    assert message_tokens({"role": "tool", "content": "hello", "tool_call_id": "c"}) > bare


def test_a_picture_has_a_price_of_its_own_whatever_its_bytes() -> None:
    def with_picture(data: str) -> int:
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        return message_tokens({"role": "user", "content": [{"type": "text", "text": "x"}, picture]})

    assert with_picture("A") == with_picture("A" * 100_000)
    assert IMAGE < with_picture("A") < IMAGE + 20


def test_what_a_provider_gets_back_is_counted() -> None:
    plain = {"role": "assistant", "content": "yes"}
    signed = {**plain, "reasoning_details": [{"signature": "x" * 500}]}
    assert message_tokens(signed) > message_tokens(plain) + 50


def test_a_request_is_its_prompt_its_tools_and_its_messages() -> None:
    sizes = Estimator("m")
    messages = [{"role": "user", "content": "hello"}]
    whole = sizes.count(Request("Be brief.", [TOOL], messages))
    assert whole == sizes.count(messages, "Be brief.", [TOOL])
    assert whole > sizes.count(messages, "Be brief.") > sizes.count(messages) > 0


def test_a_changed_copy_of_a_stored_message_is_counted_anew() -> None:
    sizes = Estimator("m")
    row = {"id": 7, "role": "tool", "content": "word " * 500, "tool_call_id": "c"}
    assert sizes.message(row) == sizes.message(row) > 500
    assert sizes.message({**row, "content": "word"}) < 20


_MESSAGES = st.lists(
    st.builds(
        lambda id_, words: {"id": id_, "role": "user", "content": "word " * words},
        st.none() | st.integers(1, 4),
        st.integers(0, 3),
    ),
    max_size=6,
)


@given(st.lists(_MESSAGES, max_size=6))
def test_a_request_is_counted_the_same_whatever_was_counted_before(
    requests: list[list[dict[str, object]]],
) -> None:
    sizes = Estimator("m")
    for messages in [*requests, *(longer[:2] for longer in requests), *requests]:
        request = Request("", [], messages)
        assert sizes.count(request) == Estimator("m").count(request)


def test_a_long_conversation_is_remembered_as_a_sum_and_only_what_is_new_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = Estimator("m")
    stored = [{"id": n, "role": "user", "content": f"word {n}"} for n in range(1, 1001)]
    sizes.count(Request("", [], stored[:-1]))
    counted: list[object] = []
    monkeypatch.setattr(tokens, "message_tokens", lambda message: counted.append(message) or 1)
    sizes.count(Request("", [], stored))
    assert counted == [stored[-1]]
    assert not sizes._message_tokens


def test_reports_bring_the_estimate_to_what_the_provider_counts() -> None:
    sizes = Estimator("m")
    messages = [{"role": "user", "content": "some words " * 500}]
    actual = sizes.count(messages) * 14 // 10
    for _ in range(3):
        sizes.learn(sizes.count(messages), actual)
    assert sizes.count(messages) == pytest.approx(actual, rel=0.02)


@given(st.lists(st.tuples(st.integers(-5, 10**9), st.integers(-5, 10**9))))
def test_no_report_takes_the_ratio_out_of_its_bounds(reports: list[tuple[int, int]]) -> None:
    sizes = Estimator("m")
    for estimated, actual in reports:
        sizes.learn(estimated, actual)
    assert MIN_RATIO <= sizes.ratio <= MAX_RATIO


def test_an_odd_report_among_many_does_little() -> None:
    sizes = Estimator("m")
    for _ in range(10):
        sizes.learn(1_000, 1_000)
    sizes.learn(1_000, 1_000_000)
    assert sizes.ratio < 1.4


@pytest.mark.parametrize(("estimated", "actual"), [(5_000, 0), (5_000, -1), (10, 90), (0, 100)])
def test_a_report_that_says_nothing_is_ignored(estimated: int, actual: int) -> None:
    sizes = Estimator("m")
    sizes.learn(estimated, actual)
    assert sizes.ratio == 1


def test_what_was_learned_survives_a_restart_and_belongs_to_one_model(tmp_path: Path) -> None:
    with SessionDB(tmp_path / "state.db") as store:
        Estimator("one", store).learn(1_000, 1_500)
    with SessionDB(tmp_path / "state.db") as store:
        assert Estimator("one", store).ratio == pytest.approx(1.5)
        assert Estimator("other", store).ratio == 1


def test_a_small_change_is_not_worth_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[str] = []
    monkeypatch.setattr(meta, "put", lambda _tx, _key, value: writes.append(value))
    with SessionDB.in_memory() as store:
        sizes = Estimator("m", store)
        message = [{"role": "user", "content": "word " * 500}]
        for number in range(50):
            sizes.learn(sizes.count(message), 600 + number % 5)
    assert 1 <= len(writes) <= 3


@pytest.mark.parametrize("text", ["nonsense", '{"ratio": 900, "reports": -3}', "{}"])
def test_a_note_that_makes_no_sense_is_read_as_well_as_it_can_be(text: str) -> None:
    with SessionDB.in_memory() as store:
        store.write(meta.put, "tokens.m", text)
        assert MIN_RATIO <= Estimator("m", store).ratio <= MAX_RATIO


def test_a_store_that_cannot_be_written_to_does_not_fail_the_turn(tmp_path: Path) -> None:
    SessionDB(tmp_path / "state.db").close()
    with SessionDB(tmp_path / "state.db", read_only=True) as store:
        sizes = Estimator("m", store)
        sizes.learn(1_000, 2_000)
    assert sizes.ratio == 2
