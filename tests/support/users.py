"""The users as whom a test can run a program: root and nobody for root, else the person alone."""

import functools
import os
import subprocess
import sys

import pytest

NOBODY_UID = 65534


@functools.cache
def python_of(user: int, *modules: str) -> str:
    """Return an interpreter that this user may run with these modules; empty when there is none."""
    code = "; ".join(f"import {module}" for module in modules)
    for program in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            done = subprocess.run(
                [program, "-c", code], user=user, env=environment(), cwd="/", capture_output=True,
                check=False, timeout=30,
            )  # fmt: skip
        except OSError:
            continue
        if done.returncode == 0:
            return program
    return ""


def environment() -> dict[str, str]:
    """Return variables with which another interpreter finds what this one does."""
    return {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def users(*modules: str) -> list[object]:
    """Return the users as parameters of a test; one who may not run Python is skipped."""
    if os.getuid() != 0:
        return [pytest.param(os.getuid(), id="self")]
    why = "the other user may run no Python here"
    skip = pytest.mark.skipif(not python_of(NOBODY_UID, *modules), reason=why)
    return [pytest.param(0, id="root"), pytest.param(NOBODY_UID, id="nobody", marks=skip)]
