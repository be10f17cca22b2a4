"""Limits on money in chats: they hold whatever model is chosen, and where they cannot, it is said."""

import pytest

from hermes_state.ledger import budgets
from hermes_state.values import Estimate, Limits
from tests.gateway.harness import Inside, World
from tests.support.faults import eventually


def _limited(world: World, model: str, usd: float) -> None:
    """A model of a provider that charges, and a member whose day is limited."""
    text = world.home.config.read_text()
    text = text.replace('name = "scripted"', f'name = "{model}"\nprovider = "openai"')
    text = text.replace(
        "[gateway.owners]", '[gateway.allow]\nloopback = ["m1"]\n\n[gateway.owners]'
    )
    world.home.config.write_text(f"{text}\n[roles]\nmember_usd_per_day = {usd}\n")


def test_a_limit_is_not_escaped_by_choosing_a_model_without_a_price(world: World) -> None:
    _limited(world, "openai/gpt-4o-mini", 0.00001)
    with Inside(world):
        world.platform.say("m", "hello", user="m1")
        world.wait_for_text(
            "m",
            "$0.00001 per day for you (a day ends at midnight UTC) leaves",
        )
        world.platform.say("m", "/model gpt-unpriced-x", user="m1")
        reply = world.wait_for_replies("m", 2)[1]
        assert "gpt-unpriced-x has no known price" in reply
        assert "$0.00001 per day" in reply
        world.platform.say("m", "and now?", user="m1")
        assert "leaves too little" in world.wait_for_replies("m", 3)[2]
        world.platform.say("o", "/model gpt-unpriced-x")
        world.wait_for_text("o", "Switched to gpt-unpriced-x.")
        assert world.model.model_requests == []


def test_a_turn_on_a_model_without_a_price_that_was_chosen_before_is_refused(world: World) -> None:
    _limited(world, "openai/gpt-4o-mini", 1.0)
    with Inside(world) as inside:
        world.platform.say("m", "hello", user="m1")
        world.wait_for_text("m", "You said: hello")
        (entry,) = inside.runner.session_store.list_sessions()
        chosen = {"model": "gpt-unpriced-x"}
        inside.runner.session_store.set_model_override(entry.session_key, chosen)
        world.platform.say("m", "and now?", user="m1")
        assert "gpt-unpriced-x has no known price" in world.wait_for_replies("m", 2)[1]
        assert len(world.model.model_requests) == 1
        world.platform.say("m", "/model openai/gpt-4o-mini", user="m1")
        world.wait_for_text("m", "Switched to gpt-4o-mini.")
        world.platform.say("m", "better?", user="m1")
        world.wait_for_text("m", "You said: better?")


def test_that_the_limit_does_not_hold_for_the_model_of_the_house_is_said_once(world: World) -> None:
    _limited(world, "gpt-unpriced-x", 1.0)
    for words in ("one", "two"):
        with Inside(world):
            world.platform.say("m", words, user="m1")
            world.wait_for_text("m", f"You said: {words}")
    texts = [text for text in world.replies("m") if "limits on money cannot be enforced" in text]
    assert len(texts) == 1
    assert texts[0].startswith("ℹ️ ")
    assert world.replies("m").index(texts[0]) == 0


def test_a_shortening_that_the_limit_does_not_allow_is_refused_with_the_reason(
    world: World,
) -> None:
    _limited(world, "openai/gpt-4o-mini", 0.01)
    with Inside(world) as inside:
        for words in ("one " * 300, "two " * 300, "three"):
            world.platform.say("m", words, user="m1")
        world.wait_for_replies("m", 3)
        eventually(lambda: inside.open_turns() == set())
        limits = Limits(person="loopback:m1")
        inside.store.write(budgets.reserve, "spent", limits, Estimate(1, 0.01, 0.0))
        world.platform.say("m", "/compress", user="m1")
        reply = world.wait_for_replies("m", 4)[3]
        assert reply.startswith("⚠️ Nothing was compacted: the limit of $0.01 per day for you")


@pytest.mark.parametrize(
    ("usd", "expected"), [(0.00001, "$0.00001"), (0.5, "$0.50"), (2.0, "$2.00")]
)
def test_money_is_written_as_people_write_it(world: World, usd: float, expected: str) -> None:
    _limited(world, "gpt-unpriced-x", usd)
    with Inside(world):
        world.platform.say("m", "hello", user="m1")
        world.wait_for_text("m", "You said: hello")
        world.platform.say("m", "/usage", user="m1")
        assert f" of {expected}." in world.wait_for_text("m", "Today, all your").text
