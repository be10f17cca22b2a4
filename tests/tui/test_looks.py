"""How the interface starts and looks: the first frame, themes, own keys."""

from pathlib import Path

import pytest
from textual.events import Key

from hermes_core.paths import Home
from hermes_tui import preferences
from hermes_tui.app import HermesApp
from hermes_tui.opening import Opening
from hermes_tui.preferences import Preferences
from hermes_tui.screens.help import HelpScreen
from tests.tui.interface import Interface, connection, running

pytestmark = pytest.mark.anyio


async def test_keys_pressed_before_the_chat_is_loaded_are_typed_into_it(
    folder: Path, home: Home
) -> None:
    app = HermesApp(connection(folder), home, Opening())
    for character in "hello":
        app._first.on_key(Key(character, character))
    async with app.run_test() as pilot:
        ui = Interface(app, pilot, folder)
        await ui.until(lambda: app.is_furnished)
        assert ui.composer.text == "hello"


async def test_a_theme_is_kept_for_the_next_start(folder: Path, home: Home) -> None:
    async with running(folder, home) as ui:
        await ui.send("/theme nord")
        await ui.until(lambda: ui.app.theme == "nord")
    async with running(folder, home) as ui:
        assert ui.app.theme == "nord"


async def test_an_unknown_theme_is_told_with_those_there_are(ui: Interface) -> None:
    await ui.say("/theme pink")
    assert "hermes-light" in ui.notes[-1]


async def test_own_keys_replace_ours(folder: Path, home: Home) -> None:
    preferences.save(home, Preferences(keys={"help": "f9"}))
    async with running(folder, home, size=(120, 40)) as ui:
        await ui.press("f9")
        await ui.until(lambda: isinstance(ui.app.screen, HelpScreen))
        assert "F9" in ui.picture()


async def test_keys_for_something_unknown_are_told(folder: Path, home: Home) -> None:
    preferences.save(home, Preferences(keys={"dance": "f9"}))
    async with running(folder, home) as ui:
        await ui.until(lambda: any("no keys for dance" in note for note in ui.notes))


async def test_the_palette_offers_what_the_keys_do(ui: Interface) -> None:
    titles = [command.title for command in ui.app.get_system_commands(ui.app.screen)]
    assert "Start a new conversation" in titles and "Change the theme" in titles


@pytest.mark.parametrize("size", [(30, 10), (200, 60)])
async def test_it_works_on_small_and_on_large_terminals(
    folder: Path, home: Home, size: tuple[int, int]
) -> None:
    async with running(folder, home, size=size) as ui:
        await ui.say("tool")
        for key in ("f1", "f3", "f4", "f5"):
            await ui.press(key)
            await ui.pilot.pause()
            await ui.press("escape")
        await ui.send("danger")
        await ui.until(lambda: ui.app.chat.cards.current is not None)
        await ui.pilot.pause()
        assert "y" in ui.picture()


async def test_a_resize_in_the_middle_keeps_everything(ui: Interface) -> None:
    await ui.say("markdown")
    ui.type("draft")
    for size in ((40, 12), (120, 40), (80, 24)):
        await ui.pilot.resize_terminal(*size)
        await ui.pilot.pause()
    assert "Replace <name> with yours" in ui.picture()
    assert ui.composer.text == "draft"
    assert ui.requests("terminal.resize")[-1]["cols"] == 80
