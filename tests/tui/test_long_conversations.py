"""Long conversations: what is loaded and drawn follows what is seen, not what there is."""

import asyncio
import contextlib
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from hermes_core.paths import Home
from hermes_state import SessionDB
from hermes_tui.entries import Entry, Note
from hermes_tui.failures import ConnectionLostError
from hermes_tui.opening import Opening
from hermes_tui.session import PAGE
from hermes_tui.transport import ChildTransport
from hermes_tui.widgets.transcript import TranscriptView
from tests.tui.harness import Interface, running
from tests.tui.test_conversations import store as keep

pytestmark = [pytest.mark.e2e, pytest.mark.anyio]

LINE = "A sentence of a usual length, as people write them every day. "


class Counted(ChildTransport):
    """The real server's pipe, and how much came through it."""

    received = 0
    sent: list[bytes] = []  # noqa: RUF012 -- one connection a test

    async def send(self, frame: bytes) -> None:
        Counted.sent.append(frame)
        await super().send(frame)

    async def frames(self) -> AsyncIterator[bytes]:
        async for frame in super().frames():
            Counted.received += len(frame)
            yield frame


async def resumed(home: Home, folder: Path, count: int) -> tuple[int, int, int]:
    """Resume a conversation of so many messages: bytes received, entries known, widgets made."""
    with contextlib.closing(SessionDB(home.create().database)) as store:
        session = store.create_session(f"long-{count}", "tui")
        roles = ("user", "assistant")
        store.append_messages(
            session, [{"role": roles[n % 2], "content": f"{n} {LINE}"} for n in range(count)]
        )
    command = ["env", f"HERMES_HOME={home.root}", sys.executable, "-m", "tui_gateway.entry"]
    Counted.received, Counted.sent = 0, []

    async def connect() -> ChildTransport:
        return await Counted.start(command)

    opening = Opening(resume=f"long-{count}")
    async with running(folder, home, connect=connect, opening=opening) as ui:
        await ui.until(lambda: f"{count - 1} A sentence" in ui.picture())
        assert not any(b"session.history" in frame for frame in Counted.sent)
        return (
            Counted.received,
            len(ui.entries),
            len(ui.app.chat.turn_view.transcript.query(".entry")),
        )


async def test_resuming_ten_thousand_messages_loads_no_more_than_a_hundred_would(
    home: Home, tmp_path: Path
) -> None:
    short = await resumed(home, tmp_path, 100)
    long = await resumed(home, tmp_path, 10_000)
    assert long[1] == short[1] == PAGE
    assert long[2] == short[2]
    assert long[0] < 1.5 * short[0], "a piece of news more or less, not a hundred times as much"


async def test_scrolling_back_fetches_a_page_at_a_time(folder: Path, home: Home) -> None:
    keep(folder, Long=[f"text {number}" for number in range(10_000)])
    async with running(folder, home, opening=Opening(resume="Long")) as ui:
        assert len(ui.entries) == PAGE
        while len(ui.entries) == PAGE:
            await ui.press("pageup")
        await ui.pilot.pause()
        assert len(ui.entries) == 2 * PAGE
        [params] = ui.requests("session.history")
        assert params["limit"] == PAGE


async def test_the_beginning_of_a_long_conversation_is_a_few_presses_away(
    folder: Path, home: Home
) -> None:
    keep(folder, Long=[f"text {number}" for number in range(2_500)])
    async with running(folder, home, opening=Opening(resume="Long")) as ui:
        for presses in range(1, 4):
            await ui.press("ctrl+home")
            await ui.until(lambda: len(ui.entries) >= min(2_500, 1_000 * presses))  # noqa: B023
            await ui.rest()
        await ui.until(lambda: "text 0\n" in ui.picture())
        assert not ui.app.chat.turn_view.transcript.has_earlier
        assert len(list(ui.app.chat.turn_view.transcript.query(".entry"))) < PAGE
        await ui.press("pagedown")
        await ui.press("ctrl+end")
        await ui.until(lambda: "text 2499" in ui.picture())


