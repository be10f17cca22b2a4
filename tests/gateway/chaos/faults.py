"""Faults: the network breaks, the store is locked by another process, the disk is full."""

import contextlib
import random
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from hermes_core.errors import StoreError
from hermes_core.paths import Home
from hermes_state import SessionDB
from tests.gateway.chaos.surface import Link, Surface

_DISK_MB = 512
_TIMEOUT_S = 30.0
_SECONDS = (0.5, 4.0)
"""How long a fault lasts."""
_CHUNK = bytes(1024 * 1024)


class Disk:
    """A small disk of its own for the home, where the system lets us have one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.is_real = False
        self._ballast = folder / "ballast"

    def __enter__(self) -> "Disk":
        self.folder.mkdir(parents=True, exist_ok=True)
        mount = shutil.which("mount", path="/usr/bin:/bin:/usr/sbin:/sbin")
        if mount is not None:
            options = f"size={_DISK_MB}m,mode=700"
            command = [mount, "-t", "tmpfs", "-o", options, "hermes-chaos", str(self.folder)]
            self.is_real = subprocess.run(command, capture_output=True, check=False).returncode == 0
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.is_real:
            subprocess.run(["umount", "-l", str(self.folder)], capture_output=True, check=False)

    def fill(self) -> None:
        """Leave not one byte free."""
        with self._ballast.open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while True:
                ballast.write(_CHUNK)

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


class Lock:
    """The store, written to by somebody who does not come to an end: this process."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._over = threading.Event()
        self._held = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self) -> None:
        if not self._home.database.exists():
            return
        self._over.clear()
        self._held.clear()
        self._thread = threading.Thread(target=self._hold, daemon=True)
        self._thread.start()
        self._held.wait(_TIMEOUT_S)

    def _hold(self) -> None:
        try:
            with SessionDB(self._home.database) as store:
                store.write(lambda _conn: self._keep())
        except StoreError:
            self._held.set()  # a full disk, or a store that is just being made

    def _keep(self) -> None:
        self._held.set()
        self._over.wait(_TIMEOUT_S)

    def release(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(_TIMEOUT_S)
            self._thread = None


class Faults:
    """Begins faults, each of which ends by itself; at most one at a time."""

    def __init__(
        self, surfaces: Sequence[Surface], home: Home, disk: Disk, dice: random.Random
    ) -> None:
        self._links = [link for surface in surfaces for link in surface.links]
        self._lock = Lock(home)
        self._disk = disk
        self._dice = dice
        self.counts: Counter[str] = Counter()
        self._kinds: dict[str, tuple[int, Callable[[], None]]] = {
            "none": (27, lambda: None),
            "cut": (15, self._cut),
            "server gone": (10, self._refuse),
            "silence": (10, self._blackhole),
            "answer lost": (15, self._lose_answer),
            "store locked": (12, self._lock.take),
        }
        if disk.is_real:
            self._kinds["disk full"] = (11, disk.fill)
        self.now = "none"
        self._timer: threading.Timer | None = None
        self._changing = threading.Lock()

    @property
    def kinds(self) -> list[str]:
        return [kind for kind in self._kinds if kind != "none"]

    def begin(self, kind: str = "") -> None:
        """Begin one, any unless it is named."""
        self.end()
        weights = [weight for weight, _ in self._kinds.values()]
        self.now = kind or self._dice.choices(list(self._kinds), weights)[0]
        if self.now == "none":
            return
        self.counts[self.now] += 1
        self._kinds[self.now][1]()
        self._timer = threading.Timer(self._dice.uniform(*_SECONDS), self._undo)
        self._timer.start()

    def end(self) -> None:
        """Let everything work again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._undo()

    def _undo(self) -> None:
        with self._changing:
            for link in self._links:
                link.proxy.heal()
            self._lock.release()
            if self._disk.is_real:
                self._disk.free()
            self.now = "none"

    def _some(self) -> list[Link]:
        """One way, or all of them."""
        return self._links if self._dice.random() < 0.2 else [self._dice.choice(self._links)]

    def _cut(self) -> None:
        for link in self._some():
            link.proxy.cut()

    def _refuse(self) -> None:
        for link in self._some():
            link.proxy.refuse()
            link.proxy.cut()

    def _blackhole(self) -> None:
        for link in self._some():
            link.proxy.blackhole()

    def _lose_answer(self) -> None:
        for link in self._some():
            link.proxy.cut_before_response(link.sends)
