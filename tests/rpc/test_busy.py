"""Whether a session is busy: a turn that has told its end is waited for, others are not."""

import threading

import pytest

from hermes_protocol.errors import BUSY
from tui_gateway.protocol import RpcError
from tui_gateway.runtime import Live, LiveSession, Waiting, check_idle, is_busy


def test_a_turn_that_runs_is_not_waited_for() -> None:
    live = Live(current=Waiting("t", "hello", "hello"))
    with pytest.raises(RpcError) as refused:
        check_idle(LiveSession(session_key="k", running=True), live)
    assert refused.value.number == BUSY


def test_a_turn_that_has_told_its_end_is_waited_for() -> None:
    ending = Waiting("t", "hello", "hello", is_told=True)
    live, session = Live(current=ending), LiveSession(session_key="k", running=True)

    def leave() -> None:
        live.current, session["running"] = None, False
        ending.done.set()

    leaving = threading.Timer(0.05, leave)
    leaving.start()
    assert not is_busy(session, live)
    leaving.join()


def test_the_turn_after_it_makes_the_session_busy() -> None:
    ending = Waiting("t", "hello", "hello", is_told=True)
    live, session = Live(current=ending), LiveSession(session_key="k", running=True)
    ending.done.set()
    live.current = Waiting("next", "on", "on")
    assert is_busy(session, live)
