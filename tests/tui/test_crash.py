"""The server dies: the interface says so, starts it again, and nothing that was typed is lost."""

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

from hermes_core.paths import Home
from hermes_protocol.events import Complete, Delta, Start
from hermes_tui import client as module
from hermes_tui.entries import Call, Reply, UserMessage
from hermes_tui.messages import ReplyDelta, TurnEnded, TurnStarted
from hermes_tui.opening import Opening
from hermes_tui.transport import ChildTransport
from tests.tui.harness import Interface, running

pytestmark = pytest.mark.anyio


async def kill_the_server(ui: Interface) -> None:
    before = ui.app.session.conversation.live_id
    os.kill(ui.transport.pid, signal.SIGKILL)
    await ui.until(lambda: ui.state == "ready" and ui.app.session.conversation.live_id != before)
    await ui.until(lambda: any("The server stopped" in note for note in ui.notes))


async def test_the_same_conversation_goes_on_and_typed_text_is_kept(ui: Interface) -> None:
    await ui.say("hello")
    stored = ui.app.session.conversation.stored_id
    ui.type("half a sent")
    await kill_the_server(ui)
    assert "it was killed by signal 9" in ui.notes[-1]
    assert ui.app.session.conversation.stored_id == stored
    assert ui.prompts == ["hello"]
    assert ui.composer.text == "half a sent"
    ui.type("ence")
    await ui.press("enter")
    await ui.until(lambda: ui.replies[-1] == "You said: half a sentence")


async def test_before_anything_was_said_there_is_a_new_conversation(ui: Interface) -> None:
    ui.type("first words")
    await kill_the_server(ui)
    assert ui.composer.text == "first words"
    await ui.press("enter")
    await ui.until(lambda: ui.replies == ["You said: first words"])


async def test_a_turn_that_dies_with_the_server_leaves_its_question(ui: Interface) -> None:
    before = ui.app.session.conversation.live_id
    await ui.send("crash")
    await ui.until(lambda: ui.app.session.conversation.live_id not in ("", before))
    await ui.until(lambda: any("it ended with status 3" in note for note in ui.notes))
    assert ui.prompts == ["crash"]
    assert ui.state == "ready"


async def test_a_prompt_that_was_not_acknowledged_is_sent_again_and_taken_once(
    ui: Interface,
) -> None:
    await ui.say("hello")
    await ui.send("die unheard")
    await ui.until(lambda: ui.replies and ui.replies[-1] == "You said: die unheard")
    assert ui.prompts == ["hello", "die unheard"]
    sent = ui.requests("prompt.submit")[1:]
    assert len(sent) == 2 and sent[0]["idempotency_key"] == sent[1]["idempotency_key"]


async def test_what_is_sent_while_there_is_no_server_is_answered_when_there_is_one(
    ui: Interface,
) -> None:
    await ui.say("hello")
    os.kill(ui.transport.pid, signal.SIGKILL)
    await ui.send("are you there?")
    await ui.until(lambda: ui.replies and ui.replies[-1] == "You said: are you there?")
    assert ui.prompts.count("are you there?") == 1


async def test_a_question_that_was_open_goes_away_with_the_server(ui: Interface) -> None:
    await ui.send("danger")
    await ui.until(lambda: ui.app.chat.cards.current is not None)
    await kill_the_server(ui)
    assert ui.app.chat.cards.current is None
    assert ui.composer.has_focus


async def test_words_typed_at_a_question_outlive_the_server(ui: Interface) -> None:
    await ui.send("danger")
    await ui.until(lambda: (card := ui.app.chat.cards.current) and card.is_armed)
    await ui.press(*"mv")
    await kill_the_server(ui)
    assert ui.composer.text == "mv"


async def killed_with_prompts_waiting(ui: Interface) -> None:
    await ui.send("slow")
    await ui.until(lambda: ui.state == "working" and ui.replies)
    for text in ("one", "two"):
        await ui.send(text)
    await ui.until(lambda: all(p.turn_id for p in ui.app.chat.turn_view.prompts.queued))
    before = ui.app.session.conversation.live_id
    os.kill(ui.transport.pid, signal.SIGKILL)
    await ui.until(lambda: ui.app.session.conversation.live_id not in ("", before))
    await ui.until(lambda: ui.state == "working" and ui.replies)


