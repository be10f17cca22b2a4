"""The end of a chat's conversation, the same as on every surface; its agent may be asleep."""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any

from gateway.lanes import Lane, Lanes
from gateway.turns import Turns
from hermes_agent import ending
from hermes_cli import plugins

_PATIENCE_S = 0.5
_STOPPING_S = 3.0


@contextmanager
def at_rest(lanes: Lanes, turns: Turns, key: str, session_id: str) -> Generator[tuple[Lane, bool]]:
    """Stop what works on a chat's conversation and begin nothing meanwhile, also if a job runs it.

    Gives the chat's lane, and whether a turn was cut off. What waits goes on afterwards, where its chat
    is then.
    """
    jobs = [lane.key for lane in lanes.beside(key) if turns.session_of(lane.key) == session_id]
    with ExitStack() as held:
        own, *others = [held.enter_context(lanes.held_back(one)) for one in (key, *jobs)]
        is_cut_off = any(_is_at_work(lane, turns) for lane in (own, *others))
        stopped = [lane for lane in (own, *others) if turns.stop(lane)]
        turns.shortenings.stop(key)
        for lane in stopped:
            lanes.wait_for_end(lane, _STOPPING_S)
        turns.shortenings.wait_for_end(key, _STOPPING_S)
        yield own, is_cut_off and bool(stopped)


def _is_at_work(lane: Lane, turns: Turns) -> bool:
    """Whether a turn runs in a lane; one that is over on disk has been answered."""
    current = lane.current
    return current is not None and not turns.is_over(current.turn_id)


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
