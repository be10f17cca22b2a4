"""Nothing grows past its mark: lines per part, broad excepts, words that the language rules ban."""

import ast
from collections import Counter
from pathlib import Path

import pytest
from scripts import marks


def kinds(code: str) -> Counter[str]:
    return Counter(kind for kind, _, _ in marks.counted(ast.parse(code)))


def test_no_part_is_larger_than_its_mark() -> None:
    assert marks.oversized() == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("said = 1", "names"),
        ("for one in (): pass", "names"),
        ("def f(told): pass", "names"),
        ("class _Lent: pass", "names"),
        ("self.known = 1", "names"),
        ("_MOST_BYTES = 1", "constants"),
        ("WAIT_PATIENCE_S: float = 1", "constants"),
        ("raise E('The body is no JSON.')", "is_no"),
        ("raise E(f'{x} is no model')", "is_no"),
        ('def f():\n    """Whether it may."""', "relative"),
        ('"""What is kept."""', "relative"),
        ('def f():\n    """Have this be done."""', "causative"),
        ("try: f()\nexcept Exception: pass", "broad_excepts"),
        ("try: f()\nexcept (OSError, BaseException): pass", "broad_excepts"),
        ("try: f()\nexcept: pass", "broad_excepts"),
    ],
)
def test_a_bad_word_is_counted(code: str, kind: str) -> None:
    assert kinds(code) == {kind: 1}


@pytest.mark.parametrize(
    "code",
    [
        "is_known = reason = 1",
        "MAX_BYTES = 1",
        "x = 'There is no such model. It is no longer here.'",
        'def f():\n    """Return whether it may."""',
        "what = 'What now?'",
        "try: f()\nexcept OSError: pass",
    ],
)
def test_plain_words_are_not_counted(code: str) -> None:
    assert not kinds(code)


def test_a_rise_is_reported_with_its_place_and_a_fall_is_only_a_hint() -> None:
    before = {"gateway": Counter(names=3, is_no=3)}
    after = {"gateway": Counter(names=4, is_no=2)}
    (problem,) = marks.risen(after, before)
    assert "names rose from 3 to 4" in problem and "--show names gateway" in problem
    assert marks.fallen(after, before) == ["gateway: is_no fell from 3 to 2"]


def test_lowering_lets_words_move_between_packages_but_not_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "BASELINE", tmp_path / "marks.toml")
    before = {"gateway": Counter(names=3), "hermes_core": Counter(names=1)}
    after = {"gateway": Counter(names=1), "hermes_engine": Counter(names=2)}
    assert marks.write(after, before) == []
    assert marks.risen(after, marks.baseline()) == []
    assert marks.write(before, after) == ["names: 3 to 4"]
