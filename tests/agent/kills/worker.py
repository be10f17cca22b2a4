"""The process that is killed: recovers what it finds, then goes on with its conversations.

For each turn it reports two acknowledgements: that the message was taken in (2n - 1) and that the turn
has ended (2n).
"""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from hermes_agent import recovery
from hermes_agent.agent import Agent
from hermes_core.errors import ConversationBusyError, LeaseLostError
from hermes_state import SessionDB
from hermes_state.ledger import lineage, sessions
from hermes_state.ledger import turns as ledger
from tests.agent.kills import script
from tests.support.worker import Order, describe, reporter, run_threads, serve, trapped_store

_BUSY_S = 0.005


def live(order: Order, pipe: int) -> None:
    """Recover, then run turns in as many conversations as there are names; report to the pipe."""
    report = reporter(pipe)
    database = Path(order.database)
    with trapped_store(order, report) as (store, reach):
        _recover(store, lambda session_id: script.agent(store, database, session_id, reach))

        def run(number: int, name: str) -> None:
            try:
                for step in _conversation(store, database, name, order.scripts, reach):
                    report(f"{number} {step}")
            except BaseException as error:  # noqa: BLE001 -- the parent must hear of it
                report(describe(error))

        run_threads(order.threads, run)
    report("done")


def _recover(store: SessionDB, agent_for: Callable[[str], Agent]) -> None:
    """Run every unfinished turn but those of sub-agents, which their parents find again."""
    for row in recovery.unfinished(store):
        session = store.read(sessions.find, row["session_id"])
        if session is None or session["relation"] == "delegate":
            continue
        agent = agent_for(row["session_id"])
        try:
            agent.run_turn(row["id"])
        except ConversationBusyError:
            continue  # somebody was faster
        finally:
            agent.close()


def _conversation(
    store: SessionDB, database: Path, name: str, turns: int, reach: Callable[[str], None]
) -> Iterator[int]:
    """Go on with a conversation up to so many turns; yields each acknowledgement."""
    agent = script.agent(store, database, name, reach)
    existing = turns_of(store, name)
    for row in existing:
        _run(agent, row)
    if existing:
        yield 2 * len(existing)
    for number in range(len(existing) + 1, turns + 1):
        accepted = agent.accept(script.prompt(name, number))
        reach("acknowledge")
        yield 2 * number - 1
        _run(agent, accepted.turn_id)
        reach("acknowledge")
        yield 2 * number
    agent.close()


def turns_of(store: SessionDB, name: str) -> list[str]:
    """The turns of a conversation, in order; in one look, because another process may be moving them."""
    found = store.read(
        lambda c: [
            turn for member in lineage.members(c, name) for turn in ledger.of_session(c, member)
        ]
    )
    return [turn["id"] for turn in sorted(found, key=lambda turn: turn["user_message_id"])]


def _run(agent: Agent, turn_id: str) -> None:
    """Run a turn; one that another process is recovering is waited for."""
    while True:
        try:
            agent.run_turn(turn_id)
        except (ConversationBusyError, LeaseLostError):
            time.sleep(_BUSY_S)
        else:
            return


if __name__ == "__main__":
    serve(int(sys.argv[1]), live)
