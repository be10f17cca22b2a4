"""The command palette: one list of everything that can be chosen."""

from pathlib import Path

import pytest
from textual.widgets import Input, OptionList

from hermes_core.paths import Home
from hermes_tui import preferences
from hermes_tui.screens.palette import PaletteScreen
from hermes_tui.screens.picker import PickerScreen
from tests.tui.harness import Interface, running
from tests.tui.test_conversations import store

pytestmark = [pytest.mark.e2e, pytest.mark.anyio]


async def search(ui: Interface, text: str) -> PaletteScreen:
    """Open the palette and look for something; everything is loaded by then."""
    await ui.press("ctrl+p")
    await ui.until(lambda: isinstance(ui.app.screen, PaletteScreen))
    screen = ui.app.screen
    assert isinstance(screen, PaletteScreen)
    await ui.until(lambda: {"Models", "Commands"} <= {c.group for c in screen._choices})
    await ui.until(lambda: any(c.value == "/undo" for c in screen._choices))
    screen.query_one("#search", Input).value = text
    await ui.rest()
    return screen


def rows(screen: PaletteScreen) -> list[str]:
    listed = screen.query_one("#rows", OptionList)
    return [str(listed.get_option_at_index(n).prompt).strip() for n in range(listed.option_count)]


async def test_it_lists_all_groups_and_finds_by_words(folder: Path, home: Home) -> None:
    store(folder, Read_a_file=["How?", "With read_text."])
    async with running(folder, home, size=(120, 36)) as ui:
        screen = await search(ui, "")
        listed = rows(screen)
        assert [row for row in listed if row in ("Commands", "Conversations", "Models", "Themes")]
        await ui.until(lambda: "Read a file" in rows(screen))
        screen.query_one("#search", Input).value = "read file"
        await ui.until(lambda: rows(screen) == ["Conversations", "Read a file"])
        await ui.until(lambda: "With read_text." in ui.picture())
        await ui.press("enter")
        await ui.until(lambda: ui.replies == ["With read_text."])


async def test_a_command_is_run_and_a_slash_command_goes_into_the_text_field(
    ui: Interface,
) -> None:
    await search(ui, "history")
    await ui.press("enter")
    await ui.until(lambda: isinstance(ui.app.screen, PickerScreen))
    await ui.press("escape")
    await search(ui, "/undo")
    await ui.press("enter")
    await ui.until(lambda: ui.composer.text == "/undo ")


async def test_a_model_is_chosen(ui: Interface) -> None:
    await search(ui, "scripted-2")
    await ui.press("enter")
    await ui.until(lambda: ui.requests("config.set"))
    assert ui.requests("config.set")[0]["value"] == "local/scripted-2"


async def test_a_theme_is_shown_while_it_is_highlighted_and_kept_when_chosen(
    ui: Interface, home: Home
) -> None:
    await search(ui, "nord")
    await ui.until(lambda: ui.app.theme == "nord")
    await ui.press("escape")
    await ui.until(lambda: ui.app.theme == "hermes-dark")
    assert not preferences.path(home).exists()
    await search(ui, "nord")
    await ui.press("enter")
    await ui.until(lambda: preferences.path(home).exists())
    assert ui.app.theme == "nord" == preferences.load(home).theme


async def test_theme_without_a_name_lists_themes_only(ui: Interface) -> None:
    await ui.send("/theme")
    await ui.until(lambda: isinstance(ui.app.screen, PaletteScreen))
    await ui.rest()
    screen = ui.app.screen
    assert isinstance(screen, PaletteScreen)
    assert "nord" in rows(screen) and "Models" not in rows(screen)


async def test_arrows_pass_over_headings_and_nothing_found_is_said(ui: Interface) -> None:
    screen = await search(ui, "scripted")
    assert rows(screen)[0] == "Models"
    listed = screen.query_one("#rows", OptionList)
    assert listed.highlighted == 1
    await ui.press("up")
    assert listed.highlighted == 1
    await ui.press("down")
    assert listed.highlighted == 2
    screen.query_one("#search", Input).value = "no such thing"
    await ui.until(lambda: not rows(screen))
    await ui.press("enter")
    assert ui.app.screen is screen
