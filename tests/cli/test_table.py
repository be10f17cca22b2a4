"""Tables for people."""

from hermes_cli.commands import table


def test_columns_are_as_wide_as_their_widest_cell_and_no_line_ends_in_blanks() -> None:
    text = table.render(["Name", "State"], [["a", "on"], ["longer", "off"]])
    assert text == "Name    State\na       on\nlonger  off"


def test_the_last_column_is_shortened_to_the_width() -> None:
    text = table.render(["Id", "Text"], [["1", "a long sentence"]], width=12)
    assert text.splitlines()[1] == "1   a long …"


def test_the_last_column_keeps_some_room_however_narrow_the_terminal_is() -> None:
    text = table.render(["Id", "Text"], [["1234567890", "a long sentence"]], width=5)
    assert text.splitlines()[1] == "1234567890  a long …"


def test_wide_characters_count_for_the_columns_they_take() -> None:
    text = table.render(["Title", "N"], [["日本語", "x"], ["abc", "y"]])
    assert text.splitlines()[1:] == ["日本語  x", "abc     y"]


def test_a_column_of_numbers_stands_to_the_right_and_none_is_nothing() -> None:
    text = table.render(["Count", "Of"], [[7, "a"], [None, "b"], [1200, "c"]])
    assert text.splitlines() == ["Count  Of", "    7  a", "       b", " 1200  c"]


def test_a_cell_stays_on_its_line_and_cannot_steer_the_terminal() -> None:
    text = table.render(["A", "B"], [["one\ntwo", "\x1b[31mred"]])
    assert text.splitlines()[1] == "one two  [31mred"


def test_without_rows_there_are_the_headers() -> None:
    assert table.render(["A", "B"], []) == "A  B"
