"""What the interface is made of below the widgets: plain values and functions of them."""

import stat
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.errors import ConfigError
from hermes_core.paths import Home
from hermes_core.text import width
from hermes_protocol import results
from hermes_tui import commands, keymap, messages, opening_view, preferences, wire
from hermes_tui.conversation import Conversation
from hermes_tui.entries import (
    Call,
    Divider,
    Note,
    Reply,
    Thought,
    UserMessage,
    from_messages,
    last_reply,
    replies_of,
    split_point,
)
from hermes_tui.history import InputHistory
from hermes_tui.preferences import Preferences
from hermes_tui.widgets.status import line

# -- wire --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dirty", "clean"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("10%\r50%\r100%\n", "100%\n"),
        ("one\r\ntwo", "one\ntwo"),
        ("bell\x07 back\x08", "bell back"),
        ("right\u202eto left", "rightto left"),
        ("all:\n\techo", "all:\n\techo"),
    ],
)
def test_text_for_the_terminal_has_nothing_that_moves_colours_or_rings(
    dirty: str, clean: str
) -> None:
    assert wire.clean(dirty) == clean


@given(st.text())
def test_no_control_character_is_left(text: str) -> None:
    cleaned = wire.clean(text)
    assert not [c for c in cleaned if c not in "\n\t" and (ord(c) < 32 or 127 <= ord(c) < 160)]


def test_every_text_inside_an_answer_is_cleaned() -> None:
    assert wire.cleaned({"a": ["\x1b[1mb", 3, None]}) == {"a": ["b", 3, None]}


# -- events ------------------------------------------------------------------------------------------


def test_an_event_becomes_a_message_and_unknown_fields_are_ignored() -> None:
    event = messages.from_event("tool.start", "s", {"tool_id": "t", "name": "n", "new": 1})
    assert isinstance(event, messages.ToolStarted)
    assert (event.session_id, event.payload.tool_id, event.payload.name) == ("s", "t", "n")


@pytest.mark.parametrize("kind", sorted(messages._EVENTS))
def test_an_event_without_fields_is_understood_and_one_with_nonsense_is_not(kind: str) -> None:
    assert messages.from_event(kind, "s", {}) is not None
    fields = (
        "text",
        "name",
        "title",
        "message",
        "request_id",
        "kind",
        "user",
        "reason",
        "dropped",
        "input",
    )
    nonsense = {name: [{}] for name in fields}
    assert messages.from_event(kind, "s", nonsense) is None


def test_an_event_that_nobody_knows_is_nothing() -> None:
    assert messages.from_event("pet.generate.progress", "s", {}) is None


# -- entries -----------------------------------------------------------------------------------------


def test_stored_messages_become_entries() -> None:
    stored = [
        results.Message(role="user", text="hi", images=["cat.png"]),
        results.Message(role="assistant", text="hello", reasoning="polite"),
        results.Message(
            role="tool", name="terminal", context="ls", result_text="a b", is_error=True
        ),
        results.Message(role="user", kind="summary", text="what was before"),
        results.Message(role="assistant", text="  "),
        results.Message(role="system", text="a notice"),
    ]
    message, thought, reply, call, divider, note = from_messages(stored)
    assert isinstance(message, UserMessage) and message.images == ["cat.png"]
    assert isinstance(thought, Thought) and thought.text == "polite"
    assert isinstance(reply, Reply) and reply.text == "hello"
    assert isinstance(call, Call) and (call.state, call.result) == ("failed", "a b")
    assert isinstance(divider, Divider) and divider.detail == "what was before"
    assert isinstance(note, Note)


WORDS = st.sampled_from(
    ["word " * 60, "# Head\n", "\n", "\n\n", "```py\n", "```\n", "- item\n", "  in\n"]
)


@given(st.lists(WORDS, max_size=60).map("".join))
def test_the_parts_of_a_reply_are_the_reply(text: str) -> None:
    parts = replies_of(text)
    assert "".join(part.text for part in parts) == (text if text.strip() else "")
    assert last_reply([UserMessage("x"), *parts]) == parts
    assert [part.is_continued for part in parts] == [number > 0 for number in range(len(parts))]


