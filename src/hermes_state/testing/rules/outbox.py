"""Rules for the outbox."""

from hermes_core.errors import IllegalTransitionError, StoreError
from hermes_state.db import SessionDB
from hermes_state.ledger import drafts, outbox
from hermes_state.testing.rules.setup import execute, refused, running, still_clock
from hermes_state.values import OutboundPart


class OutboxRules:
    """Test the outbox."""

    def test_pieces_are_sent_in_order(self, store: SessionDB) -> None:
        turn_id = running(store)
        parts = [OutboundPart("telegram", "room", text, "thread") for text in ("one", "two")]
        first, two = store.write(outbox.add, parts, turn_id=turn_id)
        assert [part["id"] for part in store.read(outbox.due)] == [first]
        assert store.write(outbox.begin, first)["attempts"] == 1
        assert store.read(outbox.due) == []
        assert [part["id"] for part in store.read(outbox.unsure)] == [first]
        store.write(outbox.sent, first, "p1")
        assert [part["content"] for part in store.read(outbox.due)] == ["two"]
        store.write(outbox.begin, two)
        store.write(outbox.fail, two, "blocked")
        first, second = store.read(outbox.of_turn, turn_id)
        assert (first["state"], first["platform_message_id"]) == ("sent", "p1")
        assert (second["state"], second["error"], second["thread_id"]) == (
            "failed", "blocked", "thread"
        )  # fmt: skip

    def test_a_piece_that_did_not_get_through_is_due_again_later(self, store: SessionDB) -> None:
        with still_clock() as time:
            (only,) = store.write(outbox.add, [OutboundPart("telegram", "room", "hi")])
            store.write(outbox.begin, only)
            store.write(outbox.retry, only, "timeout", due_at=time.now + 30)
            assert store.read(outbox.due) == []
            assert [(part["id"], part["error"]) for part in store.read(outbox.waiting)] == [
                (only, "timeout")
            ]
            time.now += 30
            assert [part["attempts"] for part in store.read(outbox.due)] == [1]
            assert store.write(outbox.begin, only)["attempts"] == 2

    def test_what_is_put_off_waits_no_longer_for_a_clock_that_is_set_back(
        self, store: SessionDB
    ) -> None:
        with still_clock() as time:
            put_off, new = store.write(
                outbox.add, [OutboundPart("telegram", text, text) for text in "ab"]
            )
            store.write(outbox.begin, put_off)
            store.write(outbox.retry, put_off, "timeout", due_at=time.now + 30)
            time.now -= 7200
            store.write(outbox.advance_due_times, 7200)
            assert [part["id"] for part in store.read(outbox.due)] == [new]
            time.now += 30
            assert [part["id"] for part in store.read(outbox.due)] == [new, put_off]

    def test_pieces_of_one_chat_wait_for_each_other_and_for_no_other_chat(
        self, store: SessionDB
    ) -> None:
        first, _ = store.write(
            outbox.add, [OutboundPart("telegram", "room", text) for text in "ab"]
        )
        (other,) = store.write(outbox.add, [OutboundPart("telegram", "hall", "c")])
        (same_name,) = store.write(outbox.add, [OutboundPart("matrix", "room", "d")])
        assert [part["id"] for part in store.read(outbox.due)] == [first, other, same_name]
        assert len(store.read(outbox.due, limit=1)) == 1
        threads = [OutboundPart("telegram", "room", text, text) for text in "xyx"]
        ids = store.write(outbox.add, threads)
        due = [part["id"] for part in store.read(outbox.due)]
        assert due == [first, other, same_name, *ids[:2]], "each thread has its own order"

    def test_a_chat_is_open_until_its_last_piece_has_ended(self, store: SessionDB) -> None:
        first, second = store.write(
            outbox.add, [OutboundPart("telegram", "room", text) for text in "ab"]
        )
        for part in (first, second):
            assert store.read(outbox.is_open, "telegram", "room")
            store.write(outbox.begin, part)
            assert store.read(outbox.is_open, "telegram", "room")
            assert store.write(outbox.sent, part, "m") is (part == first)
        assert not store.read(outbox.is_open, "telegram", "room")
        store.write(
            outbox.add, [OutboundPart("telegram", "hall", "c"), OutboundPart("matrix", "room", "d")]
        )
        assert not store.read(outbox.is_open, "telegram", "room")

    def test_who_ends_a_piece_is_told_whether_its_chat_waits_for_more(
        self, store: SessionDB
    ) -> None:
        first, second, third = store.write(
            outbox.add, [OutboundPart("telegram", "room", x) for x in "abc"]
        )
        store.write(
            outbox.add, [OutboundPart("telegram", "hall", "d"), OutboundPart("matrix", "room", "e")]
        )
        store.write(outbox.begin, first)
        assert store.write(outbox.fail, first, "blocked")
        store.write(outbox.begin, second)
        store.write(outbox.retry, second, "timeout", due_at=0.0)
        store.write(outbox.begin, second)
        assert store.write(outbox.sent, second)
        store.write(outbox.begin, third)
        assert not store.write(outbox.sent, third)
        (again,) = store.write(outbox.add, [OutboundPart("telegram", "room", "f")])
        assert not store.write(outbox.fail, again, "blocked")

    def test_a_piece_is_put_once_under_its_name(self, store: SessionDB) -> None:
        part = OutboundPart("telegram", "room", "a", key="notice:1", extra='{"reply_to":"7"}')
        (only,) = store.write(outbox.add, [part])
        assert store.write(outbox.add, [part]) == []
        (row,) = store.read(outbox.due)
        assert (row["id"], row["key"], row["extra"]) == (only, "notice:1", '{"reply_to":"7"}')
        assert store.read(outbox.next_due_at) == row["due_at"]

    def test_what_was_said_on_the_request_itself_is_kept_and_not_sent(
        self, store: SessionDB
    ) -> None:
        part = OutboundPart("api_server", "notes", "Done.", key="command:1:0", is_sent=True)
        assert len(store.write(outbox.add, [part, part])) == 1
        row = store.read(outbox.find, "command:1:0")
        assert row is not None and (row["content"], row["state"]) == ("Done.", "sent")
        assert store.read(outbox.find, "command:2:0") is None
        assert store.read(outbox.due) == [] == store.read(outbox.unsure)

    def test_what_was_given_up_is_listed(self, store: SessionDB) -> None:
        (only,) = store.write(outbox.add, [OutboundPart("telegram", "room", "hi")])
        assert store.read(outbox.failed) == []
        store.write(outbox.fail, only, "blocked")
        (row,) = store.read(outbox.failed)
        assert row["error"] == "blocked"
        assert store.read(outbox.failed, since=row["ended_at"] + 1) == []
        assert store.read(outbox.next_due_at) is None

    def test_a_piece_that_is_not_to_be_sent_is_on_record_and_holds_up_no_other(
        self, store: SessionDB
    ) -> None:
        parts = [
            OutboundPart("telegram", "room", "a", failure="dropped"),
            OutboundPart("telegram", "room", "b"),
        ]
        store.write(outbox.add, parts)
        assert [part["content"] for part in store.read(outbox.due)] == ["b"]
        (row,) = store.read(outbox.failed)
        assert (row["content"], row["error"]) == ("a", "dropped")

    def test_a_turn_has_one_draft(self, store: SessionDB) -> None:
        turn_id = running(store)
        assert store.read(drafts.find, turn_id) is None
        assert store.write(drafts.begin, turn_id, "telegram", "room")
        assert not store.write(drafts.begin, turn_id, "telegram", "room")
        assert (store.read(drafts.find, turn_id) or {})["message_id"] is None
        store.write(drafts.set_message_id, turn_id, "m1")
        assert (store.read(drafts.find, turn_id) or {})["message_id"] == "m1"
        store.write(drafts.delete, turn_id)
        assert store.read(drafts.find, turn_id) is None

    def test_the_first_piece_of_a_reply_is_begun_with_the_draft_that_shows_it(
        self, store: SessionDB
    ) -> None:
        turn_id, other = running(store, "s1"), running(store, "s2")
        first, second = store.write(
            outbox.add, [OutboundPart("t", "room", x) for x in "ab"], turn_id=turn_id
        )
        (plain,) = store.write(outbox.add, [OutboundPart("t", "hall", "c")], turn_id=other)
        (notice,) = store.write(outbox.add, [OutboundPart("t", "attic", "d")])
        store.write(drafts.begin, turn_id, "t", "room")
        store.write(drafts.set_message_id, turn_id, "m1")
        claimed = store.write(outbox.begin, first)
        assert (claimed["content"], claimed["state"], claimed["draft"]["message_id"]) == (
            "a", "sending", "m1"
        )  # fmt: skip
        assert [store.write(outbox.begin, id_)["draft"] for id_ in (plain, notice)] == [None, None]
        store.write(outbox.sent, plain)
        assert store.read(drafts.find, turn_id) is not None
        store.write(outbox.sent, first)
        assert store.read(drafts.find, turn_id) is None
        assert store.write(outbox.begin, second)["draft"] is None

    def test_a_piece_may_be_claimed_with_the_note_of_what_became_of_it(
        self, store: SessionDB
    ) -> None:
        first, second = store.write(
            outbox.add, [OutboundPart("matrix", "room", text) for text in "ab"]
        )
        seen = store.read(outbox.look, first)
        assert seen is not None
        assert (seen["state"], seen["attempts"], seen["draft"]) == ("pending", 1, None)
        assert store.read(outbox.unsure) == []
        store.write(outbox.retry, first, "timeout", due_at=0.0, is_claimed=False)
        again = store.read(outbox.look, first)
        assert again is not None and (again["attempts"], again["error"]) == (2, "timeout")
        assert store.write(outbox.sent, first, "m1", is_claimed=False)
        assert store.read(outbox.look, first) is None
        assert [part["id"] for part in store.read(outbox.due)] == [second]
        with refused(IllegalTransitionError):
            store.write(outbox.sent, first, "m2", is_claimed=False)
        assert store.read(outbox.look, 10_000) is None

    def test_a_piece_is_looked_up_with_the_draft_that_shows_it(self, store: SessionDB) -> None:
        turn_id = running(store)
        (only,) = store.write(outbox.add, [OutboundPart("t", "room", "a")], turn_id=turn_id)
        store.write(drafts.begin, turn_id, "t", "room")
        seen = store.read(outbox.look, only)
        assert seen is not None and seen["draft"]["message_id"] is None
        store.write(outbox.sent, only, "m1", is_claimed=False)
        assert store.read(drafts.find, turn_id) is None

    def test_an_illegal_move_of_a_piece_is_refused(self, store: SessionDB) -> None:
        (only,) = store.write(outbox.add, [OutboundPart("telegram", "room", "hi")])
        with refused(IllegalTransitionError):
            store.write(outbox.sent, only)
        store.write(outbox.begin, only)
        with refused(IllegalTransitionError):
            store.write(outbox.begin, only)
        store.write(outbox.sent, only)
        for move in (
            lambda: store.write(outbox.fail, only, "x"),
            lambda: store.write(outbox.begin, only),
        ):
            with refused(IllegalTransitionError):
                move()
        with refused(IllegalTransitionError):
            store.write(execute("UPDATE outbox SET state = 'pending', ended_at = NULL"))
        with refused(StoreError):
            store.write(outbox.begin, 10_000)
