"""Compaction of a stored conversation, from the outside."""

from typing import Any

import pytest

from hermes_agent.compaction import Outcome, compact, needed
from hermes_agent.compaction.transcript import text_of
from hermes_agent.models.base import Reply, Request, Usage
from hermes_agent.testing.scripted import Quiet, RecordingSink, ScriptedModel, say, silence
from hermes_agent.tokens import Estimator
from hermes_agent.turn.events import Compacted, Compacting, Notice
from hermes_agent.turn.stop import Stop
from hermes_core.errors import (
    BudgetSpent,
    Interrupted,
    LeaseLostError,
    ModelUnreachableError,
    StoreError,
)
from hermes_core.settings import CompactionSettings
from hermes_state import SessionDB
from hermes_state.ledger import effects, leases, lineage, turns
from hermes_state.ledger import messages as message_ledger
from hermes_state.store import Tx
from hermes_state.values import Call, NewMessage
from tests.agent.compaction.transcripts import (
    GOOD,
    PROMPT,
    SUMMARIZERS,
    Message,
    assistant,
    chat,
    faults,
    job,
    prose,
    result,
    saying,
    step,
    stored,
    user,
)


class Listening:
    """Hooks that remember what they were told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def invoke_hook(self, name: str, /, **kwargs: Any) -> list[Any]:
        self.calls.append((name, kwargs))
        return []


class RecordingSummarizer:
    """A model that says the next text, and remembers what it was asked."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)
        self.request_texts: list[str] = []

    def __call__(self, request: Request) -> Reply:
        self.request_texts.append(str(request.messages[0]["content"]))
        return Reply(self.texts.pop(0), usage=Usage(100, 10, 5))


def visible_messages(store: SessionDB, session_id: str) -> list[dict[str, Any]]:
    return store.get_messages_as_conversation(session_id)


def done(outcome: Outcome | None) -> Outcome:
    assert outcome is not None
    return outcome


def raising(error: Exception) -> Any:
    def ask(_request: Request) -> Reply:
        raise error

    return ask


# -- when --------------------------------------------------------------------------------------


def test_a_conversation_with_room_left_is_left_alone() -> None:
    hooks = Listening()
    with stored(chat(3)) as store:
        assert compact(job(store, hooks=hooks)) is None
        assert store.read(lineage.tip, "s") == "s"
    assert hooks.calls == []


def test_a_conversation_over_the_limit_is_shortened_to_the_target() -> None:
    with stored(chat(30)) as store:
        found = done(compact(job(store)))
        after = visible_messages(store, found.new_session_id)
        assert found.strategy == "summary"
        assert found.tokens_before > 6_144 > found.target >= found.tokens_after
        assert Estimator("m").count(after, PROMPT) == found.tokens_after
        assert not needed(found.tokens_after, 8_192, 2_048, CompactionSettings())
        assert faults(after) == []


def test_a_person_may_ask_for_it_at_any_size_and_it_is_halved() -> None:
    with stored(chat(20)) as store:
        found = done(compact(job(store, force=True, window=128_000)))
        assert found.tokens_after <= found.tokens_before * 0.6


def test_a_smaller_target_frees_more() -> None:
    with stored(chat(40)) as store, stored(chat(40)) as other:
        half = done(compact(job(store, force=True)))
        quarter = done(compact(job(other, force=True, target_share=0.25)))
        assert quarter.tokens_after < half.tokens_after


def test_a_few_words_cannot_be_shortened() -> None:
    with stored([user("hello"), assistant("hi")]) as store:
        assert compact(job(store, force=True)) is None


def test_an_empty_session_cannot_be_shortened() -> None:
    with stored([]) as store:
        assert compact(job(store, force=True)) is None


def test_it_can_be_switched_off_and_still_be_asked_for() -> None:
    off = CompactionSettings(enabled=False)
    with stored(chat(30)) as store:
        assert compact(job(store, settings=off)) is None
        assert compact(job(store, settings=off, force=True)) is not None


# -- what stays --------------------------------------------------------------------------------


