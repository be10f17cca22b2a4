"""The state of an open session as clients see it: model, folder, usage."""

import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from hermes_core.errors import HermesError
from hermes_core.loading import loading
from hermes_core.version import VERSION
from hermes_protocol.events import Changed
from hermes_protocol.results import Info, Offer, Usage
from hermes_state.ledger import lineage, sessions, titles
from hermes_state.ledger import usage as usage_ledger
from tui_gateway.runtime import LiveSession, Runtime

if TYPE_CHECKING:
    from hermes_state.store import Store

logger = logging.getLogger(__name__)

_CONTRACT = 4
"""The version of the session objects that clients of this protocol know."""

_LOOK_AGAIN_S = 1.0
_branches: dict[Path, tuple[float, str]] = {}
"""When each folder was looked at, and what was checked out there."""


def key_of(session: LiveSession) -> str:
    """The session in the store: the agent's, which knows of compactions first."""
    session_id: object = getattr(session.get("agent"), "session_id", None)
    return session_id if isinstance(session_id, str) and session_id else session["session_key"]


def is_running(rt: Runtime, session: LiveSession) -> bool:
    """Return whether a turn or a compaction of a session runs, or is about to."""
    live = rt.live(session)
    if live.log is None:
        return bool(session.get("running"))
    engine = rt.engine()
    is_compacting = engine.work.is_compacting(live.conversation_id)
    return is_compacting or bool(engine.open_turns(live.conversation_id))


def is_busy(rt: Runtime, session: LiveSession) -> bool:
    """Return the same, and wait for a turn whose end is on disk: it still calls plugins."""
    live = rt.live(session)
    if live.log is None:
        return bool(session.get("running"))
    return rt.engine().is_busy(live.conversation_id)


def describe(rt: Runtime, session: LiveSession, known_usage: Usage | None = None) -> Info:
    """Return the state of a session. Raises StoreError, and ConfigError."""
    title = session.get("pending_title") or ""
    if session.get("agent") is not None:
        title = rt.db().read(titles.title_of, key_of(session)) or title
    return structs.replace(
        _outline(rt, session),
        running=is_running(rt, session),
        title=title,
        usage=known_usage or usage(rt, session) if session.get("agent") is not None else Usage(),
        offer=_offer(rt, session),
    )


def _outline(rt: Runtime, session: LiveSession) -> Info:
    """Return what is known of a session without the store."""
    live, agent = rt.live(session), session.get("agent")
    facts = _facts(agent)
    advice = str(getattr(facts, "window_advice", ""))
    warning = " ".join(filter(None, (live.warning, _failed_plugins(session), advice)))
    return Info(
        model=facts.name if facts else live.model_name or rt.settings.model.name,
        provider=facts.provider if facts else rt.settings.model.provider,
        tools=_tools(agent),
        skills=_skills(rt) if agent is not None else {},
        cwd=str(live.cwd),
        branch=git_branch(live.cwd),
        project=live.cwd.name,
        stored_session_id=key_of(session),
        approval_mode=rt.settings.approvals.mode,
        yolo=rt.settings.approvals.mode == "allow",
        sandbox=live.sandbox,
        network=live.network,
        busy=rt.settings.terminal.busy,
        desktop_contract=_CONTRACT,
        version=VERSION,
        profile_name="default",
        lazy=True if agent is None else None,
        advice=_advice(facts),
        credential_warning=str(live.error) if live.error is not None else "",
        config_warning=warning or None,
    )


def find_sandbox(rt: Runtime, session: LiveSession) -> bool:
    """Find out where the commands of an agent run; return whether that is news. Takes a moment."""
    live, context = rt.live(session), getattr(session.get("agent"), "tool_context", None)
    if context is None or live.sandbox:
        return False
    try:
        found = context.processes.sandbox
    except HermesError as error:
        logger.warning("The sandbox of %s cannot be had: %s", key_of(session), error)
        return False
    live.sandbox, live.network = found.name, found.network.describe()
    return True


def _advice(facts: Any) -> str | None:  # noqa: ANN401 -- see _facts
    """Return how a model that runs in this process is used best."""
    if facts is None:
        return None
    with loading:
        from hermes_agent.models import providers  # noqa: PLC0415 -- loaded with the agent

    return providers.OURS.get(facts.provider).advice() or None


def _offer(rt: Runtime, session: LiveSession) -> Offer:
    """Return the model that can be fetched because there is no other."""
    live = rt.live(session)
    if live.error is None:
        return Offer()
    with loading:
        from tui_gateway import offer  # noqa: PLC0415 -- brings the catalog of models

    return offer.find(rt, live)


def _skills(rt: Runtime) -> dict[str, list[str]]:
    """The names of the skills, under the one category that clients show."""
    with loading:
        from tui_gateway import skill_commands  # noqa: PLC0415 -- loaded with the agent

    return skill_commands.by_category(rt.home)


