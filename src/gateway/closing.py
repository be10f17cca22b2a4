"""The end of a chat's conversation, the same as on every surface; its agent may be asleep."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

from gateway.chat_turns import ChatTurns
from hermes_agent.assembly import Assembly
from hermes_cli import plugins
from hermes_engine import closing

_STOP_TIMEOUT_S = 3.0


@contextmanager
def at_rest(turns: ChatTurns, session_key: str, conversation_id: str) -> Generator[bool]:
    """Stop what works for a chat on a conversation and begin nothing for it inside the block.

    Yields whether a turn was cut off. What is queued goes on afterwards, where its chat is then; what
    runs for another chat that is in the conversation goes on.
    """
    engine = turns.engine
    with turns.blocked(session_key), engine.paused(conversation_id):
        running = engine.work.get(conversation_id)
        is_own = running is not None and turns.is_for(running, session_key)
        is_cut_off = is_own and running is not None and not engine.is_over(running.turn.id)
        if is_own or engine.work.is_compacting(conversation_id):
            engine.interrupt(conversation_id, session_key)
            engine.work.wait_until_idle(conversation_id, _STOP_TIMEOUT_S)
        yield is_cut_off


def close_chat(
    session_id: str,
    platform: str,
    agent: Any,  # noqa: ANN401 -- ours, or a scenario's
    record: Callable[[], object],
    *,
    model: str | None = None,
    interrupted: bool = False,
    is_reported: bool = True,
    assembly: Assembly | None = None,
) -> None:
    """Close a chat's conversation; `record` stores its end.

    It is not reported when it goes on in another chat, or when that was done as its time was up.

    `model` is what the store knows to have answered in it, None where nothing was said; `interrupted`
    tells whether a turn was cut off. With an `assembly`, memory learns also where no agent is awake.
    """
    conversation = closing.OpenConversation(
        session_id=lambda: session_id,
        platform=platform,
        hooks=plugins,
        record=lambda _session_id: record(),
        agent=agent,
        model_name=model,
        learn=partial(closing.learn, assembly) if assembly and is_reported else None,
        is_reported=is_reported,
    )
    closing.close(conversation, completed=False, interrupted=interrupted)
