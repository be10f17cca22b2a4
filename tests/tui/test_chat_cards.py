"""Cards: what they show on a small screen, and which keys they tell."""

from pathlib import Path

import pytest

from hermes_core.paths import Home
from hermes_tui.messages import ApprovalAsked
from hermes_tui.widgets.card import Card
from tests.tui.interface import Interface, running

pytestmark = pytest.mark.anyio

COMMAND = "\n".join(f"rm -rf folder{number}" for number in range(41))
CHOICES = ("Allow this once", "in this conversation", "Allow it always", "Do not allow it")


async def ask(ui: Interface, command: str = COMMAND, request_id: str = "q") -> None:
    live = ui.app.session.conversation.live_id
    ui.app.chat.post_message(ApprovalAsked(live, request_id, command, "It deletes folders."))
    cards = ui.app.chat.cards
    await ui.until(lambda: any(card.request_id == request_id for card in cards.query(Card)))
    await ui.pilot.pause()


@pytest.mark.parametrize("size", [(80, 24), (200, 60), (80, 16)])
async def test_a_long_command_leaves_the_choices_and_the_reason_in_sight(
    folder: Path, home: Home, size: tuple[int, int]
) -> None:
    async with running(folder, home, size=size) as ui:
        ui.type("\n" * 30)
        await ask(ui)
        wanted = ("rm -rf folder0", "It deletes folders.", *CHOICES, "waits for you")
        await ui.until(lambda: all(told in ui.picture() for told in wanted))


async def test_on_a_very_low_screen_there_are_the_command_and_the_choices(
    folder: Path, home: Home
) -> None:
    async with running(folder, home, size=(40, 10)) as ui:
        await ask(ui)
        wanted = ("rm -rf folder0", *CHOICES, "waits for you")
        await ui.until(lambda: all(told in ui.picture() for told in wanted))


async def test_page_down_shows_the_rest_of_a_long_command(ui: Interface) -> None:
    await ask(ui)
    card = ui.app.chat.cards.current
    assert card is not None
    await ui.until(lambda: "PgDn shows more" in ui.picture())
    for _ in range(20):
        await ui.press("pagedown")
    await ui.until(lambda: "rm -rf folder40" in ui.picture())
    await ui.press("pageup")
    await ui.until(lambda: "rm -rf folder40" not in ui.picture())


async def test_a_card_without_the_keys_names_the_one_that_leads_to_it(ui: Interface) -> None:
    ui.type("a draft")
    await ask(ui, "rm -rf build")
    await ui.until(lambda: "F2 to answer" in ui.picture())
    await ui.press("f2")
    await ui.until(lambda: "a key, then Enter" in ui.picture())
    await ui.press("escape")
    await ui.until(lambda: "F2 to answer" in ui.picture())


async def test_a_card_tells_how_many_wait_behind_it(ui: Interface) -> None:
    await ask(ui, "rm one", "q1")
    await ask(ui, "rm two", "q2")
    card = ui.app.chat.cards.current
    await ui.until(lambda: card is not None and card.is_armed)
    await ui.until(lambda: "1 more after this · ↑↓ or a key, then Enter" in ui.picture())
