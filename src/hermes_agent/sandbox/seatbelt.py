"""Seatbelt: the sandbox of macOS, by way of sandbox-exec."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from hermes_agent.approval.danger import Access, places
from hermes_agent.sandbox.bubblewrap import hidden_folders, is_hidden, wanted_again
from hermes_agent.sandbox.sandboxes import Job, Sandbox

_PROBE_S = 10.0
_RULES = (
    "(version 1)", "(allow default)", "(deny file-write*)", "(deny mach-priv*)", "(deny signal)",
    "(allow signal (target same-sandbox))", "(deny process-info*)",
    "(allow process-info* (target same-sandbox))",
)  # fmt: skip
_DEVICES = ("/dev/null", "/dev/zero", "/dev/tty", "/dev/ptmx")


class Seatbelt(Sandbox):
    """A profile of rules; the later one of two that fit decides."""

    name = "seatbelt"

    def describe(self) -> str:
        return (
            "seatbelt: the system is read-only, the home is hidden, the workspace can be written,"
            f" network {self.network.describe()}"
        )

    def hides(self, path: Path, workspace: Path) -> bool:
        return is_hidden(path, workspace)

    def wrapped(self, job: Job, access: Access, fds: list[int]) -> list[str]:
        del fds
        words = ["sandbox-exec", "-p", self._profile(job, access)]
        return [*words, "/usr/bin/env", f"TMPDIR={self.private}", *job.command]

    def _profile(self, job: Job, access: Access) -> str:
        workspace, home = os.path.realpath(job.workspace), os.path.realpath(job.home)
        hidden = [*hidden_folders(), home]
        own = [workspace, os.path.realpath(self.private)]
        lines = [*_RULES, *([] if self.network.is_open else ["(deny network*)"])]
        lines += [_rule("deny", "file-read*", path) for path in hidden]
        # Names on the way to what is visible; without them no path can be followed.
        lines += [f"(allow file-read-metadata (literal {json.dumps(path)}))" for path in hidden]
        lines += [_rule("allow", "file-read*", path) for path in wanted_again(hidden)]
        if not workspace.startswith(f"{home}/"):
            lines.append(_rule("deny", "file-read*", home))
        lines.append(_rule("allow", "file-read*", f"{home}/outputs"))
        lines += [_rule("allow", "file-read*", path) for path in (*own, *access.reads)]
        writable = own[1:] if access.keeps_workspace else own
        lines += [_rule("allow", "file-write*", path) for path in writable]
        lines += [_rule("deny", "file-write*", path) for path in places.protected_in(workspace)[0]]
        lines += [_rule("allow", "file-write* file-read*", path) for path in access.writes]
        lines += [_rule("allow", "file-write*", path) for path in _DEVICES]
        return "\n".join(lines)


def _rule(verb: str, what: str, path: str) -> str:
    return f"({verb} {what} (subpath {json.dumps(path, ensure_ascii=False)}))"


def problem() -> str:
    """Say why Seatbelt does not work here; empty when it does."""
    if sys.platform != "darwin":
        return "Seatbelt is for macOS"
    program = shutil.which("sandbox-exec")
    if program is None:
        return "sandbox-exec is not installed"
    try:
        command = [program, "-p", "(version 1)(allow default)", "/usr/bin/true"]
        tried = subprocess.run(command, capture_output=True, timeout=_PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"sandbox-exec does not work here: {error}"
    return "" if tried.returncode == 0 else "sandbox-exec does not work here"
