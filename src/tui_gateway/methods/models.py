"""List models, report the one in use, and download the embedded one."""

import threading
from functools import partial
from typing import Annotated, TypedDict

from hermes_agent.models import embedded
from hermes_agent.models.discovery import Finding
from hermes_agent.models.providers import PLUGIN
from hermes_agent.models.registry import Registry
from hermes_core.errors import HermesError, ModelError
from hermes_protocol.errors import BUSY, SERVER_ERROR
from hermes_protocol.results import ModelChoice, ModelOptions, ModelProvider
from tui_gateway import agents, offer
from tui_gateway.params import Nothing, Params, Session, says
from tui_gateway.protocol import RpcError, outcome_of
from tui_gateway.runtime import Runtime


class Ask(Params, frozen=True):
    """For whom."""

    session_id: Annotated[str, says("The open session, for its chosen model.")] = ""


def options(rt: Runtime, params: Ask) -> ModelOptions:
    """Read the settings again; list the models found here, the one in use, and the reason."""
    rt.reload()
    used, error = _used(_registry(rt, params.session_id))
    settled = rt.assembly().registry()  # what it has is listed also while the session has another
    own, _ = _used(settled)
    found = settled.discovery.found()
    for finding in filter(None, (own, used)):
        if all(finding.label not in _labels(listed) for listed in found):
            found = [finding, *found]
    models = [
        ModelChoice(
            label, finding.provider, finding.reason, used is not None and label == used.label
        )
        for finding in found
        for label in _labels(finding)
    ]
    return ModelOptions(
        model=used.model if used else "",
        provider=used.provider if used else "",
        models=list({model.name: model for model in reversed(models)}.values())[::-1],
        providers=_providers(found),
        error=error,
    )


def _registry(rt: Runtime, sid: str) -> Registry:
    session = rt.sessions.get(sid)
    return rt.assembly().registry(rt.live(session).model_name if session is not None else "")


def _used(registry: Registry) -> tuple[Finding | None, str]:
    try:
        return registry.discovery.chosen(), ""
    except ModelError as error:
        return None, str(error)


def _labels(finding: Finding) -> list[str]:
    names = [name for name in (finding.model, *finding.others) if name]
    return [name if finding.provider == PLUGIN else f"{finding.provider}/{name}" for name in names]


def _providers(found: list[Finding]) -> list[ModelProvider]:
    by_name: dict[str, list[Finding]] = {}
    for finding in found:
        by_name.setdefault(finding.provider, []).append(finding)
    return [_provider(name, findings) for name, findings in by_name.items()]


def _provider(name: str, findings: list[Finding]) -> ModelProvider:
    models = list(dict.fromkeys(label for finding in findings for label in _labels(finding)))
    is_usable = any(finding.model for finding in findings)
    return ModelProvider(name, name, models, len(models), is_usable, findings[0].reason)


class Configured(TypedDict):
    """The answer."""

    provider_configured: bool


def status(rt: Runtime, params: Nothing) -> Configured:
    """Report whether there is a model."""
    del params
    used, _ = _used(rt.assembly().registry())
    return {"provider_configured": used is not None}


class Checked(TypedDict):
    """The model in use and the reason, or how to get one."""

    ok: bool
    provider: str
    model: str
    source: str
    error: str
    advice: str


def check(rt: Runtime, params: Ask) -> Checked:
    """Read the settings again; report the model in use and the reason, or how to get one.

    A session that waited for a model gets it, and its turns run.
    """
    rt.reload()
    registry = _registry(rt, params.session_id)
    used, error = _used(registry)
    session = rt.sessions.get(params.session_id)
    if used is not None and session is not None:
        agents.begin(rt, params.session_id, session)
    if used is None:
        advice = embedded.advice()
        return {
            "ok": False,
            "provider": "",
            "model": "",
            "source": "",
            "error": error,
            "advice": advice,
        }
    return {
        "ok": True,
        "provider": used.provider,
        "model": used.model,
        "source": used.reason,
        "error": "",
        "advice": registry.provider(used).advice(),
    }


class Pull(Session, frozen=True):
    """The session that a model is downloaded for."""

    name: Annotated[str, says("The model; the default is the one that suits this machine.")] = ""


def pull(rt: Runtime, params: Pull) -> None:
    """Download the embedded model and use it; `model.progress` reports the progress.

    Returns `{name}` when it is ready. After a failure or a stop, the next call resumes the download.
    """
    sid, session = params.session_id, rt.session(params.session_id)
    rt.watch(session)
    live, settle, stop = rt.live(session), rt.defer_answer(), threading.Event()
    with live.lock:
        if live.fetch is not None:
            raise RpcError(BUSY, "A model is being downloaded already.")
        live.fetch = stop

    def work() -> None:
        fetch = partial(offer.fetch, rt, sid, params.name, stop)
        result = outcome_of(fetch, SERVER_ERROR, "The model could not be downloaded")
        live.fetch = None
        if isinstance(result, HermesError):
            settle(result)
        else:
            settle({"name": result})
            agents.begin(rt, sid, session)

    rt.spawn(work)


class Stopping(TypedDict):
    """The outcome; `stopped` is false without a download."""

    stopped: bool


def stop_pull(rt: Runtime, params: Session) -> Stopping:
    """Stop a download; the next `model.pull` resumes it."""
    stop = rt.live(rt.session(params.session_id)).fetch
    if stop is not None:
        stop.set()
    return {"stopped": stop is not None}
