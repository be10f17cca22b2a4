"""A process that compacts one conversation in a loop until it is killed; run by test_kill.

The nursery imports everything once and forks a victim for every line it reads; a victim writes a line
for everything that the store has acknowledged.
"""

import os
import sys

from hermes_agent.compaction import Job, compact
from hermes_agent.models.base import Reply, Request
from hermes_agent.tokens import Estimator
from hermes_state import SessionDB

SESSION = "s"
SUMMARY = "## Goal\n- Count as far as it goes.\n\n## Facts\n- Every message has a number.\n"


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def live(path: str) -> None:
    """Go on where the last victim was killed: say something, compact, say something."""
    with SessionDB(path) as store:
        if store.get_session(SESSION) is None:
            store.create_session(SESSION, "cli")
        tip = store.get_compression_tip(SESSION)
        whole = store.get_messages_as_conversation(tip, include_ancestors=True)
        number = len(whole)
        say("ready")
        while True:
            for _ in range(6):
                role = "assistant" if number % 2 else "user"
                store.append_message(tip, role, f"message {number}: " + "some words " * 40)
                number += 1
                say(f"said {number}")
            say("compacting")
            outcome = compact(Job(store, tip, Estimator("m"), 2_048, 512, ask=_ask, force=True))
            if outcome is not None:
                tip = outcome.new_session_id
                say(f"compacted {outcome.strategy}")


def _ask(_request: Request) -> Reply:
    return Reply(SUMMARY)


def serve(path: str) -> None:
    for line in sys.stdin:
        if line.strip() == "reap":
            os.wait()
            say("reaped")
            continue
        pid = os.fork()
        if pid == 0:
            try:
                live(path)
            except BaseException as error:  # noqa: BLE001 -- whatever it is, the test must hear of it
                say(f"error {type(error).__name__}: {error}".replace("\n", " "))
            os._exit(0)
        say(f"pid {pid}")


if __name__ == "__main__":
    serve(sys.argv[1])
