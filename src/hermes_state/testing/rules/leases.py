"""Rules for leases."""

from hermes_core.errors import IllegalTransitionError, LeaseLostError
from hermes_state.protocol import Store
from hermes_state.testing.rules.given import execute, refused, still_clock
from hermes_state.values import Lease


class LeaseRules:
    """Who may run a conversation."""

    def test_a_lease_has_one_holder_and_a_token_that_grows(self, store: Store) -> None:
        with still_clock() as time:
            first = store.leases.acquire("c", "me", ttl_s=10)
            assert first == Lease("c", "me", 1)
            assert store.leases.acquire("c", "you", ttl_s=10) is None
            assert store.leases.holder_of("c") == "me"
            time.now += 10
            assert store.leases.holder_of("c") is None
            second = store.leases.acquire("c", "you", ttl_s=10)
            assert second == Lease("c", "you", 2)

    def test_a_lease_is_renewed_by_its_holder_only(self, store: Store) -> None:
        with still_clock() as time:
            first = store.leases.acquire("c", "me", ttl_s=10)
            assert first is not None
            time.now += 5
            store.leases.renew(first, ttl_s=10)
            time.now += 9
            assert store.leases.holder_of("c") == "me"
            time.now += 1
            store.leases.acquire("c", "you", ttl_s=10)
            with refused(LeaseLostError):
                store.leases.renew(first)
            store.leases.release(first)
            assert store.leases.holder_of("c") == "you"

    def test_a_released_lease_is_free_and_its_next_token_is_higher(self, store: Store) -> None:
        first = store.leases.acquire("c", "me")
        assert first is not None
        store.leases.release(first)
        assert store.leases.holder_of("c") is None
        assert store.leases.acquire("c", "you") == Lease("c", "you", 2)

    def test_a_holder_who_asks_again_outdates_its_own_first_lease(self, store: Store) -> None:
        first = store.leases.acquire("c", "me")
        second = store.leases.acquire("c", "me")
        assert first is not None
        assert second == Lease("c", "me", 2)
        with refused(LeaseLostError):
            store.leases.renew(first)

    def test_the_database_itself_refuses_a_smaller_token(self, store: Store) -> None:
        store.leases.acquire("c", "me")
        with refused(IllegalTransitionError):
            store.write(execute("UPDATE leases SET token = 0"))
