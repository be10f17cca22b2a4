"""The interface, driven by a pilot, with the double as its server: a real process on real pipes."""

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from textual import events
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from hermes_core.paths import Home
from hermes_tui.app import HermesApp
from hermes_tui.client import Connect
from hermes_tui.entries import Entry, Note, Reply, UserMessage
from hermes_tui.opening import Opening
from hermes_tui.transport import ChildTransport
from hermes_tui.widgets.composer import Composer

DOUBLE = Path(__file__).with_name("fake_server.py")
TIMEOUT_S = 30.0
"""A process on a busy machine takes its time to start."""
_STILL = 5
"""So many equal pictures in a row are a screen that has come to rest."""


def connection(folder: Path) -> Connect:
    """The way to a double that keeps its conversations in a folder."""
    return partial(ChildTransport.start, [sys.executable, str(DOUBLE), str(folder)])


@dataclass
class Interface:
    """A running interface, what can be done with it and what can be seen of it."""

    app: HermesApp
    pilot: Pilot[int]
    folder: Path

    # -- doing -------------------------------------------------------------------------------

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def write(self, text: str) -> None:
        """Press the keys of a text, one after the other."""
        await self.press(*("space" if key == " " else key for key in text))

    async def send_keys(self, text: str) -> None:
        """Press the keys of a text and Enter, and once more when that only completes it."""
        await self.write(text)
        await self.press("enter")
        if self.composer.text:
            await self.press("enter")

    def press_at_once(self, *keys: str) -> None:
        """Keys that are all there before the first of them is dealt with."""
        for key in keys:
            character = key if len(key) == 1 else {"space": " ", "enter": "\r"}.get(key)
            self.app.post_message(events.Key(key, character))

    def type(self, text: str) -> None:
        self.composer.insert(text)

    async def send(self, text: str) -> None:
        """Type a text and press Enter."""
        self.composer.focus()
        self.composer.recall(text)
        await self.press("enter")

    async def say(self, text: str) -> None:
        """Send a text and wait until it is answered."""
        count = self._count()
        await self.send(text)
        await self.until(lambda: self.state == "ready" and self._count() > count)
        await self.rest()

    async def rest(self) -> None:
        """Wait until so many pictures in a row are equal: the last change may be drawn later."""
        seen: list[str] = []
        async with asyncio.timeout(TIMEOUT_S):
            while len(seen) < _STILL or len(set(seen[-_STILL:])) > 1:
                await self.pilot.pause(0.01)
                seen.append(self.picture())

    def _count(self) -> int:
        return len(self.notes) + len(self.replies)

    async def until(self, is_so: Callable[[], object]) -> None:
        """Wait until something is so; raises TimeoutError."""
        async with asyncio.timeout(TIMEOUT_S):
            while not is_so():
                await self.pilot.pause(0.01)

    # -- seeing ------------------------------------------------------------------------------

    @property
    def composer(self) -> Composer:
        return self.app.chat.composer

    @property
    def state(self) -> str:
        return self.app.session.conversation.state

    @property
    def entries(self) -> list[Entry]:
        return self.app.chat.turn_view.transcript.entries

    @property
    def replies(self) -> list[str]:
        return [entry.text for entry in self.entries if isinstance(entry, Reply)]

    @property
    def prompts(self) -> list[str]:
        return [entry.text for entry in self.entries if isinstance(entry, UserMessage)]

    @property
    def notes(self) -> list[str]:
        return [entry.text for entry in self.entries if isinstance(entry, Note)]

    @property
    def transport(self) -> ChildTransport:
        transport = self.app.session.client.transport
        assert isinstance(transport, ChildTransport)
        return transport

    def picture(self) -> str:
        """What is on the screen, as text."""
        lines = self.app.screen._compositor.render_strips()
        return "\n".join("".join(s.text for s in line).rstrip() for line in lines)

    def svg(self) -> str:
        """What is on the screen, with its colours; without what differs from run to run."""
        drawn = self.app.export_screenshot()
        without_fonts = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
        return re.sub(r"terminal-\d+", "terminal", without_fonts)

    async def hold_still(self) -> None:
        """Stop what moves by itself (cursors, the seconds of a turn); wait for what is under way."""
        for screen in self.app.screen_stack:  # what is below a dialog is seen, too
            for field in (*screen.query(TextArea), *screen.query(Input)):
                field.cursor_blink = False
                field.notify_style_update()  # a text area keeps lines as they were drawn
                field.refresh()
        self.app.session.conversation.began_at = None
        self.app.chat.status.tell()
        seen: list[str] = []
        async with asyncio.timeout(TIMEOUT_S):
            while len(seen) < _STILL or len(set(seen[-_STILL:])) > 1:
                await self.pilot.pause(0.03)
                seen.append(self.svg())

    def requests(self, method: str) -> list[dict[str, Any]]:
        """The parameters of the calls that the double has got."""
        lines = (self.folder / "requests.jsonl").read_text().splitlines()
        got = [json.loads(line) for line in lines]
        return [request["params"] for request in got if request["method"] == method]


@contextlib.asynccontextmanager
async def running(
    folder: Path,
    home: Home,
    *,
    size: tuple[int, int] = (80, 24),
    opening: Opening | None = None,
    connect: Connect | None = None,
    waits: bool = True,
) -> AsyncGenerator[Interface]:
    """Run the interface until the end of the block; unless told otherwise, with a conversation open."""
    app = HermesApp(connect or connection(folder), home, opening or Opening())
    async with app.run_test(size=size, notifications=True) as pilot:
        interface = Interface(app, pilot, folder)
        await interface.until(lambda: app.is_loaded)
        if waits:
            await interface.until(lambda: interface.state == "ready" and interface.entries)
            await interface.rest()
        yield interface
        await app.action_leave()
