"""No way leads around the gate: read from the source, so that a new path cannot be forgotten."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.promise("P7")

AGENT = Path(__file__).parents[2] / "src" / "hermes_agent"

STARTS = {"Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"}
OS_STARTS = {"system", "popen", "fork", "forkpty", "posix_spawn", "posix_spawnp", "startfile"}

MAY_START = {
    "sandbox/sandboxes.py": "what tools run; asks for a permit",
    "sandbox/container.py": "ends containers by their name",
    "sandbox/detect.py": "finds out which sandbox there is; its commands are fixed",
    "sandbox/landlock.py": "asks the kernel for its version",
    "sandbox/landlock_launcher.py": "becomes the command, with fewer rights",
    "sandbox/seatbelt.py": "tries a fixed command",
    "sandbox/network.py": "makes a network namespace; its script is fixed",
    "sandbox/hosts.py": "asks package tools for their servers; its commands are fixed",
    "sandbox/git_guard.py": "has git read a configuration from its input; its command is fixed",
    "sandbox/orphan_killer.py": "ends what we leave behind; its script is fixed",
}
"""Files that may start processes, and why each is no way around the gate."""


@cache
def modules() -> list[tuple[str, ast.Module]]:
    names = {path.relative_to(AGENT).as_posix(): path for path in sorted(AGENT.rglob("*.py"))}
    return [
        (name, ast.parse(path.read_text("utf-8")))
        for name, path in names.items()
        if not name.startswith("testing/")
    ]


def calls(tree: ast.Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def starts_a_process(call: ast.Call) -> bool:
    target = call.func
    if not (isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)):
        return False
    module, name = target.value.id, target.attr
    return (
        (module == "subprocess" and name in STARTS)
        or (module == "os" and (name in OS_STARTS or name.startswith(("exec", "spawn"))))
        or (module in ("pty", "multiprocessing") and name[0] != "_")
    )


def test_processes_are_started_in_the_files_that_are_listed_and_nowhere_else() -> None:
    found = {name for name, tree in modules() if any(map(starts_a_process, calls(tree)))}
    assert found == set(MAY_START)


def test_nobody_hides_a_start_behind_an_imported_name() -> None:
    for name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in ("subprocess", "os", "pty"):
                imported = {alias.name for alias in node.names}
                assert not imported & (STARTS | OS_STARTS), f"{name} imports {imported}"


def test_permits_are_made_by_the_gate_alone() -> None:
    for name, tree in modules():
        permits = [c for c in calls(tree) if isinstance(c.func, ast.Name) and c.func.id == "Permit"]
        assert not permits or name == "approval/gate.py", f"{name} makes a permit"


def test_whoever_spawns_hands_in_the_permit_of_its_own_call() -> None:
    spawning = 0
    for name, tree in modules():
        if name.startswith("sandbox/"):
            continue
        for call in calls(tree):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "spawn":
                spawning += 1
                own = "self._permit" if name == "checkpoints/git.py" else "call.permit"
                assert ast.unparse(call.args[0]) == own, f"{name}: {ast.unparse(call)}"
    assert spawning >= 3, "foreground, background and code"


def test_tools_are_run_in_one_place() -> None:
    """A tool's function is called by the executor, behind the gate."""
    for name, tree in modules():
        if name == "tools/execute.py":
            continue
        for call in calls(tree):
            text = ast.unparse(call.func)
            assert not text.endswith("tool.run"), f"{name} runs a tool by itself: {text}"
