"""Markdown becomes a text and entities that Telegram takes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.platforms.telegram.markdown import Formatted, render, utf16
from tests.gateway.servers import telegram_methods as methods


def drawn(formatted: Formatted) -> list[tuple[str, str]]:
    """Each entity with the text it covers."""
    coded = formatted.text.encode("utf-16-le")
    return [
        (entity.type, coded[entity.offset * 2 : entity.end * 2].decode("utf-16-le"))
        for entity in formatted.entities
    ]


@pytest.mark.parametrize(
    ("markdown", "text", "entities"),
    [
        ("plain", "plain", []),
        ("**bold**", "bold", [("bold", "bold")]),
        ("_it_ and *it*", "it and it", [("italic", "it"), ("italic", "it")]),
        ("~~gone~~", "gone", [("strikethrough", "gone")]),
        ("a `b` c", "a b c", [("code", "b")]),
        ("# Head", "Head", [("bold", "Head")]),
        ("## A **b**", "A b", [("bold", "A b")]),
        ("> said\n> so", "said\nso", [("blockquote", "said\nso")]),
        ("> a\n> > b", "a\n\nb", [("blockquote", "a\n\nb")]),
        ("- a\n- b", "• a\n• b", []),
        ("3. a\n4. b", "3. a\n4. b", []),
        ("- a\n  - b\n- c", "• a\n  • b\n• c", []),
        ("a\n\n---\n\nb", "a\n\n———\n\nb", []),
        ("[here](https://e.org/x)", "here", [("text_link", "here")]),
        ("[it](notes.md)", "it (notes.md)", []),
        ("![cat](https://e.org/c.png)", "cat", [("text_link", "cat")]),
        ("[`f`](https://e.org)", "f", [("text_link", "f")]),
        ("**a `b` c**", "a b c", [("bold", "a "), ("code", "b"), ("bold", " c")]),
        ("😀 **😀**", "😀 😀", [("bold", "😀")]),
        ("5 * 3 < 7 & snake_case", "5 * 3 < 7 & snake_case", []),
        ("<b>no</b>", "<b>no</b>", []),
        ("- x\n  ```\n  y\n  ```", "• x\ny", [("pre", "y")]),
    ],
)
def test_each_kind_of_markdown_has_its_look(
    markdown: str, text: str, entities: list[tuple[str, str]]
) -> None:
    formatted = render(markdown)

    assert (formatted.text, drawn(formatted)) == (text, entities)


def test_code_keeps_its_lines_and_its_language() -> None:
    formatted = render("Look:\n\n```python\nif x:\n\n    y\n```\n\nDone.")

    assert formatted.text == "Look:\n\nif x:\n\n    y\n\nDone."
    assert drawn(formatted) == [("pre", "if x:\n\n    y")]
    assert formatted.entities[0].language == "python"


def test_a_table_becomes_columns_of_equal_width() -> None:
    formatted = render("| name | n |\n|---|--:|\n| **pear** | 1 |\n| fig | 22 |")

    assert formatted.text == "name │ n\n─────┼───\npear │ 1\nfig  │ 22"
    assert [kind for kind, _ in drawn(formatted)] == ["pre"]


def test_a_link_in_a_table_shows_where_it_leads_beside_its_words() -> None:
    cells = ("[**docs**](https://e.org/d)", "<https://e.org/a>", "![plan](https://e.org/p.png)")
    text = render("| what |\n|---|\n" + "".join(f"| {cell} |\n" for cell in cells)).text

    assert text.splitlines()[2:] == [
        "docs (https://e.org/d)",
        "https://e.org/a",
        "plan (https://e.org/p.png)",
    ]


def test_a_link_tells_where_it_leads() -> None:
    assert (
        render("**see [a](https://e.org/?q=1&r=2)**").entities[-1].url == "https://e.org/?q=1&r=2"
    )


_MARKS = st.sampled_from(
    ["*", "**", "`", "```\n", "~~", "_", "> ", "- ", "1. ", "# ", "[", "](https://e.org)", "](x)",
     "|", "\n|---|---|\n", "\n", "\n\n", "    ", "😀", "e\u0301", "\ud800", "word", " ", "\\", "&amp;"]
)  # fmt: skip


@given(st.lists(st.one_of(_MARKS, st.text(max_size=4)), max_size=40).map("".join))
def test_whatever_is_written_the_entities_are_ones_that_telegram_takes(markdown: str) -> None:
    formatted = render(markdown)

    entities = [
        {key: value for key, value in entity._asdict().items() if value}
        for entity in formatted.entities
    ]
    entities = [{"offset": 0} | entity for entity in entities]
    call = methods.Call({"entities": json.dumps(entities)}, {})
    assert len(methods._entities(call, "entities", formatted.text)) == len(formatted.entities)
    assert formatted.text == formatted.text.rstrip()
    assert all(
        0 <= entity.offset < entity.end <= utf16(formatted.text) for entity in formatted.entities
    )


_WORDS = st.lists(st.text("abc😀é", min_size=1, max_size=5), min_size=1, max_size=4).map(" ".join)
_STYLED = st.sampled_from([("", ""), ("**", "bold"), ("`", "code"), ("~~", "strikethrough")])


@given(st.lists(st.tuples(_WORDS, _STYLED), min_size=1, max_size=8))
def test_the_text_is_what_was_written_without_the_marks(
    pieces: list[tuple[str, tuple[str, str]]],
) -> None:
    formatted = render(" ".join(f"{mark}{words}{mark}" for words, (mark, _) in pieces))

    assert formatted.text == " ".join(words for words, _ in pieces)
    assert drawn(formatted) == [(kind, words) for words, (_, kind) in pieces if kind]
