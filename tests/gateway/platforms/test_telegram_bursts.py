"""Texts that a client cut into parts: one turn, also when the gateway dies between them."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway.harness import TIMEOUT_S, Process, World
from tests.gateway.platforms.telegram_bot import Ingress, running
from tests.gateway.servers.telegram import ANNA, BEN, NAME, BotApi, Hold

GROUP = -1001
_LONG = ("word " * 800).strip()
"""As long as the parts that clients send."""


@pytest.fixture
def api() -> Iterator[BotApi]:
    with BotApi() as bot_api:
        bot_api.world.add_chat(GROUP, "supergroup", "Friends")
        yield bot_api


def _accepted(api: BotApi, count: int, *texts: str, **more: Any) -> list[tuple[str, str | None]]:
    """Let Anna write texts in quick succession; return what the gateway accepted of them."""
    ingress = Ingress()
    with running(api, ingress):
        with api.world.changed:
            for text in texts:
                api.world.write(text, **more)
        events = ingress.wait_for_events(count)
        return [(event.text, event.message_id) for event in events]


def test_a_text_in_parts_is_one_message(api: BotApi) -> None:
    first, other = _accepted(api, 2, _LONG, _LONG, "the end", "and another one")
    assert first == (f"{_LONG}\n{_LONG}\nthe end", "1-3")
    assert other == ("and another one", "4")


def test_a_word_that_was_cut_is_whole_again(api: BotApi) -> None:
    ((text, _),) = _accepted(api, 1, "a" * 4096, "b")
    assert text == "a" * 4096 + "b"


def test_short_messages_and_slow_ones_stay_apart(api: BotApi) -> None:
    assert len(_accepted(api, 2, "a" * 2000, "b")) == 2
    ingress = Ingress()
    with running(api, ingress):
        with api.world.changed:
            api.world.write(_LONG, date=1_700_000_000)
            api.world.write("a minute later", date=1_700_000_060)
        assert [event.text for event in ingress.wait_for_events(2)] == [_LONG, "a minute later"]


def test_what_people_write_between_each_other_stays_theirs(api: BotApi) -> None:
    ingress = Ingress()
    with running(api, ingress):
        with api.world.changed:
            api.world.write(f"@{NAME} {_LONG}", chat=GROUP)
            api.world.write(_LONG, person=BEN, chat=GROUP)
            api.world.write("Anna's end", chat=GROUP)
            api.world.write("Ben's end", person=BEN, chat=GROUP)
        anna, ben = ingress.wait_for_events(2)
    assert anna.is_mention
    assert anna.text == f"{_LONG}\nAnna's end"
    assert ben.text == f"{_LONG}\nBen's end"


def test_a_forwarded_text_in_parts_names_its_author_once(api: BotApi) -> None:
    origin = {"type": "hidden_user", "sender_user_name": "Carl", "date": 1}
    ((text, _),) = _accepted(api, 1, _LONG, "end", forward_origin=origin)
    assert text == f"[Forwarded from Carl]\n{_LONG}\nend"


def test_an_answer_to_a_forwarded_text_is_a_message_of_its_own(api: BotApi) -> None:
    ingress = Ingress()
    origin = {"type": "hidden_user", "sender_user_name": "Carl", "date": 1}
    with running(api, ingress):
        with api.world.changed:
            api.world.write(_LONG, forward_origin=origin)
            api.world.write("What does Carl mean?")
        assert ingress.wait_for_events(2)[1].text == "What does Carl mean?"


def test_a_part_that_was_accepted_before_the_others_came_is_not_accepted_twice(
    api: BotApi,
) -> None:
    ingress = Ingress()
    ingress.stored_ids = {"1"}
    with running(api, ingress):
        with api.world.changed:
            for text in (_LONG, _LONG, "the end"):
                api.world.write(text)
        (event,) = ingress.wait_for_events()
    assert (event.text, event.message_id) == (f"{_LONG}\nthe end", "2-3")


@pytest.mark.e2e
def test_a_kill_between_two_parts_loses_none(world: World, api: BotApi) -> None:
    text = world.home.config.read_text().partition("[gateway.platforms.loopback]")[0]
    telegram = (
        f'telegram = ["{ANNA.id}"]\n[gateway.platforms.telegram]\n'
        f'token = "{api.token}"\napi_url = "{api.url}"\npoll_s = 20\n'
    )
    world.home.config.write_text(text + telegram)
    release = threading.Event()
    with Process(world) as gateway:
        gateway.wait_until_up()
        polls = api.count("getUpdates")
        api.world.write(_LONG)
        # It has the first part, waits for the others, and asks again.
        api.world.wait_for(lambda: api.count("getUpdates") > polls, TIMEOUT_S)
        api.fail("getUpdates", Hold(release))
        api.world.write("the end")
        gateway.kill()
    release.set()
    with Process(world) as gateway:
        gateway.wait_until_up()
        api.world.wait_for(api.world.replies, TIMEOUT_S)
        assert gateway.terminate() == 0
    prompts = [request.json["messages"][-1]["content"] for request in world.model.model_requests]
    assert prompts == [f"{_LONG}\nthe end"]
