"""The guide says what the program does: its table of keys, its pictures."""

import re
from pathlib import Path

from hermes_tui import keymap

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "terminal.md"


def table() -> list[str]:
    """The rows as the program has them."""
    fixed = [f"| {keymap.format_keys(keys)} | {does} | |" for _, keys, does in keymap.FIXED]
    ours = [
        f"| {keymap.format_keys(key.keys)} | {key.does} | `{key.name}` |" for key in keymap.KEYS
    ]
    return [*fixed, *ours]


def test_the_guide_lists_every_key() -> None:
    text = GUIDE.read_text("utf-8")
    rows = text.partition("| keys | do | name |")[2].splitlines()[2:]
    assert rows[: len(table())] == table()
    assert not rows[len(table())].startswith("|")


def test_every_picture_of_the_guide_is_there() -> None:
    named = re.findall(r"\(\.\./images/([^)]+)\)", GUIDE.read_text("utf-8"))
    folder = GUIDE.parents[1] / "images"
    assert named and all((folder / name).is_file() for name in named)
