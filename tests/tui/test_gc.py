"""Searching the memory for rubbish: not through what lasts, and not while something is drawn."""

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_core.paths import Home
from hermes_tui.widgets.reply import ReplyView
from tests.tui.harness import Interface, running

pytestmark = [pytest.mark.e2e, pytest.mark.anyio]


@pytest.fixture(autouse=True)
def gc_of_all_tests() -> Iterator[None]:
    """Let the terminal UI tune the collection of this process, as it does in its own."""
    gc.unfreeze()
    yield
    gc.freeze()


class Knot:
    """Something that only a search finds to be rubbish."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def no_large_search() -> Iterator[None]:
    """Python does not go through everything by itself."""
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, 1_000_000)
    yield
    gc.set_threshold(young, middle, old)


async def test_what_is_there_when_a_conversation_is_open_is_not_searched_until_the_end(
    folder: Path, home: Home
) -> None:
    before = gc.get_freeze_count()
    async with running(folder, home) as ui:
        await ui.until(lambda: gc.get_freeze_count() > before + 10_000)
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("no_large_search")
async def test_the_widgets_of_a_conversation_that_was_closed_are_given_up(ui: Interface) -> None:
    await ui.until(gc.get_freeze_count)
    await ui.say("hello")
    view = ui.app.chat.turn_view.transcript.view_of(ui.entries[0])
    assert view is not None
    reference = weakref.ref(view)
    del view
    await ui.press("alt+w")
    await ui.until(lambda: reference() is None)


@pytest.mark.usefixtures("no_large_search")
async def test_a_stream_clears_away_its_rubbish_between_two_drawings(ui: Interface) -> None:
    await ui.until(gc.get_freeze_count)
    await ui.send("slow")
    await ui.until(lambda: ui.state == "working" and ui.app.chat.query(ReplyView))
    knot = Knot()
    for _ in range(10):
        gc.collect(1)
    rubbish = weakref.ref(knot)
    del knot
    view = ui.app.chat.query_one(ReplyView)

    def is_cleared_away() -> bool:
        view.entry.text += " and on"
        view.follow_soon()
        return rubbish() is None

    await ui.until(is_cleared_away)
