"""Several conversations at work: switching, badges, questions in the background, drafts, closing."""

import json
from pathlib import Path

import pytest

from hermes_core.paths import Home
from hermes_protocol.events import Approval
from hermes_tui.client import Client, Listener
from hermes_tui.messages import ApprovalAsked
from hermes_tui.opening import Opening
from hermes_tui.screens.picker import PickerScreen
from hermes_tui.tabs import Tab, Tabs
from hermes_tui.widgets.tab_bar import cells
from tests.tui.harness import Interface, connection, running

pytestmark = pytest.mark.anyio


async def start_new(ui: Interface) -> None:
    """Open a new conversation beside the others."""
    before = ui.app.tabs.current
    await ui.press("ctrl+n")
    await ui.until(lambda: ui.app.tabs.current is not before and ui.state == "ready")
    await ui.until(lambda: not ui.prompts)


def badges(ui: Interface) -> list[str]:
    return [tab.badge for tab in ui.app.tabs.all]


async def go_on(ui: Interface) -> None:
    """Let turns of `paused` continue."""
    await ui.app.tabs.client.call("process.list")


async def test_a_new_conversation_leaves_the_working_one_at_work(ui: Interface) -> None:
    await ui.send("paused")
    await ui.until(lambda: ui.replies == ["The first half"])
    await start_new(ui)
    assert badges(ui) == ["working", ""]
    assert "1 ● paused" in ui.picture() and "2 ○ New conversation" in ui.picture()
    await ui.say("hello")
    await go_on(ui)
    await ui.until(lambda: badges(ui) == ["finished", ""])
    await ui.until(lambda: "1 ✓ paused" in ui.picture())
    assert ui.replies == ["You said: hello"]
    await ui.press("ctrl+pageup")
    await ui.until(lambda: "The first half, and the second." in ui.picture())
    assert ui.replies == ["The first half, and the second."]
    assert badges(ui) == ["", ""] and not ui.requests("session.close")


async def test_a_question_in_the_background_is_reported_and_answered_there(ui: Interface) -> None:
    await ui.say("first")
    await start_new(ui)
    await ui.send("paused")
    await ui.until(lambda: ui.replies)
    await ui.send("danger")  # waits behind the paused turn
    await ui.until(lambda: ui.app.session.conversation.waiting == ["danger"])
    live_id = ui.app.session.conversation.live_id
    await ui.press("ctrl+pageup")
    await ui.until(lambda: "You said: first" in ui.picture())
    await go_on(ui)
    await ui.until(lambda: badges(ui) == ["", "waiting"])
    await ui.until(lambda: "Waiting for your answer" in ui.picture())
    assert "2 ▲ paused" in ui.picture() and ui.app.chat.cards.current is None
    await ui.press("f2")
    await ui.until(lambda: (card := ui.app.chat.cards.current) and card.is_armed)
    await ui.press("y", "enter")
    await ui.until(lambda: ui.replies[-1:] == ["You said: once."])
    assert ui.requests("approval.respond")[0]["session_id"] == live_id


async def test_a_question_stays_while_another_conversation_is_shown(ui: Interface) -> None:
    await ui.send("danger")
    await ui.until(lambda: ui.app.chat.cards.current)
    await start_new(ui)
    await ui.until(lambda: ui.app.chat.cards.current is None)
    assert badges(ui) == ["waiting", ""]
    await ui.say("hello")
    await ui.press("alt+left")
    await ui.until(lambda: (card := ui.app.chat.cards.current) and card.is_armed)
    await ui.press("n", "enter")
    await ui.until(lambda: ui.replies == ["You said: deny."])
    assert ui.state == "ready"


async def test_each_conversation_keeps_its_draft(ui: Interface) -> None:
    await ui.say("one")
    await ui.write("half a thought")
    await start_new(ui)
    assert ui.composer.text == ""
    ui.composer.paste("line\n" * 40)
    draft = ui.composer.text
    await ui.press("ctrl+pageup")
    await ui.until(lambda: ui.composer.text == "half a thought")
    await ui.press("ctrl+pagedown")
    await ui.until(lambda: ui.composer.text == draft)
    await ui.press("enter")
    await ui.until(lambda: ui.requests("prompt.submit")[-1]["text"] == "line\n" * 40)


