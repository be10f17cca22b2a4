"""Read and change settings, by their own names and by the names that clients use."""

from typing import Annotated, Any, TypedDict

from hermes_core import config
from hermes_core.errors import ConfigError, ModelMissingError
from hermes_core.loading import loading
from hermes_core.secrets import MASK, masked
from hermes_protocol.errors import BAD_ARGUMENT, UNKNOWN_KEY
from tui_gateway import folder
from tui_gateway.params import Nothing, Params, says
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import LiveSession, Runtime

_SECRET = "model.api_key"
_SHORT = {"busy": "terminal.busy", "approvals.mode": "approvals.mode", "provider": "model.provider"}
"""Names that clients use for our settings."""
_APPROVALS = {"manual": "ask", "smart": "ask", "off": "allow"}
"""The names that other servers use for the approval modes."""
_PROGRESS = ("off", "new", "all", "verbose")


class Get(Params, frozen=True):
    """A setting."""

    key: Annotated[
        str,
        says("full, model, provider, profile, cwd, busy, approvals.mode, reasoning, verbose, mtime, or"
             " any section.field of the settings."),
    ]  # fmt: skip
    session_id: Annotated[str, says("The open session, for keys that belong to one.")] = ""


class Value(TypedDict, total=False):
    """The value; for `full` and `mtime` the fields of those."""

    key: str
    value: Any
    display: str
    config: dict[str, Any]
    mtime: float


def get(rt: Runtime, params: Get) -> Value:
    """Read a setting."""
    key = params.key
    session = rt.sessions.get(params.session_id)
    if key == "full":
        return {"key": key, "config": _all(rt)}
    if key == "mtime":
        return {"key": key, "mtime": _mtime(rt)}
    if key == "profile":
        return {"key": key, "value": "default"}
    if key == "model":
        chosen = rt.live(session).model_name if session is not None else ""
        return {"key": key, "value": chosen or rt.settings.model.name}
    if key == "cwd":
        return {"key": key, "value": str(rt.live(session).cwd if session else folder.current())}
    if key == "verbose":
        return {"key": key, "value": session.get("tool_progress_mode", "all") if session else "all"}
    if key == "reasoning":
        is_shown = session.get("show_reasoning", True) if session is not None else True
        return {"key": key, "value": "", "display": "show" if is_shown else "hide"}
    return {"key": key, "value": _setting(rt, _SHORT.get(key, key))}


def _setting(rt: Runtime, key: str) -> object:
    option = next((option for option in config.options() if option.key == key), None)
    if option is None:
        raise RpcError(
            UNKNOWN_KEY, f"There is no setting {key[:80]!r}.", fix="config.show has them."
        )
    if key == _SECRET:
        return "set" if rt.settings.model.api_key else ""
    return masked(key, getattr(getattr(rt.settings, option.section), option.field))


def _all(rt: Runtime) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    for option in config.options():
        found.setdefault(option.section, {})[option.field] = _setting(rt, option.key)
    return found


def _mtime(rt: Runtime) -> float:
    try:
        return rt.home.config.stat().st_mtime
    except OSError:
        return 0.0


class Set(Params, frozen=True):
    """A setting and its value."""

    key: Annotated[
        str, says("model, busy, approvals.mode, verbose, reasoning, cwd, or any section.field.")
    ]
    value: Annotated[Any, says("The value, as text or in its own type.")] = None
    session_id: Annotated[str, says("The open session, for keys that belong to one.")] = ""
    scope: Annotated[
        str, says("For model: session (this conversation, also when it is resumed) or global.")
    ] = ""


class Changed(TypedDict, total=False):
    """The current value."""

    key: str
    value: Any
    warning: str
    scope: str


def set_(rt: Runtime, params: Set) -> Changed:
    """Change a setting in config.toml, or for one session if the key belongs to one."""
    session = rt.sessions.get(params.session_id)
    if params.key == "model":
        return _set_model(rt, params, session)
    if params.key == "cwd":
        return _set_folder(rt, params, _needed(session))
    if params.key == "verbose":
        return _set_progress(params, _needed(session))
    if params.key == "reasoning":
        return _set_reasoning(params, _needed(session))
    return _write(rt, params.key, _SHORT.get(params.key, params.key), params.value)


