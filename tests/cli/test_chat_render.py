"""What a person sees of a turn: on a terminal, on a dumb one, in a file."""

import io

import pytest

from hermes_agent import events
from hermes_agent.events import Event, TextDelta, ToolEnded, ToolStarted, TurnEnded
from hermes_agent.testing.scripted import words
from hermes_cli.chat.plain import PlainView
from hermes_cli.chat.render import TerminalView
from hermes_cli.chat.screen import Screen
from tests.cli.terminal import Terminal

ANSWERED = TurnEnded("answered", "", "")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Seen:
    """A view on a terminal in memory."""

    def __init__(self, columns: int = 80, lines: int = 24, notes: Terminal | None = None) -> None:
        self.terminal = Terminal(columns, lines)
        self.clock = Clock()
        self.view = TerminalView(
            self.terminal,
            screen=Screen(self.terminal, self.terminal.size),
            notes=notes,
            clock=self.clock,
        )

    def hear(self, *happened: Event | str) -> str:
        for event in happened:
            for one in [event] if isinstance(event, Event) else map(TextDelta, words(event)):
                self.view.hear(one)
        assert self.terminal.wrapped == 0 and self.terminal.lost == 0
        return self.terminal.picture


def ended(name: str = "terminal", **how: object) -> ToolEnded:
    values = {"result": "", "is_error": False, "seconds": 0.31, **how}
    return ToolEnded("c1", name, **values)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def colourless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_a_block_is_raw_while_it_grows_and_rendered_when_it_is_complete() -> None:
    seen = Seen()
    assert seen.hear("some **bold") == "some **bold"
    assert seen.hear("** words\n\nand") == "some bold words\n\nand"
    assert seen.hear(" more", ANSWERED) == "some bold words\n\nand more"


def test_lists_headings_and_code_look_like_such() -> None:
    text = "# Title\n- one\n- two\n\n```py\nx = 1\n```\n1. first\n2. second\n"
    shown = Seen().hear(text, ANSWERED)
    assert shown == "Title\n\n • one\n • two\n\n  x = 1\n\n 1 first\n 2 second"


def test_long_code_is_shown_line_by_line_without_losing_or_doubling_any() -> None:
    code = [f"line_{number} = {number}" for number in range(80)]
    shown = Seen(lines=12).hear("Look:\n\n```python\n" + "\n".join(code) + "\n```\nDone.", ANSWERED)
    assert shown.split("\n") == ["Look:", "", *(f"  {line}" for line in code), "", "Done."]


def test_a_paragraph_longer_than_the_screen_stays_as_it_was_written() -> None:
    text = " ".join(f"word{number}" for number in range(300))
    shown = Seen(columns=40, lines=8).hear(f"{text}\n\nNext *one*.", ANSWERED)
    assert shown.split() == [*text.split(), "Next", "one."]


def test_a_line_of_code_longer_than_the_screen_is_not_lost() -> None:
    shown = Seen(columns=40, lines=8).hear("```\n" + "x" * 900 + "\n```\nEnd", ANSWERED)
    assert shown.count("x") == 900 and shown.endswith("End")


@pytest.mark.parametrize("columns", [24, 80, 200])
def test_wide_characters_and_tabs_stay_within_the_terminal(columns: int) -> None:
    seen = Seen(columns=columns)
    seen.hear("世界 " * 60 + "\tand\ta tab\n\n| 世 | 界 |\n|---|---|\n| a | b |\n", ANSWERED)


def test_escape_sequences_of_the_model_do_not_reach_the_terminal() -> None:
    shown = Seen().hear("a\x1b[2Jb\x1b]0;title\x07c\x9b1md\r\n", ANSWERED)
    assert shown == "a[2Jb]0;titlec1md"


def test_a_tool_line_says_what_was_done_and_how_long_it_took() -> None:
    seen = Seen()
    started = ToolStarted("c1", "terminal", {"command": "ls\n-la", "timeout": 5})
    assert seen.hear("Let me see.", started) == "Let me see.\n\n… terminal ls -la"
    seen.clock.now = 3.2
    progress = events.ToolProgress("c1", "first\nsecond\n")
    assert seen.hear(progress).endswith("… terminal ls -la 3 s | second")
    shown = seen.hear(ended(), "All there.", ANSWERED)
    assert shown == "Let me see.\n\n✓ terminal ls -la  0.3 s\n\nAll there."


def test_a_failed_tool_says_why() -> None:
    shown = Seen().hear(ended(is_error=True, result="\nno such file\nmore"), ANSWERED)
    assert shown == "✗ terminal no such file"