def test_the_first_exchange_the_summary_and_the_tail_are_what_is_left() -> None:
    with stored(chat(30)) as store:
        before = visible_messages(store, "s")
        found = done(compact(job(store)))
        after = visible_messages(store, found.new_session_id)
        assert [text_of(row["content"])[:10] for row in after[:2]] == ["Question 0", "Answer 0. "]
        assert after[2]["kind"] == "summary"
        assert after[2]["role"] == "user"
        assert [row["content"] for row in after[3:]] == [
            row["content"] for row in before[-len(after) + 3 :]
        ]
        assert found.summary == after[2]["content"]


def test_the_summary_says_for_which_messages_it_stands() -> None:
    with stored(chat(30)) as store:
        found = done(compact(job(store)))
        after = visible_messages(store, found.new_session_id)
        first, last = after[2]["summary_of"]
        assert found.summary.startswith(f"[Summary of messages {first}–{last}.")
        assert first == 3
        assert last == after[3]["origin_id"] - 1
        assert "## Goal\n- Move the shop to the new server." in found.summary


def test_a_summary_is_updated_the_next_time() -> None:
    second = GOOD.replace("Copy the files.", "Start the server.")
    model = RecordingSummarizer(GOOD, second)
    with stored(chat(30)) as store:
        first = done(compact(job(store, ask=model)))
        store.append_messages(first.new_session_id, chat(22))
        found = done(compact(job(store, first.new_session_id, ask=model)))
        rows = visible_messages(store, found.new_session_id)
        assert "<notes>" not in model.request_texts[0]
        assert "Copy the files." in model.request_texts[1].partition("</notes>")[0]
        assert "Start the server." in found.summary
        assert [row for row in rows if row.get("kind") == "summary"] == [rows[2]]
        assert rows[2]["summary_of"][0] == 3, "what the first summary stood for is part of it"
        assert rows[0]["origin_id"] == 1, "the first exchange stays through every compaction"


def test_identifiers_that_the_model_dropped_are_kept() -> None:
    messages = chat(30)
    messages.insert(
        4, user("The key file is /srv/shop/key-7f3a.pem and the site https://shop.example/x")
    )
    with stored(messages) as store:
        found = done(compact(job(store)))
    assert "/srv/shop/key-7f3a.pem" in found.summary
    assert "https://shop.example/x" in found.summary


def test_the_model_is_told_how_it_all_began_and_what_came_since() -> None:
    model = RecordingSummarizer(GOOD)
    with stored(chat(30)) as store:
        done(compact(job(store, ask=model)))
    conversation = (
        model.request_texts[0].partition("<conversation>")[2].partition("</conversation>")[0]
    )
    assert conversation.startswith("\n[1] user: Question 0?")
    assert '[4] assistant: → look({"path": "src/part1.py"})\n→ look({"n": 1})' in conversation
    assert "[5] tool look: Word 1 and 0 go by." in conversation
    assert "Question 29" not in conversation, "that stays beside the summary"


def test_a_topic_is_told_to_the_model() -> None:
    model = RecordingSummarizer(GOOD)
    with stored(chat(30)) as store:
        done(compact(job(store, ask=model, force=True, focus="the invoices")))
    assert "keep above all what belongs to: the invoices" in model.request_texts[0]


def test_old_outputs_are_cut_first_and_no_model_is_asked() -> None:
    messages = [user("Look around."), assistant("I will.")]
    for n in range(8):
        messages += [user(f"And {n}?"), step((f"c{n}", {})), result(f"c{n}", prose(900, n))]
        messages.append(assistant(f"Nothing in {n}."))
    with stored(messages) as store:
        found = done(compact(job(store, ask=raising(AssertionError("asked")))))
        after = visible_messages(store, found.new_session_id)
        assert (found.strategy, found.summary) == ("prune", "")
        assert [row["role"] for row in after] == [message["role"] for message in messages]
        assert "message 5 has all of it" in after[4]["content"]
        assert after[-2]["content"] == messages[-2]["content"], "the tail stays word for word"
        assert faults(after) == []


