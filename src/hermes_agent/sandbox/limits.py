"""What a confined command may use up: memory, processes, the size of a file."""

import contextlib
import os
from pathlib import Path

MAX_PROCESSES = 2_048
_BLOCKS_PER_FILE = 41_943_040
"""Of 512 bytes: tens of gigabytes."""
_MIN_MEMORY_KB = 1024 * 1024
_CGROUPS = Path("/sys/fs/cgroup")

_START = '"$@"; exit $?'
"""The shell stays as the parent on purpose: what ends with its parent must not end with the thread of
ours that made it."""
_ALWAYS = f"ulimit -c 0 2>/dev/null; ulimit -f {_BLOCKS_PER_FILE} 2>/dev/null"
_CONFINED = (
    _ALWAYS
    + '; ulimit -d "$1" 2>/dev/null; ulimit -u "$2" 2>/dev/null || ulimit -p "$2" 2>/dev/null; '
    '[ -z "$3" ] || echo $$ > "$3"; { echo 500 > /proc/self/oom_score_adj; } 2>/dev/null; shift 3; '
)
"""Shells disagree on the letter for processes. When memory runs out, commands go before the rest."""


def unlimited() -> list[str]:
    """Return the words before a command that runs as the person would run it."""
    return ["/bin/sh", "-c", f"{_ALWAYS}; {_START}", "sh"]


class Limits:
    """The limits of one sandbox's commands."""

    def __init__(self) -> None:
        self._group: Path | None = None

    def words(self) -> list[str]:
        """Return the words before a confined command."""
        memory = max(_memory_kb() * 3 // 4, _MIN_MEMORY_KB)
        processes = MAX_PROCESSES + _running()
        members = self._members()
        return ["/bin/sh", "-c", _CONFINED + _START, "sh", str(memory), str(processes), members]

    def close(self) -> None:
        """Remove the control group."""
        if self._group is not None:
            with contextlib.suppress(OSError):
                self._group.rmdir()

    def _members(self) -> str:
        """Return the list of a control group, which root needs: it has no limit of processes."""
        if os.getuid() != 0:
            return ""
        is_unified = (_CGROUPS / "cgroup.subtree_control").exists()
        group = (_CGROUPS if is_unified else _CGROUPS / "pids") / f"hermes-{os.getpid()}-{id(self)}"
        members = group / "cgroup.procs"
        if self._group is None:
            _remove_abandoned(group.parent)
        try:
            group.mkdir(exist_ok=True)
            (group / "pids.max").write_text(str(MAX_PROCESSES), "utf-8")
        except OSError:  # read-only in most containers, which have a limit of their own
            with contextlib.suppress(OSError):
                group.rmdir()
            return ""
        self._group = group
        return str(members)


def _remove_abandoned(folder: Path) -> None:
    """Remove groups of processes that were killed; one that is in use stays."""
    for group in folder.glob("hermes-*"):
        if not Path("/proc", group.name.split("-")[1]).exists():
            with contextlib.suppress(OSError):
                group.rmdir()


def _memory_kb() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * (os.sysconf("SC_PAGE_SIZE") // 1024)
    except (OSError, ValueError):
        return 0


def _running() -> int:
    """Return how many threads there are: those of the person count for the limit of older kernels."""
    try:
        text = Path("/proc/loadavg").read_text("utf-8")
        return int(text.split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return MAX_PROCESSES
