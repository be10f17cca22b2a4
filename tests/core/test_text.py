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


@pytest.mark.parametrize(("word", "columns"), [("abc", 3), ("日本", 4), ("e\u0301", 1), ("", 0)])
def test_width_counts_columns_not_characters(word: str, columns: int) -> None:
    assert text.width(word) == columns


@given(st.text(), st.integers(min_value=0, max_value=40))
def test_a_fitted_text_takes_exactly_its_columns(value: str, columns: int) -> None:
    assert text.width(text.fit(value, columns)) == columns


def test_a_wide_character_that_does_not_fit_is_left_out_as_a_whole() -> None:
    assert text.fit("日本語", 4) == "日… "


def test_a_very_long_text_is_fitted_without_delay() -> None:
    assert text.fit("x" * 2_000_000, 5) == "xxxx…"
