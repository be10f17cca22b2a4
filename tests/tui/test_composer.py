"""The composer: lines, history, completion, attachments, commands."""

import stat
from pathlib import Path

import pytest
from textual import events
from textual._xterm_parser import XTermParser

from hermes_core import secrets
from hermes_core.paths import Home, make_folder
from hermes_protocol.results import Queued
from hermes_tui import mentions
from hermes_tui.history import InputHistory
from hermes_tui.screens.help import HelpScreen
from tests.tui.harness import Interface, running

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("key", ["ctrl+j", "shift+enter"])
async def test_a_new_line_does_not_send(ui: Interface, key: str) -> None:
    ui.type("one")
    await ui.press(key)
    ui.type("two")
    assert ui.composer.text == "one\ntwo"
    await ui.press("enter")
    await ui.until(lambda: ui.replies == ["You said: one\ntwo"])


async def test_a_backslash_before_enter_makes_a_new_line(ui: Interface) -> None:
    ui.type("one\\")
    await ui.press("enter")
    assert ui.composer.text == "one\n"


async def test_it_grows_with_the_text_but_not_over_the_screen(ui: Interface) -> None:
    ui.type("\n".join(map(str, range(50))))
    await ui.until(lambda: ui.composer.size.height > 5)
    await ui.rest()
    assert ui.composer.size.height <= 12
    assert ui.app.chat.turn_view.size.height > 5


async def test_nothing_is_not_sent(ui: Interface) -> None:
    ui.type("  \n ")
    await ui.press("enter")
    await ui.pilot.pause()
    assert ui.prompts == []


async def test_what_was_typed_before_comes_back_and_the_draft_too(ui: Interface) -> None:
    await ui.say("first")
    await ui.say("second\nwith two lines")
    ui.type("a draft")
    await ui.press("up")
    assert ui.composer.text == "second\nwith two lines"
    await ui.press("up", "up")
    assert ui.composer.text == "first"
    await ui.press("down")
    await ui.press("down", "down")
    assert ui.composer.text == "a draft"


async def test_the_history_is_kept_in_a_private_file_without_secrets(
    folder: Path, home: Home
) -> None:
    secrets.register({"TOKEN": "s3cret-value"})
    try:
        async with running(folder, home) as ui:
            await ui.say("the token is s3cret-value")
    finally:
        secrets.clear()
    assert stat.S_IMODE(home.history.stat().st_mode) == 0o600
    assert "s3cret-value" not in home.history.read_text()
    async with running(folder, home) as ui:
        await ui.press("up")
        assert ui.composer.text == "the token is [secret TOKEN]"


async def test_commands_are_completed_ours_and_the_servers(ui: Interface) -> None:
    await ui.press("/", "t")
    offered = ui.app.chat.composer_area.completions
    expected = ["theme", "title", "tree"]
    await ui.until(lambda: offered.is_shown and [item.text for item in offered.items] == expected)
    await ui.press("down", "tab")
    assert ui.composer.text == "/title "


async def test_enter_completes_first_and_sends_then(ui: Interface) -> None:
    await ui.press("/", "h", "e")
    offered = ui.app.chat.composer_area.completions
    await ui.until(lambda: offered.is_shown and [item.text for item in offered.items] == ["help"])
    await ui.press("enter")
    assert ui.composer.text == "/help "
    await ui.press("enter")
    await ui.until(lambda: any("done: /help" in note for note in ui.notes))


async def test_files_are_completed_inside_a_sentence(ui: Interface) -> None:
    ui.type("look at ")
    await ui.press("@", "s", "r")
    await ui.until(lambda: len(ui.app.chat.composer_area.completions.items) == 2)
    await ui.press("tab")
    assert ui.composer.text == "look at @src/"
    await ui.until(lambda: ui.app.chat.composer_area.completions.is_shown)
    await ui.press("down", "tab")
    assert ui.composer.text == "look at @src/greet.py "


