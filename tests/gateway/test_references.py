"""Links that name their address elsewhere: found, put where they are used, and nothing else touched."""

import pytest

from gateway.references import resolved
from gateway.splitting import split

_END = "\n\n[1]: https://x.example/one\n[Two  words]: <https://x.example/a b> 'A title'\n"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("See [the *docs*][1].", "See [the *docs*](https://x.example/one)."),
        ("[1]: it says", "[1](https://x.example/one): it says"),
        ("[two words][] [x][TWO WORDS]", '[two words]({0} "A title") [x]({0} "A title")'),
        ("![a picture][1]", "![a picture](https://x.example/one)"),
        ("> quoted [so][1]", "> quoted [so](https://x.example/one)"),
        ("| a |\n|---|\n| [so][1] |", "| a |\n|---|\n| [so](https://x.example/one) |"),
    ],
)
def test_a_link_gets_the_address_that_it_names(text: str, meant: str) -> None:
    meant = meant.format("https://x.example/a%20b")
    found = resolved(f"First.\n\n- {text}\n\n{text}{_END}")
    assert found.startswith(f"First.\n\n- {meant}\n\n{meant}\n")


@pytest.mark.parametrize(
    "markdown",
    [
        "`a[i][1]` and ``b`[1]``",
        "```\na[i][1]\n[1]: https://y.example\n```",
        "words\n\n    a[i][1]",
        "\\[1\\] and [here](https://y.example) and [an [1] inside](https://y.example)",
        "[nobody][knows] this[^1]",
        "text above\n[3]: https://y.example/no-definition [3]",
    ],
)
def test_what_is_no_such_link_stays(markdown: str) -> None:
    text = f"{markdown}{_END}"
    assert resolved(text) == text


@pytest.mark.parametrize("markdown", ["[Note]: soon", "[^1]: https://x.example", "[v]: 1.2"])
def test_what_leads_nowhere_is_no_definition(markdown: str) -> None:
    text = f"A [Note], [v] and that[^1].\n\n{markdown}"
    assert resolved(text) == text


def test_a_definition_that_nothing_uses_stays_and_one_that_is_used_goes() -> None:
    text = resolved("[a][1]\n\n[1]: https://x.example/one\n[2]: https://x.example/two")
    assert text.split() == ["[a](https://x.example/one)", "[2]:", "https://x.example/two"]


def test_a_second_definition_that_leads_elsewhere_stays_to_be_read() -> None:
    text = resolved(
        "[a][1]\n\n[1]: https://x.example/one\n\n[b][1]\n\n[1]: https://x.example/two\n"
    )
    assert text.split() == [
        "[a](https://x.example/one)",
        "[b](https://x.example/one)",
        "[1]:",
        "https://x.example/two",
    ]


def test_each_piece_of_a_long_text_has_its_links() -> None:
    text = "\n\n".join("Words that are explained [in the docs][1]." for _ in range(20)) + _END
    pieces = split(text, 300)
    assert len(pieces) > 1
    links = sum(piece.count("[in the docs](https://x.example/one)") for piece in pieces)
    assert links == 20
    assert split(text, 2000) == [text.strip()], "what fits is sent as it was written"