async def test_page_up_that_is_held_fetches_on_to_the_beginning(folder: Path, home: Home) -> None:
    keep(folder, Long=[f"text {number}" for number in range(400)])
    async with running(folder, home, opening=Opening(resume="Long")) as ui:
        for _ in range(400):
            await ui.press("pageup")
            if not ui.app.chat.turn_view.transcript.has_earlier:
                break
        await ui.until(lambda: len(ui.entries) == 400)


async def test_a_server_that_dies_while_earlier_messages_are_fetched_ends_nothing(
    folder: Path, home: Home
) -> None:
    keep(folder, Long=[f"text {number}" for number in range(400)])
    async with running(folder, home, opening=Opening(resume="Long")) as ui:

        async def fetch(_count: int) -> list[Entry]:
            raise ConnectionLostError("The server is gone.")

        ui.app.tabs.current.transcript.load(ui.entries, fetch)
        await ui.app.chat.turn_view.transcript.show(ui.app.tabs.current.transcript)
        await ui.press("ctrl+home")
        await ui.until(lambda: "text 340" in ui.picture())


async def test_a_stream_touches_only_the_last_block_and_few_widgets(
    folder: Path, home: Home
) -> None:
    keep(folder, Long=[f"text {number}" for number in range(2_000)])
    async with running(folder, home, opening=Opening(resume="Long")) as ui:
        await ui.say("many 2000")
        assert ui.replies[-1].split() == [f"word{number}" for number in range(2_000)]
        await ui.until(lambda: _is_bounded(ui))


def _is_bounded(ui: Interface) -> bool:
    """Whether what has scrolled away has given up its widgets."""
    return len(list(ui.app.chat.turn_view.transcript.query(".entry"))) < PAGE


async def test_texts_that_take_fewer_lines_than_they_have_scroll_by(
    folder: Path, home: Home
) -> None:
    poem = "\n".join(f"Roses are red {number}" for number in range(30))
    async with running(folder, home) as ui:
        for number in range(1, 17):
            await ui.say(f"poem {number}\n{poem}")
            widget_ids = {id(widget) for widget in ui.app.chat.turn_view.transcript.query(".entry")}
            assert id(ui.app.chat.turn_view.transcript.view_of(ui.entries[-1])) in widget_ids
        assert len(ui.replies) == 16
        await ui.until(lambda: _is_bounded(ui))


@pytest.mark.parametrize("seed", range(4))
async def test_what_has_widgets_is_a_stretch_in_order_whatever_happens_side_by_side(
    folder: Path, home: Home, seed: int
) -> None:
    chance = random.Random(seed)
    async with running(folder, home) as ui:
        transcript, view = ui.app.tabs.current.transcript, ui.app.chat.turn_view.transcript

        async def show() -> None:
            transcript.load(transcript.entries[-chance.randint(1, 30) :], fetch)
            await view.show(transcript)

        async def fetch(_count: int) -> list[Entry]:
            await ui.pilot.pause(0.01)
            return [_lines(chance) for _ in range(9)]

        acts: list[Callable[[], Awaitable[None]]] = [
            lambda: transcript.add(_lines(chance)),
            lambda: transcript.add(_lines(chance)),
            lambda: transcript.add(_lines(chance)),
            lambda: transcript.remove(chance.choice(transcript.entries or [Note("none")])),
            show,
            view.to_end,
            lambda: ui.press("ctrl+home"),
            lambda: ui.press("pageup"),
        ]
        for _ in range(40):
            await asyncio.gather(*(act() for act in chance.choices(acts, k=3)))
        await ui.pilot.pause()
        await ui.until(lambda: _is_a_stretch(view))


def _lines(chance: random.Random) -> Note:
    return Note("\n".join(["line"] * chance.randint(1, 30)))


def _is_a_stretch(view: TranscriptView) -> bool:
    """Whether the widgets are those of entries that follow each other, in their order."""
    entries = list(view.query(".entry"))
    places = [n for n, entry in enumerate(view.entries) if view.view_of(entry) in entries]
    views = [view.view_of(view.entries[place]) for place in places]
    return views == entries and places == list(range(places[0], places[-1] + 1))
