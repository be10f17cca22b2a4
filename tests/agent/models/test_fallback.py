from typing import Any

import pytest

from hermes_agent.models.base import Facts, Request, Usage
from hermes_agent.models.fallback import COOLDOWN_S, FallbackModel
from hermes_agent.testing.scripted import RecordingSink, ScriptedModel, fail, say
from hermes_agent.turn.events import FellBack, ignore
from hermes_agent.turn.stop import Stop
from hermes_core.errors import (
    ContextTooLongError,
    Interrupted,
    ModelError,
    ModelRefusedError,
    ModelUnreachableError,
)

HELLO = Request("", [], [{"role": "user", "content": "hello"}])
DOWN = ModelUnreachableError("first is down", retryable=True)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def scripted(name: str, script: Any, input_price: float = 0.0) -> ScriptedModel:
    facts = Facts(name=name, provider=f"{name}'s", window=8192, input_price=input_price)
    return ScriptedModel(script, facts=facts)


def test_the_first_one_answers_while_it_can():
    chain = FallbackModel([scripted("a", ["hi"]), scripted("b", ["never"])])
    reply = chain.ask(HELLO, Stop(), ignore)
    assert (reply.text, reply.model, reply.cost_usd) == ("hi", "", None)
    assert chain.facts.name == "a"


def test_the_next_one_answers_under_its_own_name_and_price():
    second = scripted("b", [say("hi", usage=Usage(1_000_000, 0))], input_price=3.0)
    sink = RecordingSink()
    reply = FallbackModel([scripted("a", [fail(DOWN)]), second]).ask(HELLO, Stop(), sink)
    assert (reply.model, reply.provider, reply.cost_usd) == ("b", "b's", 3.0)
    assert sink.of(FellBack) == [FellBack("b", "first is down")]


def test_one_that_failed_is_left_alone_for_a_while():
    clock = Clock()
    first, second = scripted("a", [fail(DOWN), "back"]), scripted("b", ["1", "2"])
    chain = FallbackModel([first, second], clock=clock)
    assert chain.ask(HELLO, Stop(), ignore).text == "1"
    clock.now = COOLDOWN_S - 1
    assert chain.ask(HELLO, Stop(), ignore).text == "2"
    assert len(first.requests) == 1
    clock.now = COOLDOWN_S
    assert chain.ask(HELLO, Stop(), ignore).text == "back"


def test_a_refusal_of_one_request_says_nothing_about_the_next():
    refused = ModelRefusedError("not this", status=400)
    first = scripted("a", [fail(refused), "yes"])
    chain = FallbackModel([first, scripted("b", ["1"])])
    assert chain.ask(HELLO, Stop(), ignore).text == "1"
    assert chain.ask(HELLO, Stop(), ignore).text == "yes"


def test_when_nobody_is_well_all_are_asked():
    first, second = scripted("a", [fail(DOWN), "up"]), scripted("b", [fail(DOWN)])
    chain = FallbackModel([first, second])
    with pytest.raises(ModelUnreachableError):
        chain.ask(HELLO, Stop(), ignore)
    assert chain.ask(HELLO, Stop(), ignore).text == "up"


def test_when_nobody_can_answer_the_first_error_is_told():
    chain = FallbackModel([scripted("a", [fail(DOWN)]), scripted("b", [fail(ModelError("b too"))])])
    with pytest.raises(ModelError, match="first is down"):
        chain.ask(HELLO, Stop(), ignore)


def test_a_context_that_is_too_long_and_a_stop_pass_through():
    second = scripted("b", ["never"])
    with pytest.raises(ContextTooLongError):
        FallbackModel([scripted("a", [fail(ContextTooLongError("long"))]), second]).ask(
            HELLO, Stop(), ignore
        )
    stop = Stop()
    stop.set()
    with pytest.raises(Interrupted):
        FallbackModel([scripted("a", ["never"]), second]).ask(HELLO, stop, ignore)
    assert second.requests == []


def test_closing_closes_all():
    models = [scripted("a", []), scripted("b", [])]
    FallbackModel(models).close()
    assert [model.closed for model in models] == [True, True]
