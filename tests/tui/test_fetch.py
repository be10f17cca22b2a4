"""The first start without a model: it is offered, fetched with a bar, and no prompt is lost."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermes_core.paths import Home
from hermes_tui.opening import Opening
from tests.tui.harness import Interface, running

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(folder: Path) -> Path:
    (folder / "poor").write_text("")
    return folder


@pytest.fixture
async def ui(folder: Path, home: Home) -> AsyncIterator[Interface]:
    async with running(folder, home) as interface:
        await interface.until(lambda: interface.app.chat.fetch.card)
        yield interface


async def agree(ui: Interface) -> None:
    await ui.until(lambda: ui.app.chat.fetch.card and ui.app.chat.fetch.card.is_armed)
    await ui.press("enter")
    await ui.until(lambda: "40%" in ui.picture())


async def test_the_model_is_offered_as_soon_as_it_is_known_that_there_is_none(
    ui: Interface,
) -> None:
    assert "There is no model yet" in ui.picture()
    assert "Download it (1.1 GB)" in ui.picture()


async def test_a_prompt_sent_while_the_model_is_fetched_is_answered_when_it_is_there(
    ui: Interface,
) -> None:
    await agree(ui)
    assert "440 MB of 1.1 GB" in ui.picture()
    assert ui.app.focused is ui.composer
    await ui.send("hello")
    await ui.until(lambda: ui.replies == ["You said: hello"] and ui.state == "ready")
    assert ui.prompts == ["hello"]
    await ui.until(lambda: "Fetching" not in ui.picture())


async def test_a_prompt_sent_before_agreeing_is_answered_after_the_fetch(ui: Interface) -> None:
    await ui.press("escape")
    await ui.send("hello")
    await ui.until(lambda: "waits for a model" in ui.picture())
    await ui.until(lambda: "a key, then Enter" in ui.picture())
    await ui.press("1", "enter")
    await ui.until(lambda: ui.replies == ["You said: hello"] and ui.state == "ready")


async def test_the_offer_does_not_take_the_keys_from_who_writes_on_and_names_the_one_for_it(
    ui: Interface,
) -> None:
    await ui.press("escape")
    await ui.until(lambda: "F2 to answer" in ui.picture())
    ui.composer.recall("hello")
    ui.composer.send()
    ui.type("and then")
    await ui.until(lambda: "waits for a model" in ui.picture())
    assert ui.composer.has_focus and "F2 to answer" in ui.picture()
    await ui.press("f2")
    await ui.until(lambda: "a key, then Enter" in ui.picture())


async def test_ctrl_c_stops_the_fetch_and_a_later_prompt_offers_it_again(ui: Interface) -> None:
    await agree(ui)
    await ui.press("ctrl+c")
    await ui.until(lambda: not ui.app.chat.fetch.is_running)
    assert ui.app.chat.fetch.card is None
    await ui.send("hello")
    await ui.until(lambda: ui.app.chat.fetch.card)


async def test_who_does_not_want_it_is_asked_again_with_the_next_prompt(ui: Interface) -> None:
    await ui.until(lambda: ui.app.chat.fetch.card and ui.app.chat.fetch.card.is_armed)
    await ui.press("3", "enter")
    await ui.until(lambda: ui.app.chat.fetch.card is None)
    assert ui.app.focused is ui.composer
    await ui.send("hello")
    await ui.until(lambda: ui.app.chat.fetch.card)


async def test_who_begins_to_type_writes_a_prompt_and_answers_nothing(ui: Interface) -> None:
    await ui.until(lambda: ui.app.chat.fetch.card and ui.app.chat.fetch.card.is_armed)
    await ui.press(*"yes")
    await ui.until(lambda: ui.composer.text == "yes")
    assert ui.app.chat.fetch.card is not None


async def test_a_prompt_that_comes_in_one_burst_is_sent_and_answers_nothing(ui: Interface) -> None:
    await ui.until(lambda: ui.app.chat.fetch.card and ui.app.chat.fetch.card.is_armed)
    ui.press_at_once("g", "o", "space", "1", "enter")
    await ui.until(lambda: "waits for a model" in ui.picture())
    assert ui.prompts == ["go 1"]
    assert not ui.app.chat.fetch.is_running


async def test_with_pull_nobody_is_asked(folder: Path, home: Home) -> None:
    async with running(folder, home, opening=Opening(pulls=True)) as ui:
        await ui.until(lambda: ui.app.chat.fetch.is_running)
        assert ui.app.chat.fetch.card is None


async def test_a_crash_of_the_server_in_the_middle_begins_the_fetch_again(ui: Interface) -> None:
    await agree(ui)
    await ui.send("patience")
    await ui.until(lambda: ui.requests("prompt.submit"))
    os.kill(ui.transport.pid, signal.SIGKILL)
    await ui.until(lambda: len(ui.requests("model.pull")) == 2)
    assert ui.app.chat.fetch.is_running


async def test_nobody_is_said_to_be_ready_without_a_model(ui: Interface) -> None:
    await ui.until(lambda: "no model, F4" in ui.picture())
    assert "● ready" not in ui.picture()
    await agree(ui)
    await ui.send("hello")
    await ui.until(lambda: ui.replies == ["You said: hello"] and "● ready" in ui.picture())


async def test_the_picker_without_a_model_offers_the_ways_to_one(ui: Interface) -> None:
    await ui.press("f4")
    await ui.until(lambda: "No model can answer yet." in ui.picture())
    assert "hermes setup" in ui.picture()
    await ui.press(*"pull", "enter")
    await ui.until(lambda: "40%" in ui.picture())