def test_a_reply_is_not_parted_inside_of_code() -> None:
    code = "```python\n" + "x = 1\n\n" * 600 + "```\n"
    assert split_point(code) is None
    assert split_point(f"{code}\nAfter it.") == len(code) + 1
    markdown = f"````md\n{code}\nAfter it.\n````\n"
    assert split_point(markdown) is None
    assert split_point(f"{markdown}\nAfter it.") == len(markdown) + 1


# -- the conversation --------------------------------------------------------------------------------


def handle(conversation: Conversation, name: str, payload: dict[str, Any]) -> None:
    """Have a conversation hear an event."""
    event = messages.from_event(name, "live", payload)
    assert event is not None
    conversation.handle(event, 0)


def test_what_the_server_does_not_mention_stays() -> None:
    conversation = Conversation()
    conversation.open(
        results.Opened("live", "stored", info=results.Info("m", usage=results.Usage(context_max=8)))
    )
    handle(conversation, "usage.update", {"context_percent": 50})
    handle(conversation, "session.info", {"title": "T", "model": None, "usage": {}})
    assert (conversation.info.model, conversation.info.title) == ("m", "T")
    assert conversation.info.usage.context_percent == 50


def test_a_shortened_conversation_is_resumed_by_its_new_id() -> None:
    conversation = Conversation()
    conversation.open(results.Opened("live", "old"))
    handle(conversation, "session.info", {"stored_session_id": "new"})
    assert conversation.stored_id == "new"


def test_what_goes_on_leaves_room_for_who_answers_and_the_hint() -> None:
    conversation = Conversation(state="working", activity="The model is overloaded. " * 9)
    conversation.learn({"model": "scripted-1", "usage": {"context_used": 1, "context_max": 10**6}})
    status = line(conversation, 80, 0.0, "Press Ctrl+C again to quit").plain
    assert (
        "overloaded" in status
        and "scripted-1" in status
        and status.endswith("Press Ctrl+C again to quit")
    )
    assert "of 1M" in line(conversation, 120, 0.0).plain


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 200])
def test_the_status_fits_into_its_line(columns: int) -> None:
    conversation = Conversation(state="working", began_at=0.0, waiting=["a", "b"])
    conversation.learn(
        {
            "model": "a-model-with-a-very-long-name-indeed-it-is",
            "title": "A title that is rather long as well",
            "usage": {"context_used": 90, "context_max": 100, "cost_usd": 1.5},
        }
    )
    status = line(conversation, columns, 75.0).plain
    assert width(status) <= max(columns, 24)
    assert status.startswith("● working 75s")
    assert status.endswith("Esc interrupts" if columns >= 60 else "F1 help")
    assert ("$1.50" in status) == (columns > 80)


@pytest.mark.parametrize(
    ("info", "text"),
    [
        ({"sandbox": "bubblewrap", "network": "asks for new hosts"}, "bubblewrap, network asks"),
        ({"sandbox": "landlock", "network": "off (why)"}, "landlock, network off "),
        ({"sandbox": "bubblewrap", "network": "on"}, "network open"),
        ({"sandbox": "host", "network": "on"}, "no sandbox "),
        ({"sandbox": "none", "network": "on"}, "no sandbox, every command asks"),
        ({"sandbox": "host", "yolo": True}, "no sandbox · nothing is asked"),
    ],
)
def test_the_status_says_where_commands_run(info: dict[str, Any], text: str) -> None:
    conversation = Conversation(state="ready")
    conversation.learn({"model": "m", **info})
    assert text in line(conversation, 100, 0.0).plain


def test_a_full_window_is_told_in_warning_colours() -> None:
    conversation = Conversation(state="ready")
    conversation.learn({"usage": {"context_percent": 93.0, "context_max": 128_000}})
    assert "93% of 128k" in line(conversation, 80, 0).plain


# -- arriving ----------------------------------------------------------------------------------------


