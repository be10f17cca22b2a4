"""Long Markdown texts are cut into whole pieces, and nothing is lost."""

import re
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from wcwidth import iter_graphemes

from gateway.splitting import MIN_LIMIT, cut, split
from tests.support.examples import examples


def utf16(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf8(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


_CLUSTERS = [
    "👨‍👩‍👧‍👦",
    "🇩🇪🇫🇷",
    "e\u0301\u0323",
    "👍🏽",
    "한국",
    "漢字。",
    "नमस्ते",
    "\r\n",
    "☝️",
    "❤️‍🔥",
]
_WORDS = [
    "a",
    "word",
    "Sentence.",
    "longer-word",
    "1.",
    "-",
    "#",
    ">",
    "|",
    "\\*",
    "https://e.org/a_b",
]
_MARKS = [
    "**bold words here**",
    "*it*",
    "`code span`",
    "[a link](https://e.org/x)",
    "~~gone~~",
    "_u_",
]
_STRAY = ["**", "`", "[", "](", "```", "*", "__", "![i](u)", "snake_case_name"]

lines = st.lists(
    st.sampled_from([*_WORDS, *_MARKS, *_STRAY, *_CLUSTERS]), min_size=1, max_size=25
).map(" ".join)
code = st.lists(st.sampled_from(["", "x = 1", "    deep", "\ttab", "long " * 12, "`" * 2, "| a |"]))
paragraphs = st.lists(lines, min_size=1, max_size=4).map("\n".join)
fences = st.builds(
    lambda marks, language, body: "\n".join((marks + language, *body, marks)),
    st.sampled_from(["```", "~~~", "````"]),
    st.sampled_from(["", "python", "c++ title=x"]),
    code,
)
lists = st.lists(st.tuples(st.sampled_from(["- ", "    - ", "2. ", "> "]), lines), min_size=1).map(
    lambda items: "\n".join(mark + text for mark, text in items)
)
tables = st.lists(st.sampled_from(["| a | b |", "| c c c | d |", "| 1 | **2** |"])).map(
    lambda rows: "\n".join(("| h | i |", "|---|:-:|", *rows))
)
documents = st.lists(st.one_of(paragraphs, fences, lists, tables), max_size=8).map("\n\n".join)
measures = st.sampled_from([len, utf16, utf8])


def _check_whole(text: str, limit: int, measure: Callable[[str], int]) -> None:
    pieces = cut(text, limit, measure)
    assert [measure(piece.of(text)) for piece in pieces if measure(piece.of(text)) > limit] == []
    places = [0, *(place for piece in pieces for place in (piece.start, piece.end)), len(text)]
    assert places == sorted(places)
    left_out = [text[end:start] for end, start in zip(places[::2], places[1::2], strict=True)]
    assert [gap for gap in left_out if gap.strip()] == []


@given(documents, st.integers(MIN_LIMIT, 300), measures)
def test_no_piece_is_too_large_and_nothing_but_blanks_at_cuts_is_left_out(
    text: str, limit: int, measure: Callable[[str], int]
):
    _check_whole(text, limit, measure)


@given(st.text(max_size=400), st.integers(MIN_LIMIT, 80), measures)
def test_any_text_at_all_is_cut(text: str, limit: int, measure: Callable[[str], int]):
    _check_whole(text, limit, measure)


@settings(deadline=None)
@given(documents, st.integers(64, 300), measures)
def test_what_people_see_as_one_character_stays_one(
    text: str, limit: int, measure: Callable[[str], int]
):
    boundaries = {0}
    for position in iter_graphemes(text):
        boundaries.add(max(boundaries) + len(position))
    starts = {piece.start for piece in cut(text, limit, measure)}
    # A line end of two characters is blank, and blanks may go.
    assert {
        position for position in starts - boundaries if text[position - 1 : position + 1] != "\r\n"
    } == set()


@given(
    st.lists(st.one_of(fences, st.just("Some text. More of it.")), max_size=6), st.integers(64, 200)
)
def test_every_piece_closes_the_code_that_it_opens(blocks: list[str], limit: int):
    for piece in split("\n\n".join(blocks), limit):
        marks = [line for line in piece.split("\n") if re.match(r"```+|~~~+", line)]
        assert len(marks) % 2 == 0
        assert all(mark.startswith(two) for mark, two in zip(marks[::2], marks[1::2], strict=True))


@given(documents)
def test_a_text_that_fits_is_one_piece(text: str):
    expected = [text.rstrip()] if text.strip() else []
    assert [piece.lstrip() for piece in split(text, 100_000)] == [
        piece.lstrip() for piece in expected
    ]


@settings(max_examples=examples(50))
@given(documents, st.integers(MIN_LIMIT, 100))
def test_a_measure_only_needs_to_grow_with_the_text(text: str, limit: int):
    _check_whole(text, limit, lambda piece: 3 * len(piece.split()) + len(piece) // 2)


# Whole Markdown, whose look another reader of Markdown compares.

_whole_words = st.sampled_from(
    ["alpha", "beta.", "**bold words here**", "*it al ic*", "`code span`", "**a `c` b**", "3 * 4"]
    + ["[a link text](https://e.org/x)", "~~gone now~~", "snake_case", "漢字。", "👨‍👩‍👧"]
)
_whole_lines = st.lists(_whole_words, min_size=1, max_size=25).map(" ".join)
_blocks = st.lists(st.sampled_from(["x = 1", "    deep", "", "long " * 12 + "z"]), min_size=1).map(
    lambda body: "\n".join(("```py", *body, "```"))
)


def _nested(items: list[tuple[int, str, str]]) -> str:
    level, lines = 0, ["- top"]
    for depth, mark, text in items:
        level = min(depth, level + 1)
        lines.append(" " * 4 * level + mark + text)
    return "\n".join(lines)


def _behind(mark: str, text: str) -> str:
    return "\n".join(mark + line for line in text.split("\n"))


_marks = st.sampled_from(["- ", "1. "])
_whole_documents = st.lists(
    st.one_of(
        st.lists(_whole_lines, min_size=1, max_size=3).map("\n".join),
        _blocks,
        st.lists(st.tuples(st.integers(0, 3), _marks, _whole_lines), min_size=1).map(_nested),
        st.lists(_whole_lines, min_size=1).map(lambda lines: _behind("> ", "\n".join(lines))),
        _blocks.map(lambda block: _behind("> ", block)),
        _blocks.map(lambda block: "1. Do:\n" + _behind("    ", block) + "\n2. Then"),
        st.just("## Heading"),
    ),
    min_size=1,
    max_size=6,
).map("\n\n".join)
_reader = MarkdownIt("commonmark").enable("strikethrough")


def _look(text: str) -> list[tuple[frozenset[str], str]]:
    """Every character that is seen, with everything that it stands in."""
    seen: list[tuple[frozenset[str], str]] = []
    around: list[str] = []
    flat = [each for token in _reader.parse(text) for each in (token, *(token.children or ()))]
    for token in flat:
        if token.nesting > 0:
            around.append(token.tag)
        elif token.nesting < 0:
            around.pop()
        elif token.type != "inline":
            names = [each for each in around if each not in ("p", "ul", "ol", "li")]
            looks = frozenset((*names, token.tag))
            seen += [(looks, each) for each in token.content if not each.isspace()]
    return seen


@settings(max_examples=examples(200), deadline=None)
@given(_whole_documents, st.integers(100, 400))
def test_a_cut_changes_nothing_of_how_the_text_looks(text: str, limit: int):
    pieces = split(text, limit)
    assert [token for piece in pieces for token in _look(piece)] == _look(text)


def test_paragraphs_are_kept_together():
    first, second = "One. " * 10, "Two. " * 10
    assert split(f"{first}\n\n{second}", 70) == [first.strip(), second.strip()]


def test_lines_are_better_places_than_sentences_and_sentences_than_words():
    assert split("One two. Three four.\nFive six. Seven", 30) == [
        "One two. Three four.",
        "Five six. Seven",
    ]
    assert split("One two three four. Five six seven", 30) == [
        "One two three four.",
        "Five six seven",
    ]
    assert split("one two three four five six", 20) == ["one two three four", "five six"]


def test_code_is_closed_and_opened_again_with_its_language():
    body = "\n".join(f"line {number}" for number in range(8))
    first, second = split(f"```python title=x\n{body}\n```", 60)
    assert first.startswith("```python title=x\nline 0\n")
    assert first.endswith("\n```")
    assert second.startswith("```python\nline ")
    assert second.endswith("line 7\n```")


def test_the_indentation_of_code_survives_a_cut():
    text = "```\nif a:\n    first = 1\n    second = 2\n    third = 3\n```"
    assert "\n".join(
        piece.removeprefix("```\n").removesuffix("\n```") for piece in split(text, 36)
    ) == ("if a:\n    first = 1\n    second = 2\n    third = 3")


def test_code_in_a_quote_stays_in_the_quote():
    text = "> ```sh\n" + "\n".join(f"> command {number}" for number in range(6)) + "\n> ```"
    for piece in split(text, 60):
        assert piece.startswith("> ```sh\n")
        assert piece.endswith("\n> ```")


def test_a_table_has_its_head_in_every_piece():
    rows = "\n".join(f"| {number} | x |" for number in range(10))
    pieces = split(f"| n | what |\n|---|---|\n{rows}", 70)
    assert len(pieces) > 1
    assert all(piece.startswith("| n | what |\n|---|---|\n| ") for piece in pieces)


def test_no_piece_is_the_marks_of_code_or_the_head_of_a_table_alone():
    code = split("```py\n" + "x" * 250 + "\n```", 100)
    assert all("x" in piece for piece in code)
    assert sum(piece.count("x") for piece in code) == 250
    after_words = split("Words.\n\n```\n" + "x" * 250 + "\n```", 100)
    assert all("x" in piece or "Words" in piece for piece in after_words)
    after_blanks = split("```\n\n \n" + "x" * 250 + "\n```", 100)
    assert all("x" in piece for piece in after_blanks)
    quoted = split("> ```\n>\n> \n> " + "x" * 250 + "\n> ```", 100)
    assert all("x" in piece for piece in quoted)
    table = split("|a|b|\n|-|-|\n|" + "c" * 250 + "|d|", 100)
    assert all("c" in piece for piece in table)


def test_a_quote_goes_on_as_a_quote():
    pieces = split("> " + "Some words in a sentence. " * 5, 60)
    assert len(pieces) > 1
    assert all(piece.startswith("> Some") for piece in pieces)


def test_a_deeply_nested_item_does_not_turn_into_code():
    text = "- parent\n" + "\n".join(f"    - child number {number}" for number in range(5))
    pieces = split(text, 60)
    assert [piece.split("\n")[0] for piece in pieces] == ["- parent", *["-"] * (len(pieces) - 1)]


def test_code_within_a_list_is_opened_again_where_it_stood():
    text = "1. Do:\n    ```sh\n" + "\n".join(f"    step {n}" for n in range(6)) + "\n    ```"
    pieces = split(text, 60)
    assert pieces[1].startswith("1.\n    ```sh\n    step")


@pytest.mark.parametrize(
    "span", ["**bold words here**", "`code words here`", "[link words here](https://e.org)"]
)
def test_what_belongs_together_moves_to_the_next_piece(span: str):
    assert split(f"Some words before it, {span}", len(span) + 10)[-1] == span


def test_emphasis_that_is_too_long_is_closed_and_opened_again():
    pieces = split(f"**{'word ' * 10}end**", 40)
    assert len(pieces) > 1
    assert all(piece.startswith("**") and piece.endswith("**") for piece in pieces)


def test_a_link_that_is_too_long_leads_to_the_same_place_from_both_pieces():
    pieces = split(f"[{'word ' * 15}end](https://e.org)", 60)
    assert len(pieces) > 1
    assert all(re.fullmatch(r"\[[^\]]+\]\(https://e\.org\)", piece) for piece in pieces)


def test_a_picture_is_never_shown_twice():
    text = f"![{'word ' * 10}end](https://e.org)"
    assert sum(piece.count("![") for piece in split(text, 40)) == 1


def test_a_word_that_looks_like_a_list_does_not_begin_a_piece():
    assert [
        piece for piece in split("some words here 12. and - more of them", 17) if piece[0] in "-1"
    ] == []


def test_a_heading_stays_with_its_text():
    pieces = split("Intro text here.\n\n## Heading\n\nThe text below the heading.", 48)
    assert pieces == ["Intro text here.", "## Heading\n\nThe text below the heading."]


def test_a_long_word_is_cut_between_characters():
    family = "👨‍👩‍👧‍👦"
    for piece in split(family * 20, 64, utf8):
        assert set(iter_graphemes(piece)) == {family}


def test_a_limit_for_which_there_is_no_sense_is_refused():
    with pytest.raises(ValueError, match="too small"):
        split("text", 3)


def test_neighbours_are_told_apart_by_their_places():
    pieces = cut("one two three four five six seven eight", 20)
    assert all(first.end < second.start for first, second in pairwise(pieces))


@pytest.mark.parametrize(
    "text",
    [
        *("*a ", "[a", "`a ", "| a |\n", "> a\n", "- a\n", "](", "_", "![a](", "``` "),
        "```" + "\n" * 20_000 + "x",
    ],
    ids=lambda text: repr(text[:6]),
)
def test_a_text_full_of_marks_takes_no_more_than_a_moment(text: str):
    """A reader that looks back over everything at each of these would run into the time limit."""
    _check_whole(text if len(text) > 20_000 else text * 20_000, 4000, len)