async def test_escape_closes_the_list(ui: Interface) -> None:
    await ui.press("/")
    await ui.until(lambda: ui.app.chat.composer_area.completions.is_shown)
    await ui.press("escape")
    assert not ui.app.chat.composer_area.completions.is_shown
    assert ui.composer.text == "/"


async def test_a_long_paste_is_an_attachment_and_sent_whole(ui: Interface) -> None:
    pasted = "\n".join(f"line {number}" for number in range(40))
    ui.type("Read this: ")
    ui.app.post_message(events.Paste(pasted))
    await ui.until(lambda: "[Pasted text #1: 40 lines]" in ui.composer.text)
    await ui.press("enter")
    await ui.until(lambda: ui.state == "ready" and ui.replies)
    assert ui.prompts == ["Read this: [Pasted text #1: 40 lines]"]
    [sent] = ui.requests("prompt.submit")
    assert sent["text"] == f"Read this: {pasted}"


LONG = "\n".join(f"line {number}" for number in range(40))


def _sent(ui: Interface) -> list[str]:
    return [params["text"] for params in ui.requests("prompt.submit")]


async def test_a_long_paste_and_enter_at_once_go_together(ui: Interface) -> None:
    ui.type("Read this: ")
    ui.app.post_message(events.Paste(LONG))
    ui.press_at_once("enter")
    await ui.until(lambda: _sent(ui) == [f"Read this: {LONG}"])


async def test_what_is_typed_at_once_after_a_long_paste_stands_after_it(ui: Interface) -> None:
    ui.app.post_message(events.Paste(LONG))
    ui.press_at_once("!", "enter")
    await ui.until(lambda: _sent(ui) == [f"{LONG}!"])


@pytest.mark.parametrize("keys", [["backspace"], ["left"] * 5 + ["delete"]])
async def test_deleting_in_what_stands_for_a_paste_takes_it_off(
    ui: Interface, keys: list[str]
) -> None:
    ui.type("Read this: ")
    ui.composer.paste(LONG)
    await ui.press(*keys, "end", *"no", "enter")
    await ui.until(lambda: _sent(ui) == ["Read this: no"])


async def test_a_path_that_is_pasted_and_sent_at_once_is_sent(ui: Interface) -> None:
    ui.app.post_message(events.Paste("/tmp/cat.png"))
    ui.press_at_once("enter")
    await ui.until(lambda: _sent(ui) == ["/tmp/cat.png"])
    await ui.until(lambda: ui.requests("input.detect_drop"))
    await ui.rest()
    assert not ui.app.chat.composer_area.images and ui.composer.text == ""


async def test_a_prompt_that_is_refused_comes_back_with_its_pastes_as_they_were(
    ui: Interface,
) -> None:
    ui.type("Read this: ")
    ui.app.post_message(events.Paste("refuse" + LONG))
    ui.press_at_once("enter")
    await ui.until(lambda: "It cannot be taken." in ui.notes)
    await ui.until(lambda: ui.composer.text == "Read this: [Pasted text #1: 40 lines]")
    await ui.press("enter")
    await ui.until(lambda: _sent(ui) == [f"Read this: refuse{LONG}"] * 2)


async def test_a_paste_of_megabytes_leaves_the_history_what_it_was(
    folder: Path, home: Home
) -> None:
    async with running(folder, home) as ui:
        await ui.say("before")
        ui.app.post_message(events.Paste("compacted " + "a line of text\n" * 200_000))
        ui.press_at_once("enter")
        await ui.until(lambda: ui.replies and len(ui.replies) > 1 and ui.state == "ready")
    async with running(folder, home) as ui:
        await ui.press("up")
        assert ui.composer.text == "[Pasted text #1: 200001 lines]"
        await ui.press("up")
        assert ui.composer.text == "before"


def test_a_history_that_ends_with_something_long_has_what_was_before(home: Home) -> None:
    make_folder(home.root)
    entries = "".join(f"\n# moment\n+text {number}\n" for number in range(200))
    home.history.write_text(entries + "\n# moment\n" + "+line\n" * 500_000)
    history = InputHistory(home.history)
    history.load()
    assert history.texts == [f"text {number}" for number in range(200)]


