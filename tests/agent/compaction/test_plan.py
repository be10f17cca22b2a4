"""When compaction is due, how much room there is, and what stays."""

import pytest

from hermes_agent.compaction.plan import Limits, Split, limits_of, needed, reply_room, split
from hermes_agent.compaction.transcript import Block, blocks, text_of
from hermes_agent.tokens import Estimator
from hermes_core.settings import CompactionSettings
from tests.agent.compaction.transcripts import (
    Message,
    assistant,
    prose,
    result,
    step,
    stored,
    user,
)

DEFAULT = CompactionSettings()


def test_it_is_due_at_the_threshold_and_never_when_it_is_switched_off() -> None:
    assert not needed(6_143, 8_192, 1_000, DEFAULT)
    assert needed(6_144, 8_192, 1_000, DEFAULT)
    assert not needed(9_999, 8_192, 1_000, CompactionSettings(enabled=False))


def test_a_late_threshold_still_leaves_room_for_the_reply() -> None:
    late = CompactionSettings(threshold=0.95)
    assert not needed(7_100, 8_192, 1_000, late)
    assert needed(7_192, 8_192, 1_000, late)
    assert needed(6_144, 8_192, 60_000, late), "a quarter of the window, whatever the model can"


def test_a_reply_gets_what_the_request_leaves() -> None:
    assert reply_room(1_000, 8_192, 2_000) == 2_000
    assert 0 < reply_room(7_000, 8_192, 2_000) <= 1_192
    assert reply_room(9_000, 8_192, 2_000) == 256
    assert reply_room(9_000, 8_192, 100) == 100


@pytest.mark.parametrize("window", [1_024, 8_192, 131_072, 1_000_000])
@pytest.mark.parametrize("overhead", [0, 2_000, 9_000])
def test_the_parts_fit_into_the_room(window: int, overhead: int) -> None:
    found = limits(window=window, overhead=overhead, history=window)
    assert found.head + found.summary + found.tail <= found.room
    assert found.target == overhead + found.room
    assert min(found.head, found.summary, found.tail) > 0


def test_a_pass_is_enough_when_it_reaches_the_target_or_frees_its_share() -> None:
    found = Limits(overhead=1_000, limit=6_000, room=2_500, head=1, summary=1, tail=1)
    assert found.is_enough(6_000, 3_500)
    assert found.is_enough(6_000, 4_700)
    assert not found.is_enough(6_000, 4_900), "it would be due again at once"
    assert not found.is_enough(4_500, 4_000), "less than a fifth of the conversation"


def limits(**fields: int) -> Limits:
    numbers = {"window": 8_192, "overhead": 1_000, "history": 20_000, **fields}
    return limits_of(**numbers, limit=numbers["window"] * 3 // 4, tail=0.2, target_share=0.5)


def parts(messages: list[Message], found: Limits | None = None) -> Split:
    with stored(messages) as store:
        rows = store.get_messages_as_conversation("s")
    return split(blocks(rows), found or limits(), Estimator("m"))


def names(found: list[Block]) -> list[str]:
    return [text_of(block.first["content"]).split(" ")[0] or "step" for block in found]


def test_the_first_exchange_and_the_recent_tail_stay_and_the_middle_goes() -> None:
    messages = [user("first"), assistant("answered")]
    for n in range(20):
        messages += [user(f"q{n} {prose(200)}"), assistant(f"a{n} {prose(200)}")]
    found = parts(messages)
    assert names(found.head) == ["first", "answered"]
    assert names(found.tail)[-2:] == ["q19", "a19"]
    assert names(found.middle)[:2] == ["q0", "a0"]
    count = len(found.head) + len(found.middle) + len(found.requests) + len(found.tail)
    assert count == len(messages)


def test_a_request_in_a_long_run_of_tools_stays_with_the_last_step() -> None:
    messages = [user("first"), assistant("answered"), user("do it")]
    for n in range(30):
        messages += [step((f"c{n}", {}), text=f"step{n} {prose(100)}"), result(f"c{n}", prose(200))]
    found = parts(messages)
    assert names(found.requests) == ["do"]
    assert names(found.tail)[-1] == "step29"
    assert found.is_in_flight(found.tail[-1]) and found.is_in_flight(found.requests[0])


def test_one_request_that_runs_for_long_is_at_the_head() -> None:
    messages = [user("task")]
    for n in range(30):
        messages += [step((f"c{n}", {}), text=f"step{n} {prose(100)}"), result(f"c{n}", prose(200))]
    found = parts(messages)
    assert names(found.head) == ["task"]
    assert found.requests == []
    assert found.is_in_flight(found.head[0])


def test_everything_that_waits_for_an_answer_stays() -> None:
    messages = [user("first"), assistant("answered " + prose(9_000))]
    messages += [user(f"open{n} {prose(300)}") for n in range(4)]
    found = parts(messages)
    waiting = [block for block in (*found.requests, *found.tail) if found.is_in_flight(block)]
    assert names(waiting) == ["open0", "open1", "open2", "open3"]
