"""Clients of sessions: who is told what, and which sessions are left alone."""

from collections.abc import Iterable

from tui_gateway.protocol import Frame
from tui_gateway.runtime import SessionState
from tui_gateway.transport import Transport


def subscribe(live: SessionState, transport: Transport | None) -> None:
    """Send a client what happens in a session."""
    with live.lock:
        live.detached_at = None
        if transport is not None and transport not in live.watchers:
            live.watchers.append(transport)


def leave(live: SessionState, transport: Transport, now: float) -> bool:
    """A client goes away; tells whether that leaves the session alone."""
    with live.lock:
        if transport not in live.watchers:
            return False
        live.watchers.remove(transport)
        live.detached_at = None if live.watchers else now
        return not live.watchers


def send(live: SessionState | None, frame: Frame, other: Transport | None) -> bool:
    """Send a frame to the clients of a session; to another one when the session never had any."""
    watchers = list(live.watchers) if live is not None else []
    is_alone = live is not None and live.detached_at is not None
    if not watchers and not is_alone and other is not None:
        watchers = [other]
    reached = [watcher.write(frame) for watcher in watchers]
    return any(reached)


def send_to_others(live: SessionState, frame: Frame, caller: Transport | None) -> None:
    """Send a frame to the clients of a session but the one that caused it."""
    for watcher in list(live.watchers):
        if watcher is not caller:
            watcher.write(frame)


def abandoned(idle: Iterable[tuple[str, SessionState]], now: float, grace_s: float) -> list[str]:
    """Those of the idle sessions that have had no client for so long."""
    return [
        sid
        for sid, live in idle
        if live.detached_at is not None and now - max(live.detached_at, live.last_active) >= grace_s
    ]
