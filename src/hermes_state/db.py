"""SessionDB: the store as its users hold it. Each method is one transaction or one snapshot.

What a method does is said by the function of a connection that it calls; functions compose into one
transaction through `write`, methods do not.
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
from hermes_state.search import Wanted
from hermes_state.store import Transactional, Tx
from hermes_state.transfer import Report
from hermes_state.values import Filter, NewMessage, Row, Sort

P = ParamSpec("P")
T = TypeVar("T")


class SessionDB:
    """All sessions of all surfaces, in one file that several processes may share."""

    MAX_TITLE_LENGTH = titles.MAX_LENGTH

    def __init__(
        self,
        db_path: Path | str | None = None,
        read_only: bool = False,
        *,
        busy_timeout_s: float = 30.0,
        vfs: str | None = None,
    ) -> None:
        """Open the store, make it if there is none, bring it up to date if it is old.

        `:memory:` gives a store that lives as long as this object.
        """
        self.path = Path(hermes_state.DEFAULT_DB_PATH if db_path is None else db_path)
        self._database = Database(
            self.path, read_only=read_only, busy_timeout_s=busy_timeout_s, vfs=vfs
        )
        self.index = SearchIndex(self._database)
        self._database.on_commit = self.index.stir

    @classmethod
    def in_memory(cls) -> "SessionDB":
        """A store without a file."""
        return cls(MEMORY)

    # -- the door --------------------------------------------------------------------------------

    def write(self, fn: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` in one transaction; return its result when that is on disk."""
        return self._database.write(fn, *args, **kwargs)

    def read(self, fn: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `fn` on one snapshot."""
        return self._database.read(fn, *args, **kwargs)

    def within(self, conversation_id: str) -> Transactional:
        """Declare writes to be about one conversation."""
        return self._database.within(conversation_id)

    def _execute_write(self, fn: Callable[[apsw.Connection], T]) -> T:
        """Run `fn` on the connection that writes, in one transaction."""
        return self._database.run_on_writer(fn)

    def close(self) -> None:
        """Finish what waits and let go of the files; closing twice is closing once."""
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
        """Make a session; if there is one with this id, fill what it does not say yet."""
        self.write(
            lambda c: sessions.create(
                c, session_id, source, fields, parent_session_id=parent_session_id
            )
        )
        return session_id

    def get_session(self, session_id: str) -> Row | None:
        """All columns of a session."""
        return self.read(sessions.find, session_id)

    def check_file(self) -> None:
        """Raise StoreGoneError when the file at its place is not the one that was opened."""
        self._database.check_file()

    def end_session(self, session_id: str, end_reason: str) -> None:
        """End a session; the first end wins."""
        self.write(lambda c: sessions.end(c, session_id, end_reason))

    # -- titles --------------------------------------------------------------------------------

    sanitize_title = staticmethod(titles.clean)

    def set_session_title(self, session_id: str, title: str | None) -> bool:
        """Title a session; raises TitleError (a ValueError) when another of the same person has it."""
        return self.write(lambda c: titles.set_title(c, session_id, title))

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
        """Add a message; when this returns its id, it is on disk."""
        if fields:
            message = message_from(
                {"role": role, "content": content, "timestamp": timestamp, **fields}
            )
        else:
            at = None if timestamp is None else seconds(timestamp)
            message = NewMessage(role, content, timestamp=at)
        return self.write(lambda c: messages.append(c, session_id, message))

    def append_messages(self, session_id: str, batch: Iterable[Mapping[str, Any]]) -> list[int]:
        """Add several messages that belong together: all are on disk, or none is."""
        prepared = [message_from(message) for message in batch]
        return self.write(lambda c: messages.append_all(c, session_id, prepared))

    def get_messages_as_conversation(
        self, session_id: str, include_ancestors: bool = False, include_inactive: bool = False
    ) -> list[Row]:
        """The messages as a model is shown them; with ancestors, the originals from the start."""
        fn = messages.originals if include_ancestors else messages.as_conversation
        return self.read(fn, session_id, include_inactive=include_inactive)

    # -- lists, search -------------------------------------------------------------------------

    def list_sessions_rich(
        self,
        limit: int | None = 20,
        offset: int = 0,
        **filters: Any,  # noqa: ANN401 -- fields of Filter
    ) -> list[Row]:
        """One row a conversation, the most recently active first."""
        wanted = Filter(**filters)
        return self.read(lambda c: listing.select(c, wanted, limit=limit, offset=offset))

    def session_count(self, **filters: Any) -> int:  # noqa: ANN401 -- fields of Filter
        """How many conversations there are."""
        wanted = Filter(**filters)
        return self.read(lambda c: listing.count(c, wanted))

    def search_messages(
        self,
        query: str,
        *,
        limit: int = 20,
        offset: int = 0,
        sort: Sort = "newest",
        **filters: Any,  # noqa: ANN401 -- fields of Wanted
    ) -> list[Row]:
        """Messages that fit what a person typed; never an error, whatever that is."""
        return search.find(
            self.index,
            query,
            Wanted(**filters),
            limit=limit,
            offset=offset,
            sort=sort,
        )

    # -- export, import ------------------------------------------------------------------------

    def export_lines(self, session_ids: Iterable[str] | None = None) -> Iterator[Row]:
        """Conversations as lines of JSON that `import_lines` takes."""
        return transfer.export_lines(self._database, session_ids)

    def import_lines(
        self, lines: Iterable[Row], progress: Callable[[int], None] = lambda _lines: None
    ) -> Report:
        """Take conversations in; what is here already is left alone."""
        return transfer.import_lines(self._database, lines, progress)

    # -- upkeep --------------------------------------------------------------------------------

    def list_prune_candidates(self, **age: Any) -> list[Row]:  # noqa: ANN401 -- fields of Age
        """What `prune_sessions` would delete."""
        return self.read(lambda c: maintenance.prune_candidates(c, Age(**age)))

    def prune_sessions(
        self,
        older_than_days: float = 90,
        source: str | None = None,
        *,
        include_archived: bool = False,
        progress: Callable[[int], None] = lambda _n: None,
    ) -> int:
        """Delete ended conversations nobody has touched for so long; returns how many."""
        age = Age(older_than_days, source, include_archived)
        return maintenance.prune(self._database, age, progress)

    def list_ghost_candidates(self) -> list[str]:
        """What `prune_empty_ghost_sessions` would delete."""
        return self.read(maintenance.ghosts)

    def prune_empty_ghost_sessions(self) -> int:
        """Delete terminal sessions that ended without a word; returns how many."""
        return maintenance.prune_ghosts(self._database)

    def finalize_orphaned_compression_sessions(self) -> int:
        """End continuations of a compaction that nobody ever used; returns how many."""
        return maintenance.finalize_orphans(self._database)

    def check(self) -> list[str]:
        """What is wrong with the store; nothing when all is well."""
        return integrity.check(self._database)

    def fix(self) -> list[str]:
        """Fix in place what can be fixed of what `check` finds; describe what was fixed."""
        return integrity.fix(self._database)

    def vacuum(self) -> int:
        """Give unused space back; returns the bytes."""
        return maintenance.vacuum(self._database)

    def backup(self, target: Path, progress: Callable[[int, int], None] | None = None) -> None:
        """Copy the store while it is in use."""
        maintenance.backup(self._database, target, progress)
