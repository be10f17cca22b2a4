"""Pulling: getting a model file into the home, whole and checked.

The file is one that the user names, or the one in the authors' repository on the model hub. What is
fetched is appended to an unfinished file, with which the next attempt goes on. It counts only when its
hash is the one that its authors published.
"""

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple, NoReturn

from hermes_agent.models.embedded import catalog, hardware, model_files
from hermes_agent.models.embedded import gguf as gguf_file
from hermes_agent.models.embedded import hub as model_hub
from hermes_agent.models.embedded.catalog import Entry
from hermes_agent.models.embedded.progress import Progress, Step, ignore
from hermes_core.errors import ModelMissingError, ModelUnreachableError, UsageError
from hermes_core.locks import LockFile, LockHeldError
from hermes_core.paths import Home, make_folder
from hermes_core.settings import ModelSettings
from hermes_core.text import human_size

_SPARE_BYTES = 200_000_000
"""What stays free on the disk: a piece on its way, and room for the conversations."""


class Choice(NamedTuple):
    """The model that suits this machine, and the reason."""

    name: str
    reason: str


def choose(home: Home) -> Choice:
    """The best model that disk and memory have room for; the lightest one when none fits."""
    free, spare = _free_bytes(home), hardware.available_bytes()
    lacking = ""
    for entry in catalog.entries():
        lack = _shortage(entry, free + _unfinished(home, entry), spare)
        if not lack:
            return Choice(entry.name, lacking or "it is the default")
        lacking = lacking or lack
    return Choice(catalog.entries()[-1].name, lacking)


def pull(
    name: str | None,
    home: Home,
    *,
    gguf: Path | None = None,
    hub: str | None = None,
    progress: Progress = ignore,
) -> Path:
    """Get a model and return its file; at once when it is here already.

    Without a name the one that suits the machine is taken. `gguf` is a file of the user's own, `hub` the
    address of the model hub (None: the usual one, empty: it is not asked). Raises UsageError for a wrong
    name or file, ModelMissingError when the model cannot be had.
    """
    if gguf is not None:
        return adopt(name, gguf, home, progress)
    entry = catalog.get(name or choose(home).name)
    return fetch(entry, home, hub=ModelSettings().hub if hub is None else hub, progress=progress)


def fetch(entry: Entry, home: Home, *, hub: str, progress: Progress = ignore) -> Path:
    """Get a model of the catalog from the model hub; raises ModelMissingError."""
    make_folder(home.models)
    with _locked(home, entry.name, progress):
        if not _is_here(home, entry, progress):
            _fetch(home, entry, hub, progress)
        progress(Step(entry.notice))
    return model_files.file_of(home, entry.name)


def _is_here(home: Home, entry: Entry, progress: Progress) -> bool:
    found = model_files.record(home, entry.name)
    if found is not None:
        return found.sha256 == entry.sha256
    path = model_files.file_of(home, entry.name)
    if not path.exists() or path.stat().st_size != entry.bytes:
        return False
    if not _is_official(path, entry, progress):  # brought here by hand, or damaged since
        return False
    model_files.put_record(
        home, entry.name, sha256=entry.sha256, source=str(path), notice=entry.notice
    )
    return True


def _fetch(home: Home, entry: Entry, hub: str, progress: Progress) -> None:
    _check_room(home, entry)
    partial = home.models / f".{entry.name}.part"
    try:
        _complete(entry, partial, hub, progress)
    except ModelUnreachableError as error:
        raise ModelMissingError(
            f"{entry.name} cannot be downloaded. {error.message}",
            fix=f"Try again later, or get {entry.file} elsewhere and run: hermes model pull"
            " --gguf PATH.",
        ) from error
    except OSError as error:
        _fail_on_disk(error, partial)
    model_files.drop_record(home, entry.name)
    partial.chmod(0o600)
    partial.replace(model_files.file_of(home, entry.name))
    model_files.put_record(home, entry.name, sha256=entry.sha256, source=hub, notice=entry.notice)


def _complete(entry: Entry, partial: Path, hub: str, progress: Progress) -> None:
    """Finish the file and compare its hash; one that was damaged before is fetched anew."""
    if not hub:
        raise ModelUnreachableError("model.hub is empty, so no hub is asked.")
    is_begun = partial.exists() and partial.stat().st_size > 0
    model_hub.fetch(entry, partial, hub, progress)
    if _is_official(partial, entry, progress):
        return
    partial.unlink()
    if is_begun:
        progress(Step("The partial download was damaged; downloading it again."))
        _complete(entry, partial, hub, progress)
        return
    raise ModelUnreachableError(
        f"What {hub} sent is not the file that {entry.authors} published; it was removed."
    )


