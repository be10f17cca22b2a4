"""Closing a conversation, the same on every surface: stop, flush, end reason, memory, hooks.

Each part is tried even when the one before it failed. What is ours to store is stored before any plugin
is called: a process that is ending has a second, and a plugin may take all of it.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from hermes_agent import memory
from hermes_agent.hooks import Hooks
from hermes_agent.permissions import Permissions
from hermes_state.ledger import lineage, messages, sessions, turns
from hermes_state.values import Row

if TYPE_CHECKING:  # a surface that closes half-built conversations need not load the agent for it
    from hermes_agent.assembly import Assembly
    from hermes_state.store import Store

logger = logging.getLogger(__name__)

STOP_TIMEOUT_S = 0.5
"""How long to wait for the end of a running turn, which takes a fifth of a second."""


class OpenConversation(msgspec.Struct):
    """A conversation to close, as its surface holds it."""

    session_id: Callable[[], str]
    """Returns the session it is in now: a turn that is stopped may still move it."""
    platform: str
    hooks: Hooks
    record: Callable[[str], object] | None = None
    """Stores the end of the session with this id; None where that is done, or it does not end."""
    agent: Any = None  # ours, or one of a scenario, which may lack any method
    """None when it is not awake."""
    model_name: str | None = None
    """The model that answered, where no agent is awake; None when none ever did."""
    history: Sequence[dict[str, Any]] = ()
    """The transcript of a surface that keeps one."""
    learn: Callable[[str], object] | None = None
    """Lets memory learn from the session with this id, where no agent is awake."""
    is_reported: bool = True
    """Whether plugins are told of the end."""
    stop: Callable[[], object] | None = None
    """Stops what only the surface knows of; it may still find the agent."""


def close(
    conversation: OpenConversation, *, completed: bool = False, interrupted: bool = True
) -> None:
    """Close a conversation, part by part; one that fails is logged and the others follow."""
    closing = _Closing(conversation)
    parts: tuple[Callable[[], object], ...] = (
        closing.stop,
        closing.flush,
        closing.record,
        closing.learn,
        lambda: closing.report_end(completed=completed, interrupted=interrupted),
        closing.report_finalized,
        closing.close_agent,
    )
    for part in parts:
        try:
            part()
        except Exception:
            logger.exception("Closing session %s: a part failed", closing.session_id)


def stored_conversation(assembly: "Assembly", session: Row) -> OpenConversation:
    """Return the conversation of a stored session, whose agent is not awake, with its end stored."""
    return OpenConversation(
        session_id=lambda: session["id"],
        platform=session["source"],
        hooks=assembly.plugins,
        model_name=session["model"] or "",
        learn=partial(learn, assembly),
    )


def learn(assembly: "Assembly", session_id: str) -> None:
    """Let memory learn from a conversation whose agent is not awake, as its last agent would have."""
    store = assembly.store
    if not assembly.plugins.memory_providers():
        return
    turn = store.read(turns.latest_in, store.read(lineage.root, session_id))
    if turn is None:
        return
    stored = turn["permissions"]
    permissions = msgspec.json.decode(stored, type=Permissions) if stored else None
    if providers := assembly.memory(permissions):
        memory.learn(providers, store.read(messages.as_conversation, session_id))


def record_end(store: "Store", session_id: str, end_reason: str) -> None:
    """Store the end of a session, unless it is the one of a messenger's chat: its gateway ends that."""
    if not is_of_chat(store, session_id):
        store.end_session(session_id, end_reason)


def is_of_chat(store: "Store", session_id: str) -> bool:
    """Return whether a session belongs to a messenger's chat."""
    row = store.read(sessions.find, session_id)
    return row is not None and isinstance(row["session_key"], str)


class _Closing:
    """The parts of closing a conversation."""

    def __init__(self, conversation: OpenConversation) -> None:
        self._conversation = conversation

    @property
    def _agent(self) -> Any:  # noqa: ANN401 -- see OpenConversation
        return self._conversation.agent

    @property
    def session_id(self) -> str:
        return self._conversation.session_id()

    def stop(self) -> None:
        """Stop what runs, and wait a moment for what it still has to store."""
        if self._conversation.stop is not None:
            self._conversation.stop()
        self._call("interrupt")
        self._call("wait_until_idle", STOP_TIMEOUT_S)

    def flush(self) -> None:
        """Store what nobody stored."""
        history = list(self._conversation.history)
        if snapshot := getattr(self._agent, "_session_messages", None) or history:
            self._call("_persist_session", snapshot, conversation_history=history)

    def record(self) -> None:
        if self._conversation.record is not None:
            self._conversation.record(self.session_id)

    def learn(self) -> None:
        """Let memory learn from the conversation."""
        if self._agent is not None:
            self._call("commit_memory_session", list(self._conversation.history))
        elif self._conversation.learn is not None:
            self._conversation.learn(self.session_id)

    def report_end(self, *, completed: bool, interrupted: bool) -> None:
        """Call the hook on_session_end, unless nothing was ever said."""
        model_name = self._model_name()
        if model_name is None or not self._conversation.is_reported:
            return
        self._conversation.hooks.invoke_hook(
            "on_session_end",
            session_id=self.session_id,
            completed=completed,
            interrupted=interrupted,
            model=model_name,
            platform=self._conversation.platform,
        )

    def _model_name(self) -> str | None:
        if self._agent is None:
            return self._conversation.model_name
        model: Any = getattr(self._agent, "model", None)
        if isinstance(model, str):
            return model
        facts = getattr(model, "facts", None)
        return facts.name if facts is not None else "unknown"

    def report_finalized(self) -> None:
        """Call the hook on_session_finalize."""
        if self._conversation.is_reported:
            self._conversation.hooks.invoke_hook(
                "on_session_finalize",
                session_id=self.session_id,
                platform=self._conversation.platform,
            )

    def close_agent(self) -> None:
        """Release processes and connections."""
        self._call("close")

    def _call(self, name: str, *args: object, **kwargs: object) -> None:
        method = getattr(self._agent, name, None)
        if method is not None:
            method(*args, **kwargs)
