"""Many conversations: opening, finding, renaming, deleting, branching; and very long ones."""

import json
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input, OptionList, Tree

from hermes_agent.testing.scripted import Quiet, Step, call, say, silence
from hermes_agent.testing.server import ScriptedServer
from hermes_cli.commands import attach
from hermes_core import clock
from hermes_core.paths import Home
from hermes_protocol import results
from hermes_tui import wire
from hermes_tui.entries import Call, Reply, UserMessage, Welcome
from hermes_tui.opening import Opening
from hermes_tui.screens.models import ModelScreen
from hermes_tui.screens.picker import PickerScreen
from hermes_tui.screens.tree import TreeScreen, label_of
from hermes_tui.websocket import WebSocketTransport
from tests.tui.fake_server import DIFF
from tests.tui.harness import Interface, running
from tests.tui.test_websocket import gateway

pytestmark = pytest.mark.anyio


def store(folder: Path, **conversations: list[str]) -> None:
    """Put conversations into the double: texts of the person and the model in turns."""
    stored = {
        name: {
            "title": name.replace("_", " "),
            "messages": [
                {"id": number + 1, "role": ("user", "assistant")[number % 2], "text": text}
                for number, text in enumerate(texts)
            ],
        }
        for name, texts in conversations.items()
    }
    keep(folder, stored)


def keep(folder: Path, stored: dict[str, Any]) -> None:
    (folder / "conversations.json").write_text(json.dumps(stored))


async def picker(ui: Interface) -> PickerScreen:
    await ui.press("f3")
    await ui.until(lambda: isinstance(ui.app.screen, PickerScreen))
    screen = ui.app.screen
    assert isinstance(screen, PickerScreen)
    await ui.until(lambda: screen.query_one(OptionList).option_count)
    return screen


async def test_the_last_conversation_goes_on(folder: Path, home: Home) -> None:
    async with running(folder, home) as ui:
        await ui.say("remember me")
        stored = ui.app.session.conversation.stored_id
    async with running(folder, home, opening=Opening(continues=True)) as ui:
        assert ui.app.session.conversation.stored_id == stored
        assert ui.prompts == ["remember me"]
        assert "You said: remember me" in ui.picture()
        await ui.until(lambda: "$0.0200" in ui.picture())


async def test_a_conversation_that_is_found_by_a_message_has_no_marks_of_the_search(
    folder: Path, home: Home
) -> None:
    messages = [
        {"id": 1, "role": "user", "text": "hello"},
        {"id": 2, "role": "assistant", "text": "a needle in hay"},
    ]
    keep(folder, {"Hay": {"title": "", "messages": messages}})
    async with running(folder, home) as ui:
        screen = await picker(ui)
        await ui.press(*"needle")
        rows = screen.query_one(OptionList)
        await ui.until(lambda: rows.option_count and "needle in hay" in str(rows.options[0].prompt))
        assert ">>>" not in ui.picture() and "<<<" not in str(rows.options[0].prompt)


async def test_the_preview_of_a_search_shows_the_place_that_was_found(
    folder: Path, home: Home
) -> None:
    store(folder, Hay=[f"straw {number}" for number in range(40)])
    stored = json.loads((folder / "conversations.json").read_text())
    stored["Hay"]["messages"][20]["text"] = "a needle in hay"
    keep(folder, stored)
    async with running(folder, home) as ui:
        await picker(ui)
        await ui.until(lambda: "straw 28" in ui.picture())
        await ui.press(*"needle")
        await ui.until(lambda: "straw 19" in ui.picture() and "› a needle" in ui.picture())
        assert "straw 28" not in ui.picture()


