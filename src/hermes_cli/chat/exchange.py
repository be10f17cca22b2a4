"""One exchange: a message is taken in, what waits before it is answered first, then it."""

from typing import Any

from hermes_agent import recovery
from hermes_agent.agent import Agent
from hermes_agent.events import Notice
from hermes_agent.stop import Stop

EXIT_FAILED = 1
EXIT_NO_MODEL = 3


def answer(
    agent: Agent,
    content: Any,  # noqa: ANN401 -- text or parts
    replaces: int | None = None,
    *,
    stop: Stop,
) -> dict[str, Any]:
    """Answer a message, in the place of another one; returns how that came out."""
    accepted = agent.accept(content, replaces=replaces)
    for row in recovery.unfinished(agent.store, agent.conversation_id):
        if row["id"] != accepted.turn_id:
            agent.sink(Notice("An earlier message has no answer yet; it comes first."))
            agent.run_turn(row["id"], stop=stop)
    return agent.run_turn(accepted.turn_id, stop=stop)


def status_of(told: dict[str, Any]) -> int:
    """The exit status that says how a turn came out."""
    if told["completed"]:
        return 0
    if told["interrupted"]:
        return 130
    return EXIT_NO_MODEL if told.get("failure_reason") == "model.missing" else EXIT_FAILED
