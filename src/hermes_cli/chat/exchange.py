"""One exchange: accept a message, answer the earlier ones that are open, then answer it."""

from typing import Any

from hermes_agent import lease, recovery
from hermes_agent.agent import Agent
from hermes_agent.turn.events import Notice
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ConversationBusyError, HermesError, IllegalTransitionError
from hermes_state.ledger import turns

_RETRY_INTERVAL_S = 1.0
EXIT_FAILED = 1
EXIT_NO_MODEL = 3


def answer(
    agent: Agent,
    content: Any,  # noqa: ANN401 -- text or parts
    replaces: int | None = None,
    *,
    stop: Stop,
) -> dict[str, Any]:
    """Answer a message, in the place of another one; returns how that came out.

    Raises ConversationBusyError while another process runs the conversation; nothing is stored then, so
    that a script may send the message again.
    """
    lease.expire_dead_leases(agent.store)
    accepted = agent.accept(content, replaces=replaces, only_if_idle=True)
    while True:
        try:
            return _run(agent, accepted.turn_id, stop)
        except ConversationBusyError:  # another process took the conversation just now
            if _is_withdrawn(agent, accepted.turn_id):
                raise
            if stop.is_set_within(_RETRY_INTERVAL_S):
                raise HermesError(
                    "Another process answers your message.",
                    fix=f"hermes chat -r {agent.session_id} shows the answer.",
                ) from None


def _run(agent: Agent, turn_id: str, stop: Stop) -> dict[str, Any]:
    for row in recovery.unfinished(agent.store, agent.conversation_id):
        if row["id"] != turn_id:
            agent.sink(Notice("An earlier message has no answer yet; it comes first."))
            agent.run_turn(row["id"], stop=stop)
    return agent.run_turn(turn_id, stop=stop)


def _is_withdrawn(agent: Agent, turn_id: str) -> bool:
    """Withdraw a turn; returns False when another process has started it."""
    try:
        agent.store.write(turns.withdraw, turn_id, "another process runs the conversation")
    except IllegalTransitionError:
        return False
    return True


def status_of(told: dict[str, Any]) -> int:
    """The exit status that says how a turn came out."""
    if told["completed"]:
        return 0
    if told["interrupted"]:
        return 130
    return EXIT_NO_MODEL if told.get("failure_reason") == "model.missing" else EXIT_FAILED
