"""Run git on a workspace that may be hostile: in a sandbox, with a repository and settings of ours.

The repository is in our home. Nothing in the workspace configures git: its own `.git` is not read, and
no attribute, filter, hook or monitor applies. In the sandbox, git reads the workspace and writes only
our repository; it has no network.
"""

import functools
import re
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from hermes_agent.approval.gate import permit_to_read
from hermes_agent.sandbox import detect
from hermes_agent.sandbox.sandboxes import Job, Sandbox
from hermes_agent.turn.stop import Stop
from hermes_core.errors import CheckpointError, Interrupted
from hermes_core.paths import make_folder

_CONFIGURATION = """\
[core]
\trepositoryformatversion = 0
\tbare = false
\tfilemode = true
\tsymlinks = true
\tautocrlf = false
\tfsmonitor = false
\thooksPath = /dev/null
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\tprotectNTFS = false
\tprotectHFS = false
\tfsync = none
\tlooseCompression = 1
\tuntrackedCache = true
[feature]
\tmanyFiles = true
[index]
\tskipHash = true
[gc]
\tauto = 0
[maintenance]
\tauto = false
[submodule]
\trecurse = false
[diff]
\tignoreSubmodules = all
\trenames = false
[protocol]
\tallow = never
"""
_ATTRIBUTES = "* -text -ident !eol !filter !working-tree-encoding !diff !merge\n"
"""In `info/attributes`, which wins over every `.gitattributes`: files are stored as they are."""
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_LITERAL_PATHSPECS": "1",
    "LC_ALL": "C",
}
_SCRIPT = '"$@" < "$GIT_DIR/input" || exit; [ -z "$0" ] || exec "$1" "$0"'
_LIST = (
    '"$0" ls-files -z -o "$@" > "$GIT_DIR/untracked" < /dev/null & '
    '"$0" diff-files -z --name-only --ignore-submodules=all < /dev/null || exit; wait "$!"'
)
"""Both look at every file: two processors are faster than one."""
_PATH = "/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin"
_VERSION = re.compile(rb"git version (\d+)\.(\d+)")
_PACKS_IN_BULK = (2, 37)
"""The version from which `update-index` puts the large files of one run into one pack."""
_MAX_ERROR = 400


class Git:
    """git with one repository of ours and one workspace."""

    def __init__(self, folder: Path, workspace: Path, home: Path, timeout_s: float) -> None:
        """Make the repository if it is missing; raises CheckpointError where there is no git."""
        self.folder = folder
        self.workspace = workspace
        self._home = home
        self._timeout_s = timeout_s
        self._program = program()
        self._sandbox: Sandbox | None = None
        self._permit = permit_to_read(str(workspace))
        _make_repository(folder)

    def run(
        self,
        *arguments: str,
        feed: bytes = b"",
        then: str = "",
        variables: Mapping[str, str] | None = None,
        codes: Collection[int] = (0,),
        stop: Stop | None = None,
    ) -> bytes:
        """Run git and return its output; `feed` is its input, and `then` a command to run afterwards.

        `codes` are the exit codes that mean success. Raises CheckpointError when it fails, Interrupted
        at a stop.
        """
        (self.folder / "input").write_bytes(feed)
        words = ["/bin/sh", "-c", _SCRIPT, then, self._program, *arguments]
        return self._run(words, arguments[0], variables or {}, codes, stop)

    def list_changed(self, excludes: Sequence[str], stop: Stop | None) -> tuple[bytes, bytes]:
        """Return the files that differ from the index, and those that are not in it."""
        words = ["/bin/sh", "-c", _LIST, self._program, *excludes]
        changed = self._run(words, "diff-files", {}, (0,), stop)
        return changed, (self.folder / "untracked").read_bytes()

    def _run(
        self,
        words: Sequence[str],
        name: str,
        variables: Mapping[str, str],
        codes: Collection[int],
        stop: Stop | None,
    ) -> bytes:
        if self._sandbox is None:
            self._sandbox = detect.confine_git()
        job = Job(
            words,
            cwd=self.workspace,
            workspace=self.folder,
            home=self._home,
            environment={
                **_ENVIRONMENT,
                "PATH": _PATH,
                "HOME": str(self.folder),
                "GIT_DIR": str(self.folder),
                "GIT_WORK_TREE": str(self.workspace),
                **variables,
            },
            splits_errors=True,
        )
        output, errors = bytearray(), bytearray()
        child = self._sandbox.spawn(self._permit, job)
        child.deadline = time.monotonic() + self._timeout_s
        ending = child.follow({child.stdout: output.extend, child.stderr: errors.extend}, stop)
        if ending == "stopped":
            raise Interrupted
        if ending == "timeout":
            raise CheckpointError(f"git {name} took more than {self._timeout_s:g} s.")
        if child.reap() not in codes:
            text = errors.decode("utf-8", "replace").strip()[-_MAX_ERROR:]
            raise CheckpointError(f"git {name} failed: {text or 'it says nothing'}.")
        return bytes(output)

    @functools.cached_property
    def packs_in_bulk(self) -> bool:
        """Return whether many files added at once can go into one pack."""
        found = _VERSION.match(self.run("version"))
        return found is not None and (int(found[1]), int(found[2])) >= _PACKS_IN_BULK

    def close(self) -> None:
        """Delete what is private to the sandbox."""
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None


def program() -> str:
    """Return the path of git; raises CheckpointError."""
    found = shutil.which("git")
    if found is None:
        raise CheckpointError("There are no checkpoints: git is not installed.", fix="Install git.")
    return found


def _make_repository(folder: Path) -> None:
    """Write a repository by hand, its configuration last: a half-made one is made again."""
    configuration = folder / "config"
    if configuration.is_file() and configuration.read_text("utf-8") == _CONFIGURATION:
        return
    make_folder(folder)
    for name in ("info", "objects/info", "objects/pack", "refs/undo"):
        make_folder(folder / name)
    (folder / "HEAD").write_text("ref: refs/heads/none\n", "utf-8")
    (folder / "info" / "attributes").write_text(_ATTRIBUTES, "utf-8")
    configuration.write_text(_CONFIGURATION, "utf-8")
