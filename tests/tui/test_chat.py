"""The chat: what is said and answered, as a person sees it."""

import asyncio
from pathlib import Path

import pytest
from textual.widgets.markdown import MarkdownBlock

from hermes_core.paths import Home
from hermes_protocol.events import Complete, Queue, Start, Status, ToolComplete, ToolStart
from hermes_protocol.results import Queued
from hermes_tui.entries import Call, Divider, Note, Reply, Thought
from hermes_tui.messages import (
    QueueChanged,
    ServerConnected,
    ServerLost,
    StatusChanged,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from hermes_tui.opening import Opening
from hermes_tui.screens import chat as chat_module
from hermes_tui.widgets import card as card_module
from hermes_tui.widgets.card import Card
from hermes_tui.widgets.messages_view import UserMessageView
from hermes_tui.widgets.queue import WaitingPrompt
from hermes_tui.widgets.reasoning import Reasoning
from hermes_tui.widgets.reply import CodeBlock
from hermes_tui.widgets.tool import ToolCall
from tests.tui.fake_server import MARKDOWN
from tests.tui.harness import Interface, running

pytestmark = pytest.mark.anyio


async def test_a_prompt_is_answered(ui: Interface) -> None:
    await ui.say("hello")
    assert ui.prompts == ["hello"]
    assert ui.replies == ["You said: hello"]
    assert "You said: hello" in ui.picture()


async def test_a_streamed_reply_ends_as_the_server_meant_it(ui: Interface) -> None:
    await ui.say("markdown")
    assert "".join(ui.replies) == MARKDOWN
    assert "Replace <name> with yours" in ui.picture()


async def test_every_paragraph_of_a_stream_is_shown(ui: Interface) -> None:
    await ui.say("paragraphs")
    picture = ui.picture()
    for text in ("First paragraph.", "Second paragraph.", "Third paragraph."):
        assert text in picture


async def test_a_long_stream_is_shown_whole_in_parts(ui: Interface) -> None:
    await ui.say("many 3000")
    assert "".join(ui.replies).split() == [f"word{number}" for number in range(3000)]


async def test_a_reply_that_ends_while_it_is_drawn_has_every_block_once(ui: Interface) -> None:
    transcript = ui.app.tabs.current.transcript
    reply = Reply("# Title\n\n```python\na = 1\n", is_done=False)
    await transcript.add(reply)
    await ui.until(lambda: ui.app.screen.query(CodeBlock))

    async def grow(text: str) -> None:
        reply.text += text
        await transcript.changed(reply)

    await asyncio.gather(grow("```\n\n- task\n"), grow("\nDone.\n"))
    view = ui.app.chat.turn_view.transcript.view_of(reply)
    assert view is not None
    kinds = [type(block).__name__.removeprefix("Markdown") for block in view.children]
    assert kinds == ["H1", "CodeBlock", "BulletList", "Paragraph"]


async def test_code_is_copied_by_key_and_by_click(ui: Interface) -> None:
    await ui.say("markdown")
    block = ui.app.screen.query_one(CodeBlock)
    block.focus()
    await ui.press("enter")
    assert ui.app.clipboard.startswith("from pathlib import Path")
    ui.app.copy_to_clipboard("")
    await ui.press("ctrl+y")
    assert ui.app.clipboard.endswith(".upper()")


async def test_code_is_seen_with_blanks_and_copied_with_the_tabs_it_has(ui: Interface) -> None:
    await ui.say("a\tmakefile:\n\n```make\nall:\n\techo hi\n```")
    assert "│ all:" in ui.picture() and "│     echo hi" in ui.picture()
    assert "\t" not in ui.picture()
    block = ui.app.screen.query_one(CodeBlock)
    block.focus()
    await ui.press("enter")
    assert ui.app.clipboard == "all:\n\techo hi"
    ui.app.copy_to_clipboard("")
    await ui.press("ctrl+y")
    assert ui.app.clipboard == "all:\n\techo hi"


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("1. Write\n\n   ```sh\n   echo one\n   ```\n2. Done", "echo one"),
        ("~~~sh\necho tilde\n~~~\n", "echo tilde"),
        ("````md\n```sh\necho\n```\nend\n````\n", "```sh\necho\n```\nend"),
        ("Indented:\n\n    echo four\n", "echo four"),
    ],
)
async def test_the_last_code_is_what_is_seen_as_code(ui: Interface, reply: str, code: str) -> None:
    await ui.app.tabs.current.transcript.add(Reply(reply))
    await ui.rest()
    await ui.press("ctrl+y")
    assert ui.app.clipboard == code == list(ui.app.screen.query(CodeBlock))[-1].code


