"""Rules for the inbox."""

from hermes_core.errors import IllegalTransitionError
from hermes_state.db import SessionDB
from hermes_state.ledger import inbox
from hermes_state.testing.rules.setup import accepted, execute, refused
from hermes_state.values import InboundMessage


class InboxRules:
    """Test the inbox."""

    def test_a_delivery_is_received_once_and_settled_once(self, store: SessionDB) -> None:
        delivery = InboundMessage("telegram", "room", "1", '{"text": "hi"}')
        assert store.write(inbox.receive, delivery) is True
        assert store.write(inbox.receive, delivery) is False
        assert [row["message_id"] for row in store.read(inbox.unsettled)] == ["1"]
        store.write(inbox.settle, delivery, "ignored")
        row = store.read(inbox.find, delivery)
        assert row is not None
        assert (row["outcome"], row["payload"]) == ("ignored", '{"text": "hi"}')
        assert store.read(inbox.unsettled) == []
        with refused(IllegalTransitionError):
            store.write(inbox.settle, delivery, "command")
        assert store.read(inbox.find, delivery._replace(message_id="2")) is None

    def test_accepting_a_turn_settles_its_delivery(self, store: SessionDB) -> None:
        store.create_session("s", "cli")
        delivery = InboundMessage("telegram", "room", "1")
        store.write(inbox.receive, delivery)
        turn_id = accepted(store, inbound=delivery)
        row = store.read(inbox.find, delivery)
        assert row is not None
        assert (row["outcome"], row["turn_id"]) == ("turn", turn_id)

    def test_the_database_itself_refuses_an_unknown_outcome(self, store: SessionDB) -> None:
        store.write(inbox.receive, InboundMessage("telegram", "room", "1"))
        for outcome in ("nonsense", "turn"):
            with refused(IllegalTransitionError):
                store.write(execute("UPDATE inbox SET outcome = ?", outcome))