def test_outputs_that_free_too_little_leave_it_to_the_summary() -> None:
    messages = [*chat(30)]
    messages[3:3] = [step(("big", {})), result("big", prose(800))]
    with stored(messages) as store:
        assert done(compact(job(store))).strategy == "summary"


def run_of_tools(steps: int, output: int = 150) -> list[Message]:
    messages = [user("Build it."), assistant("Which one?"), user("The blue one.")]
    for n in range(steps):
        messages += [
            step((f"a{n}", {"n": n}), (f"b{n}", {"n": n}), text=f"Step {n}."),
            result(f"a{n}", prose(output, n)),
            result(f"b{n}", f"b{n} is fine"),
        ]
    return messages


def test_a_turn_that_runs_keeps_its_request_and_its_last_step_word_for_word() -> None:
    messages = run_of_tools(60)
    with stored(messages) as store:
        found = done(compact(job(store)))
        after = visible_messages(store, found.new_session_id)
        assert [row["content"] for row in after[:2]] == ["Build it.", "Which one?"]
        assert after[3]["content"] == "The blue one."
        assert "Message 3 below is older than some of what is summarized here." in found.summary
        assert [row["content"] for row in after[-3:]] == [m["content"] for m in messages[-3:]]
        assert faults(after) == []


def test_a_last_step_too_large_for_the_window_gives_up_its_outputs_last() -> None:
    messages = [
        *run_of_tools(20),
        step(("x", {}), ("y", {})),
        result("x", prose(20_000)),
        result("y", "ok"),
    ]
    with stored(messages) as store:
        found = done(compact(job(store)))
        after = visible_messages(store, found.new_session_id)
        assert after[-1]["content"] == "ok"
        assert "has all of it" in after[-2]["content"]
        assert after[-3]["tool_calls"] == messages[-3]["tool_calls"]
        assert found.tokens_after <= found.target


@pytest.mark.parametrize("message", [user, assistant])
def test_a_message_larger_than_the_window_is_cut_and_kept(message: Any) -> None:
    with stored([user("Read this."), message(prose(30_000)), user("So?")]) as store:
        found = done(compact(job(store)))
        after = visible_messages(store, found.new_session_id)
        whole = store.get_messages_as_conversation(found.new_session_id, include_ancestors=True)
        assert found.tokens_after <= found.target
        assert after[-1]["content"] == "So?"
        assert whole[1]["content"] == prose(30_000)


def test_hundreds_of_calls_at_once_do_not_keep_it_from_ending() -> None:
    calls = [(f"c{n}", {"path": f"/a/b/c/{n}.txt"}) for n in range(400)]
    messages = [user("Read all."), step(*calls), *(result(id_, "short") for id_, _ in calls)]
    with stored(messages) as store:
        found = done(compact(job(store)))
        after = visible_messages(store, found.new_session_id)
        assert found.strategy == "cut"
        assert found.tokens_after <= found.target
        assert after[-1]["content"] == "Read all."
        assert faults(after) == []


def test_what_waits_for_an_answer_stays_when_there_is_room_for_nothing_else() -> None:
    calls = [(f"c{n}", {"path": f"/a/b/c/{n}.txt"}) for n in range(400)]
    messages = [user("Old."), assistant("Yes."), user("Read all."), step(*calls)]
    messages += [result(id_, "short") for id_, _ in calls]
    with stored([*messages, user("And then?")]) as store:
        found = done(compact(job(store, answering=3)))
        after = visible_messages(store, found.new_session_id)
        assert [row["content"] for row in after[1:]] == ["Read all.", "And then?"]


def test_what_is_answered_now_stays_before_what_waits_behind_it() -> None:
    waiting = [user(f"Number {n}: {prose(100, n)}") for n in range(200)]
    with stored([user("Old."), assistant("Yes."), *waiting]) as store:
        found = done(compact(job(store, answering=3)))
        after = visible_messages(store, found.new_session_id)
        assert [row["content"][:9] for row in after[1:]] == ["Number 0:"]
        assert found.tokens_after <= found.target