async def test_what_is_selected_is_what_is_seen_also_behind_a_tab(ui: Interface) -> None:
    await ui.say("a\tb")
    for view in (*ui.app.chat.query(UserMessageView), *ui.app.chat.query(MarkdownBlock)):
        ui.app.screen.clear_selection()
        view.text_select_all()
        assert "\t" not in (ui.app.screen.get_selected_text() or "\t")


async def test_a_link_is_copied_not_opened(ui: Interface) -> None:
    await ui.say("markdown")
    await ui.app.screen.query_one(CodeBlock).action_link("https://example.org/manual")
    await ui.pilot.pause()
    assert ui.app.clipboard == "https://example.org/manual"


async def test_reasoning_is_closed_until_somebody_opens_it(ui: Interface) -> None:
    await ui.say("markdown")
    [thought] = [entry for entry in ui.entries if isinstance(entry, Thought)]
    assert thought.text == "The person wants to read a file. I show both ways."
    view = ui.app.screen.query_one(Reasoning)
    assert "I show both ways" not in ui.picture()
    view.query_one("FoldTitle").focus()
    await ui.press("enter")
    await ui.until(lambda: "I show both ways" in ui.picture())


async def test_tool_calls_show_their_outcome_and_diffs(ui: Interface) -> None:
    await ui.say("tool")
    calls = {entry.name: entry for entry in ui.entries if isinstance(entry, Call)}
    assert [call.state for call in calls.values()] == ["done", "done", "failed"]
    picture = ui.picture()
    assert "2 +     text = f" in picture and "+2 -1" in picture
    assert "2 passed" not in picture
    ui.app.screen.query(ToolCall).first().is_open = True
    await ui.until(lambda: "2 passed" in ui.picture())


async def test_a_running_call_shows_the_end_of_its_output(ui: Interface) -> None:
    await ui.send("running")
    await ui.until(lambda: "test 9 of 400" in ui.picture())
    assert "test 3 of 400" not in ui.picture()


LONG = "cd project && " + " && ".join(f"make part{number}" for number in range(30))


async def ran(ui: Interface, result: str, *, exit_code: int | None = None) -> Call:
    """A call that has ended."""
    live, turn_view = ui.app.session.conversation.live_id, ui.app.chat.turn_view
    turn_view.post_message(ToolStarted(live, ToolStart("x1", "terminal", LONG[:200])))
    args = {"command": LONG}
    ended = ToolComplete(
        "x1", "terminal", args, LONG[:200], result_text=result, duration_s=12.5, exit_code=exit_code
    )
    turn_view.post_message(ToolEnded(live, ended))
    await ui.until(lambda: isinstance(ui.entries[-1], Call) and ui.entries[-1].seconds)
    call = ui.entries[-1]
    assert isinstance(call, Call)
    return call


async def test_a_long_command_leaves_room_for_how_long_it_took(ui: Interface) -> None:
    await ran(ui, "fine")
    await ui.until(lambda: "✓ terminal  cd project" in ui.picture() and "12.5s" in ui.picture())
    await ui.pilot.resize_terminal(50, 24)
    await ui.until(lambda: "…  12.5s" in ui.picture())


async def test_an_open_call_shows_its_command_in_full(ui: Interface) -> None:
    await ran(ui, "fine")
    assert "make part29" not in ui.picture()
    await ui.press("ctrl+t")
    await ui.until(lambda: "make part29" in ui.picture())


async def test_the_output_of_an_open_call_is_scrolled_with_keys(ui: Interface) -> None:
    await ran(ui, "\n".join(f"output {number}" for number in range(60)))
    await ui.press("ctrl+t")
    await ui.until(lambda: "output 2" in ui.picture() and "output 59" not in ui.picture())
    ui.app.screen.query(".fold-body").last().focus()
    await ui.press("end")
    await ui.until(lambda: "output 59" in ui.picture())


