"""The machine: how much memory and how many cores it leaves to this process."""

import math
import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")
_CPU_FLAGS = Path("/proc/cpuinfo")


def available_bytes() -> int | None:
    """Memory that the machine and the container leave to us; None when neither tells."""
    limits = [found for found in (_of_machine(), _of_group()) if found is not None]
    return min(limits) if limits else None


def cores() -> int:
    """Cores that the scheduler and the container leave to us."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not a Linux
        count = os.cpu_count() or 1
    try:
        quota, period = (_GROUP / "cpu.max").read_text("ascii").split()
        count = min(count, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # no group, or no limit in it
        pass
    return max(count, 1)


def lacks_vectors() -> bool:
    """Tell whether this is a PC processor without AVX2, on which the engine would crash."""
    if os.uname().machine not in ("x86_64", "amd64"):
        return False
    try:
        return " avx2" not in _CPU_FLAGS.read_text("utf-8", "replace")
    except OSError:
        return False


def _of_machine() -> int | None:
    try:
        for line in _MEMINFO.read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:  # what is built in, of which other programs take their share
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (OSError, ValueError):
        return None


def _of_group() -> int | None:
    limit, used = _number("memory.max"), _number("memory.current")
    return None if limit is None or used is None else max(limit - used, 0)


def _number(name: str) -> int | None:
    """Read a value of our control group; None for `max`, which means no limit."""
    try:
        return int((_GROUP / name).read_text("ascii"))
    except (OSError, ValueError):
        return None