def _failed_plugins(session: LiveSession) -> str:
    """Return the enabled plugins that could not be loaded, with the reasons."""
    if session.get("agent") is None:  # they are loaded with the first one
        return ""
    with loading:
        from hermes_cli import plugins  # noqa: PLC0415 -- loaded with the agent

    failed = [f"{name} ({reason})" for name, reason in plugins.failures().items()]
    return f"Not loaded: the plugins {', '.join(failed)}." if failed else ""


def send(rt: Runtime, sid: str, session: LiveSession) -> None:
    """Send `session.info`."""
    rt.emit(sid, current(rt, session))


def current(rt: Runtime, session: LiveSession, known_usage: Usage | None = None) -> Info:
    """Return the state of a session as far as the store can be read; a known usage is not read."""
    try:
        return describe(rt, session, known_usage)
    except HermesError as error:
        logger.warning("session.info is not complete: %s", error)
        return _outline(rt, session)


def current_usage(rt: Runtime, session: LiveSession) -> Usage:
    """Return the usage as far as the store can be read."""
    try:
        return usage(rt, session)
    except HermesError as error:
        logger.warning("The usage of %s is not known: %s", key_of(session), error)
        return Usage()


def rewinds_of(store: "Store", key: str) -> tuple[str, int]:
    """Return the tip of a conversation, and how often something was undone in it."""
    row = store.read(sessions.find, store.read(lineage.tip, key))
    return (row["id"], row["rewind_count"] or 0) if row is not None else ("", 0)


def notify_changed(rt: Runtime, session: LiveSession, reason: str) -> None:
    """Tell the other clients of a session that it does not hold any more what they show."""
    rt.emit_to_others(rt.live(session).sid, Changed(reason, key_of(session)))


def usage(rt: Runtime, session: LiveSession) -> Usage:
    """Return the usage of the conversation so far, of all its sessions together."""
    key, facts = key_of(session), _facts(session.get("agent"))
    row = rt.db().read(usage_ledger.totals, key)
    return structs.replace(
        window_share(rt, session),
        model=facts.name if facts else "",
        input=row["input_tokens"],
        output=row["output_tokens"],
        reasoning=row["reasoning_tokens"],
        cache_read=row["cache_read_tokens"],
        prompt=row["input_tokens"],
        completion=row["output_tokens"],
        total=row["input_tokens"] + row["output_tokens"],
        calls=row["calls"],
        cost_usd=row["cost_usd"],
        compressions=row["compactions"],
        active_subagents=0,
    )


def window_share(rt: Runtime, session: LiveSession) -> Usage:
    """Return how full the window of the model is, as far as that is known."""
    facts, used = _facts(session.get("agent")), rt.live(session).used_tokens
    if facts is None:
        return Usage()
    if used is None:
        used = rt.db().read(usage_ledger.last_request_tokens, key_of(session))
    if used is None or not facts.window:
        return Usage(context_max=facts.window)
    percent = round(100 * used / facts.window, 1)
    return Usage(context_max=facts.window, context_used=used, context_percent=percent)


def estimate(rt: Runtime, session: LiveSession) -> None:
    """Find out how full the window is after something else than a turn has changed the conversation."""
    count = getattr(session.get("agent"), "context_tokens", None)
    rt.live(session).used_tokens = count() if count is not None else None


def model_name(agent: object) -> str:
    """The model of an agent, whatever kind of agent it is."""
    model = getattr(agent, "model", None)
    if isinstance(model, str) and model:
        return model
    facts = _facts(agent)
    return facts.name if facts else "unknown"


def _facts(agent: object) -> Any:  # noqa: ANN401 -- Facts, which a scenario's agent does not have
    facts = getattr(getattr(agent, "model", None), "facts", None)
    return facts if isinstance(getattr(facts, "name", None), str) else None


def _tools(agent: object) -> dict[str, list[str]]:
    toolbox = getattr(agent, "toolbox", None)
    if toolbox is None:
        return {}
    sets: dict[str, list[str]] = {"core": [spec.name for spec in toolbox.core]}
    return sets | {name: [tool.name for tool in tools] for name, tools in toolbox.toolsets.items()}


def git_branch(folder: Path) -> str:
    """The branch that is checked out in a folder or above it, looked at once a second; or empty."""
    now = time.monotonic()
    seen_at, branch = _branches.get(folder, (0.0, ""))
    if now - seen_at > _LOOK_AGAIN_S:
        branch = _read_branch(folder)
        _branches[folder] = now, branch
    return branch


def _read_branch(folder: Path) -> str:
    place, last = str(folder), ""
    while place != last:
        try:
            with open(f"{place}/.git/HEAD", encoding="utf-8") as head:  # noqa: PTH123 -- after every turn
                return head.read(200).strip().removeprefix("ref: refs/heads/")[:80]
        except (OSError, UnicodeDecodeError):
            place, last = os.path.dirname(place), place  # noqa: PTH120 -- as above
    return ""
