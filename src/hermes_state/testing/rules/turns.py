"""Rules for turns."""

from hermes_core.errors import (
    AlreadySettledError,
    ConversationBusyError,
    ConversationOverError,
    EarlierTurnError,
    IllegalTransitionError,
    LeaseLostError,
    SessionNotFoundError,
    StoreError,
    TitleError,
    TurnMovedError,
)
from hermes_state.db import SessionDB
from hermes_state.ledger import (
    chat_moves,
    effects,
    inbox,
    leases,
    lineage,
    messages,
    outbox,
    questions,
    routes,
    sessions,
    turns,
    workers,
)
from hermes_state.ledger.turns import TurnSource
from hermes_state.testing.rules.setup import (
    DAY_S,
    accepted,
    chat,
    contents,
    execute,
    refused,
    running,
    session,
    still_clock,
    summary,
)
from hermes_state.values import Call, End, InboundMessage, NewSession, OutboundPart, Question, Route


class TurnRules:
    """Test that turns are accepted once and end once."""

    def test_a_message_for_an_idle_conversation_is_not_stored_while_it_runs(
        self, store: SessionDB
    ) -> None:
        store.create_session("s", "cli")
        held = store.write(leases.acquire, "s", "me")
        assert held is not None
        with refused(ConversationBusyError):
            accepted(store, "s", only_if_idle=True)
        assert store.read(messages.count, "s") == 0
        assert store.read(turns.of_session, "s") == []
        store.write(leases.release, held)
        assert accepted(store, "s", only_if_idle=True)

    def test_a_conversation_is_not_idle_while_another_worker_is_about_to_run_it(
        self, store: SessionDB
    ) -> None:
        store.create_session("s", "cli")
        first = accepted(store, "s", source=TurnSource("gateway", "them"))
        ours = TurnSource("cli", "us")
        with refused(ConversationBusyError):
            accepted(store, "s", only_if_idle=True, source=ours)
        store.write(turns.finish, first, "interrupted")
        assert accepted(store, "s", only_if_idle=True, source=ours)
        assert accepted(store, "s", only_if_idle=True, source=ours), (
            "what we accepted does not count"
        )
        store.write(workers.forget, ["us"])
        assert accepted(store, "s", only_if_idle=True, source=TurnSource("cli", "others"))

    def test_a_turn_does_not_start_before_the_earlier_ones_have_ended(
        self, store: SessionDB
    ) -> None:
        store.create_session("s", "cli")
        first, second = accepted(store, "s"), accepted(store, "s")
        try:
            store.write(turns.claim, second, "s", "me")
        except EarlierTurnError as error:
            assert error.turn_id == first
        else:
            raise AssertionError("it started")
        assert store.read(leases.holder_of, "s") is None
        store.write(turns.finish, first, "interrupted")
        assert store.write(turns.claim, second, "s", "me") is not None

    def test_a_delivery_that_was_dealt_with_is_not_accepted_again(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        ignored, deleted = InboundMessage("chat", "room", "1"), InboundMessage("chat", "room", "2")
        message = {"role": "user", "content": "hello"}
        store.write(inbox.receive, ignored)
        store.write(inbox.settle, ignored, "ignored")
        store.write(turns.accept, "s", message, inbound=deleted)
        store.write(sessions.delete, ["s"])
        store.create_session("s", "cli")
        for delivery in (ignored, deleted):
            with refused(AlreadySettledError):
                store.write(turns.accept, "s", message, inbound=delivery)
        assert store.read(messages.count, "s") == 0

    def test_a_message_opens_an_ended_conversation_again_when_that_is_wished(
        self, store: SessionDB
    ) -> None:
        store.create_session("a", "cli")
        store.write(lineage.rotate, "a", [], child_id="b")
        store.end_session("b", "tui_close")
        message = {"role": "user", "content": "hello"}
        assert store.write(turns.accept, "a", message).session_id == "b"
        assert session(store, "b")["end_reason"] == "tui_close"
        store.write(turns.accept, "a", message, reopens=True)
        assert session(store, "b")["ended_at"] is None
        assert session(store, "a")["end_reason"] == "compression"

    def test_a_message_is_refused_where_its_conversation_is_over(self, store: SessionDB) -> None:
        store.create_session("a", "cli")
        store.write(lineage.rotate, "a", [], child_id="b")
        store.end_session("b", "session_reset")
        message, delivery = (
            {"role": "user", "content": "hello"},
            InboundMessage("chat", "room", "1"),
        )
        with refused(ConversationOverError):
            store.write(
                turns.accept, "a", message, inbound=delivery, reopens=True, over={"session_reset"}
            )
        assert (store.read(messages.count, "b"), store.read(inbox.find, delivery)) == (0, None)
        assert session(store, "b")["end_reason"] == "session_reset"
        accepted = store.write(
            turns.accept, "a", message, inbound=delivery, reopens=True, over={"idle"}
        )
        assert accepted.is_new and session(store, "b")["ended_at"] is None

    def test_a_turn_that_has_ended_is_not_taken_again_and_nobody_holds_its_conversation(
        self, store: SessionDB
    ) -> None:
        turn_id = running(store)
        store.write(turns.finish, turn_id, "answered")
        with refused(IllegalTransitionError):
            store.write(turns.claim, turn_id, "s", "me")
        assert store.read(leases.holder_of, "s") is None

    def test_a_turn_that_ends_leaves_no_call_open(self, store: SessionDB) -> None:
        turn_id = running(store)
        calls = [Call(str(n), "write_file", "{}", read_only=False) for n in range(2)]
        store.write(turns.step, turn_id, {"role": "assistant", "content": "I will write."}, calls)
        store.write(effects.start, store.read(effects.of_turn, turn_id)[0]["id"])
        store.write(turns.finish, turn_id, "interrupted")
        states = [effect["state"] for effect in store.read(effects.of_turn, turn_id)]
        assert states == ["unknown", "cancelled"]

    def test_a_turn_goes_from_accepted_to_answered(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        why = store.write(turns.accept, "s", {"role": "user", "content": "why?"})
        assert why.is_new
        assert contents(store, "s") == ["why?"]
        turn = store.read(turns.find, why.turn_id)
        assert turn is not None
        assert (turn["state"], turn["user_message_id"]) == ("accepted", why.message_id)
        assert store.write(turns.start, why.turn_id) == 1
        store.write(turns.step, why.turn_id, {"role": "assistant", "content": "hm"})
        final = store.write(
            turns.finish,
            why.turn_id,
            "answered",
            message={"role": "assistant", "content": "because"},
            parts=[OutboundPart("chat", "room", "because")],
        )
        turn = store.read(turns.find, why.turn_id)
        assert turn is not None
        assert (turn["state"], turn["final_message_id"]) == ("answered", final)
        assert turn["ended_at"] is not None
        assert contents(store, "s") == ["why?", "hm", "because"]
        assert [piece["content"] for piece in store.read(outbox.of_turn, why.turn_id)] == [
            "because"
        ]
        assert store.check() == []

    def test_a_second_delivery_finds_the_first(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        delivery = InboundMessage("telegram", "room", "1")
        message = {"role": "user", "content": "once"}
        first = store.write(turns.accept, "s", message, inbound=delivery)
        again = store.write(turns.accept, "s", message, inbound=delivery)
        assert again == first._replace(is_new=False)
        assert contents(store, "s") == ["once"]
        assert store.write(
            turns.accept, "s", message, inbound=delivery._replace(chat_id="x")
        ).is_new

    def test_a_second_idempotency_key_finds_the_first(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        message = {"role": "user", "content": "once"}
        first = store.write(turns.accept, "s", message, idempotency_key="k")
        store.write(turns.start, first.turn_id)
        store.write(turns.finish, first.turn_id, "answered")
        assert store.write(turns.accept, "s", message, idempotency_key="k") == first._replace(
            is_new=False
        )
        assert contents(store, "s") == ["once"]

    def test_a_message_for_a_compacted_session_goes_where_the_conversation_is(
        self, store: SessionDB
    ) -> None:
        ids = chat(store, "s", "hello")
        child = store.write(lineage.rotate, "s", [ids[0]])
        message = {"role": "user", "content": "and now?"}
        accepted = store.write(turns.accept, "s", message, idempotency_key="k")
        assert (accepted.session_id, accepted.conversation_id) == (child, "s")
        assert store.write(turns.accept, child, message, idempotency_key="k").conversation_id == "s"
        new = store.write(turns.accept, "first", message, new_session=NewSession("cli"))
        assert new.conversation_id == "first"
        found = store.read(turns.find, accepted.turn_id)
        assert found is not None
        assert found["session_id"] == child
        assert store.get_messages_as_conversation(child)[-1]["content"] == "and now?"

    def test_what_waits_can_be_taken_back_and_is_not_part_of_the_conversation(
        self, store: SessionDB
    ) -> None:
        chat(store, "s", "hello")
        first = store.write(turns.accept, "s", {"role": "user", "content": "never mind"})
        store.write(turns.accept, "s", {"role": "user", "content": "this instead"})
        store.write(turns.cancel, first.turn_id, "taken back")
        assert contents(store, "s") == ["hello", "this instead"]
        found = store.read(turns.find, first.turn_id)
        assert found is not None
        assert (found["state"], found["reason"]) == ("interrupted", "taken back")
        assert session(store, "s")["message_count"] == 2
        with refused(IllegalTransitionError):
            store.write(turns.cancel, running(store, "other"), "too late")

    def test_a_message_that_waits_is_replaced_in_its_place(self, store: SessionDB) -> None:
        chat(store, "s", "hello")
        deliveries = [InboundMessage("p", "c", str(number)) for number in range(4)]
        texts = [{"role": "user", "content": text} for text in ("one", "tow", "three", "two")]
        runs, waits, behind = (
            store.write(turns.accept, "s", item, inbound=delivery).turn_id
            for item, delivery in zip(texts[:3], deliveries[:3], strict=True)
        )
        store.write(turns.start, runs)
        new = store.write(turns.replace, waits, texts[3], deliveries[3])
        assert new is not None
        assert contents(store, "s") == ["hello", "one", "two", "three"]
        still_open = [item["id"] for item in store.read(turns.all_open)]
        assert still_open == [runs, new.turn_id, behind]
        rows = [store.read(turns.find, item) or {} for item in (new.turn_id, behind)]
        assert rows[0]["user_message_id"] < rows[1]["user_message_id"]
        assert (store.read(turns.find, waits) or {})["state"] == "interrupted"
        assert (store.read(inbox.find, deliveries[3]) or {})["turn_id"] == new.turn_id
        assert store.write(turns.replace, runs, texts[3], InboundMessage("p", "c", "9")) is None
        assert store.read(inbox.find, InboundMessage("p", "c", "9")) is None

    def test_the_versions_of_a_message_are_found(self, store: SessionDB) -> None:
        for delivery in (
            InboundMessage("p", "c", "1"),
            InboundMessage("p", "c", "1:e", edits="1"),
            InboundMessage("p", "c", "0-1", parts=["0", "1"]),
            InboundMessage("p", "c", "2", edits="11"),
            InboundMessage("p", "other", "1:e", edits="1"),
        ):
            store.write(inbox.receive, delivery)
        found = store.read(inbox.versions, InboundMessage("p", "c", "1"))
        assert [item["message_id"] for item in found] == ["1", "1:e", "0-1"]

    def test_a_turn_for_nobody_is_not_accepted(self, store: SessionDB) -> None:
        delivery = InboundMessage("telegram", "room", "1")
        with refused(SessionNotFoundError):
            store.write(turns.accept, "nobody", {"role": "user", "content": "x"}, inbound=delivery)
        assert store.read(inbox.find, delivery) is None

    def test_a_turn_may_be_tried_again(self, store: SessionDB) -> None:
        turn_id = running(store)
        assert store.write(turns.start, turn_id) == 2

    def test_an_attempt_that_goes_on_is_not_another_one(self, store: SessionDB) -> None:
        turn_id = running(store)
        claimed = store.write(turns.claim, turn_id, "s", "me", is_same=True)
        assert claimed is not None
        assert claimed.attempt == 1

    def test_a_turn_that_was_put_off_has_lost_no_attempt(self, store: SessionDB) -> None:
        turn_id = running(store)
        store.write(turns.suspend, turn_id)
        assert store.write(turns.start, turn_id) == 1
        store.write(turns.finish, turn_id, "interrupted")
        store.write(turns.suspend, turn_id)
        row = store.read(turns.find, turn_id)
        assert row is not None
        assert (row["state"], row["attempts"]) == ("interrupted", 1)

    def test_a_turn_that_only_waited_for_a_person_has_lost_no_attempt(
        self, store: SessionDB
    ) -> None:
        turn_id = running(store)
        call = Call("c1", "terminal", "{}", read_only=False)
        beside = Call("c2", "terminal", "{}", read_only=False)
        store.write(turns.step, turn_id, {"role": "assistant", "content": ""}, [call, beside])
        question = Question(turn_id, "c1", "approval", "terminal", "It deletes.", "", ("once",))
        store.write(questions.ask, question)
        assert [store.write(turns.start, turn_id) for _ in range(4)] == [1, 1, 1, 1]
        other = store.read(effects.of_turn, turn_id)[1]
        store.write(effects.start, other["id"])
        assert store.write(turns.start, turn_id) == 2, (
            "what was being done beside it may have ended it"
        )

    def test_a_turn_that_never_began_can_fail_or_be_interrupted(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        ends: tuple[tuple[End, str | None], ...] = (("failed", "why"), ("interrupted", None))
        for end, reason in ends:
            turn_id = accepted(store)
            store.write(turns.finish, turn_id, end, reason=reason)
            turn = store.read(turns.find, turn_id)
            assert turn is not None
            assert (turn["state"], turn["reason"]) == (end, reason)

    def test_a_turn_ends_once(self, store: SessionDB) -> None:
        ends: tuple[End, ...] = ("answered", "failed", "interrupted")
        for number, end in enumerate(ends):
            turn_id = running(store, f"s{number}")
            store.write(turns.finish, turn_id, end, reason="why")
            for other in ends:
                with refused(IllegalTransitionError):
                    store.write(
                        turns.finish,
                        turn_id,
                        other,
                        reason="x",
                        message={"role": "assistant", "content": "no"},
                    )
            with refused(IllegalTransitionError):
                store.write(turns.start, turn_id)
            with refused(StoreError):
                store.write(turns.step, turn_id, {"role": "assistant", "content": "no"})
            assert contents(store, f"s{number}") == ["a question"]

    def test_a_failure_says_why(self, store: SessionDB) -> None:
        turn_id = running(store)
        with refused(IllegalTransitionError):
            store.write(turns.finish, turn_id, "failed")

    def test_only_a_turn_that_runs_has_steps_or_an_answer(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        turn_id = accepted(store)
        with refused(StoreError):
            store.write(turns.step, turn_id, {"role": "assistant", "content": "x"})
        with refused(IllegalTransitionError):
            store.write(turns.finish, turn_id, "answered")
        with refused(StoreError):
            store.write(turns.start, "nobody")
        with refused(StoreError):
            store.write(turns.finish, "nobody", "answered")

    def test_turns_without_an_end_are_listed_unless_somebody_runs_them(
        self, store: SessionDB
    ) -> None:
        turn_id = running(store)
        assert [turn["id"] for turn in store.read(turns.unfinished)] == [turn_id]
        with still_clock() as time:
            time.now += DAY_S
            store.write(leases.acquire, "s", "me", ttl_s=60)
            assert store.read(turns.unfinished) == []
            assert [turn["id"] for turn in store.read(turns.all_open)] == [turn_id]
            time.now += 61
            assert [turn["id"] for turn in store.read(turns.unfinished)] == [turn_id]
        store.write(turns.finish, turn_id, "interrupted")
        assert store.read(turns.unfinished) == []

    def test_a_message_for_a_session_that_was_compacted_goes_to_its_tip(
        self, store: SessionDB
    ) -> None:
        chat(store, "s", "one")
        child = store.write(lineage.rotate, "s", [summary()])
        assert (
            store.write(turns.accept, "s", {"role": "user", "content": "two"}).session_id == child
        )

    def test_what_was_said_after_the_caller_looked_goes_along(self, store: SessionDB) -> None:
        _, second = chat(store, "s", "one", "two")
        late = store.write(turns.accept, "s", {"role": "user", "content": "three"})
        child = store.write(lineage.rotate, "s", [summary(), second], since=second)
        assert contents(store, child) == ["in short", "two", "three"]
        assert contents(store, child, include_ancestors=True) == ["one", "two", "three"]
        turn = store.read(turns.find, late.turn_id)
        assert turn is not None
        assert turn["session_id"] == child

    def test_a_first_message_makes_its_session(self, store: SessionDB) -> None:
        message = {"role": "user", "content": "hello"}
        for new in (NewSession("cli", {"cwd": "/here"}), NewSession("other", {"cwd": "/there"})):
            store.write(turns.accept, "new", message, new_session=new)
        row = session(store, "new")
        assert (row["source"], row["cwd"], row["message_count"]) == ("cli", "/here", 2)

    def test_a_title_makes_its_session_or_nothing(self, store: SessionDB) -> None:
        opening = NewSession("p", {"user_id": "u"})
        assert store.write(turns.set_title, "new", "Tea", opening)
        assert not store.write(turns.set_title, "new", "Coffee", opening)
        row = session(store, "new")
        assert (row["title"], row["source"], row["user_id"]) == ("Coffee", "p", "u")
        with refused(TitleError):
            store.write(turns.set_title, "other", "Coffee", opening)
        assert store.get_session("other") is None
        assert not store.write(turns.accept, "new", {"role": "user", "content": "x"}).makes_session

    def test_a_turn_that_was_never_begun_knows_whether_its_session_was_made_with_it(
        self, store: SessionDB
    ) -> None:
        first = accepted(store, "new", new_session=NewSession("p"))
        second = accepted(store, "new")
        assert [store.read(turns.creates_session, id_) for id_ in (first, second)] == [True, False]
        store.write(turns.start, first)
        assert not store.read(turns.creates_session, first)
        store.write(turns.finish, first, "answered", message={"role": "assistant", "content": "hi"})
        store.write(turns.set_title, "named", "Tea", NewSession("p"))
        assert not store.read(turns.creates_session, accepted(store, "named"))
        branch = store.write(lineage.branch, "new")
        assert not store.read(turns.creates_session, accepted(store, branch))

    def test_a_first_message_makes_the_route_of_its_chat(self, store: SessionDB) -> None:
        opening = NewSession("telegram", route=Route("chat", '{"x":1}'))
        new = store.write(
            turns.accept, "new", {"role": "user", "content": "hello"}, new_session=opening
        )
        assert new.makes_session
        row = store.read(routes.find, "chat")
        assert row is not None
        assert (row["session_id"], row["entry"]) == ("new", '{"x":1}')
        assert not store.write(turns.accept, "new", {"role": "user", "content": "x"}).makes_session

    def test_what_is_said_while_a_turn_runs_comes_after_that_turn(self, store: SessionDB) -> None:
        turn_id = running(store)
        store.write(
            turns.step,
            turn_id,
            {"role": "assistant", "content": "let me look"},
            [Call("a", "t", "{}", True)],
        )
        waiting = store.write(turns.accept, "s", {"role": "user", "content": "and another thing"})
        (effect,) = store.read(effects.of_turn, turn_id)
        store.write(effects.start, effect["id"])
        store.write(
            effects.done, effect["id"], {"role": "tool", "content": "found", "tool_call_id": "a"}
        )
        child = store.write(
            lineage.rotate, "s", [m["id"] for m in store.read(messages.of_session, "s")]
        )
        store.write(
            turns.finish, turn_id, "answered", message={"role": "assistant", "content": "so"}
        )
        texts = ["a question", "let me look", "found", "so", "and another thing"]
        assert contents(store, child) == texts
        store.write(turns.start, waiting.turn_id)
        store.write(
            turns.finish,
            waiting.turn_id,
            "answered",
            message={"role": "assistant", "content": "yes"},
        )
        assert contents(store, child) == [*texts, "yes"]
        assert contents(store, child, include_ancestors=True) == [*texts, "yes"]

    def test_a_turn_runs_under_the_lease_of_the_conversation_that_it_is_in(
        self, store: SessionDB
    ) -> None:
        store.create_session("s", "cli")
        turn_id = accepted(store, inbound=InboundMessage("p", "c", "1", session_key="key"))
        opening = NewSession("p")
        store.write(
            chat_moves.move_chat, Route("key"), "new", former="s", reason="why", new_session=opening
        )
        with refused(TurnMovedError):
            store.write(turns.claim, turn_id, "s", "who looked before it moved")
        assert store.read(leases.held) == {}
        assert store.write(turns.claim, turn_id, "new", "me") is not None

    def test_every_commit_of_a_turn_checks_the_lease(self, store: SessionDB) -> None:
        turn_id = running(store)
        step = {"role": "assistant", "content": "x"}
        store.write(turns.step, turn_id, step, [Call("1", "t", "{}", False)])
        effect = store.read(effects.of_turn, turn_id)[0]["id"]
        old = store.write(leases.acquire, "s", "me", ttl_s=0)
        assert old is not None
        store.write(leases.acquire, "s", "you")
        for write in (
            lambda: store.write(turns.start, turn_id, old),
            lambda: store.write(turns.suspend, turn_id, old),
            lambda: store.write(turns.step, turn_id, step, lease=old),
            lambda: store.write(turns.finish, turn_id, "answered", message=step, lease=old),
            lambda: store.write(effects.start, effect, old),
            lambda: store.write(effects.cancel, effect, lease=old),
            lambda: store.write(lineage.undo_rotation, "s", lease=old),
        ):
            with refused(LeaseLostError):
                write()
        assert contents(store, "s") == ["a question", "x"]

    def test_the_database_itself_refuses_illegal_states_of_a_turn(self, store: SessionDB) -> None:
        turn_id = running(store)
        set_state = "UPDATE turns SET state = ?, ended_at = ? WHERE id = ?"
        for state, ended in (("accepted", None), ("nonsense", None), ("answered", None)):
            with refused(IllegalTransitionError):
                store.write(execute(set_state, state, ended, turn_id))
        store.write(turns.finish, turn_id, "answered")
        for state in ("running", "accepted", "failed"):
            with refused(IllegalTransitionError):
                store.write(execute(set_state, state, None, turn_id))
        with refused(IllegalTransitionError):
            store.write(
                execute(
                    "INSERT INTO turns (id, session_id, state, user_message_id, accepted_at,"
                    " started_at) VALUES ('x', 's', 'running', 1, 0, 0)"
                )
            )

    def test_turns_that_were_cut_short_are_found_by_the_messages_they_answer(
        self, store: SessionDB
    ) -> None:
        ends: dict[str, int] = {}
        for end in ("answered", "failed", "interrupted"):
            turn_id = running(store, end)
            turn = store.read(turns.find, turn_id)
            assert turn is not None
            ends[end] = turn["user_message_id"]
            store.write(turns.finish, turn_id, end, reason="why")
        found = store.read(turns.cut_short, [*ends.values(), 10_000])
        assert {turn["user_message_id"]: turn["state"] for turn in found} == {
            ends["failed"]: "failed", ends["interrupted"]: "interrupted"
        }  # fmt: skip
        assert store.read(turns.cut_short, []) == []