def _is_official(path: Path, entry: Entry, progress: Progress) -> bool:
    def seen(count: int) -> None:
        progress(Step("checking", count, entry.bytes))

    return model_files.sha256(path, seen) == entry.sha256


def adopt(name: str | None, source: Path, home: Home, progress: Progress = ignore) -> Path:
    """Put a link to the user's own file on the model_files."""
    make_folder(home.models)
    path = source.expanduser().absolute()
    head = gguf_file.check(path)
    size = path.stat().st_size
    digest = model_files.sha256(path, lambda count: progress(Step("checking", count, size)))
    entry = next((entry for entry in catalog.entries() if entry.sha256 == digest), None)
    chosen = _name_for(name, path, entry)
    with _locked(home, chosen, progress):
        model_files.drop_record(home, chosen)
        _link(path, model_files.file_of(home, chosen))
        notice = entry.notice if entry else _own_notice(path, head)
        model_files.put_record(home, chosen, sha256=digest, source=str(path), notice=notice)
    if entry is None:
        progress(Step(f"{path.name} is not in the catalog, so it cannot be verified."))
    progress(Step(notice))
    return model_files.file_of(home, chosen)


def _name_for(name: str | None, path: Path, entry: Entry | None) -> str:
    """Choose the name of the user's file; a name of the catalog belongs to its file alone."""
    expected = catalog.find(name) if name else None
    if expected and expected != entry:
        raise UsageError(
            f"{path} is not {expected.title}: its SHA-256 differs.",
            fix="Leave the name out, or give another one.",
        )
    if entry:
        return entry.name
    chosen = re.sub(r"[^a-z0-9._-]+", "-", (name or path.stem).lower()).strip("-.")
    if not chosen or catalog.find(chosen):
        raise UsageError(
            f"{name or path.stem!r} cannot be the name of this file.",
            fix="Give another one: hermes model pull NAME --gguf PATH.",
        )
    return chosen


def _own_notice(path: Path, head: dict[str, gguf_file.Value]) -> str:
    author = head.get("general.author") or head.get("general.organization") or "unknown authors"
    licence = head.get("general.license") or "not stated"
    return f"{head.get('general.name') or path.stem}, by {author}, licence {licence}."


def _link(path: Path, target: Path) -> None:
    if path == target:
        return
    draft = target.with_name(f".{target.name}.{os.getpid()}.new")
    draft.unlink(missing_ok=True)
    try:
        draft.symlink_to(path)
    except OSError:  # a file system without links
        shutil.copyfile(path, draft)
        draft.chmod(0o600)
    draft.replace(target)


@contextlib.contextmanager
def _locked(home: Home, name: str, progress: Progress) -> Generator[None]:
    """Exclude other pulls of the same model; the second one finds it done."""
    lock = LockFile(home.models / f".{name}.lock")
    try:
        lock.acquire()
    except LockHeldError:
        progress(Step(f"Another process is downloading {name}; waiting for it."))
        lock.acquire(wait=True)
    try:
        yield
    finally:
        lock.release()


def _shortage(entry: Entry, free: int, spare: int | None) -> str:
    """Say what the machine has too little of for this model; empty when there is enough."""
    if free < entry.bytes + _SPARE_BYTES:
        return (
            f"{entry.name} needs {human_size(entry.bytes + _SPARE_BYTES)} on the disk, "
            f"{human_size(free)} are free"
        )
    if spare is not None and spare < entry.memory_bytes:
        return (
            f"{entry.name} needs {human_size(entry.memory_bytes)} of memory, "
            f"{human_size(spare)} are free"
        )
    return ""


def _check_room(home: Home, entry: Entry) -> None:
    free = _free_bytes(home) + _unfinished(home, entry)
    if lack := _shortage(entry, free, None):
        raise ModelMissingError(
            f"There is not enough space: {lack}.",
            fix=f"Free some space, or set HERMES_HOME to a larger disk than that of {home.root}.",
        )


def _unfinished(home: Home, entry: Entry) -> int:
    try:
        return (home.models / f".{entry.name}.part").stat().st_size
    except FileNotFoundError:
        return 0


def _free_bytes(home: Home) -> int:
    place = next(path for path in (home.models, *home.models.parents) if path.exists())
    return shutil.disk_usage(place).free


def _fail_on_disk(error: OSError, partial: Path) -> NoReturn:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise ModelMissingError(
            f"The disk of {partial.parent} is full; the partial download is kept.",
            fix="Free some space and pull again; the download resumes.",
        ) from error
    raise ModelMissingError(
        f"{partial} cannot be written: {error.strerror}.", fix="Check the folder's permissions."
    ) from error
