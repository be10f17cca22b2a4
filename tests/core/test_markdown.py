"""One reader tells for everybody where the blocks of a Markdown text are."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.outline import closed
from hermes_core.markdown import blocks, breaks, code_lines, fenced

_lines = st.sampled_from(
    ["words", "", "```", "```py", "````", "~~~", "> quote", "> ```", "- item", "  ```", "    deep"]
    + ["1. one", "   more", "# Head", "| a | b |", "|---|---|", "> - x", "* * *", "\r", "a\rb"]
)
documents = st.lists(_lines, max_size=14).map("\n".join)


@given(documents)
def test_blocks_are_ranges_of_lines_in_order(text: str):
    found = blocks(text)
    assert all(block.start < block.end <= text.count("\n") + 1 for block in found)
    assert all(before.end <= after.start for before, after in pairwise(found))


@given(documents)
@example("- ```py\n  x = 1")
@example("> ~~~\n> x")
def test_what_is_put_below_a_text_that_was_cut_off_is_no_code(text: str):
    whole = f"{closed(text)}\n\nbelow"
    assert blocks(whole)[-1].kind == "paragraph"
    assert closed(text).startswith(text.rstrip())


@given(st.text(alphabet=st.sampled_from(["`", "~", "\n", " ", ">", "x"])))
def test_nothing_ends_a_block_of_code_from_within(text: str):
    (block,) = blocks(fenced(text))
    assert (block.kind, block.is_open) == ("fence", False)


@given(documents)
def test_a_text_is_parted_behind_blank_lines_and_never_in_code(text: str):
    code = code_lines(text)
    for place in breaks(text):
        number = text.count("\n", 0, place) - 1
        assert number not in code
        assert not text.split("\n")[number].strip()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n\nb", [3]),
        ("```\na\n\nb\n```\n\nc", [14]),
        ("```\na\n\nb", []),
        ("````\n```\n\n````\n\n", [16]),
        ("- a\n\n- b\n", [5]),
    ],
)
def test_breaks_of_texts(text: str, expected: list[int]):
    assert breaks(text) == expected
