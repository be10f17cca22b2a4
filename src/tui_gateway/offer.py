"""The embedded model: offered to who has no other, and fetched with news about how far it is."""

import threading
import time

from hermes_agent.models.embedded import catalog, pull
from hermes_agent.models.embedded.progress import Step
from hermes_core.errors import ModelMissingError
from hermes_protocol.errors import NO_AGENT
from hermes_protocol.events import Progress
from hermes_protocol.results import Offer
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import Runtime, SessionState

_NEWS_EVERY_S = 0.1


def find(rt: Runtime, live: SessionState) -> Offer:
    """Return the model that can be fetched for a session without one; without a name none helps."""
    if not isinstance(live.error, ModelMissingError):
        return Offer()
    if not rt.assembly().registry(live.model_name).discovery.is_download_next:
        return Offer()
    choice = pull.choose(rt.home)
    entry = catalog.get(choice.name)
    return Offer(entry.name, entry.title, entry.bytes, choice.reason)


def fetch(rt: Runtime, sid: str, name: str, stop: threading.Event) -> str:
    """Fetch a model, the one that suits the machine without a name; returns what it is called."""
    sent_at, sent = 0.0, ""

    def report(step: Step) -> None:
        nonlocal sent_at, sent
        if stop.is_set():
            raise RpcError(NO_AGENT, "Download stopped; the next one resumes it.")
        now = time.monotonic()
        if step.text != sent or step.done == step.total or now - sent_at >= _NEWS_EVERY_S:
            sent_at, sent = now, step.text
            rt.emit(sid, Progress(*step))

    return pull.pull(name or None, rt.home, hub=rt.settings.model.hub, progress=report).stem
