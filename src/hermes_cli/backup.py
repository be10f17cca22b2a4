"""Back up a home into one archive while it is in use, and restore it.

The archive is a compressed tar: a manifest, a consistent copy of the store, then the other files. Files
that can be made or downloaded again are left out. A restore builds the new home beside the old one,
checks it, and puts it in its place by two renames; the old one is kept.
"""

import gzip
import io
import os
import stat
import tarfile
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple, cast

import msgspec

from hermes_core import config
from hermes_core.errors import HermesError, UsageError
from hermes_core.paths import Home, make_folder
from hermes_core.temp_folders import TempFolder
from hermes_core.version import VERSION
from hermes_state import SessionDB
from hermes_state.engines.sqlite.presence import alone_with

_MANIFEST = "manifest.json"
_FORMAT = 1
_MAX_MANIFEST_BYTES = 65_536
_DAMAGE = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError)
_LEFT_OUT = ("cache", "checkpoints", "logs", "models")
"""Folders that can be made or downloaded again."""
_RUNTIME_SUFFIXES = (".lock", ".pid")
_RUNTIME_FILES = ("gateway_state.json",)


class Manifest(msgspec.Struct, frozen=True):
    """The first member of an archive."""

    format: int
    version: str
    created_at: float


class Summary(NamedTuple):
    """The contents of an archive, counted."""

    manifest: Manifest
    files: int
    size: int
    """Bytes of the files."""


class Restored(NamedTuple):
    """The result of a restore."""

    summary: Summary
    previous: Path | None
    """Where the former home is kept now."""


def write(home: Home, target: BinaryIO, note: Callable[[str], None]) -> Summary:
    """Write the archive of a home that may be in use; `note` is called with what is left out."""
    manifest = Manifest(_FORMAT, VERSION, time.time())
    files = size = 0
    with (
        TempFolder("backup") as folder,
        tarfile.open(fileobj=target, mode="w|gz", format=tarfile.PAX_FORMAT) as archive,
    ):
        _add_bytes(archive, _MANIFEST, msgspec.json.encode(manifest))
        # The store comes first: files are written before the rows that name them.
        if home.database.exists():
            copy = folder / home.database.name
            with SessionDB(home.database, read_only=True) as store:
                store.backup(copy)
            size += _add(archive, copy, home.database.name) or 0
            files += 1
        for path in _files(home):
            try:
                added = _add(archive, path, path.relative_to(home.root).as_posix())
                size, files = size + (added or 0), files + (added is not None)
            except FileNotFoundError:
                continue  # deleted since it was listed
            except PermissionError as error:
                note(f"{path} was left out: {error.strerror}.")
    return Summary(manifest, files, size)


def read(source: BinaryIO, folder: Path | None = None) -> Summary:
    """Read an archive to its end, and extract it into an empty folder if one is given.

    Raises UsageError for what is not a whole archive of ours.
    """
    links: list[tarfile.TarInfo] = []
    manifest: Manifest | None = None
    files = size = 0
    with (
        _translated(),
        gzip.GzipFile(fileobj=source) as unpacked,
        tarfile.open(fileobj=unpacked, mode="r|") as archive,
    ):
        for member in archive:
            if manifest is None:
                manifest = _manifest(archive, member)
                continue
            member.name = _safe_name(member.name)
            files += not member.isdir()
            size += member.size
            if member.issym():
                links.append(member)
            elif member.isreg() or member.isdir():
                _extract(archive, member, folder)
            else:
                raise UsageError(f"The backup holds {member.name}, which is not a file.")
        while unpacked.read(1 << 20):  # its end has the checksum
            pass
    if manifest is None:
        raise UsageError("The backup is empty.", fix="Use another copy of it.")
    for link in links if folder is not None else ():  # last, so that nothing is written through one
        cast("Path", folder).joinpath(link.name).symlink_to(link.linkname)
    return Summary(manifest, files, size)


def restore(home: Home, source: BinaryIO) -> Restored:
    """Replace a home by the one in an archive; the former one is kept beside it.

    Raises StoreBusyError while a process has its store open, and UsageError for a bad archive.
    Nothing is changed then.
    """
    root = home.root.resolve()
    make_folder(root.parent)
    draft = root.with_name(f".{root.name}.restored-{os.urandom(4).hex()}")
    draft.mkdir(mode=0o700)
    try:
        summary = read(source, draft)
        _check(Home(draft))
        if not root.exists():
            draft.rename(root)
            return Restored(summary, None)
        with alone_with(home.database):
            previous = _free_name(root)
            root.rename(previous)
            draft.rename(root)
        return Restored(summary, previous)
    except OSError as error:
        raise UsageError(
            f"The backup could not be restored: {error.strerror} ({error.filename}).",
            fix="Nothing was changed. Choose a HERMES_HOME that is an ordinary folder.",
        ) from error
    finally:
        _remove(draft)


