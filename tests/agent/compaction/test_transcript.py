"""Blocks: what is kept together, and what no model would take."""

from typing import Any

from hermes_agent.compaction.transcript import Block, Entry, blocks, entries, original_id, text_of
from tests.agent.compaction.transcripts import (
    Message,
    assistant,
    faults,
    result,
    step,
    stored,
    user,
)


def blocks_of(*messages: Message) -> list[Block]:
    with stored(messages) as store:
        return blocks(store.get_messages_as_conversation("s"))


def shape(found: list[Block]) -> list[list[Any]]:
    return [[e.message.get("tool_call_id") or e.message["role"] for e in b.entries] for b in found]


def test_parallel_calls_and_their_results_are_one_block() -> None:
    found = blocks_of(
        user("q"), step(("a", {}), ("b", {})), result("b", "2"), result("a", "1"), assistant("done")
    )
    assert shape(found) == [["user"], ["assistant", "b", "a"], ["assistant"]]
    assert [block.is_step for block in found] == [False, True, False]
    assert found[0].is_request and found[2].is_answer


def test_an_id_that_comes_again_belongs_to_the_nearest_step() -> None:
    found = blocks_of(step(("a", {})), result("a", "first"), step(("a", {})), result("a", "second"))
    assert [text_of(block.entries[1].row["content"]) for block in found] == ["first", "second"]


def test_what_is_said_between_a_call_and_its_result_comes_after_it() -> None:
    found = blocks_of(user("q"), step(("a", {})), user("hurry"), result("a", "1"))
    assert shape(found) == [["user"], ["assistant", "a"], ["user"]]


def test_a_result_that_nobody_asked_for_is_left_out() -> None:
    found = blocks_of(
        user("q"), result("x", "?"), step(("a", {})), result("a", "1"), result("a", "2")
    )
    assert shape(found) == [["user"], ["assistant", "a"]]


def test_a_call_that_nobody_answered_is_left_out_unless_it_may_still_run() -> None:
    found = blocks_of(
        user("q"),
        step(("a", {}), ("b", {})),
        result("a", "1"),
        step(("c", {})),
        step(("d", {}), text="I look."),
        step(("e", {})),
    )
    messages = [entry.message for entry in entries(found)]
    assert [[call["id"] for call in m.get("tool_calls") or ()] for m in messages] == [
        [], ["a"], [], [], ["e"],
    ]  # fmt: skip
    assert faults(messages, running=True) == []
    assert found[2].is_answer and not found[2].is_step


def test_a_call_named_twice_in_one_step_is_made_once() -> None:
    found = blocks_of(user("q"), step(("a", {}), ("a", {})), result("a", "1"))
    assert faults([entry.message for entry in entries(found)]) == []


def test_a_changed_copy_keeps_what_belongs_to_the_message_and_names_its_original() -> None:
    message = {**assistant("long"), "finish_reason": "stop", "reasoning_details": [{"x": 1}]}
    (block,) = blocks_of(message)
    entry = block.entries[0]
    copied = entry.changed(content="short").carried
    assert entry.carried == original_id(entry.row)
    assert isinstance(copied, dict)
    assert copied["content"] == "short"
    assert copied["origin_id"] == entry.row["id"]
    assert copied["reasoning_details"] == [{"x": 1}]
    assert "id" not in copied and "kind" not in copied
    plain = entry.plain().carried
    assert isinstance(plain, dict)
    assert plain["content"] == "long" and "reasoning_details" not in plain


def test_a_copy_of_a_copy_names_the_first_original() -> None:
    assert original_id({"id": 9, "origin_id": 4}) == 4
    assert original_id({"id": 9}) == 9
    copied = Entry({"id": 9, "origin_id": 4, "role": "user", "content": "x"}).copied
    assert copied == {"role": "user", "content": "x", "origin_id": 4}


def test_the_words_of_parts_are_their_texts_and_the_names_of_the_rest() -> None:
    assert text_of([{"type": "text", "text": "see"}, {"type": "image_url"}, "x", {}]) == (
        "see\n[image_url]\nx\n[attachment]"
    )
    assert text_of({"a": 1}) == '{"a":1}'
    assert text_of(None) == ""
