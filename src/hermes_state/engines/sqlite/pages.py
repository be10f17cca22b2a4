"""Read the pages of a store file without SQLite, to recover rows when pages are damaged.

SQLite stops at the first damaged page of a table. Here each page is read on its own: a tree is walked as
far as its pages lead, an invalid cell loses only that cell, and pages that no tree leads to can be read
one by one. The format is that of https://sqlite.org/fileformat2.html. Nothing is written, and callers
must expect values that fit no column.
"""

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from hermes_state.engines.sqlite.connection import is_head

Value = int | float | str | bytes | None
Fits = Callable[["Record"], bool]

_HEADER_BYTES = 100
_INNER_INDEX, _INNER_TABLE, _LEAF_INDEX, _LEAF_TABLE = 2, 5, 10, 13
_INNER = (_INNER_INDEX, _INNER_TABLE)
_OF_TABLES = (_INNER_TABLE, _LEAF_TABLE)
_OF_INDEXES = (_INNER_INDEX, _LEAF_INDEX)
_WIDTHS = (0, 1, 2, 3, 4, 6, 8)
_USUAL_PAGE_BYTES = 4096
_LOG_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_LOG_MAGIC = (0x377F0682, 0x377F0683)


class Record(NamedTuple):
    """A row of a table, or an entry of an index (without a row id)."""

    number: int | None
    values: tuple[Value, ...]


class Walk:
    """Counts the damage that a walk through one tree finds."""

    def __init__(self) -> None:
        self.lost_pages = 0
        self.lost_cells = 0
        self.garbled = 0
        """Rows with text that is not valid UTF-8; the invalid bytes were replaced by �."""

    def add(self, page: "Walk") -> None:
        self.lost_cells += page.lost_cells
        self.garbled += page.garbled

    @property
    def is_whole(self) -> bool:
        return not self.lost_pages and not self.lost_cells


class _DamagedError(Exception):
    """Raised for bytes that do not match the file format."""


