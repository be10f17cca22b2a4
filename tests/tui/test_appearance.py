"""How the interface starts and looks: the first frame, themes, own keys."""

from pathlib import Path

import pytest
from textual.events import Key

from hermes_core.paths import Home, make_folder
from hermes_tui import keymap, preferences
from hermes_tui.app import HermesApp
from hermes_tui.attention import Attention, Notify
from hermes_tui.opening import Opening
from hermes_tui.preferences import Preferences
from hermes_tui.screens import chat
from hermes_tui.screens.help import HelpScreen
from hermes_tui.screens.tree import TreeScreen
from tests.tui.harness import Interface, connection, running

pytestmark = [pytest.mark.e2e, pytest.mark.anyio]


async def test_keys_pressed_before_the_chat_is_loaded_are_typed_into_it(
    folder: Path, home: Home
) -> None:
    app = HermesApp(connection(folder), home, Opening())
    for character in "hello":
        app._first.on_key(Key(character, character))
    async with app.run_test() as pilot:
        ui = Interface(app, pilot, folder)
        await ui.until(lambda: app.is_loaded)
        assert ui.composer.text == "hello"


async def test_a_theme_is_kept_for_the_next_start(folder: Path, home: Home) -> None:
    async with running(folder, home) as ui:
        await ui.send("/theme nord")
        await ui.until(lambda: ui.app.theme == "nord")
    async with running(folder, home) as ui:
        assert ui.app.theme == "nord"


async def test_a_broken_file_is_not_overwritten_by_a_theme(folder: Path, home: Home) -> None:
    make_folder(home.root)
    written = '{"keys": {"help": "f9"},,}'
    preferences.path(home).write_text(written)
    async with running(folder, home) as ui:
        await ui.send("/theme nord")
        await ui.until(lambda: ui.app.theme == "nord")
        assert preferences.path(home).read_text() == written


async def test_an_unknown_theme_is_told_with_those_there_are(ui: Interface) -> None:
    await ui.say("/theme pink")
    assert "hermes-light" in ui.notes[-1]


async def test_own_keys_replace_ours(folder: Path, home: Home) -> None:
    preferences.save(home, Preferences(keys={"help": "f9"}))
    async with running(folder, home, size=(120, 40)) as ui:
        await ui.press("f9")
        await ui.until(lambda: isinstance(ui.app.screen, HelpScreen))
        await ui.until(lambda: "F9" in ui.picture())


async def test_keys_for_something_unknown_are_told(folder: Path, home: Home) -> None:
    preferences.save(home, Preferences(keys={"dance": "f9"}))
    async with running(folder, home) as ui:
        await ui.until(lambda: any("unknown action dance" in note for note in ui.notes))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, ""),
        ({"help": "f9", "details": "ctrl+shift+d, alt+up", "take_back": "f8"}, ""),
        ({"open": "notakey"}, "'notakey' of open is not a valid key."),
        ({"open": "hyper+o"}, "'hyper+o' of open is not a valid key."),
        ({"open": "ctrl+c"}, "ctrl+c cannot be both open and 'stop'."),
        ({"open": "enter"}, "enter cannot be both open and 'Send'."),
    ],
)
def test_own_keys_that_cannot_be_are_told(keys: dict[str, str], message: str) -> None:
    assert " ".join(keymap.problems(keys)) == message


async def test_a_theme_in_the_file_that_does_not_exist_is_told(folder: Path, home: Home) -> None:
    preferences.save(home, Preferences(theme="pink"))
    async with running(folder, home) as ui:
        await ui.until(lambda: any("there is no theme pink" in note for note in ui.notes))


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
    await ui.until(lambda: "Replace <name> with yours" in ui.picture())
    assert ui.composer.text == "draft"
    await ui.until(lambda: ui.requests("terminal.resize")[-1]["cols"] == 80)


async def test_a_transcript_that_is_at_its_end_stays_there_through_resizes(ui: Interface) -> None:
    for _ in range(4):
        await ui.say("markdown")
        await ui.say("tool")
    await ui.press("f5")
    await ui.until(lambda: isinstance(ui.app.screen, TreeScreen))
    await ui.press("escape")
    for size in ((200, 60), (40, 10), (80, 24)):
        await ui.pilot.resize_terminal(*size)
        await ui.pilot.pause()
        await ui.pilot.wait_for_scheduled_animations()
    await ui.until(lambda: "The greeting is friendlier now." in ui.picture())
    assert ui.app.chat.turn_view.transcript.is_following


