"""Rules for the outbox."""

from hermes_core.errors import IllegalTransitionError, StoreError
from hermes_state.protocol import Store
from hermes_state.testing.rules.given import execute, refused, running, still_clock
from hermes_state.values import OutboundPart


class OutboxRules:
    """What must be sent."""

    def test_pieces_are_sent_in_order(self, store: Store) -> None:
        turn_id = running(store)
        pieces = [OutboundPart("telegram", "room", text, "thread") for text in ("one", "two")]
        one, two = store.outbox.put(pieces, turn_id=turn_id)
        assert [piece["id"] for piece in store.outbox.due()] == [one]
        assert store.outbox.begin(one)["attempts"] == 1
        assert store.outbox.due() == []
        assert [piece["id"] for piece in store.outbox.unsure()] == [one]
        store.outbox.sent(one, "p1")
        assert [piece["content"] for piece in store.outbox.due()] == ["two"]
        store.outbox.begin(two)
        store.outbox.fail(two, "blocked")
        first, second = store.outbox.of_turn(turn_id)
        assert (first["state"], first["platform_message_id"]) == ("sent", "p1")
        assert (second["state"], second["error"], second["thread_id"]) == (
            "failed", "blocked", "thread"
        )  # fmt: skip

    def test_a_piece_that_did_not_get_through_is_due_again_later(self, store: Store) -> None:
        with still_clock() as time:
            (only,) = store.outbox.put([OutboundPart("telegram", "room", "hi")])
            store.outbox.begin(only)
            store.outbox.retry(only, "timeout", due_at=time.now + 30)
            assert store.outbox.due() == []
            assert [(piece["id"], piece["error"]) for piece in store.outbox.waiting()] == [
                (only, "timeout")
            ]
            time.now += 30
            assert [piece["attempts"] for piece in store.outbox.due()] == [1]
            assert store.outbox.begin(only)["attempts"] == 2

    def test_what_is_put_off_waits_no_longer_for_a_clock_that_is_set_back(
        self, store: Store
    ) -> None:
        with still_clock() as time:
            put_off, new = store.outbox.put([OutboundPart("telegram", text, text) for text in "ab"])
            store.outbox.begin(put_off)
            store.outbox.retry(put_off, "timeout", due_at=time.now + 30)
            time.now -= 7200
            store.outbox.hasten(7200)
            assert [piece["id"] for piece in store.outbox.due()] == [new]
            time.now += 30
            assert [piece["id"] for piece in store.outbox.due()] == [new, put_off]

    def test_pieces_of_one_chat_wait_for_each_other_and_for_no_other_chat(
        self, store: Store
    ) -> None:
        first, _ = store.outbox.put([OutboundPart("telegram", "room", text) for text in "ab"])
        (other,) = store.outbox.put([OutboundPart("telegram", "hall", "c")])
        (same_name,) = store.outbox.put([OutboundPart("matrix", "room", "d")])
        assert [piece["id"] for piece in store.outbox.due()] == [first, other, same_name]
        assert len(store.outbox.due(limit=1)) == 1
        threads = [OutboundPart("telegram", "room", text, text) for text in "xyx"]
        ids = store.outbox.put(threads)
        due = [piece["id"] for piece in store.outbox.due()]
        assert due == [first, other, same_name, *ids[:2]], "each thread has its own order"

    def test_a_chat_is_open_until_its_last_piece_has_ended(self, store: Store) -> None:
        first, second = store.outbox.put([OutboundPart("telegram", "room", text) for text in "ab"])
        for piece in (first, second):
            assert store.outbox.is_open("telegram", "room")
            store.outbox.begin(piece)
            assert store.outbox.is_open("telegram", "room")
            assert store.outbox.sent(piece, "m") is (piece == first)
        assert not store.outbox.is_open("telegram", "room")
        store.outbox.put(
            [OutboundPart("telegram", "hall", "c"), OutboundPart("matrix", "room", "d")]
        )
        assert not store.outbox.is_open("telegram", "room")

    def test_who_ends_a_piece_is_told_whether_its_chat_waits_for_more(self, store: Store) -> None:
        first, second, third = store.outbox.put(
            [OutboundPart("telegram", "room", x) for x in "abc"]
        )
        store.outbox.put(
            [OutboundPart("telegram", "hall", "d"), OutboundPart("matrix", "room", "e")]
        )
        store.outbox.begin(first)
        assert store.outbox.fail(first, "blocked")
        store.outbox.begin(second)
        store.outbox.retry(second, "timeout", due_at=0.0)
        store.outbox.begin(second)
        assert store.outbox.sent(second)
        store.outbox.begin(third)
        assert not store.outbox.sent(third)
        (again,) = store.outbox.put([OutboundPart("telegram", "room", "f")])
        assert not store.outbox.fail(again, "blocked")

    def test_a_piece_is_put_once_under_its_name(self, store: Store) -> None:
        piece = OutboundPart("telegram", "room", "a", key="notice:1", extra='{"reply_to":"7"}')
        (only,) = store.outbox.put([piece])
        assert store.outbox.put([piece]) == []
        (row,) = store.outbox.due()
        assert (row["id"], row["key"], row["extra"]) == (only, "notice:1", '{"reply_to":"7"}')
        assert store.outbox.next_due_at() == row["due_at"]

    def test_what_was_said_on_the_request_itself_is_kept_and_not_sent(self, store: Store) -> None:
        piece = OutboundPart("api_server", "notes", "Done.", key="command:1:0", is_said=True)
        assert len(store.outbox.put([piece, piece])) == 1
        row = store.outbox.get("command:1:0")
        assert row is not None and (row["content"], row["state"]) == ("Done.", "sent")
        assert store.outbox.get("command:2:0") is None
        assert store.outbox.due() == [] == store.outbox.unsure()

    def test_what_was_given_up_is_listed(self, store: Store) -> None:
        (only,) = store.outbox.put([OutboundPart("telegram", "room", "hi")])
        assert store.outbox.failed() == []
        store.outbox.fail(only, "blocked")
        (row,) = store.outbox.failed()
        assert row["error"] == "blocked"
        assert store.outbox.failed(since=row["ended_at"] + 1) == []
        assert store.outbox.next_due_at() is None

    def test_a_piece_that_is_not_to_be_sent_is_on_record_and_holds_up_no_other(
        self, store: Store
    ) -> None:
        pieces = [
            OutboundPart("telegram", "room", "a", failure="dropped"),
            OutboundPart("telegram", "room", "b"),
        ]
        store.outbox.put(pieces)
        assert [piece["content"] for piece in store.outbox.due()] == ["b"]
        (row,) = store.outbox.failed()
        assert (row["content"], row["error"]) == ("a", "dropped")

    def test_a_turn_has_one_draft(self, store: Store) -> None:
        turn_id = running(store)
        assert store.drafts.get(turn_id) is None
        assert store.drafts.begin(turn_id, "telegram", "room")
        assert not store.drafts.begin(turn_id, "telegram", "room")
        assert (store.drafts.get(turn_id) or {})["message_id"] is None
        store.drafts.named(turn_id, "m1")
        assert (store.drafts.get(turn_id) or {})["message_id"] == "m1"
        store.drafts.drop(turn_id)
        assert store.drafts.get(turn_id) is None

    def test_the_first_piece_of_a_reply_is_begun_with_the_draft_that_shows_it(
        self, store: Store
    ) -> None:
        turn_id, other = running(store, "s1"), running(store, "s2")
        first, second = store.outbox.put(
            [OutboundPart("t", "room", x) for x in "ab"], turn_id=turn_id
        )
        (plain,) = store.outbox.put([OutboundPart("t", "hall", "c")], turn_id=other)
        (notice,) = store.outbox.put([OutboundPart("t", "attic", "d")])
        store.drafts.begin(turn_id, "t", "room")
        store.drafts.named(turn_id, "m1")
        begun = store.outbox.begin(first)
        assert (begun["content"], begun["state"], begun["draft"]["message_id"]) == (
            "a", "sending", "m1"
        )  # fmt: skip
        assert [store.outbox.begin(one)["draft"] for one in (plain, notice)] == [None, None]
        store.outbox.sent(plain)
        assert store.drafts.get(turn_id) is not None
        store.outbox.sent(first)
        assert store.drafts.get(turn_id) is None
        assert store.outbox.begin(second)["draft"] is None

    def test_a_piece_may_be_claimed_with_the_note_of_what_became_of_it(self, store: Store) -> None:
        first, second = store.outbox.put([OutboundPart("matrix", "room", text) for text in "ab"])
        seen = store.outbox.look(first)
        assert seen is not None
        assert (seen["state"], seen["attempts"], seen["draft"]) == ("pending", 1, None)
        assert store.outbox.unsure() == []
        store.outbox.retry(first, "timeout", due_at=0.0, is_claimed=False)
        again = store.outbox.look(first)
        assert again is not None and (again["attempts"], again["error"]) == (2, "timeout")
        assert store.outbox.sent(first, "m1", is_claimed=False)
        assert store.outbox.look(first) is None
        assert [piece["id"] for piece in store.outbox.due()] == [second]
        with refused(IllegalTransitionError):
            store.outbox.sent(first, "m2", is_claimed=False)
        assert store.outbox.look(10_000) is None

    def test_a_piece_is_looked_up_with_the_draft_that_shows_it(self, store: Store) -> None:
        turn_id = running(store)
        (only,) = store.outbox.put([OutboundPart("t", "room", "a")], turn_id=turn_id)
        store.drafts.begin(turn_id, "t", "room")
        seen = store.outbox.look(only)
        assert seen is not None and seen["draft"]["message_id"] is None
        store.outbox.sent(only, "m1", is_claimed=False)
        assert store.drafts.get(turn_id) is None

    def test_an_illegal_move_of_a_piece_is_refused(self, store: Store) -> None:
        (only,) = store.outbox.put([OutboundPart("telegram", "room", "hi")])
        with refused(IllegalTransitionError):
            store.outbox.sent(only)
        store.outbox.begin(only)
        with refused(IllegalTransitionError):
            store.outbox.begin(only)
        store.outbox.sent(only)
        for move in (lambda: store.outbox.fail(only, "x"), lambda: store.outbox.begin(only)):
            with refused(IllegalTransitionError):
                move()
        with refused(IllegalTransitionError):
            store.write(execute("UPDATE outbox SET state = 'pending', ended_at = NULL"))
        with refused(StoreError):
            store.outbox.begin(10_000)
