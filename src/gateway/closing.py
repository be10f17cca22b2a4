"""The end of a chat's conversation, the same as on every surface; its agent may be asleep."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from gateway.chat_turns import ChatTurns
from hermes_agent import ending
from hermes_cli import plugins

_PATIENCE_S = 0.5
_STOP_TIMEOUT_S = 3.0


@contextmanager
def at_rest(turns: ChatTurns, session_key: str, conversation_id: str) -> Generator[bool]:
    """Stop what works for a chat on a conversation and begin nothing for it inside the block.

    Yields whether a turn was cut off. What is queued goes on afterwards, where its chat is then; what
    runs for another chat that is in the conversation goes on.
    """
    engine = turns.engine
    with turns.held(session_key), engine.paused(conversation_id):
        running = engine.work.get(conversation_id)
        is_own = running is not None and turns.is_for(running, session_key)
        is_cut_off = is_own and running is not None and not turns.is_over(running.turn.id)
        if is_own or engine.work.is_compacting(conversation_id):
            engine.interrupt(conversation_id, session_key)
            engine.work.wait_until_idle(conversation_id, _STOP_TIMEOUT_S)
        yield is_cut_off


def let_go(
    session_id: str,
    platform: str,
    agent: Any,  # noqa: ANN401 -- ours, or a scenario's
    record: Callable[[], object],
    *,
    model: str | None = None,
    interrupted: bool = False,
    goes_on: bool = False,
    is_told: bool = False,
) -> None:
    """End a conversation; `record` says so in the store. Whatever fails, the other parts are done.

    One that goes on in another chat is left, and nobody is told of an end; nor of one that was told
    when its time was up.

    `model` is what the store knows to have answered in it, None where nothing was said; `interrupted`
    tells whether a turn was cut off.
    """
    tells = not (goes_on or is_told)
    leaving = _Leaving(session_id, platform, agent, record, model, tells=tells)
    ending.let_go(leaving, "", completed=False, interrupted=interrupted)


class _Leaving:
    """A chat's conversation as its end sees it."""

    def __init__(
        self,
        session_id: str,
        platform: str,
        agent: Any,  # noqa: ANN401 -- see above
        record: Callable[[], object],
        model: str | None,
        *,
        tells: bool,
    ) -> None:
        self._model = model
        self._tells = tells
        self.session_id = session_id
        self._platform = platform
        self._agent = agent
        self._record = record

    def stop(self) -> None:
        if self._agent is not None:
            self._agent.interrupt()
            self._agent.wait_until_idle(_PATIENCE_S)

    def flush(self) -> None:
        if self._agent is not None:
            self._agent.flush()

    def remember(self) -> None:
        if self._agent is not None:
            self._agent.commit_memory_session()

    def tell_end(self, *, completed: bool, interrupted: bool) -> None:
        model = self._agent.model.facts.name if self._agent is not None else self._model
        if model is not None and self._tells:
            plugins.invoke_hook(
                "on_session_end",
                session_id=self.session_id,
                completed=completed,
                interrupted=interrupted,
                model=model,
                platform=self._platform,
            )

    def record(self, end_reason: str) -> None:
        del end_reason  # the route says it
        self._record()

    def tell_finalized(self) -> None:
        if self._tells:
            plugins.invoke_hook(
                "on_session_finalize", session_id=self.session_id, platform=self._platform
            )

    def close(self) -> None:
        if self._agent is not None:
            self._agent.close()
