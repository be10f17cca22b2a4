"""Markdown that arrives in pieces becomes blocks, however it is cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_cli.chat.blocks import Block, Blocks

LINES = st.sampled_from(
    ["word", "two words", "", "", "# head", "- item", "  - below", "1. one", "```py", "```", "~~~",
     "    four", "> quote", "---", "| a | b |", "|---|---|", "\tafter a tab", "* * *", "``` x ` y"]
)  # fmt: skip


def blocks_of(text: str, *cuts: int) -> list[Block]:
    blocks = Blocks()
    edges = [0, *sorted(cuts), len(text)]
    found: list[Block] = []
    for start, end in itertools.pairwise(edges):
        found += blocks.feed(text[start:end])
    return found + blocks.end()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\ntwo\n\nthree", ["one\ntwo", "three"]),
        ("# head\ntext", ["# head", "text"]),
        ("text\n# head\n", ["text", "# head"]),
        ("heading\n---\ntext", ["heading\n---\ntext"]),
        ("---\ntext", ["---", "text"]),
        ("- a\n- b\n\n- c", ["- a", "- b", "- c"]),
        ("- a\n  more\n\n  still a\nlazy", ["- a\n  more\n\n  still a\nlazy"]),
        ("1. a\n2. b\ntext", ["1. a", "2. b\ntext"]),
        ("- a\n\ntext", ["- a", "text"]),
        ("> a\n> b\n\ntext", ["> a\n> b", "text"]),
        ("text\n> a", ["text", "> a"]),
        ("| a | b |\n|---|---|\n| 1 | 2 |\n", ["| a | b |\n|---|---|\n| 1 | 2 |"]),
        ("```py\na = 1\n\n# b\n```\ntext", ["a = 1\n\n# b", "text"]),
        ("text\n~~~~\n~~~\n~~~~", ["text", "~~~"]),
        ("```\nnever closed", ["never closed"]),
        ("```\n```", [""]),
    ],
)
def test_a_text_is_cut_where_nothing_later_can_change_it(text: str, expected: list[str]) -> None:
    assert [block.text for block in blocks_of(text)] == expected


def test_a_block_is_given_as_soon_as_it_is_complete() -> None:
    blocks = Blocks()
    assert blocks.feed("one par") == []
    assert blocks.rest == "one par"
    assert [block.text for block in blocks.feed("agraph\n\nand")] == ["one paragraph"]
    assert blocks.rest == "and"


def test_code_knows_its_language_and_loses_its_indentation() -> None:
    (block,) = blocks_of("  ```python title\n  a\n    b\n  ```")
    assert (block.kind, block.language, block.text) == ("code", "python", "a\n  b")


def test_items_of_one_list_go_on_where_no_blank_line_is_between_them() -> None:
    assert [block.goes_on for block in blocks_of("- a\n- b\n\n- c")] == [False, True, False]


def test_lines_of_long_code_can_be_taken_before_it_ends() -> None:
    blocks = Blocks()
    assert blocks.feed("```py\n") == [] == blocks.spill()
    blocks.feed("a\nb\nc")
    (first,) = blocks.spill()
    assert (first.text, first.goes_on, blocks.rest) == ("a\nb", False, "c")
    (rest,) = blocks.feed("\nd\n```\n")
    assert (rest.text, rest.language, rest.goes_on) == ("c\nd", "py", True)
    assert not blocks.is_code


@given(st.lists(LINES, max_size=14).map("\n".join), st.data())
def test_how_a_text_is_cut_into_pieces_does_not_matter(text: str, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=6))
    assert blocks_of(text, *cuts) == blocks_of(text)


@given(st.lists(LINES, max_size=14).map("\n".join))
def test_nothing_that_was_written_is_left_out(text: str) -> None:
    given_back = "\n".join(block.source for block in blocks_of(text))
    marks = set("`~")
    written = [line for line in text.split("\n") if line.strip() and not set(line) <= marks]
    kept = [line for line in given_back.split("\n") if line.strip() and not set(line) <= marks]
    assert kept == written