def test_a_running_turn_is_shown_with_its_steps() -> None:
    running = results.Inflight(
        user="do it",
        messages=[
            results.Message(role="user", text="do it"),
            results.Message(role="tool", name="ls"),
        ],
        assistant="I am",
    )
    opened = results.Opened(
        messages=[results.Message(role="user", text="before")], inflight=running
    )
    first, prompt, call, reply = opening_view.entries_of(opened)
    assert (
        isinstance(first, UserMessage)
        and isinstance(prompt, UserMessage)
        and prompt.text == "do it"
    )
    assert isinstance(call, Call)
    assert isinstance(reply, Reply) and not reply.is_done


def test_a_call_that_runs_is_shown_with_what_it_has_shown() -> None:
    running = results.Inflight(
        user="do it", tools=[results.RunningTool("t1", "terminal", "make test", "1 passed\n")]
    )
    _, call = opening_view.entries_of(results.Opened(inflight=running))
    assert isinstance(call, Call) and call.state == "running"
    assert (call.name, call.context, call.output) == ("terminal", "make test", "1 passed\n")


def test_the_embedded_model_comes_with_a_line_on_better_ones() -> None:
    [note] = opening_view.news(results.Info(advice="It is small."))
    assert "OPENAI_API_KEY" in note.text
    assert width(note.text) <= 76, "it is to be one line of a terminal with 80 columns"


def test_what_can_be_fetched_is_offered_and_not_an_error() -> None:
    missing = results.Info(credential_warning="There is no model.", offer=results.Offer("tiny"))
    assert opening_view.news(missing) == []


def test_without_a_model_the_reason_is_a_card() -> None:
    [note] = opening_view.news(results.Info(credential_warning="No model. Run: hermes model pull"))
    assert note.tone == "error"


# -- history -----------------------------------------------------------------------------------------


def test_the_history_keeps_lines_and_signs_at_their_beginning(home: Home) -> None:
    ours = InputHistory(home.history)
    ours.add("one\ntwo")
    ours.add("+plus\n# hash")
    again = InputHistory(home.history)
    again.load()
    assert again.texts == ["one\ntwo", "+plus\n# hash"]


def test_repetitions_and_nothing_are_not_remembered(home: Home) -> None:
    history = InputHistory(home.history)
    for text in ("same", "same", "  ", "same"):
        history.add(text)
    assert history.texts == ["same"]


def test_a_history_that_cannot_be_written_costs_only_itself(home: Home) -> None:
    home.create()
    home.history.mkdir()
    history = InputHistory(home.history)
    history.load()
    history.add("text")
    assert history.texts == ["text"]


# -- preferences and keys ----------------------------------------------------------------------------


def test_preferences_are_private_and_come_back(home: Home) -> None:
    preferences.save(home, Preferences("nord", {"help": "f9"}))
    assert preferences.load(home) == Preferences("nord", {"help": "f9"})
    assert stat.S_IMODE(preferences.path(home).stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["{", '{"thema": "nord"}', '{"keys": 3}', "\xff"])
def test_a_broken_file_of_preferences_says_what_to_do(home: Home, text: str) -> None:
    home.create()
    preferences.path(home).write_text(text, "latin-1")
    with pytest.raises(ConfigError, match="Correct it or remove it"):
        preferences.load(home)


def test_no_key_does_two_things() -> None:
    keys = [key for entry in keymap.KEYS for key in entry.keys.split(",")]
    assert len(keys) == len(set(keys))
    assert len(keymap.names()) == len(set(keymap.names()))


# -- small things ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("/help", ("help", "")),
        ("/Title  my title ", ("title", "my title")),
        ("/etc/hosts", None),
        (" /help", None),
        ("what / is", None),
    ],
)
def test_a_command_is_a_word_after_a_slash(text: str, parsed: tuple[str, str] | None) -> None:
    assert commands.parse(text) == parsed


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("/new", "new"),
        ("/reset", "new"),
        ("/model", "model"),
        ("/model gpt", None),
        ("/undo", None),
    ],
)
def test_our_commands_are_told_from_the_servers(text: str, name: str | None) -> None:
    parsed = commands.parse(text)
    assert parsed is not None
    assert commands.local(parsed) == name