def test_a_smaller_window_also_shortens_the_summary_that_is_there() -> None:
    long = "\n".join(f"- Fact {n} about part{n}.py." for n in range(250))
    with stored(chat(700)) as store:
        first = done(compact(job(store, window=131_072, ask=saying(f"## Facts\n{long}"))))
        assert Estimator("m").text(first.summary) > 2_000
        found = done(compact(job(store, first.new_session_id)))
        assert found.tokens_after <= found.target
        assert Estimator("m").text(found.summary) < 800


def test_a_summary_that_somebody_else_wrote_is_taken_up() -> None:
    with stored([user("Hello."), assistant("Hi.")]) as store:
        store.write(lineage.rotate, "s", [user("They want a blue bicycle, no 4711.")], child_id="t")
        store.append_messages("t", chat(30))
        model = RecordingSummarizer(GOOD)
        found = done(compact(job(store, "t", ask=model)))
        assert "They want a blue bicycle" in model.request_texts[0]
        assert "4711" in found.summary


# -- bad summaries -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [name for name in SUMMARIZERS if name not in ("good", "unreachable")]
)
def test_a_summary_that_cannot_be_used_falls_to_the_digest(name: str) -> None:
    sink = RecordingSink()
    with stored(chat(30)) as store:
        found = done(compact(job(store, ask=SUMMARIZERS[name], report=sink)))
        assert found.strategy == "digest"
        assert found.fault
        assert found.tokens_after <= found.target
        assert "Asked: Question 1?" in found.summary or "Question" in found.summary
        assert store.read(message_ledger.count, "s") == len(chat(30))
    assert found.fault.rstrip(".") in sink.of(Notice)[0].text


def test_without_a_model_there_is_the_digest() -> None:
    with stored(chat(30)) as store:
        found = done(compact(job(store, ask=None)))
    assert (found.strategy, found.fault, found.usage) == ("digest", "", Usage())


def test_what_failed_calls_cost_is_told() -> None:
    with stored(chat(30)) as store:
        found = done(compact(job(store, ask=saying(""))))
    assert found.usage == Usage(100, 10)


def test_a_summary_a_little_too_long_is_trimmed_and_used() -> None:
    lines = "\n".join(f"- Decision {n} is final." for n in range(70))
    with stored(chat(30)) as store:
        found = done(compact(job(store, ask=saying(f"## Goal\n- Win.\n## Decisions\n{lines}"))))
    assert found.strategy == "summary"
    assert "Win." in found.summary and "Decision 69" in found.summary


def test_what_is_longer_than_the_window_is_told_to_the_model_in_a_few_pieces() -> None:
    model = RecordingSummarizer(*[GOOD] * 4)
    sizes = Estimator("m")
    with stored(chat(300, size=300)) as store:
        found = done(compact(job(store, ask=model)))
    assert found.strategy == "summary"
    assert 1 < len(model.request_texts) <= 4
    assert all(sizes.text(request) + 1_024 < 8_192 for request in model.request_texts)
    assert found.usage.input_tokens == 100 * len(model.request_texts)


# -- lost connections, stops, locks ------------------------------------------------------------


def test_a_lost_connection_leaves_the_session_as_it_was_while_it_fits() -> None:
    sink, hooks = RecordingSink(), Listening()
    with stored(chat(30)) as store:
        before = visible_messages(store, "s")
        assert compact(job(store, ask=SUMMARIZERS["unreachable"], report=sink, hooks=hooks)) is None
        assert visible_messages(store, "s") == before
        assert store.read(lineage.tip, "s") == "s"
        assert store.check() == []
    assert "No route" in sink.of(Notice)[0].text
    assert [name for name, _ in hooks.calls] == ["pre_compaction"]


def test_a_lost_connection_falls_to_the_digest_when_it_cannot_wait() -> None:
    with stored(chat(100)) as store:
        found = done(compact(job(store, ask=SUMMARIZERS["unreachable"])))
        assert (found.strategy, found.fault) == ("digest", "No route to the host.")
    with stored(chat(30)) as store:
        assert done(compact(job(store, ask=SUMMARIZERS["unreachable"], force=True))).fault