async def test_a_short_paste_is_text(ui: Interface) -> None:
    ui.app.post_message(events.Paste("two\nlines"))
    await ui.until(lambda: ui.composer.text == "two\nlines")


@pytest.mark.parametrize("end", ["\r", "\r\n"])
async def test_a_paste_has_ordinary_line_ends_whatever_the_terminal_sends(
    ui: Interface, end: str
) -> None:
    ui.app.post_message(events.Paste(f"two{end}lines "))
    await ui.until(lambda: ui.composer.text == "two\nlines ")
    ui.app.post_message(events.Paste(end.join(map(str, range(200)))))
    await ui.until(lambda: "[Pasted text #1: 200 lines]" in ui.composer.text)
    await ui.press("enter")
    await ui.until(lambda: ui.replies)
    [sent] = ui.requests("prompt.submit")
    assert sent["text"] == "two\nlines " + "\n".join(map(str, range(200)))


async def test_a_paste_replaces_what_is_selected(ui: Interface) -> None:
    ui.type("wrong")
    ui.composer.select_all()
    ui.app.post_message(events.Paste("right"))
    await ui.until(lambda: ui.composer.text == "right")
    ui.type("!")
    assert ui.composer.text == "right!"


async def test_what_is_pasted_while_reading_is_written(ui: Interface) -> None:
    await ui.say("tool")
    await ui.press("shift+tab")
    assert not ui.composer.has_focus
    ui.app.post_message(events.Paste("two\nlines"))
    await ui.until(lambda: ui.composer.text == "two\nlines")
    await ui.press("shift+tab")
    ui.app.post_message(events.Paste("/tmp/cat.png"))
    await ui.until(lambda: ui.app.chat.composer_area.images)
    assert ui.composer.has_focus


async def test_a_dropped_picture_goes_with_the_message_as_a_link(ui: Interface) -> None:
    ui.app.post_message(events.Paste("/tmp/cat.png"))
    await ui.until(lambda: ui.app.chat.composer_area.images)
    await ui.until(lambda: "cat.png" in ui.picture())
    await ui.say("what is this?")
    assert _pictures_sent(ui) == [["/tmp/cat.png"]]
    assert "cat.png" in ui.picture()
    assert not ui.app.chat.composer_area.images


def _pictures_sent(ui: Interface) -> list[list[str]]:
    return [params.get("images", []) for params in ui.requests("prompt.submit")]


async def test_a_picture_needs_no_words_and_can_be_taken_off(ui: Interface) -> None:
    area = ui.app.chat.composer_area
    for name in ("cat", "dog"):
        ui.app.post_message(events.Paste(f"/tmp/{name}.png"))
        await ui.until(lambda name=name: f"/tmp/{name}.png" in area.images)
    await ui.press("backspace")
    await ui.until(lambda: area.images == ["/tmp/cat.png"])
    await ui.press("enter")
    await ui.until(lambda: _pictures_sent(ui) == [["/tmp/cat.png"]])
    await ui.until(lambda: ui.state == "ready" and ui.replies)
    await ui.press("enter")
    await ui.rest()
    assert len(_pictures_sent(ui)) == 1, "nothing is sent when there is nothing"


async def test_a_picture_stays_with_the_draft_of_its_conversation(ui: Interface) -> None:
    await ui.say("hello")
    ui.app.post_message(events.Paste("/tmp/cat.png"))
    await ui.until(lambda: ui.app.chat.composer_area.images)
    before = ui.app.session.conversation.live_id
    await ui.press("ctrl+n")
    await ui.until(lambda: ui.app.session.conversation.live_id != before and ui.state == "ready")
    assert not ui.app.chat.composer_area.images
    await ui.press("ctrl+pageup")
    await ui.until(lambda: ui.app.chat.composer_area.images == ["/tmp/cat.png"])
    await ui.say("what is this?")
    assert _pictures_sent(ui) == [[], ["/tmp/cat.png"]]


