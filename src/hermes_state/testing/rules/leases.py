"""Rules for leases."""

from hermes_core.errors import IllegalTransitionError, LeaseLostError
from hermes_state.db import SessionDB
from hermes_state.ledger import leases
from hermes_state.testing.rules.setup import execute, refused, still_clock
from hermes_state.values import Lease


class LeaseRules:
    """Test leases."""

    def test_a_lease_has_one_holder_and_a_token_that_grows(self, store: SessionDB) -> None:
        with still_clock() as time:
            first = store.write(leases.acquire, "c", "me", ttl_s=10)
            assert first == Lease("c", "me", 1)
            assert store.write(leases.acquire, "c", "you", ttl_s=10) is None
            assert store.read(leases.holder_of, "c") == "me"
            time.now += 10
            assert store.read(leases.holder_of, "c") is None
            second = store.write(leases.acquire, "c", "you", ttl_s=10)
            assert second == Lease("c", "you", 2)

    def test_a_lease_is_renewed_by_its_holder_only(self, store: SessionDB) -> None:
        with still_clock() as time:
            first = store.write(leases.acquire, "c", "me", ttl_s=10)
            assert first is not None
            time.now += 5
            store.write(leases.renew, first, ttl_s=10)
            time.now += 9
            assert store.read(leases.holder_of, "c") == "me"
            time.now += 1
            store.write(leases.acquire, "c", "you", ttl_s=10)
            with refused(LeaseLostError):
                store.write(leases.renew, first)
            store.write(leases.release, first)
            assert store.read(leases.holder_of, "c") == "you"

    def test_a_released_lease_is_free_and_its_next_token_is_higher(self, store: SessionDB) -> None:
        first = store.write(leases.acquire, "c", "me")
        assert first is not None
        store.write(leases.release, first)
        assert store.read(leases.holder_of, "c") is None
        assert store.write(leases.acquire, "c", "you") == Lease("c", "you", 2)

    def test_a_holder_who_asks_again_outdates_its_own_first_lease(self, store: SessionDB) -> None:
        first = store.write(leases.acquire, "c", "me")
        second = store.write(leases.acquire, "c", "me")
        assert first is not None
        assert second == Lease("c", "me", 2)
        with refused(LeaseLostError):
            store.write(leases.renew, first)

    def test_the_database_itself_refuses_a_smaller_token(self, store: SessionDB) -> None:
        store.write(leases.acquire, "c", "me")
        with refused(IllegalTransitionError):
            store.write(execute("UPDATE leases SET token = 0"))
