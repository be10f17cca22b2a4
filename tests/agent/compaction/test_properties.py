"""What holds for every transcript, every window and every model that writes summaries."""

from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from hermes_agent.compaction import Outcome, compact
from hermes_agent.compaction.plan import MIN_FREED_SHARE
from hermes_agent.compaction.summarizer import Ask
from hermes_agent.compaction.transcript import text_of
from hermes_agent.history import expand
from hermes_agent.models.base import Reply, Request
from hermes_agent.tokens import Estimator
from hermes_state import SessionDB
from hermes_state.ledger import lineage
from tests.agent.compaction import transcripts
from tests.agent.compaction.transcripts import Message, faults, job, stored
from tests.support.examples import examples

WINDOWS = st.sampled_from([2_048, 8_192, 8_192, 32_768])
SUMMARIZERS = st.just("good") | st.sampled_from(list(transcripts.SUMMARIZERS))
EXAMPLES = examples(20)
RATIOS = st.sampled_from([0.5, 1.0, 2.5])

pytestmark = pytest.mark.promise("P4")

relaxed = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def estimator(ratio: float) -> Estimator:
    sizes = Estimator("m")
    sizes.learn(1_000, int(1_000 * ratio))
    return sizes


def fitting(ask: Ask, window: int, sizes: Estimator) -> Ask:
    """The same model, which minds that a question and its reply fit into the window."""

    def checked(request: Request) -> Reply:
        assert sizes.count(request) + request.max_output_tokens <= window
        return ask(request)

    return checked


def visible_messages(store: SessionDB, session_id: str) -> list[dict[str, Any]]:
    return store.get_messages_as_conversation(session_id)


def contents(rows: list[dict[str, Any]]) -> list[Any]:
    return [(row["id"], row["role"], row["content"], row.get("tool_calls")) for row in rows]


@relaxed
@given(SUMMARIZERS, transcripts.transcripts(), WINDOWS, RATIOS, st.booleans())
def test_compaction_ends_and_keeps_its_promises(
    name: str, messages: list[Message], window: int, ratio: float, force: bool
) -> None:
    with stored(messages) as store:
        before = visible_messages(store, "s")
        outcome = compact(
            job(
                store,
                ask=fitting(transcripts.SUMMARIZERS[name], window, estimator(ratio)),
                window=window,
                force=force,
                estimator=estimator(ratio),
            )
        )
        event(outcome.strategy if outcome else "none")
        if outcome is None:
            assert contents(visible_messages(store, "s")) == contents(before)
            assert store.read(lineage.tip, "s") == "s"
            return
        after = visible_messages(store, outcome.new_session_id)
        assert faults(after, running=True) == []
        _frees_its_share(outcome, after, ratio)
        _keeps_what_is_protected(before, after, outcome, estimator(ratio))
        _keeps_every_original(store, before, outcome)


def _frees_its_share(outcome: Outcome, after: list[dict[str, Any]], ratio: float) -> None:
    sizes = estimator(ratio)
    overhead = sizes.count((), transcripts.PROMPT)
    freed = outcome.tokens_before - outcome.tokens_after
    enough = freed >= MIN_FREED_SHARE * (outcome.tokens_before - overhead)
    assert outcome.tokens_after <= outcome.target or enough
    assert sizes.count(after, transcripts.PROMPT) == outcome.tokens_after


def _keeps_what_is_protected(
    before: list[dict[str, Any]], after: list[dict[str, Any]], outcome: Outcome, sizes: Estimator
) -> None:
    copies = {row["origin_id"]: row["content"] for row in after if row.get("kind") == "copy"}
    requests = [row for row in before if row["role"] == "user"]
    last = requests[-1]
    assert last["id"] in copies, "the last thing a person said"
    start = text_of(last["content"])[:1]
    assert text_of(copies[last["id"]]).startswith((start, "[message"))
    if sizes.message(last) <= 24:
        assert copies[last["id"]] == last["content"]
    if sizes.message(requests[0]) <= 24 and outcome.strategy != "cut":
        assert after[0]["origin_id"] == requests[0]["id"], "the first thing a person said"
        assert after[0]["content"] == requests[0]["content"]


def _keeps_every_original(store: SessionDB, before: list[dict[str, Any]], outcome: Outcome) -> None:
    new = outcome.new_session_id
    whole = store.get_messages_as_conversation(new, include_ancestors=True)
    assert contents(whole) == contents(before)
    numbers = f"{before[0]['id']}-{before[-1]['id']}"
    assert {row["id"] for row in expand(store, new, numbers)} == {row["id"] for row in before}
    assert store.check() == []
    assert store.write(lineage.undo_rotation, new) == "s"
    assert contents(visible_messages(store, "s")) == contents(before)


@settings(relaxed, max_examples=EXAMPLES // 3)
@given(
    st.lists(transcripts.transcripts(), min_size=2, max_size=5),
    SUMMARIZERS,
    WINDOWS,
)
def test_compaction_again_and_again_keeps_every_original(
    chapters: list[list[Message]], name: str, window: int
) -> None:
    with SessionDB.in_memory() as store:
        current = store.create_session("s", "cli")
        everything: list[Any] = []
        for chapter in chapters:
            store.append_messages(current, chapter)
            everything += [(m["role"], m["content"]) for m in chapter]
            outcome = compact(
                job(store, current, ask=transcripts.SUMMARIZERS[name], window=window, force=True)
            )
            current = outcome.new_session_id if outcome else current
            assert faults(visible_messages(store, current), running=True) == [] or outcome is None
        whole = store.get_messages_as_conversation(current, include_ancestors=True)
        assert [(row["role"], row["content"]) for row in whole] == everything
        assert store.check() == []
