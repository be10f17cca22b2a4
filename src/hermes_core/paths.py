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
    """Names of what lies in the home; nothing is created by asking for a name."""

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
        """Instructions that are used as slash commands, one folder each."""
        return self.root / "skills"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def cache(self) -> Path:
        """Return what may be deleted at any time and is made again."""
        return self.root / "cache"

    @property
    def policy(self) -> Path:
        return self.root / "policy.toml"

    @property
    def memories(self) -> Path:
        return self.root / "memories"

    @property
    def outputs(self) -> Path:
        """Whole outputs of commands, of which the model was shown a part."""
        return self.root / "outputs"

    @property
    def history(self) -> Path:
        """Return what was typed into `hermes chat`."""
        return self.root / "history"

    @property
    def sessions(self) -> Path:
        """Return where the gateway's readable list of routes lies."""
        return self.root / "sessions"

    @property
    def gateway(self) -> Path:
        """Return what the gateway and its platforms keep: state of the process, keys, cursors."""
        return self.root / "gateway"

    @property
    def attachments(self) -> Path:
        """Files that came with messages."""
        return self.root / "attachments"

    def create(self) -> "Home":
        """Make the folder, readable by its owner alone."""
        make_folder(self.root)
        return self


def make_folder(path: Path) -> Path:
    """Make a folder and its parents with mode 0700; one that exists keeps its mode."""
    try:
        # mkdir(parents=True) would give the parents the mode of the umask.
        missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
        for folder in reversed(missing):
            folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"The folder {path} cannot be made: {error.strerror}.",
            fix="Set HERMES_HOME to a folder you may write to.",
        ) from error
    return path


def write_private(path: Path, text: str) -> None:
    """Replace a file as a whole, readable by its owner alone, or leave the old one as it was.

    Where a link stands, the file that it leads to is replaced.
    """
    path = path.resolve()
    make_folder(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.new")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as f:
            f.write(text)
            f.flush()
            os.fsync(f.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def alone_in(folder: Path) -> Generator[None]:
    """Be the only one that changes something in a folder, of all threads and processes that ask."""
    import fcntl  # noqa: PLC0415 -- few need it

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def open_private(path: Path) -> BinaryIO:
    """Open a new file for writing, readable by its owner alone; an old one is emptied."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE), "wb")


def touch_private(path: Path) -> None:
    """Make an empty file with mode 0600, unless there is one."""
    make_folder(path.parent)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, _FILE_MODE))
