"""What people type: while a turn runs, and as answers to questions."""

import os
import pty
from collections.abc import Iterator

import pytest

from hermes_agent.events import QuestionAsked
from hermes_cli.chat.keys import Keys
from hermes_cli.chat.questions import understood


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    master, slave = pty.openpty()
    yield master, slave
    os.close(master)
    os.close(slave)


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        (b"hello", "hello"),
        (b"one\rtwo\n", "one\ntwo"),
        (b"helo\x7flo \xc3\xa9\x08e", "hello e"),
        (b"\x1b[A\x1b[1;5Cup\x1bOP\x1bx", "up"),
        (b"wrong\x15right", "right"),
        (b"tab\tand \x01 control", "tab\tand  control"),
        (b"half a character \xe4\xb8", "half a character "),
    ],
)
def test_typed_keys_become_the_text_a_line_editor_would_have(typed: bytes, kept: str) -> None:
    reading, writing = os.pipe()
    keys = Keys(reading)
    os.write(writing, typed)
    assert keys.read()
    assert keys.take() == kept
    assert keys.take() == ""
    os.close(writing)
    assert not keys.read()
    os.close(reading)


def test_a_quiet_terminal_shows_nothing_and_is_as_before_afterwards(
    terminal: tuple[int, int],
) -> None:
    master, slave = terminal
    keys = Keys(slave)
    with keys:
        os.write(master, b"secretly")
        keys.drain()
    os.write(master, b"openly\n")
    assert os.read(slave, 100) == b"openly\n"
    assert os.read(master, 100) == b"openly\r\n"
    assert keys.take() == "secretly"


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
    assert understood(question("approval"), typed) == answer


@pytest.mark.parametrize(
    ("typed", "answer"), [("1", "red"), ("3", "3"), ("0", "0"), ("blue", "blue"), ("", "")]
)
def test_a_choice_is_made_by_number_or_in_words(typed: str, answer: str) -> None:
    assert understood(question("clarify", "red", "blue"), typed) == answer
