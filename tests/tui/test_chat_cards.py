"""Cards: what they show on a small screen, which keys they tell, and what is typed at them."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_core.paths import Home
from hermes_protocol.events import Approval, Clarification, Settled
from hermes_tui.messages import ApprovalAsked, QuestionAsked, RequestExpired
from hermes_tui.widgets import card as card_module
from hermes_tui.widgets.card import Card
from tests.support.examples import examples
from tests.tui.harness import Interface, running

pytestmark = pytest.mark.anyio

COMMAND = "\n".join(f"rm -rf folder{number}" for number in range(41))
CHOICES = ("Allow once", "Allow for this conv", "Always allow", "Deny (or type a reason)")


async def ask(ui: Interface, command: str = COMMAND, request_id: str = "q") -> None:
    live = ui.app.session.conversation.live_id
    ui.app.chat.turn_view.post_message(
        ApprovalAsked(live, Approval(request_id, "terminal", command, "It deletes folders."))
    )
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
        expected = ("rm -rf folder0", "It deletes folders.", *CHOICES, "waiting for your answer")
        await ui.until(lambda: all(text in ui.picture() for text in expected))


async def test_on_a_very_low_screen_there_are_the_reason_and_the_choices(
    folder: Path, home: Home
) -> None:
    async with running(folder, home, size=(40, 10)) as ui:
        await ask(ui)
        expected = ("It deletes folders.", *CHOICES, "waiting for your answer")
        await ui.until(lambda: all(text in ui.picture() for text in expected))


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


# -- what is typed at a card ---------------------------------------------------------------------


async def armed_card(ui: Interface, request_id: str = "q") -> Card:
    """A card that was asked and takes keys."""
    await ask(ui, "rm -rf build", request_id)
    card = ui.app.chat.cards.current
    assert card is not None
    await ui.until(lambda: card.is_armed)
    return card


def answers(ui: Interface) -> list[str]:
    return [params["choice"] for params in ui.requests("approval.respond")]


def texts(ui: Interface) -> list[str]:
    return [params["text"] for params in ui.requests("prompt.submit")]


@pytest.mark.parametrize("words", ["why", "please use a trash", "no, use trash", "yes", "any"])
async def test_a_sentence_that_comes_at_once_with_its_enter_allows_nothing(
    ui: Interface, words: str
) -> None:
    await armed_card(ui)
    ui.press_at_once(*("space" if key == " " else key for key in words), "enter")
    await ui.until(lambda: answers(ui) == [words])


@pytest.mark.parametrize("word", ["once", "always", "session"])
async def test_a_word_that_the_server_knows_as_a_yes_is_a_no(ui: Interface, word: str) -> None:
    await armed_card(ui)
    await ui.press(*word, "enter")
    await ui.until(lambda: answers(ui) == [f'"{word}"'])


async def test_enter_alone_allows_nothing_and_says_what_is_missing(ui: Interface) -> None:
    await armed_card(ui)
    assert "▸" not in "".join(ui.picture().splitlines()[-12:])
    await ui.press("enter")
    await ui.until(lambda: "Nothing is chosen" in ui.picture())
    await ui.press("down", "enter")
    await ui.until(lambda: answers(ui) == ["once"])


async def test_a_lasting_yes_tells_what_it_is_for(ui: Interface) -> None:
    covers = '"For this conversation" and "always" cover exactly this command in ~/project.'
    approval = Approval("q", command="rm -r a", description="It deletes", remembers=covers)
    ui.app.chat.turn_view.post_message(ApprovalAsked("", approval))
    await ui.until(lambda: covers.split()[-1] in ui.picture())
    assert covers in " ".join(ui.picture().replace("│", " ").split())


REASONS = [
    f"Changes ~/project/a/rather/long/path/number/{n}/of/several/settings.toml" for n in range(6)
]
CHANGES = [f"line {number} of the change" for number in range(90)]
DIFF = "\n".join(["--- /dev/null", "+++ a", "@@ -0,0 +1,90 @@", *(f"+{line}" for line in CHANGES)])


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_the_reasons_and_the_whole_diff_can_be_read(
    folder: Path, home: Home, size: tuple[int, int]
) -> None:
    async with running(folder, home, size=size) as ui:
        covers = '"For this conversation" and "always" cover exactly this change in ~/project.'
        reasons = "\n".join(f"• {reason}" for reason in REASONS)
        live = ui.app.session.conversation.live_id
        request = Approval("q", "patch", DIFF, reasons, remembers=covers)
        ui.app.chat.turn_view.post_message(ApprovalAsked(live, request))
        await ui.until(lambda: all(label in ui.picture() for label in CHOICES))
        await ui.rest()
        pages = [ui.picture()]
        while "line 89 of" not in pages[-1]:
            await ui.press("pagedown")
            await ui.rest()
            assert ui.picture() != pages[-1], "a page down moves on"
            pages.append(ui.picture())
        for text in (*REASONS, "a (new file)", *CHANGES, *CHOICES, "exactly this change"):
            assert any(text in page for page in pages), text


async def test_what_enter_picks_is_marked_and_can_be_taken_back(ui: Interface) -> None:
    await armed_card(ui)
    await ui.press("y")
    await ui.until(lambda: "▸  y  Allow once" in ui.picture())
    await ui.press("backspace")
    await ui.until(lambda: "▸  y" not in ui.picture())
    await ui.press("enter")
    await ui.until(lambda: "Nothing is chosen" in ui.picture())
    assert not answers(ui)


async def test_who_marks_with_the_arrows_and_types_has_not_chosen(ui: Interface) -> None:
    await armed_card(ui)
    ui.press_at_once("down", "x", "backspace", "enter")
    await ui.until(lambda: "Nothing is chosen" in ui.picture())
    assert not answers(ui)


async def test_a_second_card_does_not_get_the_rest_of_a_sentence(ui: Interface) -> None:
    await armed_card(ui, "q1")
    ui.press_at_once(*"no,use")
    await ask(ui, "rm -rf dist", "q2")
    ui.press_at_once(*"trash", "enter")
    await ui.until(lambda: answers(ui) == ["no,usetrash"])
    assert [params["request_id"] for params in ui.requests("approval.respond")] == ["q1"]


async def test_words_are_in_the_history_and_a_command_is_one_at_a_card_too(ui: Interface) -> None:
    card = await armed_card(ui)
    await ui.send_keys("/usage")
    await ui.until(lambda: "done: /usage" in ui.notes)
    assert not answers(ui)
    await ui.press("f2")
    await ui.until(lambda: card.has_keys)
    await ui.press(*"mv", "enter")
    await ui.until(lambda: answers(ui) == ["mv"])
    await ui.press("up")
    assert ui.composer.text == "mv"


async def test_words_outlive_the_card_they_were_typed_at(ui: Interface) -> None:
    await armed_card(ui)
    await ui.press(*"mv")
    ui.app.chat.turn_view.post_message(RequestExpired("", Settled("q")))
    assert ui.composer.text == "mv" and not answers(ui)
    card = await armed_card(ui)
    assert card.has_keys, "asked again, it is what the words are for"
    await ui.press("!", "enter")
    await ui.until(lambda: answers(ui) == ["mv!"])


async def test_words_at_a_card_are_cleared_by_ctrl_c_and_stay_in_the_history(ui: Interface) -> None:
    await ui.send("danger")
    await ui.until(lambda: (card := ui.app.chat.cards.current) and card.is_armed)
    await ui.press(*"mv", "ctrl+c")
    await ui.until(lambda: ui.composer.text == "")
    assert ui.app.chat.cards.current is not None and not answers(ui)
    await ui.press("ctrl+c")
    await ui.until(lambda: ui.state == "ready" and ui.app.chat.cards.current is None)
    await ui.press("up")
    assert ui.composer.text == "mv"


async def test_words_at_a_card_and_what_was_set_aside_for_it_are_kept_for_the_next_start(
    folder: Path, home: Home
) -> None:
    async with running(folder, home) as ui:
        ui.type("a draft")
        await ask(ui)
        await ui.press("f2")
        await ui.until(lambda: ui.composer.text == "")
        await ui.press(*"mv", "ctrl+q")
        await ui.until(lambda: ui.app.return_code == 0)
    async with running(folder, home) as ui:
        await ui.press("up")
        assert ui.composer.text == "mv"
        await ui.press("up")
        assert ui.composer.text == "a draft"


async def test_what_is_typed_in_a_dialog_is_no_answer_to_the_card_behind_it(
    ui: Interface, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = await armed_card(ui)
    monkeypatch.setattr(card_module, "_ARMING_S", 3600.0)
    await ui.press("f1")
    await ui.press("escape")
    await ui.until(lambda: not card.is_armed)
    await ui.press("y", "enter")
    await ui.until(lambda: texts(ui) == ["y"])
    assert not answers(ui)


SENTENCES = st.text("ysan1234 ox,", min_size=2, max_size=8).filter(
    lambda text: text == text.strip()
)


@st.composite
def scripts(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A sentence, and its keys with what happens between them."""
    sentence = draw(SENTENCES)
    steps = ["card"] * draw(st.integers(0, 1))
    for key in (*("space" if letter == " " else letter for letter in sentence), "enter"):
        steps += draw(st.lists(st.sampled_from(["card", "arm", "pause", "expire"]), max_size=2))
        steps.append(key)
    return sentence, steps