async def test_a_picture_survives_the_server_that_did_not_take_it(ui: Interface) -> None:
    ui.app.post_message(events.Paste("/tmp/cat.png"))
    await ui.until(lambda: ui.app.chat.composer_area.images)
    await ui.send("die unheard")
    await ui.until(lambda: ui.replies and ui.state == "ready")
    assert _pictures_sent(ui) == [["/tmp/cat.png"]] * 2


async def test_a_message_that_is_taken_back_brings_its_pictures(ui: Interface) -> None:
    await ui.send("slow")
    await ui.until(lambda: ui.state == "working" and ui.replies)
    ui.app.post_message(events.Paste("/tmp/cat.png"))
    await ui.until(lambda: ui.app.chat.composer_area.images)
    await ui.send("what is this?")
    await ui.until(lambda: len(_pictures_sent(ui)) == 2)
    await ui.until(lambda: all(p.turn_id for p in ui.app.chat.turn_view.prompts.queued))
    await ui.press("alt+up")
    await ui.until(lambda: ui.composer.text == "what is this?")
    assert ui.app.chat.composer_area.images == ["/tmp/cat.png"]
    await ui.press("escape")
    await ui.until(lambda: ui.state == "ready")


async def test_a_prompt_that_waited_before_is_given_back_with_its_pictures(ui: Interface) -> None:
    await ui.send("slow")
    await ui.until(lambda: ui.state == "working" and ui.replies)
    ui.app.chat.turn_view.prompts.load_queue([Queued("turn of look", "look", ["/tmp/cat.png"])])
    await ui.press("ctrl+c")
    await ui.until(lambda: ui.state == "ready" and ui.composer.text == "look")
    assert ui.app.chat.composer_area.images == ["/tmp/cat.png"]


async def test_all_that_waited_is_given_back_in_its_order(ui: Interface) -> None:
    await ui.send("slow")
    await ui.until(lambda: ui.state == "working" and ui.replies)
    for text in ("one", "two", "three"):
        await ui.send(text)
    await ui.until(lambda: len(ui.requests("prompt.submit")) == 4)
    await ui.until(lambda: all(p.turn_id for p in ui.app.chat.turn_view.prompts.queued))
    await ui.press("ctrl+c")
    await ui.until(lambda: ui.composer.text == "one\ntwo\nthree")


async def test_ctrl_c_clears_the_text_first_and_the_history_keeps_it(ui: Interface) -> None:
    await ui.send("slow")
    await ui.until(lambda: ui.state == "working" and ui.replies)
    ui.type("a draft")
    await ui.press("ctrl+c")
    await ui.until(lambda: ui.composer.text == "")
    assert ui.state == "working" and not ui.requests("session.interrupt")
    await ui.press("ctrl+c")
    await ui.until(lambda: ui.state == "ready")
    await ui.press("up")
    assert ui.composer.text == "a draft"


async def test_escape_interrupts_and_keeps_the_text(ui: Interface) -> None:
    await ui.send("slow")
    await ui.until(lambda: ui.state == "working" and ui.replies)
    assert "Esc interrupts" in ui.picture()
    ui.type("a draft")
    await ui.press("escape")
    await ui.until(lambda: ui.state == "ready" and "Stopped." in ui.notes)
    assert ui.composer.text == "a draft"
    await ui.press("escape")
    assert ui.app.return_code is None


async def test_another_path_is_text(ui: Interface) -> None:
    ui.app.post_message(events.Paste("/tmp/notes.txt"))
    await ui.until(lambda: ui.composer.text == "/tmp/notes.txt")


async def test_a_command_of_the_server_shows_what_it_says(ui: Interface) -> None:
    await ui.say("/usage")
    assert ui.notes[-1] == "done: /usage"


async def test_ctrl_c_stops_a_command_that_takes_its_time(ui: Interface) -> None:
    await ui.say("hello")
    await ui.send("/compress patience")
    await ui.until(lambda: "Shortening 32 messages." in ui.picture())
    await ui.press("ctrl+c")
    await ui.until(lambda: "Nothing was shortened." in ui.notes)
    assert len(ui.requests("session.interrupt")) == 1
    await ui.until(lambda: "● ready" in ui.picture())


