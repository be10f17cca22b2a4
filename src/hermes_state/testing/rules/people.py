"""Rules for people."""

from typing import Any

from hermes_state.db import SessionDB
from hermes_state.ledger import people
from hermes_state.testing.rules.setup import NOON, still_clock
from hermes_state.values import Person, Stranger


class PeopleRules:
    """Test people and pairing codes."""

    def _ask(self, store: SessionDB, user_id: str, code: str, platform: str = "telegram") -> bool:
        stranger = Stranger(platform, user_id, f"chat {user_id}", "Ann")
        return store.write(people.add_stranger, stranger, code)

    def test_who_gives_the_code_back_lets_the_stranger_in(self, store: SessionDB) -> None:
        with still_clock():
            assert self._ask(store, "1", "CODE")
            assert [row["user_id"] for row in store.read(people.pending)] == ["1"]
            redeemed = store.write(people.redeem, "CODE", "terminal")
            ann = Person("telegram", "1", "owner", "Ann", "chat 1", NOON, "terminal")
            assert redeemed == (ann, 0.0)
            assert store.read(people.find, "telegram", "1") == ann
            assert store.read(people.pending) == []
            assert store.write(people.redeem, "CODE", "terminal").person is None, (
                "it is good for once"
            )

    def test_the_first_one_is_the_owner_and_no_other_unless_it_is_said(
        self, store: SessionDB
    ) -> None:
        roles: list[Any] = [None, None, "guest", "owner"]
        for number, role in enumerate(roles):
            platform = ("telegram", "matrix")[number % 2]
            self._ask(store, str(number), f"CODE {number}", platform)
            store.write(people.redeem, f"CODE {number}", "terminal", role=role)
        assert store.read(people.has_owner)
        assert [person.role for person in store.read(people.list_all)] == [
            "owner", "member", "guest", "owner"
        ]  # fmt: skip

    def test_a_role_changes_for_those_who_are_in(self, store: SessionDB) -> None:
        ann = Person("telegram", "1", "owner", "Ann", "chat 1", NOON, "terminal")
        store.write(people.save, ann)
        changed = store.write(people.change_role, "telegram", "1", "guest")
        assert changed == store.read(people.find, "telegram", "1") == ann._replace(role="guest")
        assert not store.read(people.has_owner)
        assert store.write(people.change_role, "matrix", "1", "owner") is None
        assert store.read(people.list_all) == [changed]

    def test_nobody_is_shown_a_second_code_soon_and_few_at_the_same_time(
        self, store: SessionDB
    ) -> None:
        with still_clock() as time:
            assert [self._ask(store, str(n), f"CODE {n}") for n in range(4)] == [True] * 3 + [False]
            assert self._ask(store, "3", "OTHER", "matrix"), "each platform counts for itself"
            time.now += 599
            assert not self._ask(store, "0", "NEW")
            time.now += 1
            assert self._ask(store, "0", "NEW")
            assert store.write(people.redeem, "CODE 0", "me").person is None, "the newest counts"
            time.now += 3000
            assert [row["user_id"] for row in store.read(people.pending, "telegram")] == ["0"]
            assert store.write(people.redeem, "CODE 1", "me").person is None, "an hour is over"
            assert store.write(people.redeem, "NEW", "me").person is not None

    def test_a_code_is_good_on_its_platform(self, store: SessionDB) -> None:
        self._ask(store, "1", "CODE")
        assert store.write(people.redeem, "CODE", "me", platform="matrix").person is None
        assert store.write(people.redeem, "CODE", "me", platform="telegram").person is not None

    def test_wrong_codes_lock_a_platform_for_an_hour(self, store: SessionDB) -> None:
        with still_clock() as time:
            self._ask(store, "1", "CODE")
            for _ in range(4):
                assert store.write(people.redeem, "WRONG", "me") == (None, 0.0)
            assert store.write(people.redeem, "WRONG", "me") == (None, NOON + 3600)
            assert store.write(people.redeem, "CODE", "me") == (None, NOON + 3600), (
                "also the right one"
            )
            assert not self._ask(store, "2", "CODE 2"), "there is no use in a code now"
            assert self._ask(store, "2", "CODE 2", "matrix")
            assert store.write(people.redeem, "CODE 2", "me").person is not None, (
                "others are not locked"
            )
            time.now += 3600
            self._ask(store, "1", "AGAIN")
            for _ in range(4):
                assert store.write(people.redeem, "WRONG", "me") == (None, 0.0)
            assert store.write(people.redeem, "AGAIN", "me").person is not None
            self._ask(store, "3", "THIRD")
            assert store.write(people.redeem, "WRONG", "me") == (None, 0.0), (
                "counted anew after a right one"
            )

    def test_the_code_itself_is_not_kept(self, store: SessionDB) -> None:
        self._ask(store, "1", "CODE")
        rows = store.read(lambda c: c.tuples("SELECT * FROM pairings"))
        assert len(rows) == 1
        assert not any("CODE" in str(value) for row in rows for value in row)

    def test_who_was_let_in_can_be_changed_and_put_out(self, store: SessionDB) -> None:
        ann = Person("telegram", "1", "guest", None, None, NOON, "me")
        store.write(people.save, ann)
        store.write(people.save, ann._replace(role="member"))
        assert [person.role for person in store.read(people.list_all)] == ["member"]
        assert store.read(people.find, "matrix", "1") is None
        assert store.write(people.remove, "telegram", "1")
        assert not store.write(people.remove, "telegram", "1")
        assert store.read(people.find, "telegram", "1") is None

    def test_a_code_that_was_not_shown_can_be_forgotten(self, store: SessionDB) -> None:
        self._ask(store, "1", "CODE")
        assert store.write(people.delete_code, "telegram", "1")
        assert self._ask(store, "1", "OTHER")
        assert store.write(people.redeem, "CODE", "me").person is None
