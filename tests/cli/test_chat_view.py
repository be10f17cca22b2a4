"""What a person sees of a turn in line mode, and what an answer to a question means."""

import io

import pytest

from hermes_agent.turn import events
from hermes_agent.turn.events import (
    Event,
    QuestionAsked,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from hermes_cli.chat.main_loop import parse_answer
from hermes_cli.chat.view import View

ANSWERED = TurnEnded("answered", "", "")


def ended(name: str = "terminal", **how: object) -> ToolEnded:
    values = {"result": "", "is_error": False, "seconds": 0.31, **how}
    return ToolEnded("c1", name, **values)  # type: ignore[arg-type]


def notes_of(*happened: Event, answers: io.StringIO | None = None) -> str:
    notes = io.StringIO()
    view = View(notes, answers)
    for event in happened:
        view.show(event)
    return notes.getvalue()


def test_a_view_notes_tools_and_what_was_said_on_the_way() -> None:
    notes = notes_of(
        TextDelta("I look."),
        events.StepStored(1, "I look.", 1),
        ToolStarted("c1", "read_file", {"path": "a.txt"}),
        ended("read_file"),
        TextDelta("It is **empty**."),
        ANSWERED,
    )
    assert notes == "- I look.\n+ read_file a.txt 0.3 s\n"


def test_a_view_streams_text_as_it_is_where_it_may() -> None:
    answers = io.StringIO()
    notes_of(TextDelta("a **b"), TextDelta("** c"), ended(), ANSWERED, answers=answers)
    assert answers.getvalue() == "a **b** c\n"


def test_escape_sequences_of_the_model_do_not_reach_the_terminal() -> None:
    answers = io.StringIO()
    notes_of(TextDelta("a\x1b[2Jb"), ANSWERED, answers=answers)
    assert "\x1b" not in answers.getvalue()


def test_a_view_shows_failures() -> None:
    assert notes_of(TurnEnded("failed", "", "No quota.")) == "x No quota.\n"
    assert notes_of(ended(is_error=True, result="denied")) == "x terminal denied\n"


def test_an_edit_shows_its_difference_and_a_long_one_a_part_of_it() -> None:
    diff = "--- a\n+++ a\n@@ -1 +1 @@\n-old\n+new\n"
    assert "    -old\n    +new\n" in notes_of(ended("patch", diff=diff))
    long = notes_of(ended("patch", diff="".join(f"+{n}\n" for n in range(100))))
    assert "… 61 more lines" in long


def test_the_summary_adds_up_what_the_calls_cost() -> None:
    notes = io.StringIO()
    view = View(notes)
    view.begin()
    view.summary()
    assert notes.getvalue() == "", "no model was asked"
    for _ in range(2):
        view.show(events.Used("m", 5000, 250, 0, 0.005, 10_000))
    view.summary()
    assert "10.0k tokens in, 500 out, $0.0100, window 52% full" in notes.getvalue()


def question(kind: str, *choices: str) -> QuestionAsked:
    return QuestionAsked("q", kind, "terminal", "Why?", "rm", list(choices))


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("y", "once"),
        ("YES", "once"),
        ("/approve", "once"),
        ("s", "session"),
        ("always", "always"),
        ("n", "deny"),
        ("/deny", "deny"),
        ("/deny not that one", "deny: not that one"),
        ("yes but slowly", "deny: yes but slowly"),
        ("once: no", "deny: once: no"),
        ("", ""),
    ],
)
def test_only_a_clear_yes_is_a_yes(typed: str, answer: str) -> None:
    assert parse_answer(question("approval"), typed) == answer


@pytest.mark.parametrize(
    ("typed", "answer"), [("1", "red"), ("3", "3"), ("0", "0"), ("blue", "blue"), ("", "")]
)
def test_a_choice_is_made_by_number_or_in_words(typed: str, answer: str) -> None:
    assert parse_answer(question("clarify", "red", "blue"), typed) == answer
