"""Markdown as platforms show it: whatever a model writes, and however deeply, no word of it is lost."""

import re
from collections.abc import Callable
from html import unescape
from itertools import count

import pytest
from hypothesis import given
from hypothesis import settings as trying
from hypothesis import strategies as st

from gateway.platforms.email.compose import compose
from gateway.platforms.email.manifest import EmailSettings
from gateway.platforms.matrix import content as matrix
from gateway.platforms.telegram import markdown as telegram
from tests.support.examples import examples

_TAG = re.compile(r"<[^>]*>")


def _telegram(markdown: str) -> str:
    return telegram.render(markdown).text


def _matrix(markdown: str) -> str:
    return unescape(_TAG.sub(" ", matrix.to_html(markdown)))


def _mail(markdown: str) -> str:
    settings = EmailSettings(address="bot@x.example", password="secret", imap_host="x.example")
    mail = compose(settings, "you@x.example", markdown)
    part = mail.get_body(("html",))
    assert part is not None
    return unescape(_TAG.sub(" ", part.get_content()))


_RENDERERS: tuple[Callable[[str], str], ...] = (_telegram, _matrix, _mail)
everywhere = pytest.mark.parametrize("render", _RENDERERS)

_WORD = "§"
"""Stands for a word that is nowhere else."""
_inline = st.sampled_from(
    [_WORD, f"**{_WORD}**", f"*{_WORD} **{_WORD}***", f"`{_WORD}`", f"~~{_WORD}~~", f"[{_WORD}][1]"]
    + [f"[{_WORD}](https://x.example/)", f"![{_WORD}](https://x.example/p.png)", f"<{_WORD}>", "|"]
    + [
        f"[{_WORD}]",
        f"[{_WORD}][]",
        "*",
        "_",
        "`",
        "[",
        "](",
        "\\",
        "&amp;",
        "<b>",
        "http://x.example",
    ]
)

_line = st.lists(_inline, min_size=1, max_size=6).map(" ".join)
_leaf = st.one_of(
    st.lists(_line, min_size=1, max_size=3).map("\n".join),
    _line.map(lambda text: f"## {text}"),
    st.just(f"```py\n{_WORD}\n\n  {_WORD}\n```"),
    st.just(f"```\n{_WORD}"),
    st.lists(st.lists(st.just(_WORD), min_size=1, max_size=5).map(" | ".join), max_size=3).map(
        lambda rows: "\n".join([f"| {_WORD} | {_WORD} |", "|---|---|", *rows])
    ),
    st.just(f"[1]: https://x.example/{_WORD}\n[{_WORD}]: {_WORD}\n[^1]: {_WORD}"),
    st.just("---"),
)


def _behind(first: str, others: str, text: str) -> str:
    return first + text.replace("\n", "\n" + others)


def _nested(text: str, marks: list[str]) -> str:
    for mark in marks:
        text = _behind(mark, "> " if mark == "> " else " " * len(mark), f"{_WORD}\n{text}")
    return text


_marks = st.lists(st.sampled_from(["> ", "- ", "1. ", "* "]), max_size=45)
_documents = st.lists(st.builds(_nested, _leaf, _marks), min_size=1, max_size=4).map("\n\n".join)


def _named(document: str) -> tuple[str, list[str]]:
    """A document in which each word has a name of its own."""
    numbers = count()
    text = re.sub(_WORD, lambda _: f"word{next(numbers)}x", document)
    return text, re.findall(r"(?<!example/)word\d+x", text)


@everywhere
@trying(max_examples=examples(150), deadline=None)
@given(_documents)
def test_every_word_is_shown(render: Callable[[str], str], document: str) -> None:
    text, words = _named(document)
    seen = render(text)
    assert [word for word in words if word not in seen] == []


@everywhere
@pytest.mark.parametrize("mark", ["- ", "> ", "1. "])
def test_what_is_nested_too_deeply_is_shown_as_text(
    render: Callable[[str], str], mark: str
) -> None:
    text, words = _named(_nested("end", [mark] * 200) + f"\n\n{_WORD}")
    seen = render(text)
    assert [word for word in words if word not in seen] == []
    assert seen.split()[-1] == words[-1]


@everywhere
def test_emphasis_in_emphasis_without_end_is_shown(render: Callable[[str], str]) -> None:
    assert "words" in render("*a **b " * 500 + "words" + "** c*" * 500)


@everywhere
def test_a_row_with_more_cells_than_its_table_keeps_them(render: Callable[[str], str]) -> None:
    seen = render("| a | b |\n|---|---|\n| 1 | 2 | 3 | x \\| y |\n| 4 |\n")
    assert "2 | 3 | x | y" in seen
    assert "4" in seen


@everywhere
def test_what_only_looks_like_the_definition_of_a_link_is_read(
    render: Callable[[str], str],
) -> None:
    assert "[Note]: soon" in render("First.\n\n[Note]: soon\n\nLast.")
