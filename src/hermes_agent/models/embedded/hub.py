"""The model hub: fetching a file from its authors' repository, from wherever the last attempt ended."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.models.embedded.catalog import Entry
from hermes_agent.models.embedded.progress import Progress, Step
from hermes_core.errors import ModelUnreachableError

if TYPE_CHECKING:
    import httpx2

_CONNECT_TIMEOUT_S = 5.0
_READ_TIMEOUT_S = 30.0
_MAX_VAIN_ATTEMPTS = 3
"""How often in a row a connection may bring nothing new before the hub is given up."""

_PARTIAL, _WHOLE, _BEYOND = 206, 200, 416


def address(entry: Entry, hub: str) -> str:
    """The file's URL on the hub."""
    return f"{hub.rstrip('/')}/{entry.repository}/resolve/main/{entry.file}"


def fetch(entry: Entry, partial: Path, hub: str, progress: Progress) -> None:
    """Append to `partial` what is missing of the file; raises ModelUnreachableError.

    A connection that breaks off is made again as long as each one brings something.
    """
    import httpx2  # noqa: PLC0415 -- a tenth of a second that other commands need not pay

    timeout = httpx2.Timeout(_READ_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S)
    vain = 0
    with httpx2.Client(follow_redirects=True, timeout=timeout) as client:
        while (have := _size(partial)) < entry.bytes:
            try:
                _receive(client, entry, partial, hub, progress)
            except (httpx2.TransportError, httpx2.TooManyRedirects, httpx2.InvalidURL) as error:
                reason = f"{type(error).__name__}: {error}".rstrip(": ")
                if _size(partial) == 0:
                    raise _unreachable(entry, hub, reason) from error
            else:
                reason = "it sends less than the whole file"
            vain = vain + 1 if _size(partial) <= have else 0
            if vain >= _MAX_VAIN_ATTEMPTS:
                raise _unreachable(entry, hub, reason)


def _receive(
    client: "httpx2.Client", entry: Entry, partial: Path, hub: str, progress: Progress
) -> None:
    have = _size(partial)
    # Compressed on the way, the bytes could not be counted.
    headers = {"Range": f"bytes={have}-", "Accept-Encoding": "identity"}
    with client.stream("GET", address(entry, hub), headers=headers) as answer:
        if answer.status_code == _BEYOND:
            partial.unlink(missing_ok=True)
            return
        start = _start(answer, entry, hub, have)
        _write(answer.iter_raw(), entry, partial, start, progress)


def _start(answer: "httpx2.Response", entry: Entry, hub: str, have: int) -> int:
    """Return the offset at which the response body begins; raise when it is not the file we want."""
    if answer.status_code == _PARTIAL:
        span = re.match(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
        if span and int(span[1]) == have and int(span[2]) == entry.bytes:
            return have
        raise _unreachable(entry, hub, "it has another file under this name")
    if answer.status_code != _WHOLE:
        raise _unreachable(entry, hub, f"it answered {answer.status_code}")
    length = answer.headers.get("Content-Length", "")
    if length and length != str(entry.bytes):
        raise _unreachable(entry, hub, "it has another file under this name")
    return 0


def _write(
    chunks: Iterator[bytes], entry: Entry, partial: Path, start: int, progress: Progress
) -> None:
    with partial.open("r+b") as file:
        file.truncate(start)
        file.seek(start)
        done = start
        for chunk in chunks:
            file.write(chunk[: entry.bytes - done])
            done = min(done + len(chunk), entry.bytes)
            progress(Step("from the model hub", done, entry.bytes))


def _size(partial: Path) -> int:
    if not partial.exists():
        partial.touch(mode=0o600)
    return partial.stat().st_size


def _unreachable(entry: Entry, hub: str, reason: str) -> ModelUnreachableError:
    return ModelUnreachableError(f"The model hub at {hub} did not deliver {entry.file}: {reason}.")
