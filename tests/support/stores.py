"""New stores for tests: a copy of one that was made once in this process.

To make a store takes all the steps of its schema and several syncs of the disk, and most tests want any
store. The original comes from the code under test, and each copy has an id of its own.
"""

import os
import secrets
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from hermes_state import SessionDB
from hermes_state.engines.sqlite import connection

_create_file = connection.create_file


def copy_new_stores(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let new store files be copies of a template, which is made in a folder when it is needed."""
    monkeypatch.setattr(connection, "create_file", _copier(folder))


@cache
def _copier(folder: Path) -> Callable[[Path], None]:
    @cache
    def template() -> tuple[bytes, bytes]:
        path = folder / f"template-{os.getpid()}.db"
        connection.create_file, patched = _create_file, connection.create_file
        try:
            with SessionDB(path) as store:
                id_ = store.read(
                    lambda tx: tx.value("SELECT value FROM meta WHERE key = 'store_id'")
                )
        finally:
            connection.create_file = patched
        return path.read_bytes(), str(id_).encode()

    def copy(path: Path) -> None:
        data, id_ = template()
        assert data.count(id_) == 1
        try:
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except OSError:  # for the errors of the real one
            _create_file(path)
            return
        with os.fdopen(handle, "wb") as file:
            file.write(data.replace(id_, secrets.token_hex(len(id_) // 2).encode()))

    return copy
