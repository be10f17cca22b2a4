"""A terminal that a test looks at and types into: tmux, as people use it."""

import os
import select
import shlex
import subprocess
import time
from pathlib import Path

TIMEOUT_S = 40.0
"""Three processes start on a machine that others use as well."""


class Tmux:
    """One window; what is written to it wakes whoever waits for it."""

    def __init__(self, folder: Path, command: list[str], environment: dict[str, str]) -> None:
        self._socket = folder / "tmux"
        self._news = folder / "news"
        os.mkfifo(self._news)
        self.line = shlex.join(
            ["env", "-i", *(f"{k}={v}" for k, v in environment.items()), *command]
        )
        """What was typed to start it."""
        self._run("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "sh")
        self._descriptor = os.open(self._news, os.O_RDWR | os.O_NONBLOCK)
        self._run("pipe-pane", "-o", f"cat > {shlex.quote(str(self._news))}")
        self._run("set-option", "-g", "escape-time", "0")
        self.type(f"cd {shlex.quote(str(folder))}; clear; {self.line}; echo left with $?")
        self.press("Enter")

    def _run(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=TIMEOUT_S,
        )
        return done.stdout

    def type(self, text: str) -> None:
        self._run("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def paste(self, text: str) -> None:
        """Paste as a terminal does that tells pasted from typed."""
        self._run("set-buffer", text)
        self._run("paste-buffer", "-p")

    def resize(self, columns: int, lines: int) -> None:
        self._run("resize-window", "-x", str(columns), "-y", str(lines))

    @property
    def picture(self) -> str:
        return self._run("capture-pane", "-p")

    @property
    def title(self) -> str:
        """The title that the program has given to the window."""
        return self._run("display-message", "-p", "#{pane_title}")

    @property
    def pid(self) -> int:
        """The process of the shell in the window."""
        return int(self._run("display-message", "-p", "#{pane_pid}"))

    def wait_for(self, *texts: str, without: str = "\0") -> str:
        """Wait until all of this is on the screen, and that is not."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            picture = self.picture
            if all(text in picture for text in texts) and without not in picture:
                return picture
            remaining = deadline - time.monotonic()
            assert remaining > 0, f"{texts} did not come:\n{picture}"
            if select.select([self._descriptor], [], [], min(remaining, 1.0))[0]:
                os.read(self._descriptor, 1_000_000)

    def kill(self, command: str) -> None:
        """End it by a command of tmux."""
        self._run(command)
        os.close(self._descriptor)

    def close(self) -> None:
        self.kill("kill-server")


def children_of(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have started."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [child for parent in map(int, listed) for child in (parent, *children_of(parent))]
