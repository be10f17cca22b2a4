"""Rules for routes."""

from hermes_state.db import SessionDB
from hermes_state.ledger import chat_moves, routes, sessions
from hermes_state.ledger import turns as turn_ledger
from hermes_state.testing.rules.setup import DAY_S, accepted, chat, contents, session, still_clock
from hermes_state.values import InboundMessage, NewSession, Route


class RouteRules:
    """Test routes and moves of chats."""

    def _move_chat(
        self, store: SessionDB, entry: str = "{}", *, has_new_owner: bool = False
    ) -> dict[str, int]:
        return store.write(
            chat_moves.move_chat,
            Route("key", entry),
            "new",
            former="s",
            reason="why",
            new_session=NewSession("p"),
            has_new_owner=has_new_owner,
        )

    def test_a_route_is_saved_found_and_forgotten(self, store: SessionDB) -> None:
        store.write(routes.save, Route("key", '{"x": 1}'), "a")
        store.write(routes.save, Route("key", '{"x": 2}'), "b")
        store.write(routes.save, Route("key", scope="other"), "c")
        row = store.read(routes.find, "key")
        assert row is not None
        assert (row["session_id"], row["entry"]) == ("b", '{"x": 2}')
        assert store.read(routes.find, "none") is None
        assert list(store.read(routes.load)) == ["key"]
        assert store.write(routes.delete, ["key", "none"]) == 1
        assert store.read(routes.load) == {}
        assert list(store.read(routes.load, "other")) == ["key"]

    def test_several_routes_are_saved_at_once(self, store: SessionDB) -> None:
        store.write(routes.save, Route("old"), "a")
        store.write(routes.save, Route("kept"), "a")
        store.write(routes.save_all, [(Route("kept"), "b"), (Route("new"), "c")])
        assert {k: row["session_id"] for k, row in store.read(routes.load).items()} == {
            "old": "a", "kept": "b", "new": "c"
        }  # fmt: skip

    def test_a_chat_with_an_expired_route_has_left(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        store.write(routes.save, Route("here"), "s")
        store.write(routes.save, Route("away", expired=True), "s")
        assert store.read(routes.keys_of, "s") == {"here"}

    def test_a_chat_whose_route_was_forgotten_has_the_conversation_it_had_last(
        self, store: SessionDB
    ) -> None:
        for name in ("first", "last", "left", "away"):
            store.create_session(name, "cli", session_key="key")
        store.create_session("elsewhere", "cli", session_key="other")
        store.end_session("last", "agent_close")
        store.end_session("left", "reset")
        store.write(sessions.set_archived, "away", archived=True)
        found = store.read(routes.last_conversation, "key", ["reset"])
        assert found is not None
        assert found["id"] == "last"
        assert store.read(routes.last_conversation, "nobody", ["reset"]) is None

    def test_a_chat_that_goes_on_elsewhere_takes_along_what_waits(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        runs = accepted(store, inbound=InboundMessage("p", "c", "1", session_key="key"))
        waits = accepted(store, inbound=InboundMessage("p", "c", "2", session_key="key"))
        other = accepted(store, inbound=InboundMessage("p", "d", "3", session_key="d"))
        typed = accepted(store)
        store.write(turn_ledger.start, runs)
        moved = self._move_chat(store, '{"x": 1}')
        assert moved == {waits: (store.read(turn_ledger.find, waits) or {})["user_message_id"]}
        turns = {
            id_: store.read(turn_ledger.find, id_) or {} for id_ in (runs, waits, other, typed)
        }
        assert [turns[id_]["session_id"] for id_ in turns] == ["s", "new", "s", "s"]
        assert contents(store, "new") == [store.read(turn_ledger.user_text, waits)]
        assert len(contents(store, "s")) == 3
        assert [row["id"] for row in store.read(turn_ledger.all_open)] == [
            runs,
            other,
            typed,
            waits,
        ]
        assert (session(store, "s")["end_reason"], session(store, "new")["source"]) == ("why", "p")
        route = store.read(routes.find, "key")
        assert route is not None
        assert (route["session_id"], route["entry"]) == ("new", '{"x": 1}')

    def test_what_waits_keeps_its_order_whatever_the_clock_says(self, store: SessionDB) -> None:
        with still_clock() as time:
            store.create_session("s", "cli")
            for number in "123":
                delivery = InboundMessage("p", "c", number, session_key="key")
                store.write(
                    turn_ledger.accept, "s", {"role": "user", "content": number}, inbound=delivery
                )
                time.now -= DAY_S
            order = [
                store.read(turn_ledger.user_text, row["id"])
                for row in store.read(turn_ledger.unfinished)
            ]
            assert order == ["1", "2", "3"]
            self._move_chat(store)
            assert contents(store, "new") == ["1", "2", "3"]

    def test_of_a_chat_that_is_passed_on_nothing_goes_along(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        waits = accepted(store, inbound=InboundMessage("p", "c", "1", session_key="key"))
        moved = self._move_chat(store, has_new_owner=True)
        assert moved == {}
        turn = store.read(turn_ledger.find, waits) or {}
        assert (turn["session_id"], turn["state"]) == ("s", "interrupted")
        assert store.get_session("new") is None

    def test_a_conversation_that_a_chat_leaves_goes_on_for_others(self, store: SessionDB) -> None:
        chat(store, "s", "hello")
        store.write(routes.save, Route("others"), "s")
        self._move_chat(store)
        assert session(store, "s")["ended_at"] is None
        assert store.get_session("new") is None, "its first message makes it"
