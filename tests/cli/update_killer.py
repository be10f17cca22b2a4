"""Run the switch of an update, and kill it at its nth change: `update_killer.py WORK N [OPTIONS]`.

A kill comes before a change (even N) or right after it (odd N).
"""

import importlib.util
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_count = 0


def main() -> int:
    work, number = Path(sys.argv[1]), int(sys.argv[2])
    switch = _load(work / "switch.py")
    switch.Files.save = _deadly(switch.Files.save, number)
    switch.Files.remove = _deadly(switch.Files.remove, number)
    switch.exchange = _deadly(switch.exchange, number)
    lock = os.open(work / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    return switch.main([str(work), str(lock), *sys.argv[3:]])


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("switch", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["switch"] = module
    spec.loader.exec_module(module)
    return module


def _deadly(change: Callable[..., Any], number: int) -> Callable[..., Any]:
    """Return a change that kills this process before or after, when its turn has come."""

    def changed(*arguments: Any) -> Any:
        _die_at(number)
        result = change(*arguments)
        _die_at(number)
        return result

    return changed


def _die_at(number: int) -> None:
    global _count  # noqa: PLW0603 -- of this process alone
    if _count == number:
        os.kill(os.getpid(), signal.SIGKILL)
    _count += 1


if __name__ == "__main__":
    sys.exit(main())