async def test_the_help_has_our_commands_beside_those_of_the_server(ui: Interface) -> None:
    await ui.say("/help")
    lines = [line.split()[0] for line in ui.notes[-1].splitlines() if line.startswith("/")]
    assert lines[:2] == ["/help", "/new"] and lines.count("/new") == 1
    assert {"/tree", "/theme", "/keys", "/copy"} <= set(lines)


async def test_a_command_says_what_becomes_of_a_prompt_while_a_turn_runs(ui: Interface) -> None:
    await ui.say("/queue hello")
    [sent] = ui.requests("prompt.submit")
    assert (sent["text"], sent["busy"]) == ("hello", "queue")


@pytest.mark.parametrize(
    ("typed", "completed"), [("see @READ", "see @README.md "), ("/hel", "/help ")]
)
async def test_tab_completes_also_what_the_server_has_not_told_yet(
    ui: Interface, typed: str, completed: str
) -> None:
    ui.press_at_once(*("space" if key == " " else key for key in typed), "tab")
    await ui.until(lambda: ui.composer.text == completed)
    assert ui.composer.has_focus


async def test_tab_completes_what_stands_there_and_not_what_was_listed_before(
    ui: Interface,
) -> None:
    await ui.write("/")
    await ui.until(lambda: ui.app.chat.composer_area.completions.is_shown)
    ui.press_at_once(*"titl", "tab")
    await ui.until(lambda: ui.composer.text == "/title ")


async def test_tab_stays_where_there_is_nothing_to_complete(ui: Interface) -> None:
    await ui.write("hello")
    await ui.press("tab", "enter")
    await ui.until(lambda: ui.replies == ["You said: hello"])


async def test_what_is_said_to_the_running_turn_is_seen_waiting_and_given_back_by_a_stop(
    ui: Interface,
) -> None:
    await ui.send("slow")
    await ui.until(lambda: ui.state == "working" and ui.replies)
    await ui.send("/steer be brief")
    await ui.until(lambda: "next  be brief" in ui.picture())
    await ui.send("/queue later please")
    await ui.until(lambda: "then  later please" in ui.picture() and "edits one" in ui.picture())
    await ui.press("ctrl+c")
    await ui.until(lambda: ui.state == "ready")
    await ui.until(lambda: sorted(ui.composer.text.split("\n")) == ["be brief", "later please"])
    assert ui.notes == ["Stopped."]
    assert [params.get("busy") for params in ui.requests("prompt.submit")] == [
        None,
        "steer",
        "queue",
    ]


async def test_what_is_on_its_way_to_the_running_turn_is_not_offered_to_be_taken_back(
    ui: Interface,
) -> None:
    await ui.send("slow")
    await ui.until(lambda: ui.state == "working" and ui.replies)
    await ui.send("/steer be brief")
    await ui.until(lambda: "next  be brief" in ui.picture())
    await ui.rest()
    assert "edits one" not in ui.picture()
    await ui.press("alt+up")
    await ui.until(lambda: "cannot be edited" in ui.picture())
    await ui.send("/queue later please")
    await ui.until(lambda: "edits one" in ui.picture())
    await ui.press("alt+up")
    await ui.until(lambda: ui.composer.text == "later please")
    assert ui.app.session.conversation.waiting == ["be brief"]


async def test_what_a_command_says_for_a_person_is_said_as_it_is(ui: Interface) -> None:
    await ui.say("/skill all:\n\techo \x1b[1mhi")
    [sent] = ui.requests("prompt.submit")
    assert sent["text"] == "all:\n\techo \x1b[1mhi"
    assert ui.prompts == ["all:\n\techo hi"]


async def test_an_unknown_command_is_told(ui: Interface) -> None:
    await ui.say("/nonsense")
    assert ui.notes[-1] == "Unknown command /nonsense."