async def test_drafts_of_all_conversations_are_in_the_history_after_leaving(
    folder: Path, home: Home
) -> None:
    async with running(folder, home) as ui:
        await ui.say("one")
        await ui.write("first draft")
        await start_new(ui)
        await ui.write("second draft")
        await ui.press("ctrl+q")
        await ui.until(lambda: ui.app.return_code is not None)
    async with running(folder, home) as ui:
        await ui.press("up")
        texts = {ui.composer.text}
        await ui.press("up")
        assert {*texts, ui.composer.text} == {"first draft", "second draft"}


async def test_what_is_sent_goes_to_the_conversation_it_was_typed_in(ui: Interface) -> None:
    await ui.say("one")
    first = ui.app.session.conversation.live_id
    await start_new(ui)
    await ui.write("two")
    await ui.press("enter")
    ui.app.tabs.move(1)
    await ui.until(lambda: ui.prompts == ["one"])
    await ui.until(lambda: len(ui.requests("prompt.submit")) == 2)
    assert [sent["session_id"] == first for sent in ui.requests("prompt.submit")] == [True, False]
    assert ui.replies == ["You said: one"]


async def test_a_stop_and_the_prompts_it_gives_back_stay_in_their_conversation(
    ui: Interface,
) -> None:
    await ui.send("slow")
    await ui.until(lambda: ui.state == "working" and ui.replies)
    await ui.send("later")
    await ui.until(lambda: ui.app.session.conversation.waiting == ["later"])
    await start_new(ui)
    assert "next  later" not in ui.picture()
    await ui.press("ctrl+c")
    await ui.rest()
    assert badges(ui) == ["working", ""], "there was nothing to stop here"
    await ui.press("ctrl+pageup")
    await ui.until(lambda: "next  later" in ui.picture())
    await ui.press("ctrl+c")
    await ui.until(lambda: ui.state == "ready" and ui.composer.text == "later")


async def test_a_conversation_of_the_history_opens_beside_the_working_one(
    folder: Path, home: Home
) -> None:
    stored = {"Dogs": {"title": "Dogs", "messages": [{"id": 1, "role": "user", "text": "dogs?"}]}}
    (folder / "conversations.json").write_text(json.dumps(stored))
    async with running(folder, home) as ui:
        await ui.send("slow")
        await ui.until(lambda: ui.state == "working" and ui.replies)
        await ui.send("/resume Dogs")
        await ui.until(lambda: ui.prompts == ["dogs?"])
        assert badges(ui) == ["working", ""]
        await ui.press("f3")
        await ui.until(lambda: isinstance(ui.app.screen, PickerScreen))
        await ui.until(lambda: "● slow" in ui.picture() and "• Dogs" in ui.picture())
        await ui.press(*"slow")
        await ui.until(lambda: ui.app.screen.query_one("#rows").option_count == 1)  # type: ignore[attr-defined]
        await ui.press("enter")
        await ui.until(lambda: ui.prompts == ["slow"])
        assert len(ui.requests("session.resume")) == 1, "it was open already"
        assert not ui.requests("session.close")


async def test_closing_shows_the_neighbor_and_a_running_turn_prevents_it(ui: Interface) -> None:
    await ui.say("one")
    await start_new(ui)
    await ui.send("slow")
    await ui.until(lambda: ui.state == "working" and ui.replies)
    closed = ui.app.session.conversation.live_id
    await ui.press("alt+w")
    await ui.until(lambda: "A turn is running" in ui.picture())
    await ui.press("ctrl+c")
    await ui.until(lambda: ui.state == "ready")
    await ui.send("/close")
    await ui.until(lambda: ui.prompts == ["one"])
    await ui.until(lambda: ui.requests("session.close") == [{"session_id": closed}])
    assert not ui.app.chat.tab_bar.display