async def test_what_went_wrong_is_seen_again_when_a_conversation_is_opened_again(
    folder: Path, home: Home
) -> None:
    patch: dict[str, Any] = {
        "role": "tool",
        "name": "patch",
        "context": "greet.py",
        "inline_diff": DIFF,
    }
    patch["duration_s"] = 0.31
    denied = {"role": "tool", "name": "terminal", "context": "rm -rf build", "refusal": "denied"}
    error = {"status": "error", "error": "The model refused the key."}
    messages = [
        {"role": "user", "text": "tidy up"},
        patch,
        {**denied, "status": "interrupted"},
        {"role": "user", "text": "tell me"},
        {"role": "assistant", "text": "Once upon", "kind": "partial", "status": "interrupted"},
        {"role": "user", "text": "go on", **error},
        {"role": "user", "text": "and on"},
        {"role": "assistant", "text": "a time", "kind": "partial"},
    ]
    keep(folder, {"Odd": {"title": "Odd", "messages": messages}})
    async with running(folder, home, size=(80, 50), opening=Opening(resume="Odd")) as ui:
        assert ui.notes == ["Stopped.", "Stopped.", "The model refused the key.", "Stopped here."]
        picture = ui.picture()
        assert "⊘ terminal  rm -rf build  denied" in picture
        assert "✓ patch  greet.py  +2 -1  0.3s" in picture and "2 +     text = f" in picture
        assert picture.index("a time") < picture.index("Stopped here.")


async def test_conversations_that_were_left_without_an_answer_are_told(
    folder: Path, home: Home
) -> None:
    messages = [{"id": 1, "role": "user", "text": "and then?"}]
    keep(
        folder,
        {
            "Left": {"title": "Left", "messages": messages, "pending": 1},
            "Done": {"title": "Done", "messages": messages},
        },
    )
    async with running(folder, home, size=(100, 30)) as ui:
        await ui.until(lambda: "1 conversation was left unanswered" in ui.picture())
        listed = (await picker(ui)).query_one(OptionList).options
        is_unanswered = {option.id: "unanswered" in str(option.prompt) for option in listed}
        assert is_unanswered == {"Left": True, "Done": False}


@contextmanager
def attached(home: Home, folder: Path, script: Sequence[Step]) -> Generator[Any]:
    """A real server with a scripted model; gives what opens one more terminal on its conversation."""
    with ScriptedServer(script) as model, gateway(home, model, folder):
        address = attach.find(home)
        connect = partial(WebSocketTransport.connect, address.url, address.token)
        yield partial(running, folder, home, connect=connect, opening=Opening(live=""))


async def test_who_joins_in_the_first_turn_sees_it_without_the_welcome(
    home: Home, tmp_path: Path
) -> None:
    quiet = Quiet()
    script = [silence(quiet, after="Once upon", then=" a time.")]
    with attached(home, tmp_path, script) as join:
        async with join() as first:
            await first.send("tell me")
            await first.until(lambda: first.replies == ["Once upon"])
            async with join(waits=False) as two:
                await two.until(lambda: two.replies == ["Once upon"])
                assert not any(isinstance(entry, Welcome) for entry in two.entries)
                quiet.release()
                await two.until(lambda: two.replies == ["Once upon a time."])
                assert [type(entry) for entry in two.entries] == [UserMessage, Reply]


