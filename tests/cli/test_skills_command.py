"""`hermes skills`, and skills in `hermes chat`."""

import pytest

from hermes_core.paths import Home
from tests.agent.test_skills import REVIEW, write
from tests.cli.chat_process import World
from tests.cli.conftest import Shell

pytestmark = pytest.mark.usefixtures("can_answer")


def test_skills_are_listed_with_what_is_wrong_with_others(home: Home, shell: Shell) -> None:
    assert "No skills yet. Create one with: hermes skills new" in shell.run("skills list")
    write(home, "review", REVIEW)
    write(home, "theme", "Hidden by a command of the terminal UI.")
    write(home, "broken", "---\n")
    output = shell.run("skills list")
    assert "/code-review  on        Looks at a change with fresh eyes." in output
    assert "theme/SKILL.md is shadowed by the built-in command /theme." in output
    assert "broken/SKILL.md begins with ---" in output
    assert shell.errors == "", "what is wrong is told once"
    listed = shell.json("skills list")
    assert {skill["name"]: skill["state"] for skill in listed["skills"]} == {
        "code-review": "on",
        "theme": "shadowed",
    }
    assert listed["broken"][0]["fix"]


def test_a_skill_is_shown_by_its_name_however_it_is_written(home: Home, shell: Shell) -> None:
    write(home, "review", REVIEW)
    assert "Read it twice." in shell.run("skills show code_review")
    assert shell.json("skills show 'Code Review'")["instructions"].endswith("Read it twice.")
    shell.run("skills show nothing", status=2)
    assert "Skills: code-review." in shell.errors


def test_a_new_skill_is_written_unless_the_name_is_taken(home: Home, shell: Shell) -> None:
    assert str(home.skills / "my-plan" / "SKILL.md") in shell.run("skills new 'My plan'")
    assert "my-plan" in shell.run("skills list")
    shell.run("skills new my-plan", status=2)
    assert "already" in shell.errors
    shell.run("skills new queue", status=2)
    assert "/queue is already a command" in shell.errors


def test_doctor_counts_skills_and_warns_of_those_that_cannot_be_used(
    home: Home, shell: Shell
) -> None:
    write(home, "new", "Hidden.")
    write(home, "broken", "---\n")
    found = [finding for finding in shell.json("doctor") if finding["what"] == "skills"]
    assert [finding["state"] for finding in found] == ["ok", "warning", "warning"]


def test_a_skill_is_used_in_a_chat_and_in_a_script(world: World) -> None:
    write(world.home, "review", REVIEW)
    world.server.add("Looks good.", "Still good.")
    with world.chat() as chat:
        chat.wait_for_prompt()
        chat.type("/code-r\t")
        chat.wait_for("/code-review")
        chat.type("the parser\r")
        chat.wait_for("Looks good.")
        chat.say("/exit")
        assert chat.wait() == 0
    assert world.model_messages()[0].startswith("[skill code-review] the parser\n\n")
    assert world.model_messages()[0].endswith("Read it twice.")
    assert world.once("-q", "/code-review it").stdout == "Still good.\n"
