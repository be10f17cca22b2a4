"""Skills: found in the home, checked, and said as a message."""

import logging
import os
from collections.abc import Iterator

import pytest

from hermes_agent import commands, skills
from hermes_core.errors import UsageError
from hermes_core.paths import Home, make_folder
from tests.agent.conftest import MakeChat
from tests.agent.test_commands import Surface

REVIEW = """---
name: Code Review
description: >-
  Looks at a change
  with fresh eyes.
metadata:
  name: not this one
---

# How to review

Read it twice.
"""


def write(home: Home, folder: str, text: str | bytes) -> None:
    path = home.skills / folder / skills.FILE
    make_folder(path.parent)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.fixture(autouse=True)
def forget_warnings() -> Iterator[None]:
    yield
    skills._warn.cache_clear()


def test_a_home_without_skills_has_none(home: Home) -> None:
    assert skills.load_all(home) == ({}, [])


def test_a_skill_is_known_by_its_front_matter_or_by_its_folder(home: Home) -> None:
    write(home, "review", REVIEW)
    write(home, "Über_Setzen", "# Translate\n\nInto English.\n")
    found = skills.load(home)
    assert list(found) == ["code-review", "uber-setzen"]
    review = found["code-review"]
    assert review.description == "Looks at a change with fresh eyes."
    assert review.instructions == "# How to review\n\nRead it twice."
    assert found["uber-setzen"].description == "Translate"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("review", "review"),
        ("Code Review", "code-review"),
        ("a__b - c", "a-b-c"),
        ("Été!", "ete"),
        ("日本", ""),
    ],
)
def test_a_name_becomes_a_command_that_every_surface_can_type(name: str, expected: str) -> None:
    assert skills.slug(name) == expected


def test_what_changes_on_the_disk_counts_at_once(home: Home) -> None:
    write(home, "review", "Read it once.")
    assert skills.load(home)["review"].instructions == "Read it once."
    write(home, "review", "Read it often.")
    write(home, "other", "Do something else.")
    assert skills.load(home)["review"].instructions == "Read it often."
    assert "other" in skills.load(home)
    (home.skills / "review" / skills.FILE).unlink()
    assert list(skills.load(home)) == ["other"]


def test_a_file_that_has_not_changed_is_not_read_again(home: Home) -> None:
    write(home, "review", "Read it once.")
    assert skills.load(home)["review"] is skills.load(home)["review"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("---\nname: endless\n", "has no end"),
        ("---\nname: empty\n---\n", "is empty"),
        ("---\nname: 3d printing\n---\nPrint.", "cannot be typed as a command: '3d printing'"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        ("x" * (skills.LARGEST + 1), "65,537 bytes; the maximum is 65,536"),
    ],
)
def test_a_broken_skill_is_left_out_with_one_warning_that_names_file_and_fix(
    home: Home, caplog: pytest.LogCaptureFixture, text: str | bytes, reason: str
) -> None:
    write(home, "broken", text)
    write(home, "fine", "Do it.")
    with caplog.at_level(logging.WARNING):
        assert list(skills.load(home)) == ["fine"]
        skills.load(home)
    (record,) = caplog.records
    assert reason in record.message
    assert str(home.skills / "broken" / skills.FILE) in record.message
    (error,) = skills.load_all(home).broken
    assert error.fix


def test_a_folder_without_a_file_and_two_of_one_name_are_told_of(home: Home) -> None:
    write(home, "one", "---\nname: same\n---\nOne.")
    write(home, "two", "---\nname: same\n---\nTwo.")
    (home.skills / "empty").mkdir()
    (home.skills / ".git").mkdir()
    (home.skills / "README.md").write_text("no skill")
    found, broken = skills.load_all(home)
    assert found["same"].instructions == "One."
    messages = sorted(str(error) for error in broken)
    assert "empty has no SKILL.md" in messages[0]
    assert "has the name /same of" in messages[1]
    assert len(messages) == 2


def test_what_cannot_be_read_harms_nobody_and_is_not_waited_for(home: Home) -> None:
    (home.skills / "pipe").mkdir(parents=True)
    os.mkfifo(home.skills / "pipe" / skills.FILE)
    (home.skills / "loop").symlink_to("loop")
    (error,) = skills.load_all(home).broken
    assert "is not a file" in str(error)
    for path in (home.skills / "pipe" / skills.FILE, home.skills / "loop"):
        path.unlink()
    (home.skills / "pipe").rmdir()
    home.skills.rmdir()
    home.skills.write_text("a file")
    assert "cannot be read" in str(skills.load_all(home).broken[0])


def test_a_new_skill_works_and_is_private_and_overwrites_none(home: Home) -> None:
    path = skills.create(home, "My Plan")
    assert path == home.skills / "my-plan" / skills.FILE
    assert path.stat().st_mode & 0o777 == 0o600
    assert "my-plan" in skills.load(home)
    with pytest.raises(UsageError, match="already"):
        skills.create(home, "my_plan")
    with pytest.raises(UsageError, match="not a valid name"):
        skills.create(home, "42")


# -- as a command ------------------------------------------------------------------------------


@pytest.fixture
def surface(home: Home, make_chat: MakeChat) -> Surface:
    write(home, "review", REVIEW)
    write(home, "new", "Would hide the built-in command.")
    return Surface(make_chat(["Fine."]), make_chat, skills=skills.load(home))


def test_a_skill_says_its_name_the_words_and_then_its_instructions(surface: Surface) -> None:
    assert surface.type("/code-review the parser,\nplease") == ""
    (message,) = surface.sent
    assert message.startswith("[skill code-review] the parser,\nplease\n\n")
    assert message.endswith("\n\n# How to review\n\nRead it twice.")
    surface.type("/Code_Review")
    assert surface.sent[1].startswith("[skill code-review]\n\n")


def test_a_built_in_command_and_one_of_a_plugin_win_over_a_skill(surface: Surface) -> None:
    assert surface.type("/new") == "A new conversation."
    assert surface.sent == []
    usable = skills.usable(surface.skills, commands.names())
    assert [skill.name for skill in usable] == ["code-review"]
    assert skills.usable(surface.skills, commands.names({"code-review"})) == []


def test_help_has_a_section_of_skills_and_a_slip_is_corrected(surface: Surface) -> None:
    _, _, section = surface.type("/help").partition("\n\nSkills\n")
    assert section == "/code-review  Looks at a change with fresh eyes."
    with pytest.raises(UsageError, match="Did you mean /code-review"):
        surface.type("/code-revew")


def test_what_a_skill_said_is_undone_and_retried_like_any_message(surface: Surface) -> None:
    surface.type("/code-review it")
    surface.agent.run_conversation(surface.sent.pop())
    surface.type("/retry")
    assert surface.sent[0].startswith("[skill code-review] it\n")
    assert surface.texts() == surface.sent
