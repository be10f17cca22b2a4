"""Rules for routes."""

from hermes_state.protocol import Store
from hermes_state.testing.rules.given import DAY_S, accepted, chat, contents, session, still_clock
from hermes_state.values import InboundMessage, NewSession, Route


class RouteRules:
    """Where a chat's conversation is."""

    def test_a_route_is_saved_found_and_forgotten(self, store: Store) -> None:
        store.routes.save("key", "a", '{"x": 1}')
        store.routes.save("key", "b", '{"x": 2}')
        store.routes.save("key", "c", scope="other")
        row = store.routes.get("key")
        assert row is not None
        assert (row["session_id"], row["entry"]) == ("b", '{"x": 2}')
        assert store.routes.get("none") is None
        assert list(store.routes.load()) == ["key"]
        assert store.routes.delete(["key", "none"]) == 1
        assert store.routes.load() == {}
        assert list(store.routes.load("other")) == ["key"]

    def test_all_routes_of_a_scope_can_be_replaced(self, store: Store) -> None:
        store.routes.save("old", "a")
        store.routes.save("kept", "a")
        store.routes.save("elsewhere", "a", scope="other")
        store.routes.replace({"kept": ("b", "{}"), "new": ("c", "{}")})
        assert {k: row["session_id"] for k, row in store.routes.load().items()} == {
            "kept": "b", "new": "c"
        }  # fmt: skip
        assert list(store.routes.load("other")) == ["elsewhere"]

    def test_a_chat_whose_route_was_forgotten_has_the_conversation_it_had_last(
        self, store: Store
    ) -> None:
        for name in ("first", "last", "left", "away"):
            store.create_session(name, "cli", session_key="key")
        store.create_session("elsewhere", "cli", session_key="other")
        store.end_session("last", "agent_close")
        store.end_session("left", "reset")
        store.set_session_archived("away", archived=True)
        found = store.routes.lost("key", ["reset"])
        assert found is not None
        assert found["id"] == "last"
        assert store.routes.lost("nobody", ["reset"]) is None

    def test_a_chat_that_goes_on_elsewhere_takes_along_what_waits(self, store: Store) -> None:
        store.create_session("s", "cli")
        runs = accepted(store, delivery=InboundMessage("p", "c", "1", '{"session_key": "key"}'))
        waits = accepted(store, delivery=InboundMessage("p", "c", "2", '{"session_key": "key"}'))
        other = accepted(store, delivery=InboundMessage("p", "d", "3", '{"session_key": "d"}'))
        typed = accepted(store)
        store.turns.start(runs)
        moved = store.succeed(
            Route("key", '{"x": 1}'), "new", former="s", reason="why", opening=NewSession("p")
        )
        assert moved == {waits: (store.turns.get(waits) or {})["user_message_id"]}
        turns = {one: store.turns.get(one) or {} for one in (runs, waits, other, typed)}
        assert [turns[one]["session_id"] for one in turns] == ["s", "new", "s", "s"]
        assert contents(store, "new") == [store.turns.user_text(waits)]
        assert len(contents(store, "s")) == 3
        assert [one["id"] for one in store.turns.still_open()] == [runs, other, typed, waits]
        assert (session(store, "s")["end_reason"], session(store, "new")["source"]) == ("why", "p")
        route = store.routes.get("key")
        assert route is not None
        assert (route["session_id"], route["entry"]) == ("new", '{"x": 1}')

    def test_what_waits_keeps_its_order_whatever_the_clock_says(self, store: Store) -> None:
        with still_clock() as time:
            store.create_session("s", "cli")
            for number in "123":
                delivery = InboundMessage("p", "c", number, '{"session_key": "key"}')
                store.turns.accept("s", {"role": "user", "content": number}, delivery=delivery)
                time.now -= DAY_S
            order = [store.turns.user_text(one["id"]) for one in store.turns.unfinished()]
            assert order == ["1", "2", "3"]
            opening = NewSession("p")
            store.succeed(Route("key"), "new", former="s", reason="why", opening=opening)
            assert contents(store, "new") == ["1", "2", "3"]

    def test_of_a_chat_that_is_passed_on_nothing_goes_along(self, store: Store) -> None:
        store.create_session("s", "cli")
        waits = accepted(store, delivery=InboundMessage("p", "c", "1", '{"session_key": "key"}'))
        moved = store.succeed(
            Route("key"),
            "new",
            former="s",
            reason="why",
            opening=NewSession("p"),
            is_passed_on=True,
        )
        assert moved == {}
        turn = store.turns.get(waits) or {}
        assert (turn["session_id"], turn["state"]) == ("s", "interrupted")
        assert store.get_session("new") is None

    def test_a_conversation_that_a_chat_leaves_goes_on_for_others(self, store: Store) -> None:
        chat(store, "s", "hello")
        store.routes.save("others", "s")
        opening = NewSession("p")
        store.succeed(Route("key"), "new", former="s", reason="why", opening=opening)
        assert session(store, "s")["ended_at"] is None
        assert store.get_session("new") is None, "its first message makes it"