async def test_what_cannot_be_opened_is_told_once_and_a_prompt_waits_until_it_can(
    folder: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat, "_TRY_AGAIN_S", 0.01)
    (folder / "broken").write_text("")
    async with running(folder, home, waits=False) as ui:
        await ui.until(lambda: "needs attention" in ui.picture())
        await ui.send("hello")
        await ui.until(lambda: "next  hello" in ui.picture())
        tries = len(ui.requests("session.create"))
        await ui.until(lambda: len(ui.requests("session.create")) > tries + 4)
        assert ui.notes == ["config.toml cannot be read."]
        assert "starting" not in ui.picture() and ui.prompts == []
        (folder / "broken").unlink()
        await ui.until(lambda: ui.replies == ["You said: hello"] and ui.state == "ready")
        assert ui.prompts == ["hello"]
        await ui.until(lambda: "next  hello" not in ui.picture())


@pytest.mark.parametrize("key", ["ctrl+c", "alt+up"])
async def test_a_prompt_that_waits_for_a_conversation_can_be_taken_back(
    folder: Path, home: Home, key: str
) -> None:
    (folder / "broken").write_text("")
    async with running(folder, home, waits=False) as ui:
        await ui.until(lambda: "needs attention" in ui.picture())
        await ui.send("hello")
        await ui.until(lambda: "next  hello" in ui.picture())
        await ui.press(key)
        await ui.until(lambda: ui.composer.text == "hello")
        (folder / "broken").unlink()
        await ui.until(lambda: ui.state == "ready")
        assert ui.prompts == [] and not ui.requests("prompt.submit")


@pytest.mark.parametrize("theme", ["hermes-dark", "hermes-light", "ansi-dark", "ansi-light"])
async def test_without_colours_there_are_none(
    folder: Path, home: Home, monkeypatch: pytest.MonkeyPatch, theme: str
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    preferences.save(home, Preferences(theme=theme))
    async with running(folder, home) as ui:
        await ui.say("markdown")
        await ui.say("tool")
        await ui.press("/")
        await ui.until(lambda: ui.app.chat.composer_area.completions.is_shown)
        await ui.rest()
        drawn = [s for line in ui.app.screen._compositor.render_strips() for s in line if s.style]
        styles = [piece.style for piece in drawn if piece.style]
        colours = {c for style in styles for c in (style.color, style.bgcolor) if c}
        assert all(colour.is_default for colour in colours)
        highlighted = "".join(s.text for s in drawn if s.style and s.style.underline)
        item = ui.app.chat.composer_area.completions.item
        assert item is not None and item.text in highlighted


def test_no_title_can_end_its_sequence() -> None:
    written: list[str] = []
    attention = Attention(written.append)
    attention.entitle("working", "a\x1b]0;b\x07\nc\x9d;" + "d" * 100)
    attention.entitle("working", "a\x1b]0;b\x07\nc\x9d;" + "d" * 100)
    [sequence] = written
    assert sequence.startswith("\x1b]2;● a]0,b c,ddd") and sequence.endswith("… · Hermes\x07")
    assert len(sequence) < 90 and not any(c in sequence[1:-1] for c in "\x1b\x07\x9d\n")


@pytest.mark.parametrize(
    ("notify", "vte", "sequence"),
    [
        ("off", "", []),
        ("bell", "", ["\x07"]),
        ("desktop", "", ["\x1b]9;finished: a, b\x07"]),
        ("desktop", "7600", ["\x1b]777;notify;Hermes;finished: a, b\x07"]),
    ],
)
def test_a_person_is_called_as_the_preferences_say(
    notify: Notify, vte: str, sequence: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTE_VERSION", vte)
    written: list[str] = []
    attention = Attention(written.append)
    attention.notify = notify
    attention.call("finished: a; b")
    assert written == sequence


async def test_who_looks_elsewhere_is_called_at_the_end_of_a_turn(folder: Path, home: Home) -> None:
    preferences.save(home, Preferences(notify="desktop"))
    async with running(folder, home) as ui:
        called: list[str] = []
        ui.app.chat.attention = Attention(called.append)
        ui.app.chat.attention.notify = "desktop"
        await ui.say("hello")
        assert not any("finished" in text for text in called)
        await ui.send("paused")
        await ui.until(lambda: "The first half" in ui.picture())
        ui.app.app_focus = False
        await ui.app.session.call("process.list")
        await ui.until(lambda: any("finished: hello" in text for text in called))
        await ui.send("danger")
        await ui.until(lambda: any("waiting for your answer" in text for text in called))
        assert any("]2;▲ hello · Hermes" in text for text in called)