async def test_a_path_is_something_to_say(ui: Interface) -> None:
    await ui.say("/etc/hosts is a file")
    assert ui.replies == ["You said: /etc/hosts is a file"]


async def test_who_reads_and_starts_to_type_writes(ui: Interface) -> None:
    await ui.say("tool")
    await ui.press("shift+tab")
    assert not ui.composer.has_focus
    await ui.press("h", "i")
    assert ui.composer.has_focus
    assert ui.composer.text == "hi"


async def test_a_line_that_comes_in_one_burst_while_reading_is_sent(ui: Interface) -> None:
    await ui.say("tool")
    await ui.press("shift+tab")
    ui.press_at_once("h", "i", "enter")
    await ui.until(lambda: ui.replies[-1] == "You said: hi")
    assert ui.composer.text == ""


async def test_corrections_in_a_burst_are_made_in_their_order(ui: Interface) -> None:
    ui.press_at_once("h", "o", "backspace", "i", "home", "o", "enter")
    await ui.until(lambda: ui.replies == ["You said: ohi"])


async def test_enter_while_reading_sends_nothing_that_was_left_in_the_composer(
    ui: Interface,
) -> None:
    await ui.say("tool")
    ui.type("not yet")
    await ui.press("shift+tab")
    await ui.press("enter")
    assert ui.composer.text == "not yet"


async def test_a_question_mark_in_an_empty_composer_shows_the_keys(ui: Interface) -> None:
    await ui.press("?")
    await ui.until(lambda: isinstance(ui.app.screen, HelpScreen))
    await ui.until(lambda: "Input history" in ui.picture())
    await ui.press("escape")
    ui.type("why")
    await ui.press("?")
    assert ui.composer.text == "why?"


async def test_control_d_leaves_only_an_empty_composer(ui: Interface) -> None:
    ui.type("text")
    await ui.press("ctrl+d")
    assert ui.app.return_code is None
    ui.composer.empty()
    await ui.press("ctrl+d")
    await ui.until(lambda: ui.app.return_code == 0)


async def test_files_that_are_named_go_along_and_their_size_is_shown(ui: Interface) -> None:
    await ui.write("read @READ")
    await ui.until(lambda: ui.app.chat.composer_area.completions.is_shown)
    await ui.press("tab")
    assert ui.composer.text == "read @README.md "
    await ui.until(lambda: "📎 README.md 3.4 kB" in ui.picture())
    ui.type("and @nothing, @src/.")
    await ui.until(lambda: "src/ folder, 1 item" in ui.picture())
    await ui.press("escape", "enter")
    await ui.until(lambda: ui.requests("prompt.submit"))
    [request] = ui.requests("prompt.submit")
    assert request["files"] == ["README.md", "nothing", "src/"]
    await ui.until(lambda: "📎 README.md (3.4 kB)" in ui.picture())
    assert "📎 README.md 3.4 kB" not in ui.picture()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("see @a.py, (@b) me@example.org and @c.", ["a.py", "c"]),
        ('@"my file.txt" @~/x/ @a @a', ["my file.txt", "~/x/", "a"]),
        ('@ @"" @"open', []),
    ],
)
def test_names_after_an_at_are_files(text: str, names: list[str]) -> None:
    assert mentions.names_in(text) == names


def test_a_completed_name_with_blanks_is_quoted() -> None:
    assert mentions.completed("@my file.txt") == '@"my file.txt"'
    assert mentions.completed("@a.py") == "@a.py"


@pytest.mark.parametrize("sequence", ["\x1b\r", "\x1b[13;2u", "\x1b[13;3u", "\x1b[27;3;13~", "\n"])
async def test_enter_with_another_key_inserts_a_line(ui: Interface, sequence: str) -> None:
    """As terminals send it."""
    parser = XTermParser()
    for event in [*parser.feed(f"one{sequence}two"), *parser.feed("")]:
        ui.app.post_message(event)
    await ui.until(lambda: ui.composer.text == "one\ntwo")
    assert not ui.requests("prompt.submit")