async def test_a_command_that_ends_with_another_status_than_0_has_failed(ui: Interface) -> None:
    call = await ran(ui, "no such target\n[exit code 3]", exit_code=3)
    assert call.state == "failed"
    await ui.until(lambda: "✗ terminal" in ui.picture() and "exit code 3  12.5s" in ui.picture())


async def test_words_in_the_output_of_a_command_are_no_status(ui: Interface) -> None:
    assert (await ran(ui, "[exit code 3]")).state == "done"


async def test_what_pops_up_leaves_the_composer_in_sight(ui: Interface) -> None:
    ui.type("a draft")
    ui.app.notify("Something that is worth to know, and takes its lines. " * 4, title="News")
    await ui.until(lambda: "worth to know" in ui.picture())
    region = ui.app.screen.query_one("Toast").region
    assert region.bottom < ui.composer.region.y
    assert "a draft" in ui.picture()


async def test_stopping_by_command_is_no_first_press(ui: Interface) -> None:
    await ui.send("slow")
    await ui.until(lambda: ui.state == "working" and ui.replies)
    await ui.send("/stop")
    await ui.until(lambda: "Stopped." in ui.notes and ui.state == "ready")
    await ui.press("ctrl+c")
    await ui.until(lambda: "Press Ctrl+C again to quit" in ui.picture())
    assert ui.app.return_code is None


async def test_stopping_by_command_says_so_when_nothing_runs(ui: Interface) -> None:
    await ui.send("/stop")
    await ui.until(lambda: ui.notes == ["Nothing is running."])


async def test_all_details_open_and_close_with_one_key(ui: Interface) -> None:
    await ui.say("tool")
    await ui.press("ctrl+t")
    await ui.pilot.pause()
    assert all(view.is_open for view in ui.app.screen.query(ToolCall))
    await ui.press("ctrl+t")
    assert not any(view.is_open for view in ui.app.screen.query(ToolCall))


async def test_sequences_of_a_tool_do_not_reach_the_terminal(ui: Interface) -> None:
    await ui.say("tool")
    assert not any("\x1b" in entry.output for entry in ui.entries if isinstance(entry, Call))


async def test_what_is_void_vanishes(ui: Interface) -> None:
    await ui.say("retried")
    assert ui.replies == ["This counts."]


async def test_what_holds_a_turn_up_is_told_in_full_and_in_few_words_in_the_status_line(
    ui: Interface,
) -> None:
    await busy_with(ui)
    live, turn_view = ui.app.session.conversation.live_id, ui.app.chat.turn_view
    for seconds in (2, 4):
        text = f"The local server at 127.0.0.1:8080 has a fault. Trying again in {seconds} s."
        turn_view.post_message(StatusChanged(live, Status("retry", text, void=True)))
        await ui.until(lambda text=text: text in ui.picture().replace("\n", " "))
    assert "● trying again" in ui.picture()
    assert [note for note in ui.notes if "Trying again" in note] == [text]
    busy = "The conversation 20261116_101500_abcdef is being run by another process."
    turn_view.post_message(StatusChanged(live, Status("waiting", busy)))
    await ui.until(lambda: "● waiting" in ui.picture() and ui.notes[-1] == busy)


async def test_a_failed_turn_is_told_once(ui: Interface) -> None:
    await ui.say("fail")
    assert ui.notes.count("The model refused the key.") == 1
    await ui.say("hello")
    assert ui.replies == ["You said: hello"]


async def test_a_turn_that_fails_in_the_middle_of_its_reply_says_why(ui: Interface) -> None:
    await ui.say("broken")
    assert ui.replies == ["Half of an ans"]
    assert ui.notes.count("The model's server went away.") == 1


async def test_without_a_model_it_says_what_to_do(ui: Interface) -> None:
    await ui.say("no-model")
    [note] = [e for e in ui.entries if isinstance(e, Note) and e.tone == "error"]
    assert "Fetch one: hermes model pull" in note.text
    assert "hermes model pull" in ui.picture()


async def test_a_refused_prompt_goes_back_to_the_composer(ui: Interface) -> None:
    await ui.say("refuse")
    assert ui.composer.text == "refuse"
    assert ui.prompts == []
    assert "Say it again." in ui.picture()


# -- questions ---------------------------------------------------------------------------------------


