"""Look at the git configuration of the workspace after each command that may change it.

git renames a new file over `.git/config` for everyday commands, and no read-only mount allows that. So
commands may write it. When one has ended with all it started, settings that it added and by which git
could run a program are commented out (docs/adr/0020).
"""

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from hermes_agent.approval.danger import Access, git_settings, places
from hermes_agent.checkpoints import entries
from hermes_agent.sandbox import strict_open
from hermes_core.text import one_line

_FILES = ("config", "config.worktree")
_REDIRECTION = "commondir"
"""Names another folder, whose settings and hooks count. git makes it for further working trees only."""
_MAX_BYTES = 1_000_000
_TIMEOUT_S = 10.0
_ENVIRONMENT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C"}
_IN_NAME = str.maketrans({"\\": "\\\\", '"': '\\"'})
_IN_VALUE = {**_IN_NAME, **str.maketrans({"\n": "\\n", "\t": "\\t", "\b": "\\b"})}

Setting = tuple[str, str | None]
"""A name as git prints it, and the value; None: the name alone, which means true."""


class GitGuard:
    """Watches the repository of a workspace; knows the settings that a person allowed."""

    def __init__(self) -> None:
        self._allowed: set[Setting] = set()

    def watch(self, workspace: str, access: Access) -> "Watch":
        """Remember the configuration of a workspace before a command changes it."""
        return Watch(workspace, access, self._allowed)


class Watch:
    """The configuration of a workspace before a command."""

    def __init__(self, workspace: str, access: Access, allowed: set[Setting]) -> None:
        self._workspace = workspace
        self._allowed = allowed
        self._link = _read_link(f"{workspace}/.git")
        self._git = os.path.realpath(f"{workspace}/.git")
        self._files = {name: _read(f"{self._git}/{name}") for name in _FILES}
        self._is_redirected = os.path.lexists(f"{self._git}/{_REDIRECTION}")
        config = f"{self._git}/{_FILES[0]}"
        self._is_allowed = any(places.is_under(config, path) for path in access.writes)

    def restore(self) -> Iterator[str]:
        """Undo what could make git run a program, and yield what happened, for the output."""
        link = _read_link(f"{self._workspace}/.git")
        if link and link != self._link:
            _put(f"{self._workspace}/.git", self._link)
            yield "this made .git lead to another repository, which was undone"
        if not places.is_under(self._git, self._workspace):
            return  # commands cannot write it
        if not self._is_redirected and os.path.lexists(f"{self._git}/{_REDIRECTION}"):
            _put(f"{self._git}/{_REDIRECTION}", b"")
            yield f"this made .git/{_REDIRECTION}, which gives git other settings; it was deleted"
        for name, before in self._files.items():
            after = _read(f"{self._git}/{name}")
            if after not in (b"", before):
                yield from self._check(name, before, after)

    def _check(self, name: str, before: bytes, after: bytes) -> Iterator[str]:
        path, found = f"{self._git}/{name}", _settings(after)
        if found is None:
            if shutil.which("git"):
                _put(path, before)
                yield f"this made .git/{name} unreadable for git, so it was restored"
            return
        earlier = _settings(before) or ()
        added = [setting for setting in found if setting not in earlier]
        if self._is_allowed:
            self._allowed.update(added)
            return
        off = [s for s in added if s not in self._allowed and not _is_everyday(s)]
        if not off:
            return
        remaining = [setting for setting in found if setting not in off]
        data = _text_of(remaining, off)
        _put(path, data if _settings(data) == remaining else before)
        names = ", ".join(dict.fromkeys(one_line(name) for name, _ in off))
        yield (
            f"this set {names} in .git/{name}, by which git may run a program; that is commented out."
            " A `git config` command of its own asks the user for it"
        )


_UNREADABLE = b"\0"


def _read(path: str) -> bytes:
    """Return a file of the repository; empty when there is none, `_UNREADABLE` for a pipe."""
    try:
        fd = strict_open.read_from(path)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError:
        return _UNREADABLE
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        is_fit = stat.S_ISREG(found.st_mode) and found.st_size <= _MAX_BYTES
        return file.read(_MAX_BYTES) if is_fit else _UNREADABLE


def _read_link(path: str) -> bytes:
    """Return where `.git` leads if it is a file or a link; empty for a folder, and for nothing."""
    place = Path(path)
    if place.is_symlink():
        return b"-> " + os.fsencode(place.readlink())
    return b"" if place.is_dir() else _read(path)


def _put(path: str, data: bytes) -> None:
    """Put a file (or a link) in its place; delete what has no content."""
    folder, _, name = path.rpartition("/")
    mode = entries.LINK if data.startswith(b"-> ") else entries.FILE
    with contextlib.suppress(OSError):
        if data and data != _UNREADABLE:
            entries.write(folder, name, entries.Entry(mode, ""), data.removeprefix(b"-> "))
        else:
            entries.remove(folder, name)


def _is_everyday(setting: Setting) -> bool:
    name, value = setting
    return git_settings.is_everyday(name, "true" if value is None else value)


def _settings(data: bytes) -> list[Setting] | None:
    """Return the settings of a configuration as git reads them; None when it cannot."""
    git = shutil.which("git")
    if git is None or data == _UNREADABLE:
        return None
    try:
        done = subprocess.run(
            [git, "config", "--file", "-", "--no-includes", "--null", "--list"],
            input=data,
            cwd="/",
            env=_ENVIRONMENT,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    texts = done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]
    pairs = [text.partition("\n") for text in texts]
    return [(name, value if equals else None) for name, equals, value in pairs]


def _text_of(settings: Sequence[Setting], off: Sequence[Setting]) -> bytes:
    """Return a configuration with these settings, and with others as comments."""
    lines: list[str] = []
    for name, value in settings:
        section, _, rest = name.partition(".")
        inner, _, key = rest.rpartition(".")
        header = f'[{section} "{inner.translate(_IN_NAME)}"]' if inner else f"[{section}]"
        text = f'{key} = "{value.translate(_IN_VALUE)}"' if value is not None else key
        lines.append(f"{header} {text}")
    lines += [one_line(f"# Hermes turned this off: {name} = {value}") for name, value in off]
    return "\n".join([*lines, ""]).encode("utf-8", "surrogateescape")
