"""Context variables: which chat and conversation the code that runs now belongs to.

A variable that was set, also to nothing, wins; one that never was is looked up in the environment, where
a parent process may have put it.
"""

from contextvars import ContextVar, Token

from hermes_core import config

_UNSET = object()
_NAMES = (
    "HERMES_SESSION_PLATFORM",
    "HERMES_SESSION_SOURCE",
    "HERMES_SESSION_CHAT_ID",
    "HERMES_SESSION_CHAT_NAME",
    "HERMES_SESSION_THREAD_ID",
    "HERMES_SESSION_USER_ID",
    "HERMES_SESSION_USER_NAME",
    "HERMES_SESSION_KEY",
    "HERMES_SESSION_ID",
    "HERMES_SESSION_MESSAGE_ID",
    "HERMES_SESSION_PROFILE",
)
_variables: dict[str, ContextVar[object]] = {
    name: ContextVar(name, default=_UNSET) for name in _NAMES
}

Tokens = dict[str, Token[object]]


def set_session_vars(**values: str | None) -> Tokens:
    """Set variables by the last part of their names: platform, chat_id, session_key (as key), …"""
    tokens: Tokens = {}
    for short, value in values.items():
        part = short.removeprefix("session_").upper()
        name = f"HERMES_SESSION_{part}"
        tokens[name] = _variables[name].set(value or "")
    return tokens


def clear_session_vars(tokens: Tokens) -> None:
    """Set what was set to nothing, so that the environment does not show through."""
    for name in tokens:
        _variables[name].set("")


def reset_session_vars() -> None:
    """Forget every variable."""
    for variable in _variables.values():
        variable.set(_UNSET)


def get_session_env(name: str, default: str = "") -> str:
    """A variable's value: of this context, else of the environment, else the default."""
    variable = _variables.get(name)
    value = variable.get() if variable is not None else _UNSET
    if value is not _UNSET:
        return str(value)
    return config.variable(name) or default


def set_current_session_id(session_id: str) -> None:
    """Say which session the code that runs now belongs to; compaction migrations it."""
    _variables["HERMES_SESSION_ID"].set(session_id)
