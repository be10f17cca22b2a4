"""A very long conversation: every compaction frees its share, and everything stays readable."""

from collections.abc import Iterator

import pytest

from hermes_agent.compaction import compact, needed
from hermes_agent.compaction.plan import MIN_FREED_SHARE
from hermes_agent.compaction.summarizer import Ask
from hermes_agent.history import expand
from hermes_agent.models.base import Reply, Request
from hermes_agent.tokens import Estimator
from hermes_core.settings import CompactionSettings
from hermes_state import SessionDB
from tests.agent.compaction.transcripts import (
    PROMPT,
    SUMMARIZERS,
    Message,
    assistant,
    faults,
    job,
    prose,
    result,
    step,
    user,
)

pytestmark = pytest.mark.promise("P4")

TOKENS = 100_000
PATIENT = ("good", "nothing", "huge", "no room", "copies what it is given")


def endless() -> Iterator[list[Message]]:
    """Exchanges of all sizes; each list is one that nothing can come between."""
    number = 0
    while True:
        number += 1
        yield [user(f"Question {number}: {prose(60, number)}")]
        for call in range(number % 5):
            output = 4_000 if number % 17 == 0 else 200
            yield [
                step((f"c{call}", {"path": f"src/f{number}.py"}), (f"d{call}", {"n": number})),
                result(f"c{call}", prose(output, number)),
                result(f"d{call}", "fine"),
            ]
        yield [assistant(f"Answer {number}: {prose(100, number)}")]


def in_turn() -> Ask:
    """A model that writes a good summary, then none, then one too long, and so on."""
    count = 0

    def ask(request: Request) -> Reply:
        nonlocal count
        count += 1
        return SUMMARIZERS[PATIENT[count % len(PATIENT)]](request)

    return ask


@pytest.mark.parametrize("ratio", [1.0, 1.6])
def test_a_chat_of_many_windows_goes_on_and_on(ratio: float) -> None:
    sizes, spoken_count, ask = Estimator("m"), 0, in_turn()
    sizes.learn(1_000, int(1_000 * ratio))
    overhead = sizes.count((), PROMPT)
    strategies: set[str] = set()
    ids: list[int] = []
    with SessionDB.in_memory() as store:
        tip = store.create_session("s", "cli")
        for messages in endless():
            ids += store.append_messages(tip, messages)
            spoken_count += sum(map(sizes.message, messages))
            estimate = sizes.count(store.get_messages_as_conversation(tip), PROMPT)
            if needed(estimate, 8_192, 2_048, CompactionSettings()):
                found = compact(job(store, tip, estimator=sizes, ask=ask))
                assert found is not None
                tip = found.new_session_id
                strategies.add(found.strategy)
                freed = found.tokens_before - found.tokens_after
                assert found.tokens_after <= found.target or freed >= MIN_FREED_SHARE * (
                    found.tokens_before - overhead
                )
                assert faults(store.get_messages_as_conversation(tip)) == []
            if spoken_count > TOKENS:
                break
        whole = store.get_messages_as_conversation(tip, include_ancestors=True)
        assert [row["id"] for row in whole] == ids
        assert [row["id"] for row in expand(store, tip, f"1-{ids[-1]}")] == ids
        assert store.check() == []
    assert strategies == {"prune", "summary", "digest"}