def _needed(session: LiveSession | None) -> LiveSession:
    if session is None:
        raise RpcError(BAD_ARGUMENT, "This belongs to a session.", fix="Give session_id.")
    return session


def _set_model(rt: Runtime, params: Set, session: LiveSession | None) -> Changed:
    name = str(params.value or "").strip()
    if not name:
        raise RpcError(BAD_ARGUMENT, "Which model?", fix="model.options has them.")
    scope = params.scope or ("session" if session is not None else "global")
    if scope == "global":
        return {**_write(rt, "model", "model.name", name), "scope": scope}
    session = _needed(session)
    # the commands bring the agent, which a session that is talked in has loaded
    with loading:
        from tui_gateway import prompts, stored_session  # noqa: PLC0415
        from tui_gateway.command_context import CommandContext  # noqa: PLC0415

    if not isinstance(rt.live(session).error, ModelMissingError):  # then its turns wait for a model
        prompts.check_idle(rt, session)
    used = rt.assembly().model(name).facts.name
    stored_session.choose_model(rt, session, name, used)  # before there is an agent
    CommandContext(rt, params.session_id, session).use_model(name)
    return {"key": "model", "value": used, "scope": scope}


def _set_folder(rt: Runtime, params: Set, session: LiveSession) -> Changed:
    # brings turns, which a client that only reads settings does not need
    with loading:
        from tui_gateway.methods.session import SetCwd, set_cwd  # noqa: PLC0415

    folder = str(params.value or "")
    set_cwd(rt, SetCwd(session_id=params.session_id, cwd=folder))
    return {"key": params.key, "value": str(rt.live(session).cwd)}


def _set_progress(params: Set, session: LiveSession) -> Changed:
    mode = str(params.value or "cycle")
    if mode == "cycle":
        now = session.get("tool_progress_mode", "all")
        mode = _PROGRESS[(_PROGRESS.index(now) + 1) % len(_PROGRESS)]
    if mode not in _PROGRESS:
        raise RpcError(UNKNOWN_KEY, f"{mode[:80]!r} is not one of {', '.join(_PROGRESS)}.")
    session["tool_progress_mode"] = mode
    return {"key": params.key, "value": mode}


def _set_reasoning(params: Set, session: LiveSession) -> Changed:
    value = str(params.value or "")
    if value not in ("show", "full", "clamp", "hide"):
        raise RpcError(UNKNOWN_KEY, f"{value[:80]!r} is not one of show, hide.")
    session["show_reasoning"] = value != "hide"
    return {"key": params.key, "value": value}


def _write(rt: Runtime, name: str, key: str, value: object) -> Changed:
    """Write config.toml and reload it; the environment may override it."""
    if key == "approvals.mode":
        value = _APPROVALS.get(str(value), value)
    if MASK in str(value):
        raise RpcError(
            BAD_ARGUMENT, "A masked secret cannot be saved.", fix="Give the secret itself."
        )
    try:
        parsed = config.parse_value(key, value) if isinstance(value, str) else value
        config.change(rt.home, key, parsed)
    except ConfigError as error:
        raise RpcError(UNKNOWN_KEY, error.message, fix=error.fix) from error
    rt.reload()
    holds, parsed = _setting(rt, key), masked(key, parsed)
    changed: Changed = {"key": name, "value": holds}
    if parsed is not None and holds != parsed and key != _SECRET:
        changed["warning"] = f"{key} is also set in the environment, which overrides this."
    elif key.startswith(("approvals.", "tools.", "model.")) and rt.sessions:
        changed["warning"] = "It applies to conversations that are opened from now on."
    return changed


class Sections(TypedDict):
    """The settings by section."""

    sections: list[dict[str, Any]]


def show(rt: Runtime, params: Nothing) -> Sections:
    """List every setting with its value and its meaning."""
    del params
    sections: dict[str, list[dict[str, Any]]] = {}
    for option in config.options():
        row = {
            "key": option.key,
            "value": _setting(rt, option.key),
            "default": option.default,
            "description": option.description,
            "type": config.describe(option.type),
        }
        sections.setdefault(option.section, []).append(row)
    return {"sections": [{"name": name, "rows": rows} for name, rows in sections.items()]}
