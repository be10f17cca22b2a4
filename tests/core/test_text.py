"""Cleaning, shortening and measuring text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core import text


def test_white_space_becomes_one_blank() -> None:
    assert text.one_line("  a\n\tb \r\n c ") == "a b c"


@pytest.mark.parametrize(
    ("given_text", "limit", "short"), [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("abc", 1, "…")]
)
def test_a_text_that_is_too_long_ends_in_an_ellipsis(
    given_text: str, limit: int, short: str
) -> None:
    assert text.truncate(given_text, limit) == short


def test_half_characters_are_replaced_and_whole_ones_stay() -> None:
    assert text.without_surrogates("a\ud800b") == "a?b"
    assert text.without_surrogates("größer 😀") == "größer 😀"


def test_what_would_steer_the_terminal_is_dropped_and_line_breaks_stay() -> None:
    assert text.visible("\x1b[31mred\u202e\u200b\nnext\tone\x00") == "[31mred\nnext\tone"


@pytest.mark.parametrize(
    ("word", "columns"),
    [("abc", 3), ("日本", 4), ("e\u0301", 1), ("", 0), ("हि", 2), ("❤️", 2), ("\u1112\u1161", 2)],
)
def test_width_counts_columns_not_characters(word: str, columns: int) -> None:
    assert text.width(word) == columns


@given(st.text(), st.integers(min_value=0, max_value=40))
def test_a_fitted_text_takes_exactly_its_columns(value: str, columns: int) -> None:
    assert text.width(text.fit(value, columns)) == columns


def test_a_wide_character_that_does_not_fit_is_left_out_as_a_whole() -> None:
    assert text.fit("日本語", 4) == "日… "


@given(st.text(), st.integers(min_value=2, max_value=40))
def test_wrapped_lines_fit_and_lose_nothing_but_spaces(value: str, columns: int) -> None:
    line = text.one_line(value)
    lines = text.wrap(line, columns)
    assert all(text.width(part) <= columns for part in lines)
    assert "".join(lines).replace(" ", "") == line.replace(" ", "")


def test_a_line_is_wrapped_at_spaces_and_inside_of_long_words() -> None:
    assert text.wrap("one two three", 7) == ["one two", "three"]
    assert text.wrap("a abcdefgh b", 4) == ["a", "abcd", "efgh", "b"]
    assert text.wrap("日本語日本", 5) == ["日本", "語日", "本"]
    assert text.wrap("", 5) == [""]


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (2500, "2.5 KB"),
        (303_104, "303 KB"),
        (491_000_000, "491 MB"),
        (1.12e9, "1.1 GB"),
        (7e12, "7000.0 GB"),
    ],
)
def test_a_size_has_the_unit_that_fits(count: float, words: str) -> None:
    assert text.human_size(count) == words


def test_the_marks_around_matches_can_be_split_and_removed() -> None:
    assert text.split_matches("a >>>b<<< c >>>d<<<") == ["a ", "b", " c ", "d", ""]
    assert text.without_marks("a >>>b<<< c >>> 1") == "a b c >>> 1"


def test_a_very_long_text_is_fitted_without_delay() -> None:
    assert text.fit("x" * 2_000_000, 5) == "xxxx…"