def test_a_connection_lost_between_two_pieces_leaves_no_half_summary() -> None:
    replies = iter([Reply(GOOD, usage=Usage(100, 10))])

    def ask(_request: Request) -> Reply:
        for reply in replies:
            return reply
        raise ModelUnreachableError("Cut.")

    with stored(chat(100)) as store:
        before = visible_messages(store, "s")
        found = done(compact(job(store, ask=ask)))
        whole = store.get_messages_as_conversation(found.new_session_id, include_ancestors=True)
        assert (found.strategy, found.fault, found.usage) == ("digest", "Cut.", Usage(100, 10))
        assert "Move the shop" not in found.summary
        assert whole == before


def test_a_stop_while_the_model_is_silent_leaves_everything_as_it_was() -> None:
    stop, quiet = Stop(), Quiet()
    model = ScriptedModel([silence(quiet, after="## Goal")])

    def ask(request: Request) -> Reply:
        stop.set()
        return model.ask(request, stop, lambda _event: None)

    with stored(chat(30)) as store:
        with pytest.raises(Interrupted):
            compact(job(store, ask=ask, stop=stop))
        assert store.read(lineage.tip, "s") == "s"
        assert store.check() == []


def test_a_stop_after_the_summary_leaves_everything_as_it_was() -> None:
    stop = Stop()

    def ask(_request: Request) -> Reply:
        stop.set()
        return Reply(GOOD)

    with stored(chat(30)) as store:
        with pytest.raises(Interrupted):
            compact(job(store, ask=ask, stop=stop))
        assert store.read(lineage.tip, "s") == "s"


def test_a_spent_budget_is_for_the_caller_to_deal_with() -> None:
    with stored(chat(30)) as store:
        with pytest.raises(BudgetSpent):
            compact(job(store, ask=raising(BudgetSpent("money"))))
        assert store.read(lineage.tip, "s") == "s"


def test_a_lost_lease_writes_nothing() -> None:
    with stored(chat(30)) as store:
        lease = store.write(leases.acquire, "s", "me")

        def ask(_request: Request) -> Reply:
            assert store.write(leases.acquire, "s", "me") is not None  # a newer token
            return Reply(GOOD)

        with pytest.raises(LeaseLostError):
            compact(job(store, ask=ask, lease=lease))
        assert store.read(lineage.tip, "s") == "s"


def test_a_session_that_was_compacted_by_somebody_else_meanwhile_is_not_forked() -> None:
    with stored(chat(30)) as store:

        def ask(_request: Request) -> Reply:
            store.write(lineage.rotate, "s", [user("short")], child_id="theirs")
            return Reply(GOOD)

        with pytest.raises(StoreError, match="theirs"):
            compact(job(store, ask=ask))
        assert store.read(lineage.tip, "s") == "theirs"


def test_what_somebody_says_meanwhile_goes_along() -> None:
    with stored(chat(30)) as store:

        def ask(_request: Request) -> Reply:
            store.append_message("s", "user", "One more thing!")
            return Reply(GOOD)

        found = done(compact(job(store, ask=ask)))
        after = visible_messages(store, found.new_session_id)
        whole = store.get_messages_as_conversation(found.new_session_id, include_ancestors=True)
        assert after[-1]["content"] == "One more thing!"
        assert [row["content"] for row in whole].count("One more thing!") == 1


def test_what_somebody_says_in_the_last_moment_goes_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rotate = lineage.rotate

    def late(tx: Tx, session_id: str, *carried: Any, **how: Any) -> str:
        message_ledger.append(tx, session_id, NewMessage("user", "Just now!"))
        return rotate(tx, session_id, *carried, **how)

    monkeypatch.setattr(lineage, "rotate", late)
    with SessionDB(":memory:") as store:
        store.create_session("s", "cli")
        store.append_messages("s", chat(30))
        found = done(compact(job(store)))
        after = visible_messages(store, found.new_session_id)
        whole = store.get_messages_as_conversation(found.new_session_id, include_ancestors=True)
        assert after[-1]["content"] == "Just now!"
        assert [row["content"] for row in whole].count("Just now!") == 1
        store.write(lineage.undo_rotation, found.new_session_id)
        assert [row["content"] for row in visible_messages(store, "s")].count("Just now!") == 1