class Pages:
    """The pages of a file, with the committed pages of its log applied."""

    def __init__(self, read: Callable[[int, int], bytes], size: int, log: bytes = b"") -> None:
        """`read` takes a size and an offset, and returns fewer bytes at the end of the file."""
        self._read = read
        header = read(_HEADER_BYTES, 0)
        named = _page_bytes(header) if is_head(header) else 0
        self.page_bytes = named or _page_bytes(log[8:12], 2) or _USUAL_PAGE_BYTES
        self.in_log, pages = _committed(log, self.page_bytes)
        self._log = log
        self.count = pages or -(-size // self.page_bytes)
        first = self.page(1) or b""
        named = int.from_bytes(first[60:64], "big", signed=True) if is_head(first) else 0
        self.version = max(named, 0)
        """The schema version in the header; 0 when the header is damaged."""
        reserved = first[20] if is_head(first) else 0
        self._usable = self.page_bytes - reserved
        self._assigned: set[int] = set()
        """Pages that were assigned to a tree or an overflow chain, or are free; each is read once."""

    def page(self, number: int) -> bytes | None:
        """Return a page, padded with zeros at the end of the file, or None."""
        if not 1 <= number <= self.count:
            return None
        if number in self.in_log:
            at = self.in_log[number]
            return self._log[at : at + self.page_bytes]
        found = self._read(self.page_bytes, (number - 1) * self.page_bytes)
        return found.ljust(self.page_bytes, b"\0") if found else None

    def walk(self, root: int, walk: Walk, fits: Fits, *, of_index: bool) -> Iterator[Record]:
        """Return the rows of a tree; a page without a fitting row belongs to another tree."""
        waiting = [root]
        while waiting:
            number = waiting.pop()
            page = None if number in self._assigned else self.page(number)
            if page is None or _kind(page, number) not in (_OF_INDEXES if of_index else _OF_TABLES):
                walk.lost_pages += 1
                continue
            found = Walk()
            records, below, chained = self._content(page, number, found)
            if records and not any(fits(record) for record in records):
                walk.lost_pages += 1
                continue
            self._assigned.add(number)
            self._assigned |= chained
            walk.add(found)
            waiting += reversed(below)
            yield from records

    def strays(self, *, of_index: bool) -> Iterator[tuple[list[Record], Walk]]:
        """Return the rows of each page that no walk reached and that is not free."""
        kinds = (_LEAF_INDEX, _INNER_INDEX) if of_index else (_LEAF_TABLE,)
        for number in range(2, self.count + 1):
            page = None if number in self._assigned else self.page(number)
            if page is not None and page[0] in kinds:
                walk = Walk()
                yield self._content(page, number, walk)[0], walk

    def leave_out_free_pages(self) -> None:
        """Exclude free pages, which may still contain deleted rows."""
        first = self.page(1) or bytes(_HEADER_BYTES)
        trunk = int.from_bytes(first[32:36], "big")
        while trunk and trunk not in self._assigned and (page := self.page(trunk)) is not None:
            self._assigned.add(trunk)
            trunk, count = struct.unpack_from(">II", page)
            if count <= self._usable // 4 - 2:
                self._assigned.update(struct.unpack_from(f">{count}I", page, 8))

    def _content(
        self, page: bytes, number: int, walk: Walk
    ) -> tuple[list[Record], list[int], set[int]]:
        """Return the rows of a page, its child pages, and the overflow pages of its rows."""
        start = _HEADER_BYTES if number == 1 else 0
        kind = page[start]
        cells, last = struct.unpack_from(">3xH3xI", page, start)
        pointers = start + (12 if kind in _INNER else 8)
        room = (self.page_bytes - pointers) // 2
        walk.lost_cells += max(0, cells - room)
        records: list[Record] = []
        below: list[int] = []
        chained: set[int] = set()
        for (at,) in struct.iter_unpack(">H", page[pointers : pointers + 2 * min(cells, room)]):
            try:
                if kind in _INNER:
                    below += struct.unpack_from(">I", page, at)
                if kind != _INNER_TABLE:
                    records.append(self._cell(page, at, kind, walk, chained))
            except (_DamagedError, IndexError, struct.error):
                walk.lost_cells += 1
        return records, [*below, last] if kind in _INNER else below, chained

    def _cell(self, page: bytes, at: int, kind: int, walk: Walk, chained: set[int]) -> Record:
        size, at = _varint(page, at + (4 if kind == _INNER_INDEX else 0))
        number = None
        if kind == _LEAF_TABLE:
            number, at = _varint(page, at)
            number = number - (1 << 64) if number >> 63 else number
        most = self._usable - 35 if kind == _LEAF_TABLE else (self._usable - 12) * 64 // 255 - 23
        return Record(number, _values(self._payload(page[at:], size, most, chained), walk))

    def _payload(self, rest: bytes, size: int, most: int, chained: set[int]) -> bytes:
        """Return the bytes of a row, including its overflow pages."""
        if size > self.count * self.page_bytes:
            raise _DamagedError
        if size <= most:
            found = rest[:size]
        else:
            least = (self._usable - 12) * 32 // 255 - 23
            here = least + (size - least) % (self._usable - 4)
            here = here if here <= most else least
            following = int.from_bytes(rest[here : here + 4], "big")
            found = rest[:here] + self._overflow(following, size - here, chained)
        if len(found) != size:
            raise _DamagedError
        return found

    def _overflow(self, number: int, size: int, chained: set[int]) -> bytes:
        """Return the rest of a long row from its overflow pages."""
        pieces: list[bytes] = []
        while size > 0:
            page = None if number in self._assigned or number in chained else self.page(number)
            if page is None:
                raise _DamagedError
            chained.add(number)
            pieces.append(page[4 : min(self._usable, 4 + size)])
            size -= len(pieces[-1])
            number = int.from_bytes(page[:4], "big")
        return b"".join(pieces)


def _kind(page: bytes, number: int) -> int:
    return page[_HEADER_BYTES if number == 1 else 0]


def _page_bytes(header: bytes, at: int = 16) -> int:
    """Return the page size in a header, or 0 when it is invalid."""
    found = int.from_bytes(header[at : at + 2], "big")
    found = 65_536 if found == 1 else found
    return found if 512 <= found <= 65_536 and not found & (found - 1) else 0


def _varint(data: bytes, at: int) -> tuple[int, int]:
    found = 0
    for place in range(at, at + 8):
        found = found << 7 | data[place] & 0x7F
        if data[place] < 0x80:
            return found, place + 1
    return found << 8 | data[at + 8], at + 9


def _values(payload: bytes, walk: Walk) -> tuple[Value, ...]:
    end, at = _varint(payload, 0)
    if not 0 < end <= len(payload):
        raise _DamagedError
    found: list[Value] = []
    body = end
    garbled = False
    while at < end:
        kind, at = _varint(payload, at)
        size = _WIDTHS[kind] if kind < 7 else 8 if kind == 7 else max(0, kind - 12) // 2
        piece = payload[body : body + size]
        if len(piece) != size or kind in (10, 11):
            raise _DamagedError
        body += size
        try:
            found.append(_value(kind, piece))
        except UnicodeDecodeError:
            found.append(piece.decode(errors="replace"))
            garbled = True
    if body != len(payload):
        raise _DamagedError
    walk.garbled += garbled
    return tuple(found)


def _value(kind: int, piece: bytes) -> Value:
    if kind == 0:
        return None
    if kind < 7:
        return int.from_bytes(piece, "big", signed=True)
    if kind == 7:
        return struct.unpack(">d", piece)[0]
    if kind < 10:
        return kind - 8
    return piece.decode() if kind % 2 else piece


def _committed(log: bytes, page_bytes: int) -> tuple[dict[int, int], int]:
    """Return the offset of the newest committed version of each page in a log, and the page count."""
    if len(log) < _LOG_HEADER_BYTES or int.from_bytes(log[:4], "big") not in _LOG_MAGIC:
        return {}, 0
    order = ">" if log[3] & 1 else "<"
    if _page_bytes(log[8:12], 2) != page_bytes:
        return {}, 0
    sums = _checksum(order, log[:24], (0, 0))
    if sums != struct.unpack_from(">II", log, 24):
        return {}, 0
    committed: dict[int, int] = {}
    pending: dict[int, int] = {}
    pages = 0
    step = _FRAME_HEADER_BYTES + page_bytes
    for at in range(_LOG_HEADER_BYTES, len(log) - step + 1, step):
        number, size_after = struct.unpack_from(">II", log, at)
        start = at + _FRAME_HEADER_BYTES
        sums = _checksum(order, log[at : at + 8], sums)
        sums = _checksum(order, log[start : start + page_bytes], sums)
        if log[at + 8 : at + 16] != log[16:24] or sums != struct.unpack_from(">II", log, at + 16):
            break  # an older frame, or an incomplete one
        pending[number] = start
        if size_after:
            committed |= pending
            pending.clear()
            pages = size_after
    return committed, pages


def _checksum(order: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
