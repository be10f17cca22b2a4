"""The attacks that `python -m tests.attacks` executes: enough of each tier, and none twice."""

from collections import Counter
from pathlib import Path

import pytest

from tests.attacks.command_list import commands_of
from tests.attacks.corpus import attacks
from tests.attacks.everyday import everyday


def test_there_are_enough_attacks_of_each_tier() -> None:
    tiers = Counter(attack.tier for attack in attacks())
    assert tiers.total() >= 300
    assert all(tiers[tier] >= 40 for tier in ("careless", "disguised", "spread"))


def test_every_attack_has_a_name_of_its_own() -> None:
    names = [attack.name for attack in attacks()]
    assert len(names) == len(set(names))


def test_there_are_enough_everyday_commands() -> None:
    assert len(everyday()) >= 200


YAML = """\
---
functions:
  shell:
    - description: Runs a shell.
      code: awk 'BEGIN {system("/bin/sh")}'
    - code: |
        LFILE=file
        cat "$LFILE"
  file-read:
    - code: "cat \\"$LFILE\\""
---
"""
NESTED = '{"shell": [{"code": "ls\\n"}, {"code": "pwd"}], "file-read": [{"code": "pwd"}]}'


@pytest.mark.parametrize(
    ("name", "text", "commands"),
    [
        ("list.txt", "# own\nls -la\n\npwd\nls -la\n", ["ls -la", "pwd"]),
        ("list.json", '["ls", "pwd"]', ["ls", "pwd"]),
        ("nested.json", NESTED, ["ls", "pwd"]),
        (
            "awk.md",
            YAML,
            ["awk 'BEGIN {system(\"/bin/sh\")}'", 'LFILE=file\ncat "$LFILE"', 'cat "$LFILE"'],
        ),
    ],
)
def test_lists_of_other_people_are_read(
    tmp_path: Path, name: str, text: str, commands: list[str]
) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert commands_of(path) == commands
    assert commands_of(tmp_path) == commands
