"""The way back to the originals."""

import pytest

from hermes_agent.compaction import compact
from hermes_agent.history import expand, expand_text
from hermes_core.errors import SessionNotFoundError, UsageError
from hermes_state import SessionDB
from hermes_state.ledger import lineage, messages
from tests.agent.compaction.transcripts import (
    assistant,
    chat,
    job,
    prose,
    result,
    step,
    stored,
    user,
)


def compacted(store: SessionDB, session_id: str = "s") -> str:
    outcome = compact(job(store, session_id, force=True))
    assert outcome is not None
    return outcome.new_session_id


def test_a_summary_is_expanded_to_the_messages_it_stands_for() -> None:
    with stored(chat(60)) as store:
        originals = store.get_messages_as_conversation("s")
        tip = compacted(store)
        note = next(
            r for r in store.get_messages_as_conversation(tip) if r.get("kind") == "summary"
        )
        first, last = note["summary_of"]
        expected = [row["id"] for row in originals if first <= row["id"] <= last]
        for which in ("", note["id"], str(note["id"]), f"{first}-{last}", f"{first} – {last}"):
            assert [row["id"] for row in expand(store, tip, which)] == expected
        assert [row["content"] for row in expand(store, tip)][0] == originals[2]["content"]


def test_after_several_compactions_everything_is_still_there_once() -> None:
    with stored(chat(60)) as store:
        tip, ids = "s", [row["id"] for row in store.read(messages.of_session, "s")]
        for _ in range(4):
            tip = compacted(store, tip)
            ids += store.append_messages(tip, chat(30))
        assert [row["id"] for row in expand(store, tip, f"1-{ids[-1]}")] == ids
        first, last = expand(store, tip)[0], expand(store, tip)[-1]
        assert first["id"] == 3
        assert last["id"] > 200


def test_a_cut_message_is_brought_back_by_its_number() -> None:
    with stored([user("q"), step(("a", {})), result("a", prose(30_000)), user("so?")]) as store:
        tip = compacted(store)
        (row,) = expand(store, tip, 3)
        assert row["content"] == prose(30_000)
        assert 19_900 < len(expand_text(store, tip, 3)) <= 20_000
        assert expand_text(store, tip, 3, limit=10**6) == f"[3] tool look: {prose(30_000)}"


def test_the_text_of_a_span_stays_within_its_limit() -> None:
    with stored(chat(60)) as store:
        tip = compacted(store)
        for limit in (1, 80, 500, 5_000, 10**7):
            text = expand_text(store, tip, "1-500", limit=limit)
            assert 0 < len(text) <= limit
        assert text.count("\n[") == len(expand(store, tip, "1-500")) - 1
        assert "more; ask for" in expand_text(store, tip, "1-500", limit=5_000)
        assert '→ look({"path": "src/part1.py"})' in text


def test_a_branch_of_a_compacted_conversation_still_has_the_way_back() -> None:
    with stored(chat(60)) as store:
        count = len(chat(60))
        tip = compacted(store)
        branch = store.write(lineage.branch, tip)
        elsewhere = store.append_message(tip, "user", "only there")
        here = store.append_message(branch, "user", "only here")
        store.append_messages(branch, chat(30))
        newer = compacted(store, branch)
        found = [row["id"] for row in expand(store, newer, f"1-{here}")]
        assert found[:count] == list(range(1, count + 1))
        assert here in found and elsewhere not in found


def test_what_cannot_be_found_is_told() -> None:
    with stored([user("q"), assistant("a")]) as store:
        with pytest.raises(UsageError, match="has not been compacted"):
            expand(store, "s")
        with pytest.raises(UsageError, match="no message 99"):
            expand(store, "s", 99)
        with pytest.raises(UsageError, match="12-34"):
            expand(store, "s", "the first ones")
        with pytest.raises(SessionNotFoundError):
            expand(store, "nobody", 1)
        assert [row["content"] for row in expand(store, "s", "2-1")] == ["q", "a"]
