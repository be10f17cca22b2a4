"""Smaller messages without a model."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_agent.compaction import pruning
from hermes_agent.compaction.plan import block_size
from hermes_agent.compaction.transcript import Block, blocks, entries, text_of
from hermes_agent.tokens import Estimator
from tests.agent.compaction.transcripts import (
    Message,
    faults,
    prose,
    result,
    step,
    stored,
    texts,
    user,
)
from tests.support.examples import examples

SIZES = Estimator("m")


def blocks_of(*messages: Message) -> list[Block]:
    with stored(messages) as store:
        return blocks(store.get_messages_as_conversation("s"))


def test_a_long_output_keeps_its_beginning_its_end_and_the_way_to_the_rest() -> None:
    found = blocks_of(step(("a", {})), result("a", "BEGIN " + prose(2_000) + " END"))
    (block,) = [pruning.prune(block, SIZES) for block in found]
    text = text_of(block.entries[1].message["content"])
    assert text.startswith("BEGIN") and text.endswith("END")
    assert "message 2 has all of it" in text
    assert SIZES.text(text) <= pruning.MAX_OUTPUT_TOKENS
    assert block.entries[1].carried == {
        **{k: v for k, v in found[0].entries[1].row.items() if k not in ("id", "kind")},
        "content": text,
        "origin_id": 2,
    }


def test_short_outputs_and_what_people_say_stay_as_they_are() -> None:
    found = blocks_of(user(prose(2_000)), step(("a", {"n": 1})), result("a", prose(100)))
    assert [pruning.prune(block, SIZES) for block in found] == found


def test_long_arguments_are_cut_and_stay_json() -> None:
    arguments = {
        "path": "a.py",
        "text": prose(3_000),
        "more": {"lines": ["x", prose(3_000)]},
        "n": 5,
    }
    (block,) = [
        pruning.prune(block, SIZES)
        for block in blocks_of(step(("a", arguments)), result("a", "ok"))
    ]
    cut = json.loads(block.entries[0].message["tool_calls"][0]["function"]["arguments"])
    assert cut["path"] == "a.py" and cut["n"] == 5 and cut["more"]["lines"][0] == "x"
    assert "message 1 has all of it" in cut["text"]
    assert block_size(block, SIZES) < 1_000


def test_arguments_that_are_no_json_are_left_alone_until_there_is_no_room() -> None:
    message = step(("a", {}))
    message["tool_calls"][0]["function"]["arguments"] = "{broken " + prose(1_000)
    found = blocks_of(message, result("a", "ok"))
    assert [pruning.prune(block, SIZES) for block in found] == found
    fitted = pruning.fit(found, 100, SIZES)
    assert fitted is not None
    assert fitted[0].entries[0].message["tool_calls"][0]["function"]["arguments"] == "{}"


def test_outputs_give_way_before_what_people_say() -> None:
    found = blocks_of(user(prose(300)), step(("a", {})), result("a", prose(5_000)))
    fitted = pruning.fit(found, 600, SIZES)
    assert fitted is not None
    assert fitted[0] == found[0]
    assert sum(block_size(block, SIZES) for block in fitted) <= 600


def test_a_picture_gives_way_when_there_is_no_room() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    found = blocks_of(user([{"type": "text", "text": "what is this?"}, picture]))
    fitted = pruning.fit(found, 100, SIZES)
    assert fitted is not None
    assert "what is this?" in fitted[0].entries[0].message["content"]
    assert "[image_url]" in fitted[0].entries[0].message["content"]


def test_too_many_messages_for_the_room_are_told_to_the_caller() -> None:
    assert pruning.fit(blocks_of(*(user(prose(100)) for _ in range(50))), 500, SIZES) is None


@settings(max_examples=examples(60), deadline=None)
@given(texts(), st.integers(0, 400))
def test_a_cut_text_fits_whatever_it_is(text: str, tokens: int) -> None:
    assert SIZES.text(pruning.cut_text(text, tokens, SIZES, 12_345)) <= tokens


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(texts(), min_size=1, max_size=4), texts(), st.integers(50, 2_000))
def test_a_step_that_is_cut_stays_a_step(outputs: list[str], argument: str, budget: int) -> None:
    calls = [(f"c{n}", {"text": argument}) for n in range(len(outputs))]
    found = blocks_of(
        user("q"), step(*calls), *(result(f"c{n}", text) for n, text in enumerate(outputs))
    )
    fitted = pruning.fit(found, budget, SIZES)
    if fitted is None:
        assert budget < 60 * (len(outputs) * 2 + 2)
        return
    assert sum(block_size(block, SIZES) for block in fitted) <= budget
    assert faults([entry.message for entry in entries(fitted)]) == []