async def test_who_joins_while_a_tool_runs_sees_the_call_and_how_it_ends(
    home: Home, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = [call("terminal", command="echo begun; cat gate"), say("Ran.")]
    home.create()
    home.config.write_text('[approvals]\nmode = "allow"\n[tools]\nsandbox = "host"\n')
    with attached(home, tmp_path, script) as join:
        async with join() as first:
            await first.send("run it")
            await first.until(lambda: "begun" in first.picture())
            async with join(waits=False) as two:
                await two.until(lambda: "begun" in two.picture())
                [call_seen] = [entry for entry in two.entries if isinstance(entry, Call)]
                assert call_seen.state == "running"
                gate.write_text("let go\n")
                await two.until(lambda: two.replies == ["Ran."])
                assert call_seen.state == "done"
                assert [type(entry) for entry in two.entries] == [UserMessage, Call, Reply]


@pytest.mark.parametrize("text", ["all:\n\techo hi", "10%\r\x1b[32mdone"])
async def test_a_prompt_that_waited_before_is_given_back_and_sent_as_it_was(
    folder: Path, home: Home, text: str
) -> None:
    waiting = {"title": "", "messages": [], "running": "slow", "queued": [text]}
    keep(folder, {"Waiting": waiting})
    async with running(folder, home, opening=Opening(resume="Waiting"), waits=False) as ui:
        await ui.until(lambda: ui.state == "working" and ui.app.session.conversation.waiting)
        assert ui.app.session.conversation.waiting == [wire.clean(text)]
        await ui.press("ctrl+c")
        await ui.until(lambda: ui.state == "ready" and ui.composer.text)
        await ui.press("enter")
        await ui.until(lambda: ui.requests("prompt.submit"))
        assert ui.requests("prompt.submit")[0]["text"] == text


async def test_instead_of_a_conversation_that_is_not_there_a_new_one_is_opened(
    folder: Path, home: Home
) -> None:
    async with running(folder, home, opening=Opening(resume="nowhere")) as ui:
        await ui.until(lambda: "There is no conversation nowhere." in ui.notes)
        await ui.say("hello")
        assert ui.replies == ["You said: hello"]


@pytest.mark.parametrize("word", ["rm", "日本", "水"])
async def test_a_conversation_is_found_by_a_short_word(folder: Path, home: Home, word: str) -> None:
    store(folder, Chores=["clean up", "I run rm -rf build."], Asia=["where?", "日本語の水"])
    async with running(folder, home) as ui:
        screen = await picker(ui)
        await ui.press(*word)
        await ui.until(lambda: screen.query_one(OptionList).option_count == 1)
        await ui.until(lambda: "Nothing found" not in ui.picture() and word in ui.picture())


async def test_a_picked_conversation_is_opened_and_the_empty_one_closed(
    folder: Path, home: Home
) -> None:
    store(folder, About_cats=["cats?", "They purr."], About_dogs=["dogs?", "They bark."])
    async with running(folder, home) as ui:
        before = ui.app.session.conversation.live_id
        screen = await picker(ui)
        await ui.press(*"dogs")
        await ui.until(lambda: screen.query_one(OptionList).option_count == 1)
        await ui.until(lambda: "They bark." in ui.picture())
        await ui.press("enter")
        await ui.until(lambda: ui.prompts == ["dogs?"])
        await ui.until(lambda: ui.requests("session.close") == [{"session_id": before}])


async def test_a_conversation_is_found_by_what_was_said_in_it(folder: Path, home: Home) -> None:
    store(folder, One=["hi", "hello"], Two=["hi", "the word is xylophone"])
    async with running(folder, home) as ui:
        screen = await picker(ui)
        await ui.press(*"xylophone")
        rows = screen.query_one(OptionList)
        await ui.until(lambda: rows.option_count == 1)
        assert rows.get_option_at_index(0).id == "Two"


async def test_a_conversation_is_renamed_in_the_picker(folder: Path, home: Home) -> None:
    store(folder, Old_name=["a", "b"])
    async with running(folder, home) as ui:
        screen = await picker(ui)
        await ui.press("f2")
        field = screen.query_one(Input)
        assert field.value == "Old name"
        await ui.write(" and new")
        await ui.press("enter")
        renamed = {"session_id": "Old_name", "title": "Old name and new"}
        await ui.until(lambda: ui.requests("session.title") == [renamed])
        await ui.until(lambda: "Old name and new" in ui.picture())


async def test_deleting_takes_two_presses_of_the_same_key(folder: Path, home: Home) -> None:
    store(folder, Keep=["a", "b"], Gone=["c", "d"])
    async with running(folder, home) as ui:
        screen = await picker(ui)
        await ui.press("delete", "down", "delete")
        assert not ui.requests("session.delete")
        await ui.press("down", "delete")  # at the end, so that the same one is marked again
        assert not ui.requests("session.delete")
        await ui.press("delete")
        await ui.until(lambda: screen.query_one(OptionList).option_count == 1)
        assert ui.requests("session.delete") == [{"session_id": "Gone"}]


async def test_a_new_conversation_is_empty(ui: Interface) -> None:
    await ui.say("hello")
    await ui.press("ctrl+n")
    await ui.until(lambda: ui.prompts == [] and ui.entries)
    await ui.say("anew")
    assert ui.replies == ["You said: anew"]


async def test_a_branch_is_a_copy_that_goes_on(ui: Interface) -> None:
    await ui.say("hello")
    before = ui.app.session.conversation.stored_id
    await ui.send("/branch another way")
    await ui.until(lambda: ui.app.session.conversation.stored_id != before)
    await ui.until(lambda: ui.prompts == ["hello"])
    await ui.say("further")
    assert ui.prompts == ["hello", "further"]


async def test_the_tree_shows_where_one_is_and_opens_a_branch(folder: Path, home: Home) -> None:
    store(folder, branch=["in the branch", "yes"])
    async with running(folder, home) as ui:
        await ui.say("hello")
        await ui.press("f5")
        await ui.until(lambda: isinstance(ui.app.screen, TreeScreen))
        await ui.until(lambda: "← here" in ui.picture())
        await ui.until(lambda: ui.app.screen.query_one(Tree).cursor_node is not None)
        await ui.press("down", "enter")
        await ui.until(lambda: ui.prompts == ["in the branch"])


async def test_a_part_that_was_shortened_into_the_open_one_says_so(ui: Interface) -> None:
    await ui.press("f5")
    await ui.until(lambda: "Try it in Rust" in ui.picture())
    await ui.rest()
    await ui.press("up", "enter")
    await ui.until(lambda: "It was compacted" in ui.picture())
    assert "Try it in Rust" in ui.picture()


def test_a_long_title_leaves_the_facts_of_the_tree_in_sight() -> None:
    node = results.TreeNode("here", title="A title " * 12, message_count=40, started_at=clock.now())
    for columns in (40, 60, 120):
        label = label_of(node, "here", clock.now(), columns).plain
        assert len(label) <= columns
        assert label.startswith("A title") and "40 messages" in label and label.endswith("← here")


async def test_a_model_is_chosen(ui: Interface) -> None:
    await ui.send("/model")
    await ui.until(lambda: isinstance(ui.app.screen, ModelScreen))
    await ui.until(lambda: "scripted-2" in ui.picture())
    await ui.press("down", "enter")
    await ui.until(lambda: "local/scripted-2 is in use now." in ui.notes)
    assert ui.requests("config.set")[-1]["value"] == "local/scripted-2"


async def test_a_model_that_is_not_listed_can_be_typed(ui: Interface) -> None:
    await ui.press("f4")
    await ui.until(lambda: "scripted-2" in ui.picture())
    await ui.press(*"openrouter/new", "enter")
    await ui.until(lambda: "openrouter/new is in use now." in ui.notes)


async def test_of_a_long_conversation_only_the_end_is_fetched_and_drawn(
    folder: Path, home: Home
) -> None:
    store(folder, Long=[f"text {number}" for number in range(10_000)])
    async with running(folder, home, opening=Opening(resume="Long")) as ui:
        transcript = ui.app.chat.turn_view.transcript
        assert len(ui.entries) == 60
        assert len(transcript.query(".entry")) < 30
        assert "text 9999" in ui.picture()


async def test_scrolling_back_fetches_more_and_keeps_the_place(folder: Path, home: Home) -> None:
    store(folder, Long=[f"text {number}" for number in range(150)])
    async with running(folder, home, opening=Opening(resume="Long")) as ui:
        transcript = ui.app.chat.turn_view.transcript
        for _ in range(100):
            await ui.press("ctrl+home")
            await ui.pilot.pause()
            if not transcript.has_earlier:
                break
        assert ui.prompts[:2] == ["text 0", "text 2"]
        assert len(transcript.query(".entry")) < 120
        await ui.press("ctrl+end")
        await ui.until(lambda: "text 149" in ui.picture())
        await ui.say("and now")
        assert "You said: and now" in ui.picture()


async def test_what_was_scrolled_back_to_stays_in_sight_while_a_reply_comes(
    folder: Path, home: Home
) -> None:
    store(folder, Long=[f"text {number}" for number in range(60)])
    async with running(folder, home, opening=Opening(resume="Long")) as ui:
        await ui.send("slow")
        await ui.until(lambda: ui.state == "working" and ui.replies[-1] == "This takes a while")
        for _ in range(3):
            await ui.press("pageup")
        await ui.rest()
        before = ui.picture().splitlines()[3]
        await ui.app.session.call("session.interrupt")
        await ui.until(lambda: ui.state == "ready")
        await ui.rest()
        assert ui.picture().splitlines()[3] == before
