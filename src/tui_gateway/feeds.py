"""Feeds: the events of a conversation as one client is sent them, each with its number.

One engine event becomes at most one numbered wire event, so a client that names the last number it saw
misses nothing and is sent nothing twice. Everything else on the wire is a snapshot of a state.
"""

from hermes_agent.turn.events import TurnEnded
from hermes_core.loading import loading
from hermes_engine.events import LogEntry, TurnCancelled, TurnDetached, TurnSuspended
from hermes_protocol import events
from hermes_protocol.results import Position
from tui_gateway import info, protocol
from tui_gateway.runtime import LiveSession, Runtime
from tui_gateway.transport import Transport

_ENDS = TurnEnded | TurnDetached | TurnSuspended | TurnCancelled


class Feed:
    """A client's subscription to a session's conversation."""

    def __init__(self, rt: Runtime, session: LiveSession, transport: Transport) -> None:
        # brings the events of the agent
        with loading:
            from tui_gateway.translation import Translator  # noqa: PLC0415

        self._rt = rt
        self._session = session
        self._live = rt.live(session)
        self._transport = transport
        self._translate = Translator(rt, session)

    def __call__(self, entry: LogEntry) -> None:
        """Send an event; called in the thread that publishes."""
        log, sid = self._live.log, self._live.sid
        if log is None:
            return
        if isinstance(entry.event, TurnEnded) and entry.event.status == "failed":
            failure = events.Failure(entry.event.reason, entry.turn_id)
            self._transport.write(protocol.event(sid, failure))
        if (translated := self._translate(entry)) is not None:
            position = Position(log.id, entry.seq)
            self._transport.write(protocol.event(sid, translated, position))
        if isinstance(entry.event, _ENDS) and not self._live.is_closing:
            usage = translated.usage if isinstance(translated, events.Complete) else None
            state = info.current(self._rt, self._session, usage)
            self._transport.write(protocol.event(sid, state))


def follow(rt: Runtime, session: LiveSession, transport: Transport | None) -> None:
    """Send a client what happens from now on, unless it is sent that already."""
    live = rt.live(session)
    if transport is None or live.log is None:
        return
    with live.lock:
        if transport in live.feeds:
            return
        live.feeds[transport] = feed = Feed(rt, session, transport)
    live.log.subscribe(feed)


def follow_after_answer(
    rt: Runtime, session: LiveSession, transport: Transport | None, seq: int
) -> None:
    """Send a client everything after event `seq`, beginning when it has its answer."""
    live, log = rt.live(session), rt.live(session).log
    if transport is None or log is None:
        return

    def begin() -> None:
        with live.lock:
            if live.feeds.get(transport) is not feed:
                return  # it has left, or asked again
        if log.subscribe(feed, after=seq, log_id=log.id) is not None:
            changed = events.Changed("elsewhere", info.key_of(session))
            transport.write(protocol.event(live.sid, changed))

    stop(rt, session, transport)
    with live.lock:
        live.feeds[transport] = feed = Feed(rt, session, transport)
    rt.run_after_answer(begin)


def stop(rt: Runtime, session: LiveSession, transport: Transport) -> None:
    """Send a client no more events of a session."""
    live = rt.live(session)
    with live.lock:
        feed = live.feeds.pop(transport, None)
    if feed is not None and live.log is not None:
        live.log.unsubscribe(feed)
