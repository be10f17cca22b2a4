"""The session that the running code belongs to, for plugins that ask for it."""

from contextvars import ContextVar

from hermes_core import config

_SESSION_ID = "HERMES_SESSION_ID"
_session_id: ContextVar[str | None] = ContextVar(_SESSION_ID, default=None)


def set_current_session_id(session_id: str) -> None:
    """Set the session of this context; a turn and its compaction do so."""
    _session_id.set(session_id)


def get_session_env(name: str, default: str = "") -> str:
    """Return a session variable: of this context, else of the environment, else the default."""
    value = _session_id.get() if name == _SESSION_ID else None
    return value if value is not None else config.variable(name) or default
