"""A process that compacts one conversation in a loop until it is killed; run by test_kill."""

import sys

from hermes_agent.compaction import Job, compact
from hermes_agent.models.base import Reply, Request
from hermes_agent.tokens import Estimator
from hermes_state import SessionDB
from hermes_state.ledger import lineage
from tests.support.worker import Order, reporter, serve

SESSION = "s"
SUMMARY = "## Goal\n- Count as far as it goes.\n\n## Facts\n- Every message has a number.\n"


def live(order: Order, pipe: int) -> None:
    """Go on where the last worker was killed: add messages, compact, add messages."""
    report = reporter(pipe)
    with SessionDB(order.database) as store:
        if store.get_session(SESSION) is None:
            store.create_session(SESSION, "cli")
        tip = store.read(lineage.tip, SESSION)
        number = len(store.get_messages_as_conversation(tip, include_ancestors=True))
        while True:
            for _ in range(6):
                role = "assistant" if number % 2 else "user"
                store.append_message(tip, role, f"message {number}: " + "some words " * 40)
                number += 1
                report(f"0 {number}")
            report("point compacting")
            outcome = compact(Job(store, tip, Estimator("m"), 2_048, 512, ask=_ask, force=True))
            if outcome is not None:
                tip = outcome.new_session_id
                report("point compacted")


def _ask(_request: Request) -> Reply:
    return Reply(SUMMARY)


if __name__ == "__main__":
    serve(int(sys.argv[1]), live)