# -- who is told -------------------------------------------------------------------------------


def test_hooks_and_events_tell_of_it_before_and_after() -> None:
    sink, hooks = RecordingSink(), Listening()
    with stored(chat(30)) as store:
        found = done(compact(job(store, report=sink, hooks=hooks, platform="cli")))
        assert store.read(lineage.tip, "s") == found.new_session_id
    ids = {"old_session_id": "s", "new_session_id": found.new_session_id, "platform": "cli"}
    assert hooks.calls == [
        ("pre_compaction", {**ids, "message_count": len(chat(30))}),
        ("post_compaction", {**ids, "summary": found.summary}),
    ]
    assert sink.events == [
        Compacting(len(chat(30)), found.tokens_before),
        Compacted("s", found.new_session_id, found.tokens_before, found.tokens_after, "summary"),
    ]


def test_hooks_are_told_the_new_id_before_anything_is_changed() -> None:
    with stored(chat(30)) as store:
        seen: list[Any] = []

        class Looking:
            def invoke_hook(self, name: str, /, **kwargs: Any) -> list[Any]:
                seen.append((name, store.get_session(kwargs["new_session_id"]) is not None))
                return []

        compact(job(store, hooks=Looking()))
    assert seen == [("pre_compaction", False), ("post_compaction", True)]


# -- in a turn ---------------------------------------------------------------------------------


def test_a_turn_is_compacted_while_it_runs_and_ends_in_the_new_session() -> None:
    with stored(chat(25)) as store:
        lease = store.write(leases.acquire, "s", "me")
        assert lease is not None
        turn = store.write(turns.accept, "s", user("Now do it."))
        store.write(turns.start, turn.turn_id, lease)
        queued = store.write(turns.accept, "s", user("And then that."))
        assistant_step = step(("c1", {}), ("c2", {}))
        calls = [Call("c1", "look", "{}", True), Call("c2", "look", "{}", True)]
        store.write(turns.step, turn.turn_id, assistant_step, calls, lease)
        for number, effect in enumerate(store.read(effects.of_turn, turn.turn_id), 1):
            store.write(effects.start, effect["id"], lease)
            store.write(effects.done, effect["id"], result(f"c{number}", prose(400, number)), lease)

        found = done(compact(job(store, lease=lease, ask=say_by_model(), force=True)))

        store.write(turns.finish, turn.turn_id, "answered", message=assistant("Done."), lease=lease)
        after = visible_messages(store, found.new_session_id)
        assert [row["content"] for row in after][-6:] == [
            "Now do it.", None, prose(400, 1), prose(400, 2), "Done.", "And then that.",
        ]  # fmt: skip
        assert faults(after) == []
        assert [row["id"] for row in store.read(turns.of_session, found.new_session_id)] == [
            turn.turn_id,
            queued.turn_id,
        ]
        assert store.check() == []


def say_by_model() -> Any:
    model = ScriptedModel([say(GOOD)])
    return lambda request: model.ask(request, Stop(), lambda _event: None)


def test_an_undone_compaction_gives_the_old_messages_back() -> None:
    with stored(chat(30)) as store:
        before = visible_messages(store, "s")
        found = done(compact(job(store)))
        later = store.append_message(found.new_session_id, "user", "Later.")
        assert store.write(lineage.undo_rotation, found.new_session_id) == "s"
        assert visible_messages(store, "s")[:-1] == before
        assert visible_messages(store, "s")[-1]["id"] == later
        again = done(compact(job(store)))
        assert visible_messages(store, again.new_session_id)[-1]["content"] == "Later."