async def test_prompts_that_waited_wait_on_after_a_death(ui: Interface) -> None:
    await killed_with_prompts_waiting(ui)
    assert ui.prompts == ["slow"]
    await ui.until(lambda: "next  one" in ui.picture() and "then  two" in ui.picture())
    await ui.until(lambda: "2 waiting" in ui.picture())
    await ui.press("alt+up")
    await ui.until(lambda: ui.composer.text == "two")
    assert ui.app.session.conversation.waiting == ["one"]


async def test_prompts_that_waited_are_given_back_after_a_death(ui: Interface) -> None:
    await killed_with_prompts_waiting(ui)
    await ui.press("ctrl+c")
    await ui.until(lambda: ui.composer.text == "one\ntwo" and ui.state == "ready")
    assert ui.prompts == ["slow"] and ui.app.session.conversation.waiting == []


async def test_a_call_that_a_death_cut_off_is_seen_when_its_turn_has_ended(
    folder: Path, home: Home
) -> None:
    messages = [{"id": 1, "role": "user", "text": "settled"}]
    conversation = {"title": "", "messages": messages, "running": "settled", "queued": ["later"]}
    (folder / "conversations.json").write_text(json.dumps({"Left": conversation}))
    async with running(folder, home, opening=Opening(resume="Left"), waits=False) as ui:
        await ui.until(lambda: any(isinstance(entry, Call) for entry in ui.entries))
        await ui.until(lambda: ui.state == "ready")
        kinds = [type(entry) for entry in ui.entries]
        assert kinds == [UserMessage, Call, Reply, UserMessage, Reply]


async def test_a_prompt_that_waited_stands_above_its_reply_after_a_death(ui: Interface) -> None:
    await killed_with_prompts_waiting(ui)
    live = ui.app.session.conversation.live_id
    for event in (
        TurnEnded(live, Complete("This takes a while")),
        TurnStarted(live, Start("turn of one", "one", is_recovered=True)),
        ReplyDelta(live, Delta("The answer to one.")),
    ):
        event.connection = ui.app.tabs.connection
        ui.app.chat.turn_view.post_message(event)
    await ui.until(lambda: ui.replies[-1] == "The answer to one.")
    texts = [e.text for e in ui.entries if isinstance(e, UserMessage | Reply)]
    assert texts[-3:] == ["This takes a while", "one", "The answer to one."]
    assert ui.app.session.conversation.waiting == ["two"]


async def test_what_was_pasted_into_a_waiting_prompt_comes_back_as_it_was_after_a_death(
    ui: Interface,
) -> None:
    await ui.send("slow")
    await ui.until(lambda: ui.state == "working" and ui.replies)
    ui.composer.paste("line\n" * 40)
    await ui.press("enter")
    await ui.until(lambda: all(p.turn_id for p in ui.app.chat.turn_view.prompts.queued))
    before = ui.app.session.conversation.live_id
    os.kill(ui.transport.pid, signal.SIGKILL)
    await ui.until(lambda: ui.app.session.conversation.live_id not in ("", before))
    await ui.until(lambda: ui.state == "working" and ui.app.session.conversation.waiting)
    await ui.press("alt+up")
    await ui.until(lambda: ui.composer.text == "[Pasted text #1: 41 lines]")


@pytest.mark.parametrize("deaths", [3, pytest.param(10, marks=pytest.mark.proof)])
async def test_deaths_in_a_row_lose_nothing(
    ui: Interface, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    monkeypatch.setattr(module, "_STEADY_S", 0.0)
    for number in range(deaths):
        await ui.say(f"message {number}")
        await kill_the_server(ui)
    assert ui.prompts == [f"message {number}" for number in range(deaths)]
    assert ui.replies == [f"You said: message {number}" for number in range(deaths)]


async def test_a_server_that_cannot_start_is_told_with_what_to_do(
    folder: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_DELAYS_S", ())
    broken = partial(
        ChildTransport.start, [sys.executable, "-c", "import sys; sys.exit('no disk')"]
    )
    async with running(folder, home, connect=broken, waits=False) as ui:
        ui.type("kept")
        await ui.until(lambda: any("no disk" in note for note in ui.notes))
        await ui.until(lambda: "Press Ctrl+L to try again" in ui.picture())
        await ui.until(lambda: "server gone" in ui.picture())
        count = len(ui.notes)
        await ui.press("ctrl+l")
        await ui.until(lambda: len(ui.notes) > count)
        assert ui.composer.text == "kept"