@given(st.lists(scripts(), min_size=4, max_size=4))
@settings(
    max_examples=examples(3),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_sentence_allows_anything_or_loses_a_letter_whatever_appears_in_it(
    tmp_path_factory: pytest.TempPathFactory, sentences: list[tuple[str, list[str]]]
) -> None:
    folder = tmp_path_factory.mktemp("double")
    asyncio.run(_play(folder, Home(tmp_path_factory.mktemp("home")), sentences))


async def _play(folder: Path, home: Home, sentences: list[tuple[str, list[str]]]) -> None:
    async with running(folder, home) as ui:
        await ui.send("slow")
        await ui.until(lambda: ui.state == "working" and ui.replies)
        number = 0
        for sentence, steps in sentences:
            count = len(answers(ui)) + len(texts(ui))
            for step in steps:
                cards = list(ui.app.chat.cards.query(Card))
                match step:
                    case "card":
                        number += 1
                        live = ui.app.session.conversation.live_id
                        event = ApprovalAsked(
                            live,
                            Approval(f"q{number}", "terminal", f"rm {number}", "It deletes."),
                        )
                        ui.app.chat.turn_view.post_message(event)
                    case "arm" if cards:
                        cards[0].arm()
                    case "pause":
                        await ui.pilot.pause()
                    case "expire" if cards:
                        ui.app.chat.turn_view.post_message(
                            RequestExpired("", Settled(cards[0].request_id))
                        )
                    case "arm" | "expire":
                        pass
                    case key:
                        ui.press_at_once(key)
            await ui.until(lambda count=count: len(answers(ui)) + len(texts(ui)) > count)
            assert [*answers(ui), *texts(ui)].count(sentence) >= 1
            assert not {"once", "session", "always"} & set(answers(ui))
            assert ui.composer.text == ""


@pytest.mark.parametrize("size", [(80, 24), (60, 14), (200, 60)])
async def test_a_question_with_many_choices_is_in_sight_with_the_one_that_is_marked(
    folder: Path, home: Home, size: tuple[int, int]
) -> None:
    question = "Which of the many ways shall I go?\nThey differ in what they cost."
    choices = [f"The way number {number}" for number in range(1, 9)]
    async with running(folder, home, size=size) as ui:
        live = ui.app.session.conversation.live_id
        ui.app.chat.turn_view.post_message(
            QuestionAsked(live, Clarification("q", question, choices))
        )
        await ui.until(lambda: all(line in ui.picture() for line in question.splitlines()))
        card = ui.app.chat.cards.current
        assert card is not None
        await ui.until(lambda: card.is_armed and card.has_keys)
        for number in range(1, 9):
            await ui.press("down")
            await ui.until(lambda: f"▸  {number}  The way number {number}" in ui.picture())  # noqa: B023
            assert all(line in ui.picture() for line in question.splitlines())
        await ui.press("3")
        await ui.until(lambda: "▸  3  The way number 3" in ui.picture())
