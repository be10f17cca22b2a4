"""The line of prompts that wait in a session, and telling every client of it."""

from collections.abc import Iterable

from tui_gateway.runtime import Live, Runtime, Waiting


def queued(live: Live) -> list[dict[str, str]]:
    """The prompts that wait, the next one first."""
    with live.lock:
        return [{"turn_id": one.turn_id, "text": one.text} for one in live.queue]


def tell(rt: Runtime, live: Live, dropped: Iterable[Waiting] = ()) -> None:
    """Tell the clients when others wait than they were told last, and which of them a stop ended.

    Not to be called with the lock of the session: a client may be slow to listen.
    """
    with live.telling:  # what is told last is how it is
        now = queued(live)
        turns, ended = [one["turn_id"] for one in now], [one.turn_id for one in dropped]
        if turns == live.told and not ended:
            return
        live.told = turns
        rt.emit("prompt.queue", live.sid, {"queued": now, "dropped": ended})