async def armed(ui: Interface) -> Card:
    """The card that waits, when it takes keys."""
    await ui.until(lambda: ui.app.chat.cards.current is not None)
    card = ui.app.chat.cards.current
    assert card is not None
    await ui.until(lambda: card.is_armed)
    return card


async def test_an_approval_is_answered_by_a_key(ui: Interface) -> None:
    await ui.send("danger")
    await armed(ui)
    assert ui.state == "waiting"
    await ui.press("n", "enter")
    await ui.until(lambda: ui.state == "ready")
    assert ui.replies == ["You said: deny."]
    assert ui.composer.has_focus and ui.composer.text == ""


async def test_an_approval_is_answered_with_the_arrows(ui: Interface) -> None:
    await ui.send("danger")
    await armed(ui)
    await ui.press("up", "enter")
    await ui.until(lambda: ui.state == "ready")
    assert ui.replies == ["You said: deny."]


async def test_an_approval_is_answered_by_a_click(ui: Interface) -> None:
    await ui.send("danger")
    card = await armed(ui)
    await ui.pilot.click(card.query("ChoiceLine").last())
    await ui.until(lambda: ui.state == "ready")
    assert ui.replies == ["You said: deny."]


async def test_a_denied_call_shows_what_was_denied(ui: Interface) -> None:
    await ui.send("danger")
    await armed(ui)
    await ui.press("n", "enter")
    await ui.until(lambda: ui.state == "ready")
    await ui.until(lambda: "✗ terminal  rm -rf build dist" in ui.picture())


async def test_who_is_typing_does_not_answer_by_accident(ui: Interface) -> None:
    await ui.send("danger")
    card = await armed(ui)
    await ui.press("escape")
    ui.type("yes and no")
    await ui.press("y")
    assert ui.composer.text == "yes and noy"
    await ui.press("f2")
    await ui.until(lambda: card.has_keys and ui.composer.text == "")
    await ui.press("n", "enter")
    await ui.until(lambda: ui.state == "ready")
    assert ui.replies == ["You said: deny."]
    assert ui.composer.text == "yes and noy"


async def test_keys_pressed_before_a_card_was_seen_are_no_answer(
    ui: Interface, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card_module, "_ARMING_S", 3600.0)
    await ui.send("danger")
    await ui.until(lambda: ui.app.chat.cards.current is not None)
    card = ui.app.chat.cards.current
    assert card is not None and not card.is_armed
    await ui.press("y")
    assert not ui.requests("approval.respond")


@pytest.mark.parametrize("words", ["please do not", "also this", "say why first", "3 files only"])
async def test_a_sentence_allows_nothing_and_is_told_to_the_model(
    ui: Interface, words: str
) -> None:
    await ui.send("danger")
    await armed(ui)
    await ui.write(words)
    await ui.press("enter")
    await ui.until(lambda: ui.state == "ready")
    assert ui.replies == [f"You said: {words}."]
    assert ui.composer.text == ""


@pytest.mark.parametrize(("key", "answer"), [("y", "once"), ("s", "session"), ("a", "always")])
async def test_a_yes_takes_its_key_and_enter(ui: Interface, key: str, answer: str) -> None:
    await ui.send("danger")
    await armed(ui)
    await ui.press(key)
    assert not ui.requests("approval.respond")
    await ui.press("enter")
    await ui.until(lambda: ui.state == "ready")
    assert ui.replies == [f"You said: {answer}."]


async def test_words_typed_at_a_question_with_choices_are_the_answer(ui: Interface) -> None:
    await ui.send("question")
    await armed(ui)
    await ui.write("green please")
    await ui.press("enter")
    await ui.until(lambda: ui.state == "ready")
    assert ui.replies == ["You said: green please."]


async def test_what_is_typed_before_a_card_was_seen_is_written(
    ui: Interface, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card_module, "_ARMING_S", 3600.0)
    await ui.send("danger")
    await ui.until(lambda: ui.app.chat.cards.current is not None)
    await ui.until(lambda: ui.composer.answering is not None)
    await ui.write("and yes")
    assert ui.composer.text == "and yes"
    assert not ui.requests("approval.respond")


