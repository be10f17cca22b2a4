"""The queue of a session: prompts that wait for their turn, as the store has them."""

from collections.abc import Iterable

from hermes_protocol import events
from hermes_protocol.results import Queued
from hermes_state.ledger import turns
from hermes_state.store import Store
from tui_gateway.mentions import without_files
from tui_gateway.projection import without_images
from tui_gateway.runtime import Runtime, SessionState


def queued(rt: Runtime, live: SessionState) -> list[Queued]:
    """Return the queued prompts, the next one first."""
    return [prompt(rt.db(), turn_id) for turn_id in turn_ids(rt, live)]


def turn_ids(rt: Runtime, live: SessionState) -> list[str]:
    """Return the queued turns of a session, without those that the running turn is to hear."""
    if live.log is None:
        return []
    engine = rt.engine()
    rows = engine.open_turns(live.conversation_id)
    if not engine.work.is_compacting(live.conversation_id):
        rows = rows[1:]  # the first one runs, or is about to
    return [row["id"] for row in rows if row["id"] not in live.steers]


def prompt(store: Store, turn_id: str) -> Queued:
    """Return a prompt as its person entered it."""
    text, images = without_images(store.read(turns.user_text, turn_id))
    text, _ = without_files(text)
    return Queued(turn_id, text, images or None)


def send_if_changed(rt: Runtime, live: SessionState, dropped: Iterable[str] = ()) -> None:
    """Send `prompt.queue` if it has changed since clients were sent it, or turns were dropped."""
    cancelled = list(dropped)
    with live.queue_lock:  # what is sent last is the state
        ids = turn_ids(rt, live)
        if ids == live.sent_queue and not cancelled:
            return
        live.sent_queue = ids
        prompts = [prompt(rt.db(), turn_id) for turn_id in ids]
        rt.emit(live.sid, events.Queue(prompts, cancelled))
