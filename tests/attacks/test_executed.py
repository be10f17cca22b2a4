"""Attacks and everyday commands, executed for real by `python -m tests.attacks`.

Here every other attack runs in the default configuration, and every eighth in each other one;
`make crash` runs all of them in all, by ATTACKS_SHARE=1.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attacks.__main__ import NOT_HERE
from tests.support.users import environment, python_of, users

pytestmark = [pytest.mark.proof, pytest.mark.promise("P7")]

ROOT = Path(__file__).parents[2]
MAX_ASKED, MIN_SAME = 0.02, 0.99
_MODULES = ("hermes_agent.agent", "apsw", "msgspec", "pytest")
_SHARE = int(os.environ.get("ATTACKS_SHARE", "8"))
_TIMEOUT_S = 500

each_user = pytest.mark.parametrize("user", users(*_MODULES))
each_sandbox = pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock"])


def run(*options: str, user: int | None = None, expected: int = 0) -> str:
    """Run the attacks, as another user if one is given, and return what is printed."""
    python = python_of(user, *_MODULES) if user else sys.executable
    variables = environment()
    variables["PYTHONPATH"] = f"{ROOT}:{variables['PYTHONPATH']}"
    groups: list[int] | None = [] if user and os.getuid() == 0 else None  # only root may drop them
    done = subprocess.run(
        [python, "-m", "tests.attacks", *options], user=user, extra_groups=groups,
        cwd=ROOT, env=variables, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode == NOT_HERE:
        pytest.skip(done.stdout.strip())
    assert done.returncode == expected, done.stdout + done.stderr[-2000:]
    return done.stdout


def count(printed: str, *words: str) -> int:
    numbers = re.findall(rf"\b(?:{'|'.join(words)}) +(\d+)$", printed, re.MULTILINE)
    return sum(map(int, numbers))


@pytest.mark.parametrize("part", range(1, 5, 1 if _SHARE == 1 else 2))
def test_no_attack_works_unasked_in_the_default_configuration(part: int) -> None:
    printed = run("--part", f"{part}/4")
    assert count(printed, "held", "asked") > 120


@each_user
@each_sandbox
def test_no_attack_works_unasked_as_any_user_in_any_sandbox(user: int, sandbox: str) -> None:
    printed = run("--sandbox", sandbox, "--part", _part(user, sandbox), user=user)
    assert count(printed, "held", "asked") > 400 // _SHARE


@each_user
@each_sandbox
def test_the_sandbox_alone_holds_attacks_that_no_rule_sees(user: int, sandbox: str) -> None:
    printed = run("--blind", "--sandbox", sandbox, "--part", _part(user, sandbox, 4), user=user)
    assert count(printed, "held") > 400 // _SHARE


def _part(user: int, sandbox: str, first: int = 0) -> str:
    """Return another part for each way."""
    number = first + 2 * (user != 0) + (sandbox == "landlock")
    return f"{1 + number % _SHARE}/{_SHARE}"


def test_the_attacks_do_harm_where_nothing_protects() -> None:
    printed = run("--host", "--part", f"1/{_SHARE}", expected=1)
    assert count(printed, "worked") > 8 * count(printed, "held"), "some need root"


def test_everyday_commands_work_in_the_sandbox_as_without_and_hardly_ask() -> None:
    printed = run("--everyday")
    total, questions, differing = (
        count(printed, word) for word in ("commands", "asked", "differing")
    )
    assert total >= 200, "too few of the programs are installed"
    assert questions <= MAX_ASKED * total, printed
    assert differing <= (1 - MIN_SAME) * total, printed