async def test_a_question_is_answered_by_number_or_in_own_words(ui: Interface) -> None:
    await ui.send("question")
    await armed(ui)
    await ui.press("2", "enter")
    await ui.until(lambda: ui.state == "ready")
    assert ui.replies == ["You said: The documentation."]
    await ui.send("question")
    await armed(ui)
    await ui.press(*"Both", "enter")
    await ui.until(lambda: ui.state == "ready")
    assert ui.replies[-1] == "You said: Both."


# -- busy --------------------------------------------------------------------------------------------


async def test_prompts_wait_for_the_running_turn_and_are_seen_waiting(ui: Interface) -> None:
    await ui.send("slow")
    await ui.until(lambda: ui.state == "working" and ui.replies)
    await ui.send("first")
    await ui.send("second")
    await ui.until(lambda: ui.app.session.conversation.waiting == ["first", "second"])
    await ui.pilot.pause()
    assert "next  first" in ui.picture() and "then  second" in ui.picture()
    assert ui.prompts == ["slow"]


async def test_a_waiting_prompt_is_taken_back_to_be_changed(ui: Interface) -> None:
    await ui.send("slow")
    await ui.until(lambda: ui.state == "working" and ui.replies)
    await ui.send("first")
    await ui.send("second")
    await ui.until(lambda: ui.app.session.conversation.waiting == ["first", "second"])
    await ui.until(lambda: all(prompt.turn_id for prompt in ui.app.chat.turn_view.prompts.queued))
    await ui.press("alt+up")
    await ui.until(lambda: ui.composer.text == "second")
    assert ui.app.session.conversation.waiting == ["first"]


async def test_a_click_takes_back_the_waiting_prompt_that_is_clicked(ui: Interface) -> None:
    await ui.send("slow")
    await ui.until(lambda: ui.state == "working")
    for text in ("first", "second"):
        await ui.send(text)
    await ui.until(lambda: len(ui.requests("prompt.submit")) == 3)
    await ui.until(lambda: "then  second" in ui.picture())
    await ui.pilot.click(WaitingPrompt)
    await ui.until(lambda: ui.composer.text == "first")
    await ui.until(lambda: "next  second" in ui.picture())
    assert ui.app.focused is ui.composer


async def test_ctrl_c_stops_the_turn_and_gives_waiting_prompts_back(ui: Interface) -> None:
    await ui.send("slow")
    await ui.until(lambda: ui.state == "working" and ui.replies)
    await ui.send("waits")
    await ui.until(lambda: ui.app.session.conversation.waiting)
    await ui.press("ctrl+c")
    await ui.until(lambda: ui.state == "ready")
    assert "Stopped." in ui.notes
    await ui.until(lambda: ui.composer.text == "waits")
    assert not ui.app.session.conversation.waiting


async def busy_with(ui: Interface, *waiting: str) -> None:
    """Have a turn run and prompts wait for its end."""
    await ui.send("slow")
    await ui.until(lambda: ui.state == "working" and ui.replies)
    for text in waiting:
        await ui.send(text)
    prompts = ui.app.chat.turn_view.prompts
    await ui.until(lambda: prompts.waiting == [*waiting])
    await ui.until(lambda: all(prompt.turn_id for prompt in prompts.queued))


def tell_queue(ui: Interface, *waiting: str, dropped: tuple[str, ...] = ()) -> None:
    """Have the server say that these wait, and that a stop has ended those."""
    live = ui.app.session.conversation.live_id
    queued = [Queued(f"turn of {text}", text) for text in waiting]
    ended = [f"turn of {text}" for text in dropped]
    ui.app.chat.turn_view.post_message(QueueChanged(live, Queue(queued, ended)))


async def test_a_prompt_that_another_terminal_stopped_is_given_back(ui: Interface) -> None:
    await busy_with(ui, "mine")
    tell_queue(ui, dropped=("mine",))
    await ui.until(lambda: ui.composer.text == "mine")
    assert ui.app.session.conversation.waiting == []


async def test_what_waits_in_another_terminal_is_seen_and_stays_theirs(ui: Interface) -> None:
    await busy_with(ui, "mine")
    tell_queue(ui, "theirs", "mine")
    await ui.until(lambda: "next  theirs" in ui.picture() and "then  mine" in ui.picture())
    await ui.press("ctrl+c")
    await ui.until(lambda: ui.composer.text == "mine" and ui.state == "ready")
    assert ui.app.session.conversation.waiting == []
    tell_queue(ui, dropped=("theirs", "mine"))
    await ui.rest()
    assert ui.composer.text == "mine", "given back once"


