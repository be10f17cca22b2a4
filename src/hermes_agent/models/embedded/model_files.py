"""The shelf: which model files lie in the home, and what is known about each.

A model is `models/NAME.gguf` with its record `models/NAME.json` beside it. The record is written last,
so a file without one is unfinished; a file whose size or time has changed since is checked anew.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from hermes_agent.models.embedded import catalog
from hermes_core.errors import ModelMissingError
from hermes_core.paths import Home, write_private

_CHUNK = 1024 * 1024


class Record(msgspec.Struct, frozen=True):
    """The facts about a file at the time it was stored."""

    sha256: str
    bytes: int
    mtime_ns: int
    source: str
    """Where it came from: the user's path, or the address of the hub."""
    notice: str
    """The author."""


def installed(home: Home) -> list[str]:
    """The models that can be used now: the user's own, latest first, then in the catalog's order."""
    catalogued = [entry.name for entry in catalog.entries()]
    there = {path.stem: path for path in home.models.glob("*.gguf") if record(home, path.stem)}
    own = sorted(there.keys() - set(catalogued), key=lambda name: -_record_time(home, name))
    return [*own, *(name for name in catalogued if name in there)]


def path_of(home: Home, name: str = "") -> Path:
    """The file of a model, of the first one without a name; raises ModelMissingError."""
    there = installed(home)
    entry = catalog.find(name)
    chosen = entry.name if entry else name
    if not there:
        raise ModelMissingError(
            "The embedded model is not downloaded yet.", fix="Download it: hermes model pull."
        )
    if chosen and chosen not in there:
        raise ModelMissingError(
            f"The model {chosen} is not here; there is {', '.join(there)}.",
            fix=f"Download it: hermes model pull {chosen}." if entry else "Use one of these.",
        )
    return file_of(home, chosen or there[0])


def file_of(home: Home, name: str) -> Path:
    """Return the path of the file of that name."""
    return home.models / f"{name}.gguf"


def record(home: Home, name: str) -> Record | None:
    """Read the record of a file; None when it is not complete or not the one that was checked."""
    try:
        found = msgspec.json.decode(_record_of(home, name).read_bytes(), type=Record)
        state = file_of(home, name).stat()
    except (OSError, msgspec.DecodeError):
        return None
    if (state.st_size, state.st_mtime_ns) != (found.bytes, found.mtime_ns):
        return None
    return found


def put_record(home: Home, name: str, *, sha256: str, source: str, notice: str) -> None:
    """Note that the file of that name is complete and has this hash."""
    state = file_of(home, name).stat()
    found = Record(sha256, state.st_size, state.st_mtime_ns, source, notice)
    write_private(_record_of(home, name), msgspec.json.encode(found).decode())


def drop_record(home: Home, name: str) -> None:
    """Forget what was known; the file counts as unfinished from now on."""
    _record_of(home, name).unlink(missing_ok=True)


def sha256(path: Path, seen: Callable[[int], None]) -> str:
    """The hash of a file; `seen` is told how many bytes were read."""
    digest = hashlib.sha256()
    done = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            seen(done)
    return digest.hexdigest()


def _record_of(home: Home, name: str) -> Path:
    return home.models / f"{name}.json"


def _record_time(home: Home, name: str) -> float:
    try:
        return _record_of(home, name).stat().st_mtime
    except FileNotFoundError:
        return 0.0
