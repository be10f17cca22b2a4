import threading

import pytest

from hermes_agent.models.base import Request
from hermes_agent.models.retry import RetryingModel
from hermes_agent.testing.scripted import TIMEOUT_S, RecordingSink, ScriptedModel, fail
from hermes_agent.turn.events import Retrying, ignore
from hermes_agent.turn.stop import Stop
from hermes_core.errors import ContextTooLongError, Interrupted, ModelError, ModelRefusedError

HELLO = Request("", [], [{"role": "user", "content": "hello"}])


def busy(retry_after_s: float | None = None) -> ModelError:
    return ModelError("too busy", retryable=True, retry_after_s=retry_after_s, provider="them")


class Pauses:
    """Waits for nothing and remembers for how long."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, _stop: Stop, seconds: float) -> None:
        self.seconds.append(seconds)


def test_what_may_pass_is_asked_again_after_growing_pauses():
    pauses, sink = Pauses(), RecordingSink()
    model = ScriptedModel([fail(busy(), after="half"), fail(busy()), fail(busy()), "done"])
    retrying = RetryingModel(model, wait=pauses, jitter=lambda most: most)
    assert retrying.ask(HELLO, Stop(), sink).text == "done"
    assert pauses.seconds == [1, 2, 4]
    assert sink.of(Retrying) == [
        Retrying("too busy", 1, 1),
        Retrying("too busy", 2, 2),
        Retrying("too busy", 4, 3),
    ]


def test_a_pause_is_anything_up_to_its_limit():
    pauses = Pauses()
    for _ in range(50):
        RetryingModel(ScriptedModel([fail(busy()), "done"]), wait=pauses).ask(HELLO, Stop(), ignore)
    assert all(0 <= pause <= 1 for pause in pauses.seconds)
    assert len(set(pauses.seconds)) > 10


def test_who_says_when_to_come_back_is_believed():
    pauses = Pauses()
    model = ScriptedModel([fail(busy(20)), fail(busy(0)), "done"])
    RetryingModel(model, wait=pauses).ask(HELLO, Stop(), ignore)
    assert 20 <= pauses.seconds[0] <= 21
    assert pauses.seconds[1] == 0


def test_who_wants_to_be_left_alone_for_long_is_given_up():
    pauses = Pauses()
    with pytest.raises(ModelError) as caught:
        RetryingModel(ScriptedModel([fail(busy(3600))]), wait=pauses).ask(HELLO, Stop(), ignore)
    assert pauses.seconds == []
    assert "3600 s" in caught.value.fix


@pytest.mark.parametrize("error", [ModelRefusedError("no"), ContextTooLongError("long")])
def test_what_stays_as_it_is_is_not_asked_again(error: ModelError):
    model = ScriptedModel([fail(error), "done"])
    with pytest.raises(type(error)):
        RetryingModel(model, wait=Pauses()).ask(HELLO, Stop(), ignore)
    assert len(model.requests) == 1


@pytest.mark.parametrize("retries", [0, 3])
def test_the_number_of_retries_is_kept(retries: int):
    model = ScriptedModel(lambda _: fail(busy()))
    with pytest.raises(ModelError, match="too busy"):
        RetryingModel(model, retries=retries, wait=Pauses()).ask(HELLO, Stop(), ignore)
    assert len(model.requests) == retries + 1


def test_nothing_is_asked_again_when_the_first_attempts_took_too_long():
    moments = iter([0.0, 700.0])
    model = ScriptedModel(lambda _: fail(busy()))
    with pytest.raises(ModelError):
        RetryingModel(model, wait=Pauses(), clock=lambda: next(moments)).ask(HELLO, Stop(), ignore)
    assert len(model.requests) == 1


def test_a_stop_ends_a_pause():
    stop, sink = Stop(), RecordingSink()
    model = RetryingModel(ScriptedModel([fail(busy(50)), "done"]))
    ended: list[str] = []

    def ask() -> None:
        with pytest.raises(Interrupted):
            model.ask(HELLO, stop, sink)
        ended.append("interrupted")

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    sink.wait_for(Retrying)
    stop.set()
    thread.join(TIMEOUT_S)
    assert ended == ["interrupted"]
