"""Tables for people, on terminals of any width."""

import pytest

from hermes_cli.commands import style, table
from hermes_cli.commands.table import Column
from hermes_core import text

SESSIONS = ("ID", Column("WHEN", rank=1), Column("SOURCE", rank=2), "TITLE")
LONG = "a title of some words that goes on and on until it is longer than any line"
ROWS = [
    ("20261101_100000_aaaaaa", "3 h ago", "telegram", LONG),
    ("20261101_100000_bbbbbb", "just now", "cli", "日本語のタイトルはとても長いので折り返す" * 3),
    ("20261101_100000_cccccc", "2 d ago", "tui", "👩‍👩‍👧 ❤️ 🇩🇪 " * 12),
    ("x", None, "tui", "y" * 300),
]
HOSTILE = "\x1b[31mred\x07\r\nnext\x9b2J \u202eback [bold]markup[/] <b>\x00"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal with bold text and colors."""
    monkeypatch.setattr(style, "is_allowed", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_columns_are_as_wide_as_their_widest_cell_and_no_line_ends_in_blanks() -> None:
    output = table.render(["Name", "State"], [["a", "on"], ["longer", "off"]])
    assert output == "NAME    STATE\na       on\nlonger  off"


@pytest.mark.parametrize("width", [1, 10, 20, 40, 60, 80, 200])
@pytest.mark.parametrize("full", [False, True])
def test_no_line_is_wider_than_the_terminal(width: int, full: bool) -> None:
    lines = table.render(SESSIONS, ROWS, width=width, full=full).splitlines()
    # Narrower than 20 columns, a line may be as wide as a title and a few letters.
    assert max(map(text.width, lines)) <= max(width, 20)


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_the_full_table_has_every_letter(width: int) -> None:
    output = table.render(SESSIONS, ROWS, width=width)
    assert set(LONG.split()) <= set(output.split()) or width == 20
    assert output.count("y") >= 300
    assert "".join(output.split()).count("日本語") == 3
    assert "telegram" in output and "…" not in output


def test_a_long_cell_is_wrapped_and_ends_after_three_lines() -> None:
    row = ["1", "one two three four five six " * 4]
    assert table.render(["Id", "Text"], [row], width=22, full=False).splitlines() == [
        "ID  TEXT",
        "1   one two three four",
        "    five six one two",
        "    three four five…",
    ]


def test_columns_of_the_highest_rank_are_left_out_first_and_named() -> None:
    wide = table.render(SESSIONS, ROWS, width=80, full=False).splitlines()
    assert wide[0].split() == ["ID", "WHEN", "SOURCE", "TITLE"]
    middle = table.render(SESSIONS, ROWS, width=52, full=False).splitlines()
    assert middle[0].split() == ["ID", "WHEN", "TITLE"]
    assert middle[-1] == "Not shown: SOURCE. See them with --full."
    narrow = table.render(SESSIONS, ROWS, width=40, full=False).splitlines()
    assert narrow[0].split() == ["ID", "TITLE"]
    assert narrow[-2:] == ["Not shown: WHEN, SOURCE. See them with", "--full."]


def test_a_table_that_cannot_fit_becomes_a_list() -> None:
    output = table.render(["Id", "Size", "Text"], [["1" * 20, 5, "word"], ["2", 6, ""]], width=24)
    assert output == f"ID: {'1' * 20}\nSIZE: 5\nTEXT: word\n\nID: 2\nSIZE: 6"


def test_several_wrapping_columns_share_the_room() -> None:
    row = ["short", "word " * 30, "word " * 30]
    lines = table.render(["A", Column("B", wraps=True), "C"], [row], width=67).splitlines()
    assert lines[0] == f"A      B{' ' * 30}C"
    assert max(map(len, lines)) <= 67


def test_without_a_terminal_nothing_is_wrapped_or_left_out() -> None:
    lines = table.render(SESSIONS, ROWS, full=False, styled=True).splitlines()
    assert len(lines) == 1 + len(ROWS)
    assert lines[1].endswith(LONG)
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize(
    "title", ["日本語", "한국어", "\u1112\u1161\u11ab", "e\u0301t\u0301", "हिन्दी", "❤️", "👍🏽", "ﷺ"]
)
def test_columns_stay_in_line_whatever_the_letters(title: str) -> None:
    lines = table.render(["Title", "N"], [[title, "x"], ["abcdef", "y"]]).splitlines()
    assert text.width(lines[1].rpartition("x")[0]) == len("abcdef  ")


def test_a_column_of_numbers_stands_to_the_right_and_none_is_nothing() -> None:
    output = table.render(["Count", "Of"], [[7, "a"], [None, "b"], [1200, "c"]])
    assert output.splitlines() == ["COUNT  OF", "    7  a", "       b", " 1200  c"]
    assert table.render([Column("N", right=True), "Of"], [["12 KB", "a"], ["1 MB", "b"]]) == (
        "    N  OF\n12 KB  a\n 1 MB  b"
    )


@pytest.mark.usefixtures("terminal")
def test_a_cell_stays_on_its_line_and_cannot_steer_the_terminal() -> None:
    output = table.render(["A", "B"], [["one\ntwo", HOSTILE]], marked=True, styled=True)
    heading, row = output.splitlines()
    assert heading == "\x1b[1mA        B\x1b[0m"
    assert row == "one two  [31mred next2J back [bold]markup[/] <b>"


@pytest.mark.usefixtures("terminal")
def test_matches_of_a_search_are_bold_and_underlined() -> None:
    output = table.render(["Text"], [["a >>>blue<<< house"]], marked=True, styled=True)
    assert output.splitlines()[1] == "a \x1b[1m\x1b[4mblue\x1b[0m house"


@pytest.mark.usefixtures("terminal")
def test_a_match_is_highlighted_on_both_lines_that_it_takes() -> None:
    found = [["some words and >>>a match over two lines<<< of the table"]]
    lines = table.render(["Text"], found, width=20, marked=True, styled=True).splitlines()
    assert lines[1:] == [
        "some words and \x1b[1m\x1b[4ma\x1b[0m",
        "\x1b[1m\x1b[4mmatch over two lines\x1b[0m",
        "of the table",
    ]


def test_marks_are_not_shown_without_a_terminal() -> None:
    assert table.render(["T"], [["a >>>b<<< c"]], marked=True, styled=True) == "T\na b c"
    assert table.render(["T"], [["a >>>b<<< c"]]) == "T\na >>>b<<< c"


@pytest.mark.usefixtures("terminal")
def test_a_state_has_a_color_unless_no_color_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [["ok", "a"], ["problem", "b"]]
    assert "\x1b[32mok\x1b[0m       a" in table.render(["State", "X"], rows, styled=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert table.render(["State", "X"], rows, styled=True).splitlines()[1] == "ok       a"


def test_without_rows_there_are_the_headers() -> None:
    assert table.render(["A", "B"], []) == "A  B"


def test_a_huge_table_takes_its_time_per_row_only() -> None:
    rows = [(str(n), "2 h ago", "cli", LONG * 3) for n in range(5000)]
    assert len(table.render(SESSIONS, rows, width=80, full=False).splitlines()) == 1 + 3 * 5000
    huge = table.render(["A"], [["x " * 500_000]], width=40, full=False)
    assert len(huge.splitlines()) == 4