def _check(home: Home) -> None:
    """Raise an error unless the settings and the store of a home can be used."""
    config.load(home, environment={})
    if home.database.exists():
        with SessionDB(home.database) as store:
            problems = store.check()
        if problems:
            raise UsageError(
                f"The store in the backup is damaged: {problems[0]}.", fix="Use another copy."
            )


def _files(home: Home) -> Iterator[Path]:
    """Yield the folders, files and links to back up, parents first."""
    for folder, names, files in os.walk(home.root):
        here = Path(folder)
        is_top = here == home.root
        if is_top:
            names[:] = [name for name in names if name not in _LEFT_OUT]
            files = [name for name in files if not _is_runtime(name, home)]
        for name in sorted([*names, *files]):
            yield here / name


def _is_runtime(name: str, home: Home) -> bool:
    """Return whether a file belongs to running processes, or is part of the store or its index."""
    is_store = name.startswith(home.database.name)
    return is_store or name in _RUNTIME_FILES or name.endswith(_RUNTIME_SUFFIXES)


def _add(archive: tarfile.TarFile, path: Path, name: str) -> int | None:
    """Add a file, a link or a folder; return its size, or None unless it is a file or a link."""
    info = cast("tarfile.TarInfo | None", archive.gettarinfo(path, name))
    if info is None or not (info.isreg() or info.isdir() or info.issym() or info.islnk()):
        return None  # a socket or a pipe
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    if info.isdir() or info.issym():
        archive.addfile(info)
        return 0 if info.issym() else None
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        info.type, info.linkname, info.size = tarfile.REGTYPE, "", found.st_size
        archive.addfile(info, cast("BinaryIO", _Exactly(file, info.size)))
    return info.size


class _Exactly(io.RawIOBase):
    """Reads as many bytes as were announced; a file that shrinks meanwhile is filled up."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._missing = size

    def read(self, size: int = -1, /) -> bytes:
        count = self._missing if size < 0 else min(size, self._missing)
        data = self._file.read(count)
        data += b"\0" * (count - len(data))
        self._missing -= count
        return data


def _add_bytes(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = len(data), int(time.time()), 0o600
    archive.addfile(info, io.BytesIO(data))


def _manifest(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Manifest:
    file = archive.extractfile(member) if member.size <= _MAX_MANIFEST_BYTES else None
    if member.name != _MANIFEST or file is None:
        raise UsageError("This is not a backup of Hermes.", fix="Use a file of: hermes backup.")
    manifest = msgspec.json.decode(file.read(), type=Manifest)
    if manifest.format > _FORMAT:
        raise UsageError(
            f"This backup was made by a newer version ({manifest.version}).",
            fix="Update Hermes, then restore it.",
        )
    return manifest


def _safe_name(name: str) -> str:
    """Return the name of a member; raise UsageError if it leads out of the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
        raise UsageError(f"The backup holds an unsafe name: {name!r}.", fix="Do not restore it.")
    return str(path)


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path | None) -> None:
    source = archive.extractfile(member)
    if folder is None:
        while source is not None and source.read(1 << 20):
            pass
        return
    path = folder / member.name
    if member.isdir():
        make_folder(path)
        return
    make_folder(path.parent)
    mode = stat.S_IRUSR | stat.S_IWUSR | (member.mode & stat.S_IXUSR)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        while source is not None and (data := source.read(1 << 20)):
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.utime(path, (member.mtime, member.mtime))


@contextmanager
def _translated() -> Generator[None]:
    """Turn the errors of a file that is not an archive into ours."""
    try:
        yield
    except HermesError:
        raise
    except (*_DAMAGE, msgspec.MsgspecError, ValueError) as error:
        raise UsageError(
            f"The file is not a backup, or it is damaged: {error}.", fix="Use another copy of it."
        ) from error


def _free_name(root: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    candidates = (root.with_name(f"{root.name}.before-{stamp}{end}") for end in ("", "-2", "-3"))
    return next(path for path in candidates if not path.exists())


def _remove(folder: Path) -> None:
    import shutil  # noqa: PLC0415 -- only a failed restore needs it

    shutil.rmtree(folder, ignore_errors=True)
