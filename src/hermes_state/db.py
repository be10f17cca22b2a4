"""Implement SessionDB, the store on SQLite: each method runs one transaction or one snapshot.

Functions of the ledger compose into one transaction through `write`; methods do not.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import apsw

import hermes_state
from hermes_state import search, transfer
from hermes_state.engines.sqlite import integrity, maintenance
from hermes_state.engines.sqlite.connection import MEMORY
from hermes_state.engines.sqlite.database import Database
from hermes_state.engines.sqlite.index import SearchIndex
from hermes_state.engines.sqlite.maintenance import Age
from hermes_state.ledger import listing, messages, sessions, titles
from hermes_state.ledger.records import message_from, seconds
from hermes_state.search import MessageFilter
from hermes_state.store import Transactional, Tx
from hermes_state.transfer import Report
from hermes_state.values import Filter, NewMessage, Row, Sort

P = ParamSpec("P")
T = TypeVar("T")


class SessionDB:
    """Stores all conversations in one file that several processes may share."""

    MAX_TITLE_LENGTH = titles.MAX_LENGTH

    def __init__(
        self,
        db_path: Path | str | None = None,
        read_only: bool = False,
        *,
        busy_timeout_s: float = 30.0,
        vfs: str | None = None,
    ) -> None:
        """Open the store, creating or migrating it as needed.

        `:memory:` opens a store that lives as long as this object.
        """
        self.path = Path(hermes_state.DEFAULT_DB_PATH if db_path is None else db_path)
        self._database = Database(
            self.path, read_only=read_only, busy_timeout_s=busy_timeout_s, vfs=vfs
        )
        self.index = SearchIndex(self._database)
        self._database.on_commit = self.index.stir

    @classmethod
    def in_memory(cls) -> "SessionDB":
        """Return a store in memory."""
        return cls(MEMORY)

    # -- the door --------------------------------------------------------------------------------

    def write(self, fn: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` in one transaction and return its result when it is on disk."""
        return self._database.write(fn, *args, **kwargs)

    def read(self, fn: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` on one snapshot."""
        return self._database.read(fn, *args, **kwargs)

    def within(self, conversation_id: str) -> Transactional:
        """Declare that writes concern one conversation."""
        return self._database.within(conversation_id)

    def _execute_write(self, fn: Callable[[apsw.Connection], T]) -> T:
        """Run `fn` on the connection that writes, in one transaction."""
        return self._database.run_on_writer(fn)

    def close(self) -> None:
        """Finish waiting writes and close the files; do nothing when closed already."""
        self.index.close()
        self._database.close()

    def __enter__(self) -> "SessionDB":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    # -- sessions ------------------------------------------------------------------------------

    def create_session(
        self,
        session_id: str,
        source: str,
        *,
        parent_session_id: str | None = None,
        **fields: Any,  # noqa: ANN401 -- columns of a session; unknown ones are refused
    ) -> str:
        """Create a session, or fill the empty columns of an existing one."""
        self.write(sessions.create, session_id, source, fields, parent_session_id=parent_session_id)
        return session_id

    def get_session(self, session_id: str) -> Row | None:
        """Return a session, or None."""
        return self.read(sessions.find, session_id)

    def check_file(self) -> None:
        """Raise StoreGoneError when the path no longer names the file that was opened."""
        self._database.check_file()

    def end_session(self, session_id: str, end_reason: str) -> None:
        """End a session, unless it has ended already."""
        self.write(sessions.end, session_id, end_reason)

    # -- titles --------------------------------------------------------------------------------

    sanitize_title = staticmethod(titles.clean)

    def set_session_title(self, session_id: str, title: str | None) -> bool:
        """Set a title; raise TitleError (a ValueError) when another conversation of its owner has it."""
        return self.write(titles.set_title, session_id, title)

    # -- messages ------------------------------------------------------------------------------

    def append_message(
        self,
        session_id: str,
        role: str,
        content: Any = None,  # noqa: ANN401 -- text or whatever parts a provider has
        *,
        timestamp: Any = None,  # noqa: ANN401 -- seconds or anything with a timestamp()
        **fields: Any,  # noqa: ANN401 -- see NewMessage; others are kept beside it
    ) -> int:
        """Append a message and return its id when it is on disk."""
        if fields:
            message = message_from(
                {"role": role, "content": content, "timestamp": timestamp, **fields}
            )
        else:
            at = None if timestamp is None else seconds(timestamp)
            message = NewMessage(role, content, timestamp=at)
        return self.write(messages.append, session_id, message)

    def append_messages(self, session_id: str, batch: Iterable[Mapping[str, Any]]) -> list[int]:
        """Append several messages in one transaction and return their ids."""
        prepared = [message_from(message) for message in batch]
        return self.write(messages.append_all, session_id, prepared)

    def get_messages_as_conversation(
        self, session_id: str, include_ancestors: bool = False, include_inactive: bool = False
    ) -> list[Row]:
        """Return the messages that the model sees; with ancestors, the originals from the start."""
        fn = messages.originals if include_ancestors else messages.as_conversation
        return self.read(fn, session_id, include_inactive=include_inactive)

    # -- lists, search -------------------------------------------------------------------------

    def list_sessions_rich(
        self,
        limit: int | None = 20,
        offset: int = 0,
        **filters: Any,  # noqa: ANN401 -- fields of Filter
    ) -> list[Row]:
        """Return one row per conversation, most recently active first."""
        selected = Filter(**filters)
        return self.read(listing.select, selected, limit=limit, offset=offset)

    def session_count(self, **filters: Any) -> int:  # noqa: ANN401 -- fields of Filter
        """Count the conversations that match."""
        return self.read(listing.count, Filter(**filters))

    def search_messages(
        self,
        query: str,
        *,
        limit: int = 20,
        offset: int = 0,
        sort: Sort = "newest",
        **filters: Any,  # noqa: ANN401 -- fields of MessageFilter
    ) -> list[Row]:
        """Find messages that match a query; any text is a valid query."""
        return search.find(
            self.index,
            query,
            MessageFilter(**filters),
            limit=limit,
            offset=offset,
            sort=sort,
        )

    # -- export, import ------------------------------------------------------------------------

    def export_lines(self, session_ids: Iterable[str] | None = None) -> Iterator[Row]:
        """Yield conversations as JSON lines for `import_lines`."""
        return transfer.export_lines(self._database, session_ids)

    def import_lines(
        self, lines: Iterable[Row], progress: Callable[[int], None] = lambda _lines: None
    ) -> Report:
        """Import conversations; skip those that exist already."""
        return transfer.import_lines(self._database, lines, progress)

    # -- upkeep --------------------------------------------------------------------------------

    def list_prune_candidates(self, **age: Any) -> list[Row]:  # noqa: ANN401 -- fields of Age
        """Return the conversations that `prune_sessions` would delete."""
        return self.read(lambda c: maintenance.prune_candidates(c, Age(**age)))

    def prune_sessions(
        self,
        older_than_days: float = 90,
        source: str | None = None,
        *,
        include_archived: bool = False,
        progress: Callable[[int], None] = lambda _n: None,
    ) -> int:
        """Delete ended conversations that were inactive for that long; return how many."""
        age = Age(older_than_days, source, include_archived)
        return maintenance.prune(self._database, age, progress)

    def list_ghost_candidates(self) -> list[str]:
        """Return the ids that `prune_empty_ghost_sessions` would delete."""
        return self.read(maintenance.ghosts)

    def prune_empty_ghost_sessions(self) -> int:
        """Delete empty terminal sessions that have ended; return how many."""
        return maintenance.prune_ghosts(self._database)

    def finalize_orphaned_compression_sessions(self) -> int:
        """End old continuations of a compaction that were never used; return how many."""
        return maintenance.finalize_orphans(self._database)

    def check(self) -> list[str]:
        """Describe the problems of the store; an empty list means none."""
        return integrity.check(self._database)

    def fix(self) -> list[str]:
        """Fix problems that `check` finds in place; describe what was fixed."""
        return integrity.fix(self._database)

    def vacuum(self) -> int:
        """Shrink the file; return the number of bytes freed."""
        return maintenance.vacuum(self._database)

    def backup(self, target: Path, progress: Callable[[int, int], None] | None = None) -> None:
        """Copy the store while it is in use."""
        maintenance.backup(self._database, target, progress)