async def test_a_prompt_that_another_terminal_took_back_waits_no_more(ui: Interface) -> None:
    await busy_with(ui, "mine")
    tell_queue(ui)
    await ui.until(lambda: not ui.app.session.conversation.waiting)
    assert ui.composer.text == "", "who took it back has it"


async def test_a_prompt_whose_turn_comes_is_shown_as_it_was_sent(ui: Interface) -> None:
    await busy_with(ui)
    ui.composer.paste("line\n" * 40)
    await ui.press("enter")
    prompts = ui.app.chat.turn_view.prompts
    await ui.until(lambda: prompts.queued and prompts.queued[0].turn_id)
    turn_id, live = prompts.queued[0].turn_id, ui.app.session.conversation.live_id
    tell_queue(ui)
    ui.app.chat.turn_view.post_message(TurnStarted(live, Start(turn_id, "line\n" * 40)))
    await ui.until(lambda: ui.prompts == ["slow", "[Pasted text #1: 41 lines]"])


async def test_a_stop_that_ends_several_turns_is_told_once(ui: Interface) -> None:
    live = ui.app.session.conversation.live_id
    for _ in range(2):
        ui.app.chat.turn_view.post_message(TurnEnded(live, Complete(status="interrupted")))
    await ui.rest()
    assert ui.notes == ["Stopped."]


async def test_who_is_attached_is_told_at_once_what_starts_a_server_that_is_gone(
    folder: Path, home: Home
) -> None:
    async with running(folder, home) as ui:
        ui.app.tabs.is_ours = False
        for _ in range(2):
            ui.app.chat.post_message(ServerLost("it was stopped", 0.5))
        await ui.until(lambda: "Start it with" in ui.picture())
        await ui.rest()
        assert len(ui.notes) == 1
        ui.app.chat.post_message(ServerConnected(1))
        await ui.until(lambda: ui.notes == ["Reconnected to the server; nothing is lost."])


async def test_ctrl_c_right_after_a_prompt_stops_the_turn_that_has_not_begun_yet(
    ui: Interface,
) -> None:
    await ui.send("slow")
    await ui.press("ctrl+c")
    await ui.until(lambda: "Stopped." in ui.notes)
    assert ui.state == "ready"


async def test_a_prompt_from_another_terminal_is_shown(ui: Interface) -> None:
    await ui.say("hello")
    await ui.app.session.call("prompt.submit", text="elsewhere", idempotency_key="other")
    await ui.until(lambda: ui.replies[-1] == "You said: elsewhere")
    assert ui.prompts == ["hello", "elsewhere"]


async def test_shortening_is_marked_in_the_transcript(ui: Interface) -> None:
    await ui.say("compacted")
    [mark] = [entry for entry in ui.entries if isinstance(entry, Divider)]
    assert "from 9000 to 900 tokens" in mark.detail


# -- leaving -----------------------------------------------------------------------------------------


async def test_ctrl_c_twice_leaves_and_closes_the_session(
    ui: Interface, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_module, "_SECOND_PRESS_S", 3600.0)
    await ui.say("hello")
    await ui.press("ctrl+c")
    await ui.until(lambda: "Press Ctrl+C again to quit" in ui.picture())
    await ui.press("ctrl+c")
    await ui.until(lambda: ui.app.return_code is not None)
    assert ui.app.return_code == 0
    assert (ui.folder / "closed").read_text() == ui.app.session.conversation.stored_id


@pytest.mark.parametrize("way", ["/exit", "/quit"])
async def test_a_command_leaves(ui: Interface, way: str) -> None:
    await ui.send(way)
    await ui.until(lambda: ui.app.return_code is not None)
    assert (ui.folder / "closed").exists()


async def test_what_is_half_typed_when_leaving_is_found_in_the_history(
    folder: Path, home: Home
) -> None:
    async with running(folder, home) as ui:
        ui.type("half a thou")
        await ui.press("ctrl+q")
        await ui.until(lambda: ui.app.return_code is not None)
    async with running(folder, home, opening=Opening(continues=True)) as ui:
        await ui.press("up")
        assert ui.composer.text == "half a thou"
