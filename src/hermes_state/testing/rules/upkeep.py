"""Rules for upkeep."""

from hermes_core.errors import UsageError
from hermes_state.db import SessionDB
from hermes_state.ledger import lineage, sessions, usage
from hermes_state.testing.rules.setup import (
    DAY_S,
    chat,
    listed,
    refused,
    session,
    still_clock,
    summary,
)
from hermes_state.values import Spent


class UpkeepRules:
    """Test pruning of old and empty sessions."""

    def test_old_ended_conversations_are_pruned_and_no_others(self, store: SessionDB) -> None:
        with still_clock() as time:
            for id_ in ("old", "open", "archived", "telegram"):
                chat(store, id_, "hello", source="telegram" if id_ == "telegram" else "cli")
            store.write(lineage.rotate, "old", [summary()], child_id="old2")
            for id_ in ("old2", "archived", "telegram"):
                store.end_session(id_, "user")
            store.write(sessions.set_archived, "archived", True)
            time.now += 100 * DAY_S
            chat(store, "young", "hello")
            store.end_session("young", "user")
            assert [row["id"] for row in store.list_prune_candidates(source="cli")] == ["old2"]
            assert store.prune_sessions(90, "cli") == 1
            assert store.prune_sessions(90) == 1
            assert sorted(listed(store, include_archived=True)) == ["archived", "open", "young"]
            assert store.prune_sessions(90, include_archived=True) == 1
            assert store.get_session("old") is None
            with refused(UsageError):
                store.prune_sessions(0)
        assert store.check() == []

    def test_ghosts_are_terminal_sessions_that_ended_without_a_word(self, store: SessionDB) -> None:
        with still_clock() as time:
            for id_, source in (
                ("ghost", "tui"),
                ("cli", "cli"),
                ("open", "tui"),
                ("named", "tui"),
            ):
                store.create_session(id_, source)
            chat(store, "spoken", "hello", source="tui")
            for id_ in ("ghost", "cli", "named", "spoken"):
                store.end_session(id_, "exit")
            store.set_session_title("named", "mine")
            assert store.list_ghost_candidates() == []
            assert store.prune_empty_ghost_sessions() == 0
            time.now += 2 * DAY_S
            assert store.list_ghost_candidates() == ["ghost"]
            assert store.prune_empty_ghost_sessions() == 1
            assert store.get_session("ghost") is None
        assert store.check() == []

    def test_a_ghost_at_the_end_of_a_conversation_leaves_its_parent_as_the_tip(
        self, store: SessionDB
    ) -> None:
        with still_clock() as time:
            chat(store, "a", "hello", source="tui")
            store.write(lineage.rotate, "a", [], child_id="b")
            store.end_session("b", "exit")
            time.now += 2 * DAY_S
            assert store.prune_empty_ghost_sessions() == 1
        assert store.read(lineage.tip, "a") == "a"
        assert store.check() == []

    def test_continuations_that_were_never_used_are_ended(self, store: SessionDB) -> None:
        with still_clock() as time:
            for id_ in ("orphan", "used", "empty"):
                chat(store, id_, "hello")
                carried = [] if id_ == "empty" else [summary()]
                store.write(lineage.rotate, id_, carried, child_id=f"{id_}2")
            store.write(usage.record, "used2", Spent("m"))
            assert store.finalize_orphaned_compression_sessions() == 0
            time.now += 8 * DAY_S
            assert store.finalize_orphaned_compression_sessions() == 1
            assert store.finalize_orphaned_compression_sessions() == 0
        assert session(store, "orphan2")["end_reason"] == "orphaned_compression"
        assert session(store, "used2")["ended_at"] is None

    def test_a_sound_store_has_nothing_to_say(self, store: SessionDB) -> None:
        chat(store, "a", "hello")
        assert store.check() == []
