"""A helper process that ends our children when we are killed ourselves.

It reads a pipe that only we hold. When the pipe closes, whatever the reason, it ends every process group
and container that it still watches. A signal at the parent's death would not do: Linux sends that one
already when the thread ends that made the child.
"""

import atexit
import contextlib
import os
import subprocess
import threading

_SCRIPT = """
trap '' HUP INT TERM
kept=
while read -r verb item; do
  case $verb in
    +) kept="$kept $item" ;;
    -) left=; for one in $kept; do [ "$one" = "$item" ] || left="$left $one"; done; kept=$left ;;
  esac
done
for item in $kept; do
  case $item in
    *:*) "${item%%:*}" kill "${item#*:}" ;;
    *) kill -9 "-$item" ;;
  esac
done
"""


class OrphanKiller:
    """Ends what must not outlive us."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1

    def watch(self, item: str) -> None:
        """End this when we are gone: a process group, or `engine:name` of a container."""
        with self._lock:
            self._start()
            self._say(f"+ {item}\n")

    def release(self, item: str) -> None:
        """It has ended by itself."""
        with self._lock:
            self._say(f"- {item}\n")

    def close(self) -> None:
        """End what is still watched."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                os.close(self._pipe)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(2)

    def _start(self) -> None:
        if self._process is not None:
            return
        reading, self._pipe = os.pipe()
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT],
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            os.close(reading)
        atexit.register(self.close)

    def _say(self, line: str) -> None:
        if self._process is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._pipe, line.encode())


orphan_killer = OrphanKiller()
"""The one of this process; its helper process starts with the first child."""