def test_a_long_tool_line_fits_into_the_terminal() -> None:
    started = ToolStarted("c1", "terminal", {"command": "x" * 500})
    shown = Seen().hear(started, ended(is_error=True, result="y" * 500), ANSWERED)
    assert len(shown.split("\n")) == 1


def test_an_edit_shows_its_difference_and_a_long_one_a_part_of_it() -> None:
    diff = "--- a\n+++ a\n@@ -1 +1 @@\n-old\n+new\n"
    shown = Seen().hear(ended("patch", diff=diff), ANSWERED)
    assert shown == "✓ patch 0.3 s\n    @@ -1 +1 @@\n    -old\n    +new"
    long = Seen().hear(ended("patch", diff=diff + "+more\n" * 90), ANSWERED)
    assert "54 more lines" in long


def test_reasoning_is_shown_while_it_lasts_and_shrinks_to_a_line() -> None:
    seen = Seen(columns=40)
    thoughts = [events.ReasoningDelta(f"thought {number} ") for number in range(60)]
    assert len(seen.hear(*thoughts).split("\n")) == 3
    seen.clock.now = 4
    shown = seen.hear("Answer.", ANSWERED)
    first, *rest = shown.split("\n")
    assert first.startswith("· thought for 4.0 s: thought 0") and first.endswith("…")
    assert rest == ["", "Answer."]


def test_a_long_silence_says_what_is_being_waited_for() -> None:
    seen = Seen(notes=Terminal())
    seen.view.begin()
    assert seen.hear() == ""
    seen.clock.now = 2.0
    seen.view.tick()
    assert seen.hear() == "… thinking 2 s"
    assert seen.hear("Hello") == "Hello"


def test_what_a_retry_makes_void_is_not_mixed_with_what_follows() -> None:
    retry = events.Retrying("The stream was cut.", 2.0, 1)
    shown = Seen().hear("One.\n\nHalf of", retry, "Whole.", ANSWERED)
    notice = "· The stream was cut. Trying again in 2.0 s. What stands above is void."
    assert shown == f"One.\n\n{notice}\n\nWhole."


def test_how_a_turn_ended_is_said_when_it_was_not_answered() -> None:
    assert Seen().hear("Half", TurnEnded("interrupted", "Half", "Stopped.")) == "Half\n\n· Stopped."
    assert Seen().hear(TurnEnded("failed", "", "No quota.")) == "✗ No quota."


def test_the_summary_adds_up_what_the_calls_cost() -> None:
    seen = Seen()
    used = events.Used("m", 1500, 20, 0, 0.001, 2000)
    seen.hear(used, used, "Hi", ANSWERED)
    seen.clock.now = 61
    seen.view.summary()
    assert "· 1 min 1 s, 3.0k tokens in, 40 out, $0.0020, window 76% full" in seen.hear()


def test_notes_go_to_their_own_place_when_there_is_one() -> None:
    notes = Terminal()
    shown = Seen(notes=notes).hear("Wait.", ended(), "Answer.", ANSWERED)
    assert shown == "Wait.\n\nAnswer."
    assert notes.picture == "✓ terminal 0.3 s"


def test_a_notice_and_a_compaction_are_told() -> None:
    compacted = events.Compacted("a", "b", 120_000, 4000, "summary")
    shown = Seen(columns=200).hear(events.Notice("Take care."), compacted, ANSWERED)
    assert shown.startswith("· Take care.\n· The conversation was shortened from 120k to 4.0k")


# -- where lines can only be added -------------------------------------------------------------


def plain(*happened: Event, answers: io.StringIO | None = None) -> str:
    notes = io.StringIO()
    view = PlainView(notes, answers)
    for event in happened:
        view.hear(event)
    return notes.getvalue()


def test_a_plain_view_notes_tools_and_what_was_said_on_the_way() -> None:
    said = plain(
        TextDelta("I look."),
        events.StepStored(1, "I look.", 1),
        ToolStarted("c1", "read_file", {"path": "a.txt"}),
        ended("read_file"),
        TextDelta("It is **empty**."),
        ANSWERED,
    )
    assert said == "- I look.\n+ read_file a.txt 0.3 s\n"


def test_a_plain_view_streams_text_as_it_is_where_it_may() -> None:
    answers = io.StringIO()
    plain(TextDelta("a **b"), TextDelta("** c"), ended(), ANSWERED, answers=answers)
    assert answers.getvalue() == "a **b** c\n"


def test_a_plain_view_tells_failures() -> None:
    assert plain(TurnEnded("failed", "", "No quota.")) == "x No quota.\n"
    assert plain(ended(is_error=True, result="denied")) == "x terminal denied\n"