async def test_after_the_last_conversation_a_new_one_is_shown(ui: Interface) -> None:
    await ui.say("one")
    await ui.press("alt+w")
    await ui.until(lambda: ui.state == "ready" and not ui.prompts)
    await ui.until(lambda: len(ui.requests("session.close")) == 1)
    await ui.say("anew")
    assert ui.replies == ["You said: anew"]


async def test_an_empty_conversation_is_new_already(ui: Interface) -> None:
    await ui.press("ctrl+n")
    await ui.rest()
    assert len(ui.app.tabs.all) == 1
    await ui.press("ctrl+pagedown")
    await ui.until(lambda: "No other conversation is open" in ui.picture())


async def test_leaving_closes_all_conversations(folder: Path, home: Home) -> None:
    async with running(folder, home) as ui:
        await ui.send("slow")
        await ui.until(lambda: ui.state == "working" and ui.replies)
        await start_new(ui)
        await ui.say("hello")
        live = [tab.conversation.live_id for tab in ui.app.tabs.all]
        await ui.press("ctrl+q")
        await ui.until(lambda: ui.app.return_code == 0)
        assert sorted(params["session_id"] for params in ui.requests("session.close")) == sorted(
            live
        )


async def test_all_conversations_are_opened_again_when_the_server_dies(ui: Interface) -> None:
    await ui.say("one")
    await start_new(ui)
    await ui.say("two")
    await ui.send("crash")
    await ui.until(lambda: any("The server stopped" in note for note in ui.notes))
    await ui.until(lambda: all(tab.session.is_open for tab in ui.app.tabs.all))
    assert ui.prompts == ["two", "crash"]
    await ui.press("alt+left")
    await ui.until(lambda: ui.prompts == ["one"])
    await ui.say("still here")
    assert ui.prompts == ["one", "still here"]


async def test_a_click_shows_a_conversation(ui: Interface) -> None:
    await ui.say("one")
    await start_new(ui)
    await ui.say("two")
    await ui.pilot.click("#tabs", offset=(4, 0))
    await ui.until(lambda: ui.prompts == ["one"])


def test_the_bar_fits_and_shows_what_waits_however_many_there_are() -> None:
    tabs = Tabs(Client(connection(Path()), Listener()), Opening())
    tabs.selected = lambda _before, _tab: None
    tabs.current.questions.append(ApprovalAsked("live", Approval("q")))
    for number in range(1, 40):
        tab = Tab(tabs.client, Opening(), lambda _tab: None)
        tab.conversation.learn({"title": "a long title of something 日本語 " * (number % 3)})
        tabs.all.append(tab)
        tabs.select(tab)
        for columns in (12, 40, 80, 200):
            bar = cells(tabs, columns)
            assert sum(cell.cell_length for _, cell in bar) <= columns
            assert columns < 40 or {tabs.current, tabs.all[0]} <= {tab for tab, _ in bar}


async def test_a_wide_screen_has_a_panel_with_all_that_goes_on(folder: Path, home: Home) -> None:
    async with running(folder, home, size=(160, 40)) as ui:
        await ui.say("calls")
        await ui.press("ctrl+n")
        await ui.until(lambda: len(ui.app.tabs.all) == 2)
        await ui.until(lambda: ui.state == "ready")
        await ui.send("running")
        await ui.until(lambda: "test 9 of 400" in ui.picture())
        await ui.send("then [/b] the linter")
        await ui.until(lambda: "Queue" in ui.picture())
        panel = str(ui.app.chat.panel.content)
        assert "● running" in panel and "✓ calls" not in panel and "○ calls" in panel
        assert "then [/b] the linter" in panel
        await ui.pilot.click("#side-panel", offset=(4, 2))
        await ui.until(lambda: "To do" in str(ui.app.chat.panel.content))
        panel = str(ui.app.chat.panel.content)
        assert "◐ fix [the] greeting" in panel and "13% of 32k" in panel and "$0.0123" in panel
        await ui.press("f6")
        await ui.until(lambda: "To do" not in ui.picture())


async def test_a_narrow_screen_has_no_panel_and_says_so(ui: Interface) -> None:
    assert not ui.app.chat.panel.display
    await ui.press("f6")
    await ui.until(lambda: "140 columns" in ui.picture())
