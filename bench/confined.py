"""What a confined command costs over the bare one, in CPU seconds of ours and of all that it starts."""

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

from bench.result import BenchmarkContext, Result, side_by_side
from hermes_agent.approval.gate import Permit
from hermes_agent.sandbox import detect
from hermes_agent.sandbox.sandboxes import Host, Job, Sandbox
from hermes_core.errors import ConfigError
from hermes_core.settings import Settings, ToolSettings

MAX_OVERHEAD_S = 0.015


def command(bench: BenchmarkContext) -> list[Result]:
    """`true` in each sandbox that works here: the default one first."""
    home = bench.place("confined")
    workspace = home / "work"
    workspace.mkdir()
    return [
        found for kind in ("bubblewrap", "landlock") for found in _row(bench, kind, workspace, home)
    ]


def _row(bench: BenchmarkContext, kind: str, workspace: Path, home: Path) -> list[Result]:
    try:
        box = detect.choose(Settings(tools=ToolSettings(sandbox=kind)))  # pyright: ignore[reportArgumentType]
    except ConfigError:
        return []
    sides = [_side(Host(), workspace, home), _side(box, workspace, home)]
    for side in sides:
        side()
    bare, confined = side_by_side(bench.rounds(15), *sides)
    box.close()
    return [
        Result(
            f"a confined command in {kind}, CPU over the bare one", confined - bare, "s",
            MAX_OVERHEAD_S, note=f"`true` takes {confined * 1e3:.1f} ms, and {bare * 1e3:.1f} ms bare",
        )
    ]  # fmt: skip


def _side(box: Sandbox, workspace: Path, home: Path) -> Callable[[], float]:
    permit = Permit._for_tests()
    job = Job(["/bin/true"], workspace, workspace, home / "hermes", dict(os.environ))

    def run() -> float:
        began = _cpu()
        child = box.spawn(permit, job)
        child.follow({child.stdout: lambda _: None})
        return _cpu() - began

    return run


def _cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
