"""The repository of a workspace in our home: trees of what its files hold.

Files that `.gitignore` excludes are not in the trees, unless a file tool writes them. The files of
repositories inside the workspace are; their `.git` is not. A file that is too large has a placeholder,
so that a change of it is seen; its content is not kept.
"""

import contextlib
import hashlib
import os
import stat
import zlib
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from hermes_agent.checkpoints import entries
from hermes_agent.checkpoints.entries import Entry
from hermes_agent.checkpoints.git import Git
from hermes_agent.turn.stop import Stop
from hermes_core.errors import CheckpointError
from hermes_core.paths import Home, folder_lock, make_folder
from hermes_core.settings import ToolSettings
from hermes_core.text import counted

_MB = 1_000_000
_TIMEOUT_S = 120.0
_MAX_NESTED_DEPTH = 8
"""Repositories within repositories that are looked into."""
_MAX_NEW_FILES = 300_000
_MIN_BULK = 500
"""New files from which they go into one pack."""
_EXCLUDES = ("--exclude-standard", "--exclude=!.gitignore")
"""What is ignored; the lists themselves never are."""
_SEED = ".hermes-seed"
_EMPTY_BLOB = entries.blob_id(b"")
_NO_ID = "0" * 40
_MAX_NOTES = 20
_MAX_GROUP = 64 * _MB
_MAX_LOOKED_AT = 20_000
"""Files of a folder that is to be deleted, up to which it is looked at whether all are covered."""


class Snapshot(NamedTuple):
    """Names the tree of what a workspace holds."""

    tree: str
    notes: Sequence[str]
    """What is not in it, and why, as sentences."""


class Change(NamedTuple):
    """A path whose content differs between two trees."""

    path: str
    before: Entry | None
    after: Entry | None


class _Candidates(NamedTuple):
    """Lists what changed since the last tree, as far as git sees it."""

    paths: list[str]
    repositories: list[str]


