"""The gateway: `hermes gateway run` as a process that is started and killed again and again."""

import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from hermes_core.paths import Home
from tests.gateway.chaos import loopback
from tests.gateway.chaos.surface import Surface

_TIMEOUT_S = 60.0
_SETTINGS = """
[model]
name = "scripted"
base_url = "{model}"
api_key = "scripted-key"
retries = 2

[agent]
titles = false

[store]
busy_timeout_s = 1.0

[plugins]
enabled = ["{plugin}"]

[gateway]
drain_s = 1.0
streaming = {streaming}
tool_activity = {streaming}
strangers = "ignore"

[gateway.owners]
{owners}

"""

Moment = Literal["starting", "up", "asked", "send", "stopping"]
MOMENTS: Mapping[Moment, int] = {"starting": 15, "up": 35, "asked": 15, "send": 25, "stopping": 10}
"""When it is killed: how often of a hundred times."""


class GatewayProcess:
    """The gateway of one home, alive or not."""

    def __init__(self, home: Home, surfaces: Sequence[Surface], model: str, log: Path) -> None:
        """`log` takes everything that it says."""
        self.home = home
        self._log = log
        self._places = surfaces
        self._model = model
        self._child: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self.is_up = threading.Event()
        self._lines: deque[str] = deque(maxlen=40)
        self._environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(home.root.parent),
            "HERMES_HOME": str(home.root),
            "HERMES_GATEWAY_LOCK_DIR": str(home.root / "locks"),
        }
        for surface in surfaces:
            self._environment |= surface.environment()

    def configure(self, *, streaming: bool) -> None:
        """Write the settings for the next start."""
        owners = [
            f"{surface.name} = {surface.owners()}" for surface in self._places if surface.owners()
        ]
        head = _SETTINGS.format(
            model=self._model,
            plugin=loopback.PLUGIN,
            streaming=str(streaming).lower(),
            owners="\n".join(owners),
        )
        tables = "\n".join(surface.settings() for surface in self._places)
        self.home.config.write_text(head + tables, "utf-8")

    def start(self) -> None:
        self.is_up.clear()
        self._child = subprocess.Popen(
            [sys.executable, "-m", "hermes_cli.main", "gateway", "run"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment,
        )
        self._reader = threading.Thread(target=self._listen, args=(self._child,), daemon=True)
        self._reader.start()

    def _listen(self, child: "subprocess.Popen[bytes]") -> None:
        assert child.stdout is not None
        with child.stdout, self._log.open("ab", buffering=0) as log:
            for line in child.stdout:
                log.write(line)
                self._lines.append(line.decode("utf-8", "replace"))
                if b"gateway is running" in line:
                    self.is_up.set()

    def words(self) -> str:
        """The end of what it said."""
        return "".join(self._lines)

    @property
    def is_alive(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def ask_to_stop(self) -> None:
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)

    def kill(self) -> int:
        """Kill it, wherever it is; returns its exit status."""
        if self._child is None:
            return 0
        self._child.kill()
        return self.wait()

    def wait(self) -> int:
        """Wait until it has ended."""
        assert self._child is not None
        assert self._reader is not None
        code = self._child.wait(_TIMEOUT_S)
        self._reader.join(_TIMEOUT_S)
        self._child = None
        return code
