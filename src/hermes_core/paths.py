"""The home folder and every file in it."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from hermes_core.errors import ConfigError

_FOLDER_MODE = 0o700
_FILE_MODE = 0o600


class Home(NamedTuple):
    """Paths inside the home; reading a path creates nothing."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.toml"

    @property
    def database(self) -> Path:
        return self.root / "state.db"

    @property
    def plugins(self) -> Path:
        return self.root / "plugins"

    @property
    def skills(self) -> Path:
        """Skills, one folder each."""
        return self.root / "skills"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def cache(self) -> Path:
        """Files that can be deleted at any time."""
        return self.root / "cache"

    @property
    def policy(self) -> Path:
        return self.root / "policy.toml"

    @property
    def memories(self) -> Path:
        return self.root / "memories"

    @property
    def outputs(self) -> Path:
        """Full outputs of commands that were truncated for the model."""
        return self.root / "outputs"

    @property
    def checkpoints(self) -> Path:
        """One repository per workspace, with what its files held before and after each turn."""
        return self.root / "checkpoints"

    @property
    def workspace(self) -> Path:
        """The folder that chats work in, unless the settings name another."""
        return self.root / "workspace"

    @property
    def history(self) -> Path:
        """Input history of `hermes chat`."""
        return self.root / "history"

    @property
    def sessions(self) -> Path:
        """Human-readable list of the gateway's routes."""
        return self.root / "sessions"

    @property
    def gateway(self) -> Path:
        """State of the gateway and its platforms: process state, keys, cursors."""
        return self.root / "gateway"

    @property
    def attachments(self) -> Path:
        """Attachments of messages."""
        return self.root / "attachments"

    def create(self) -> "Home":
        """Create the folder with mode 0700."""
        make_folder(self.root)
        return self


def make_folder(path: Path) -> Path:
    """Create a folder and its parents with mode 0700; existing ones keep their mode."""
    try:
        # mkdir(parents=True) would give the parents the mode of the umask.
        missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
        for folder in reversed(missing):
            folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"Cannot create folder {path}: {error.strerror}.",
            fix="Set HERMES_HOME to a writable folder.",
        ) from error
    return path


def write_private(path: Path, text: str) -> None:
    """Replace a file atomically with mode 0600. Follows symbolic links."""
    path = path.resolve()
    make_folder(path.parent)
    temp = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.new")
    try:
        descriptor = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        temp.replace(path)
    finally:
        temp.unlink(missing_ok=True)


@contextmanager
def folder_lock(folder: Path) -> Generator[None]:
    """Hold the lock of a folder, against other threads and processes."""
    import fcntl  # noqa: PLC0415 -- few need it

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def open_private(path: Path) -> BinaryIO:
    """Open a file with mode 0600 for writing and truncate it."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE), "wb")


def touch_private(path: Path) -> None:
    """Create an empty file with mode 0600 unless it exists."""
    make_folder(path.parent)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, _FILE_MODE))
