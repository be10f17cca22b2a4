"""Pictures of the screens, compared with stored ones; `--snapshot-update` renews them."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from textual.widgets import Tree

from hermes_core.paths import Home
from hermes_tui.opening import Opening
from hermes_tui.screens.picker import PickerScreen
from tests.tui.harness import Interface, running
from tests.tui.test_conversations import store
from tests.tui.test_palette import rows, search

pytestmark = [pytest.mark.e2e, pytest.mark.anyio, pytest.mark.usefixtures("a_fixed_moment")]

SMALL, LARGE = (80, 24), (120, 36)

Run = Callable[..., AbstractAsyncContextManager[Interface]]


@pytest.fixture
def run(folder: Path, home: Home) -> Run:
    def start(
        size: tuple[int, int] = SMALL, **options: object
    ) -> AbstractAsyncContextManager[Interface]:
        return running(folder, home, size=size, **options)  # type: ignore[arg-type]

    return start


async def test_a_new_conversation(run: Run, picture: SnapshotAssertion) -> None:
    async with run() as ui:
        await ui.hold_still()
        assert ui.svg() == picture


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
async def test_markdown(run: Run, picture: SnapshotAssertion, size: tuple[int, int]) -> None:
    async with run(size) as ui:
        await ui.say("markdown")
        await ui.hold_still()
        assert ui.svg() == picture


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
async def test_tools(run: Run, picture: SnapshotAssertion, size: tuple[int, int]) -> None:
    async with run(size) as ui:
        await ui.say("tool")
        await ui.hold_still()
        assert ui.svg() == picture


@pytest.mark.parametrize("size", [SMALL, (200, 60)], ids=["small", "large"])
@pytest.mark.parametrize("prompt", ["rich", "calls"])
async def test_a_transcript(
    run: Run, picture: SnapshotAssertion, prompt: str, size: tuple[int, int]
) -> None:
    async with run(size) as ui:
        await ui.say(prompt)
        await ui.hold_still()
        assert ui.svg() == picture


async def test_details(run: Run, picture: SnapshotAssertion) -> None:
    async with run(LARGE) as ui:
        await ui.say("tool")
        await ui.press("ctrl+t")
        await ui.pilot.pause()
        await ui.hold_still()
        assert ui.svg() == picture


async def test_a_running_command_and_waiting_prompts(run: Run, picture: SnapshotAssertion) -> None:
    async with run() as ui:
        await ui.send("running")
        await ui.until(lambda: "test 9 of 400" in ui.picture())
        await ui.send("then run the linter")
        await ui.send("and tell me what you changed")
        await ui.until(lambda: len(ui.requests("prompt.submit")) == 3)
        await ui.until(lambda: "tell me" in ui.picture())
        await ui.hold_still()
        assert ui.svg() == picture


@pytest.mark.parametrize("prompt", ["danger", "question"])
async def test_a_card(run: Run, picture: SnapshotAssertion, prompt: str) -> None:
    async with run() as ui:
        await ui.send(prompt)
        await ui.until(lambda: ui.app.chat.cards.current is not None)
        await ui.until(lambda: ui.app.chat.cards.current and ui.app.chat.cards.current.is_armed)
        await ui.hold_still()
        assert ui.svg() == picture


@pytest.mark.parametrize("size", [SMALL, (200, 60)], ids=["small", "large"])
async def test_the_card_of_a_change(
    run: Run, picture: SnapshotAssertion, size: tuple[int, int]
) -> None:
    async with run(size) as ui:
        await ui.send("change")
        await ui.until(lambda: ui.app.chat.cards.current and ui.app.chat.cards.current.is_armed)
        await ui.hold_still()
        assert ui.svg() == picture


async def test_an_error(run: Run, picture: SnapshotAssertion) -> None:
    async with run() as ui:
        await ui.say("no-model")
        await ui.hold_still()
        assert ui.svg() == picture


async def test_completion(run: Run, picture: SnapshotAssertion) -> None:
    async with run() as ui:
        await ui.press("/")
        await ui.until(lambda: ui.app.chat.composer_area.completions.is_shown)
        await ui.hold_still()
        assert ui.svg() == picture


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
async def test_the_picker(
    run: Run, folder: Path, picture: SnapshotAssertion, size: tuple[int, int]
) -> None:
    store(
        folder,
        Read_a_file=["How do I read a file?", "With `Path.read_text`, or line by line."],
        Holiday_in_June=["Where is it warm in June?", "In Crete, and not too hot."],
        The_broken_build=["Why does the build fail?", "A test waits for a server."],
    )
    async with run(size) as ui:
        await ui.press("f3")
        await ui.until(lambda: isinstance(ui.app.screen, PickerScreen))
        await ui.until(lambda: "Path.read_text" in ui.picture())
        await ui.hold_still()
        assert ui.svg() == picture


async def test_the_tree(run: Run, picture: SnapshotAssertion) -> None:
    async with run() as ui:
        await ui.say("hello")
        await ui.press("f5")
        await ui.until(lambda: "← here" in ui.picture())
        tree = ui.app.screen.query_one(Tree)
        await ui.until(lambda: tree.cursor_node is not None)
        await ui.hold_still()
        assert ui.svg() == picture


async def test_the_models(run: Run, picture: SnapshotAssertion) -> None:
    async with run() as ui:
        await ui.press("f4")
        await ui.until(lambda: "scripted-2" in ui.picture())
        await ui.hold_still()
        assert ui.svg() == picture


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
async def test_the_help(run: Run, picture: SnapshotAssertion, size: tuple[int, int]) -> None:
    async with run(size) as ui:
        await ui.press("f1")
        await ui.until(lambda: "Complete / and @" in ui.picture())
        await ui.hold_still()
        assert ui.svg() == picture


async def test_the_light_theme(run: Run, picture: SnapshotAssertion) -> None:
    async with run() as ui:
        await ui.say("tool")
        await ui.send("/theme hermes-light")
        await ui.until(lambda: ui.app.theme == "hermes-light")
        await ui.pilot.pause()
        await ui.hold_still()
        assert ui.svg() == picture


async def test_without_colour(
    run: Run, picture: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with run() as ui:
        await ui.say("tool")
        await ui.hold_still()
        assert ui.svg() == picture


async def test_a_long_conversation_in_the_middle(
    run: Run, folder: Path, picture: SnapshotAssertion
) -> None:
    store(folder, Long=[f"text {number}" for number in range(200)])
    async with run(opening=Opening(resume="Long")) as ui:
        await ui.press("pageup")
        await ui.pilot.pause()
        await ui.hold_still()
        assert ui.svg() == picture


async def test_the_first_start_without_a_model(
    run: Run, folder: Path, picture: SnapshotAssertion
) -> None:
    (folder / "poor").write_text("")
    async with run() as ui:
        await ui.until(lambda: ui.app.chat.fetch.card and ui.app.chat.fetch.card.is_armed)
        await ui.hold_still()
        assert ui.svg() == picture


async def test_a_model_on_its_way(run: Run, folder: Path, picture: SnapshotAssertion) -> None:
    (folder / "poor").write_text("")
    async with run(opening=Opening(pulls=True)) as ui:
        await ui.until(lambda: "40%" in ui.picture())
        await ui.send("patience")
        await ui.until(lambda: "waits for a model" in ui.picture())
        await ui.hold_still()
        assert ui.svg() == picture


@pytest.mark.parametrize("size", [SMALL, (200, 60)], ids=["small", "large"])
async def test_the_palette(
    run: Run, folder: Path, picture: SnapshotAssertion, size: tuple[int, int]
) -> None:
    store(folder, Read_a_file=["How do I read a file?", "With `Path.read_text`."])
    async with run(size) as ui:
        screen = await search(ui, "re")
        await ui.until(lambda: "Read a file" in rows(screen))
        await ui.hold_still()
        assert ui.svg() == picture