class Shadow:
    """The trees of one workspace. May be used by several conversations and processes."""

    def __init__(self, home: Home, workspace: Path, settings: ToolSettings) -> None:
        """Raises CheckpointError where there is no git."""
        self.workspace = os.path.realpath(workspace)
        name = hashlib.sha256(os.fsencode(self.workspace)).hexdigest()[:24]
        self.folder = home.checkpoints / name
        self.max_bytes = settings.checkpoint_file_mb * _MB
        self._max_total = settings.checkpoint_total_mb * _MB
        make_folder(self.folder)
        self._git = Git(self.folder, Path(self.workspace), home.root, _TIMEOUT_S)

    def close(self) -> None:
        self._git.close()

    # -- trees ----------------------------------------------------------------------------------

    def snapshot(self, forced: Collection[str] = (), stop: Stop | None = None) -> Snapshot:
        """Store what the workspace holds now, and of ignored files the `forced` ones.

        Raises CheckpointError, Interrupted.
        """
        with self._locked():
            try:
                return self._snapshot(forced, stop)
            except CheckpointError:
                if not (self.folder / "index").exists():
                    raise
                self._forget_index()  # a power cut may have broken it
                return self._snapshot(forced, stop)

    def _snapshot(self, forced: Collection[str], stop: Stop | None) -> Snapshot:
        paths = [*self._candidates(stop), *forced]
        sorted_out = self._sort_out(dict.fromkeys(paths))
        tree = self._store(sorted_out, stop)
        return Snapshot(tree, sorted_out.notes)

    def _candidates(self, stop: Stop | None) -> list[str]:
        """Return the paths that differ from the index; looks into repositories inside."""
        seeded: set[str] = set()
        found = self._list(stop)
        for _ in range(_MAX_NESTED_DEPTH):
            fresh = [name for name in found.repositories if name not in seeded]
            if not fresh:
                break
            seeded.update(fresh)
            # A folder with an entry in the index is a folder for git, whether or not it has a `.git`.
            seeds = [
                _index_line(Entry(entries.FILE, _EMPTY_BLOB), f"{name}{_SEED}") for name in fresh
            ]
            self._git.run("update-index", "-z", "--index-info", feed=b"".join(seeds), stop=stop)
            found = self._list(stop)
        return found.paths

    def _list(self, stop: Stop | None) -> _Candidates:
        changed, untracked = self._git.list_changed(_EXCLUDES, stop)
        paths = dict.fromkeys(map(os.fsdecode, changed.split(b"\0")))
        repositories: list[str] = []
        for name in map(os.fsdecode, untracked.split(b"\0")):
            if not name.endswith("/"):
                paths[name] = None
            elif _has_files(f"{self.workspace}/{name}"):
                repositories.append(name)
        paths.pop("", None)
        return _Candidates(list(paths), repositories)

    def _sort_out(self, paths: Iterable[str]) -> "_SortedOut":
        """Tell files to store from those that are too large or cannot be read."""
        result = _SortedOut([], [], {}, [])
        total = 0
        for path in paths:
            try:
                found = os.lstat(f"{self.workspace}/{path}")
            except OSError:
                result.stored.append(path)  # git sees that it is gone
                continue
            if stat.S_ISREG(found.st_mode) and found.st_size > self.max_bytes:
                placeholder = entries.placeholder(found)
                self._write_placeholder(placeholder)
                entry = Entry(entries.mode_of(found), entries.blob_id(placeholder))
                result.large[path] = entry
                result.notes.append(f"{path} is larger than {self.max_bytes // _MB} MB")
            elif stat.S_ISREG(found.st_mode) and not _is_readable(found):
                result.notes.append(f"{path} cannot be read")
            elif stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode):
                result.stored.append(path)
                total += found.st_size
            else:
                result.dropped.append(path)
        if total > self._max_total or len(result.stored) > _MAX_NEW_FILES:
            raise CheckpointError(
                f"{counted(len(result.stored), 'file')} with {total // _MB} MB are new in"
                f" {self.workspace}, too much for a checkpoint.",
                fix="List what can be made again in .gitignore, or raise tools.checkpoint_total_mb.",
            )
        if len(result.notes) > _MAX_NOTES:
            rest = len(result.notes) - _MAX_NOTES
            result.notes[_MAX_NOTES:] = [f"{counted(rest, 'more file')}"]
        return result

    def _store(self, found: "_SortedOut", stop: Stop | None) -> str:
        """Bring the index up to date and return its tree."""
        last = self._last()
        if (
            last.tree
            and not found.stored
            and not found.dropped
            and last.large == found.large_digest
        ):
            return last.tree
        self._remember(_Last())
        lines = [_index_line(entry, path) for path, entry in found.large.items()]
        lines += [_index_line(None, path) for path in found.dropped]
        if lines:
            feed = b"".join(lines)
            self._git.run("update-index", "-z", "--replace", "--index-info", feed=feed, stop=stop)
        tree = self._add(found.stored, stop)
        self._remember(_Last(tree, found.large_digest))
        return tree

    def _add(self, paths: Sequence[str], stop: Stop | None) -> str:
        """Add these paths to the index, or remove those that are gone; return its tree."""
        is_bulk = len(paths) >= _MIN_BULK and self._git.packs_in_bulk
        output = self._git.run(
            *(("-c", "core.bigFileThreshold=1") if is_bulk else ()),
            *("update-index", "-z", "--add", "--remove", "--replace", "--stdin"),
            feed=b"".join(map(_line, paths)),
            then="write-tree",
            stop=stop,
        )
        return output.decode().strip()

    def amended(self, tree: str, paths: Collection[str]) -> str:
        """Return a tree that also holds what is at these paths now; they stay in all later trees."""
        with self._locked():
            found = self._sort_out(paths)
            if found.stored:
                self._remember(_Last())
                self._add(found.stored, None)
            if not found.stored and not found.large:
                return tree
            listed = b""
            if found.stored:
                listed = self._git.run("ls-files", "-z", "-s", "--", *found.stored)
            variables = {"GIT_INDEX_FILE": str(self.folder / "amended")}
            self._git.run("read-tree", tree, variables=variables)
            lines = [
                _index_line(*_parsed_stage(line)) for line in filter(None, listed.split(b"\0"))
            ]
            lines += [_index_line(entry, path) for path, entry in found.large.items()]
            output = self._git.run(
                *("update-index", "-z", "--replace", "--index-info"),
                feed=b"".join(lines),
                then="write-tree",
                variables=variables,
            )
            return output.decode().strip()

    def changes(self, before: str, after: str) -> list[Change]:
        """Return what differs between two trees."""
        if before == after:
            return []
        with self._locked():
            output = self._git.run("diff-tree", "-r", "-z", "--raw", "--no-renames", before, after)
        fields = [os.fsdecode(field) for field in output.split(b"\0")]
        return [
            change
            for facts, path in zip(fields[::2], fields[1::2], strict=False)
            if entries.is_plain((change := _parsed_change(facts, path)).path)
        ]

    def contents(self, ids: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """Yield ids with their contents; what is missing, or is not what its id says, is left out."""
        with self._locked():
            for group in self._groups(sorted(ids)):
                feed = "".join(f"{name}\n" for name in group).encode()
                output = memoryview(self._git.run("cat-file", "--batch", feed=feed))
                for name, size in group.items():
                    start = len(f"{name} blob {size}\n")
                    data = bytes(output[start : start + size])
                    output = output[start + size + 1 :]
                    if entries.blob_id(data) == name:
                        yield name, data

    def _groups(self, ids: Sequence[str]) -> Iterator[dict[str, int]]:
        """Yield ids with their sizes, as many as fit into memory together."""
        feed = "".join(f"{name}\n" for name in ids).encode()
        lines = self._git.run("cat-file", "--batch-check", feed=feed).decode().splitlines()
        group: dict[str, int] = {}
        for name, kind, size in (line.split() for line in lines if line.count(" ") == 2):
            if kind == "blob":
                group[name] = int(size)
            if sum(group.values()) > _MAX_GROUP:
                yield group
                group = {}
        if group:
            yield group

    # -- what is covered -------------------------------------------------------------------------

    def is_ignored(self, path: str) -> bool:
        """Return whether `.gitignore` excludes a file, which need not be there, from the trees."""
        with self._locked():
            output = self._git.run(
                *("check-ignore", "-z", "--stdin"),
                feed=_line(f"./{path}"),
                variables={"GIT_LITERAL_PATHSPECS": "0"},  # it does not know them
                codes=(0, 1),
            )
            return bool(output)

    def covers(self, path: str) -> bool:
        """Return whether all that is below a path of the workspace is in the trees."""
        is_git = any(part.casefold() == ".git" for part in path.split("/"))
        if is_git or not _is_simple(f"{self.workspace}/{path}", self.max_bytes):
            return False
        with self._locked():
            return not self._git.run("ls-files", "-z", "-o", "-i", *_EXCLUDES, "--", path)

    def is_new(self, path: str, moment: float) -> bool:
        """Return whether all files at and below a path were made or changed after a moment."""
        top, looked_at = f"{self.workspace}/{path}", 0
        files = [top] if not Path(top).is_dir() or Path(top).is_symlink() else []
        for folder, folders, names in os.walk(top):
            looked_at += len(names) + len(folders)
            files += (f"{folder}/{name}" for name in names)
            if looked_at > _MAX_LOOKED_AT:
                return False
        return all(os.lstat(file).st_ctime > moment for file in files)

    def covers_tracked(self, path: str) -> bool:
        """Return whether changes of what the repository around a folder tracks are in the trees."""
        parts = [] if path == "." else path.split("/")
        names = ["/".join(parts[:count]) for count in range(len(parts), -1, -1)]
        tops = (os.path.join(self.workspace, name) for name in names)  # noqa: PTH118 -- "" is the top
        top = next((top.rstrip("/") for top in tops if Path(top, ".git").exists()), "")
        if not top or not Path(top, ".git", "index").is_file() or Path(top, ".git").is_symlink():
            return False  # none, or one that lies elsewhere
        variables = {"GIT_INDEX_FILE": f"{top}/.git/index", "GIT_WORK_TREE": top}
        with self._locked():
            words = ("ls-files", "-z", "-c", "-i", "--exclude-standard")
            if self._git.run(*words, variables=variables):
                return False  # git ignores a file, and tracks it
            changed = self._git.run("ls-files", "-z", "-m", variables=variables).split(b"\0")
            return all(_is_kept(f"{top}/{os.fsdecode(name)}", self.max_bytes) for name in changed)

    # -- upkeep ----------------------------------------------------------------------------------

    def keep(self, name: str, tree: str) -> None:
        """Keep a tree that no checkpoint needs, under a name."""
        (self.folder / "refs" / "undo" / name).write_text(f"{tree}\n", "utf-8")

    def size(self) -> int:
        """Return how many bytes the repository takes."""
        return sum(path.lstat().st_blocks * 512 for path in self.folder.rglob("*"))

    def prune(self, trees: Collection[str], kept_since: float) -> None:
        """Delete what neither these trees nor younger undos need."""
        with self._locked():
            refs = make_folder(self.folder / "refs" / "checkpoints")
            for ref in refs.iterdir():
                ref.unlink()
            for tree in trees:
                (refs / tree).write_text(f"{tree}\n", "utf-8")
            for ref in (self.folder / "refs" / "undo").iterdir():
                if ref.stat().st_mtime < kept_since:
                    ref.unlink()
            self._git.run("repack", "-a", "-d", "-q", "--window=0", "--depth=0")
            self._git.run("prune", "--expire=now")

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        with folder_lock(self.folder):
            for name in ("index.lock", "amended.lock"):
                (self.folder / name).unlink(missing_ok=True)  # of a process that was killed
            yield

    def _forget_index(self) -> None:
        (self.folder / "index").unlink(missing_ok=True)
        self._remember(_Last())

    def _last(self) -> "_Last":
        try:
            return msgspec.json.decode((self.folder / "last").read_bytes(), type=_Last)
        except (OSError, msgspec.DecodeError):
            return _Last()

    def _remember(self, last: "_Last") -> None:
        (self.folder / "last").write_bytes(msgspec.json.encode(last))

    def _write_placeholder(self, data: bytes) -> None:
        """Store the stand-in for a large file, so that no tree refers to what is missing."""
        name = entries.blob_id(data)
        path = self.folder / "objects" / name[:2] / name[2:]
        if not path.exists():
            make_folder(path.parent)
            path.write_bytes(zlib.compress(b"blob %d\0" % len(data) + data))


class _Last(msgspec.Struct, frozen=True):
    """The last tree; empty while the index is being changed."""

    tree: str = ""
    large: str = ""
    """A digest of the large files in it, which git reports as changed every time."""


class _SortedOut(NamedTuple):
    """Sorts the paths that changed by what to do about them."""

    stored: list[str]
    dropped: list[str]
    large: dict[str, Entry]
    notes: list[str]

    @property
    def large_digest(self) -> str:
        lines = sorted(_index_line(entry, path) for path, entry in self.large.items())
        return hashlib.sha256(b"".join(lines)).hexdigest() if lines else ""


def _line(path: str) -> bytes:
    return os.fsencode(path) + b"\0"


def _index_line(entry: Entry | None, path: str) -> bytes:
    facts = f"{entry.mode} {entry.id}\t" if entry else f"0 {_NO_ID}\t"
    return facts.encode() + _line(path)


def _parsed_stage(line: bytes) -> tuple[Entry, str]:
    """Read a line of `ls-files -s`: mode, id, stage, path."""
    facts, _, path = line.partition(b"\t")
    mode, name, _ = facts.decode().split()
    return Entry(mode, name), os.fsdecode(path)


def _parsed_change(facts: str, path: str) -> Change:
    """Read a line of `diff-tree --raw`: modes and ids before and after."""
    before_mode, after_mode, before_id, after_id, _ = facts.removeprefix(":").split()
    before = Entry(before_mode, before_id) if before_id != _NO_ID else None
    after = Entry(after_mode, after_id) if after_id != _NO_ID else None
    return Change(path, before, after)


def _has_files(folder: str) -> bool:
    """Return whether a repository has anything but its `.git`."""
    try:
        return any(path.name != ".git" for path in Path(folder).iterdir())
    except OSError:
        return False


def _is_readable(found: os.stat_result) -> bool:
    """Return whether git can read a file in the sandbox, where root is a user like others."""
    owner_reads, all_read = found.st_mode & stat.S_IRUSR, found.st_mode & stat.S_IROTH
    return bool(owner_reads if found.st_uid == os.geteuid() else all_read)


def _is_simple(path: str, max_bytes: int) -> bool:
    """Return whether there is nothing at or below a path that is never in a tree."""
    looked_at = 0
    for folder, folders, names in os.walk(path):
        looked_at += len(names) + len(folders)
        files = (f"{folder}/{name}" for name in names)
        if ".git" in (*folders, *names) or looked_at > _MAX_LOOKED_AT:
            return False
        if not all(_is_kept(file, max_bytes) for file in files):
            return False
    return _is_kept(path, max_bytes)


def _is_kept(path: str, max_bytes: int) -> bool:
    """Return whether the content of a file can be in a tree; nothing is lost where nothing lies."""
    try:
        found = os.lstat(path)
    except OSError:
        return True
    if not stat.S_ISREG(found.st_mode):
        return stat.S_ISLNK(found.st_mode) or stat.S_ISDIR(found.st_mode)
    return found.st_size <= max_bytes and _is_readable(found)
