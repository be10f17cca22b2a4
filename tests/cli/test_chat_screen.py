"""The end of the terminal: lines that change are replaced, lines that stand are never touched."""

from hypothesis import given
from hypothesis import strategies as st

from hermes_cli.chat.screen import Line, Screen, clip, wrap
from hermes_core.text import width
from tests.cli.terminal import Terminal

WORDS = st.text(st.sampled_from("ab  \n世é"), max_size=60)


def made(columns: int = 80, lines: int = 24) -> tuple[Terminal, Screen]:
    terminal = Terminal(columns, lines)
    return terminal, Screen(terminal, terminal.size)


def lines(*texts: str) -> list[Line]:
    return [Line(text) for text in texts]


def test_changing_lines_are_replaced() -> None:
    terminal, screen = made()
    screen.show(lines("one", "two"))
    screen.show(lines("one", "three", "four"))
    assert terminal.picture == "one\nthree\nfour"
    screen.show(lines("one"))
    screen.show(lines("one more"))
    assert terminal.picture == "one more"
    screen.clear()
    assert terminal.picture == ""


def test_what_is_put_for_good_stays_above_what_changes() -> None:
    terminal, screen = made()
    screen.show(lines("draft"))
    screen.put("final\n", lines("next"))
    screen.show(lines("next word"))
    screen.put("more\n")
    assert terminal.picture == "final\nmore"


def test_a_line_that_grows_is_only_written_on() -> None:
    terminal, screen = made()
    screen.show(lines("a"))
    written: list[str] = []
    terminal.write = written.append  # type: ignore[method-assign,assignment]
    screen.show(lines("ab"))
    screen.show(lines("ab"))
    screen.show(lines("abc", "d"))
    assert written == ["b", "c\nd"]


def test_after_a_change_of_width_nothing_is_erased() -> None:
    terminal, screen = made()
    screen.put("said\n", lines("a line", "another"))
    screen._size = terminal.size = type(terminal.size)((40, 24))
    screen.show(lines("a line", "other"))
    assert terminal.picture == "said\na line\nanother\na line\nother"


@given(st.lists(st.tuples(st.booleans(), st.lists(WORDS.map(lambda t: t.replace("\n", ""))))))
def test_any_sequence_of_changes_shows_what_stands_and_then_what_changes(
    steps: list[tuple[bool, list[str]]],
) -> None:
    terminal, screen = made(lines=200)
    standing, live = list[str](), list[str]()
    for is_final, texts in steps:
        if is_final:
            standing += texts
            live = []
            screen.put("".join(f"{text}\n" for text in texts))
        else:
            live = texts
            screen.show(lines(*texts))
        expected = "\n".join(text.rstrip() for text in [*standing, *live]).rstrip("\n")
        assert terminal.picture == expected


@given(WORDS, st.integers(2, 20))
def test_wrapped_lines_fit_and_lose_nothing_but_blanks(text: str, columns: int) -> None:
    wrapped = wrap(text, columns)
    assert all(width(line) <= columns for line in wrapped)
    assert "".join("".join(wrapped).split()) == "".join(text.split())
    assert len(wrapped) >= len(text.split("\n"))


def test_a_text_is_clipped_by_columns_and_not_by_characters() -> None:
    assert clip("世界 世界", 6) == "世界 …"
    assert clip("a\nb", 9) == "a b"
