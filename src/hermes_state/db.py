"""SessionDB: the store as its users hold it. Each method is one transaction or one snapshot.

What a method does is said by the function of a connection that it calls; functions compose into one
transaction through `write`, methods do not.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from hermes_state.ledger import chat_moves, lineage, listing, messages, sessions, titles, turns
from hermes_state.ledger.budgets import Budgets
from hermes_state.ledger.drafts import Drafts
from hermes_state.ledger.effects import Effects
from hermes_state.ledger.inbox import Inbox
from hermes_state.ledger.leases import Leases
from hermes_state.ledger.outbox import Outbox
from hermes_state.ledger.partials import Partials
from hermes_state.ledger.people import People
from hermes_state.ledger.questions import Questions
from hermes_state.ledger.records import message_from, seconds
from hermes_state.ledger.routes import Routes
from hermes_state.ledger.scope import allows
from hermes_state.ledger.turns import Turns
from hermes_state.ledger.usage import Usage
from hermes_state.search import Sort, Wanted
from hermes_state.store import Transactional, Tx
from hermes_state.transfer import Report
from hermes_state.values import Carried, Filter, Lease, NewMessage, NewSession, Route, Row, Scope

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
        self.turns = Turns(self._database)
        self.effects = Effects(self._database)
        self.inbox = Inbox(self._database)
        self.outbox = Outbox(self._database)
        self.drafts = Drafts(self._database)
        self.partials = Partials(self._database)
        self.routes = Routes(self._database)
        self.leases = Leases(self._database)
        self.usage = Usage(self._database)
        self.budgets = Budgets(self._database)
        self.questions = Questions(self._database)
        self.people = People(self._database)

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

    def ensure_session(
        self,
        session_id: str,
        source: str = "unknown",
        **fields: Any,  # noqa: ANN401 -- as above
    ) -> str:
        """The same, for a caller that does not know who it is."""
        return self.create_session(session_id, source, **fields)

    def get_session(self, session_id: str) -> Row | None:
        """All columns of a session."""
        return self._database.read_one(lambda c: sessions.find(c, session_id))

    def check_file(self) -> None:
        """Raise StoreGoneError when the file at its place is not the one that was opened."""
        self._database.check_file()

    def is_visible(self, session_id: str, scope: Scope | None) -> bool:
        """Whether there is such a session, and it may be seen."""
        return self.read(lambda c: allows(c, scope, session_id))

    def resolve_session_id(self, id_or_prefix: str, scope: Scope | None = None) -> str | None:
        """The one session with this id, or whose id begins so."""
        return self.read(lambda c: sessions.by_prefix(c, id_or_prefix, scope))

    def end_session(self, session_id: str, end_reason: str) -> None:
        """End a session; the first end wins."""
        self.write(lambda c: sessions.end(c, session_id, end_reason))

    def reopen_session(self, session_id: str) -> None:
        """Take an end back."""
        self.write(lambda c: sessions.reopen(c, session_id))

    def promote_to_session_reset(self, session_id: str, reason: str = "session_reset") -> bool:
        """End a session for good, also one whose process merely went away."""
        return self.write(lambda c: sessions.end_for_reset(c, session_id, reason))

    def succeed(
        self,
        route: Route,
        session_id: str,
        *,
        former: str,
        reason: str,
        opening: NewSession,
        is_passed_on: bool = False,
    ) -> dict[str, int]:
        """Have a chat go on in another session, with what waits in the former one."""
        return self.write(
            lambda c: chat_moves.succeed(
                c,
                route,
                session_id,
                former=former,
                reason=reason,
                opening=opening,
                is_passed_on=is_passed_on,
            )
        )

    def set_session_archived(self, session_id: str, archived: bool) -> bool:
        """Put a whole conversation away, or bring it back."""
        return self.write(lambda c: sessions.set_archived(c, session_id, archived))

    def update_system_prompt(self, session_id: str, system_prompt: str) -> None:
        """Remember the prompt a session runs with."""
        self.write(lambda c: sessions.change(c, session_id, system_prompt=system_prompt))

    def update_session_model(
        self, session_id: str, model: str, *, chosen_as: str | None = None
    ) -> None:
        """Remember the model a session runs on, and the name under which it was chosen for it."""
        self.write(lambda c: sessions.change_model(c, session_id, model, chosen_as))

    def update_session_cwd(self, session_id: str, cwd: str) -> None:
        """Remember the folder a session works in."""
        self.write(lambda c: sessions.change(c, session_id, cwd=cwd))

    def list_delete_candidates(self, session_ids: Iterable[str]) -> list[str]:
        """Every session that goes when these are deleted: what was undone and delegates as well."""
        chosen = list(session_ids)
        return self.read(lambda c: sessions.with_delegates(c, chosen))

    def list_named_files(self, session_ids: Iterable[str] | None = None) -> set[str]:
        """The files of the home that messages name, of these sessions or of all."""
        chosen = None if session_ids is None else list(session_ids)
        return self.read(lambda c: messages.named_files(c, chosen))

    def delete_session(self, session_id: str) -> bool:
        """Delete the conversation of a session, with the delegates it sent out."""
        return self.delete_sessions([session_id]) > 0

    def delete_sessions(self, session_ids: Iterable[str]) -> int:
        """Delete the conversations of these sessions; returns how many sessions went."""
        chosen = list(session_ids)
        return self.write(lambda c: sessions.delete(c, chosen))

    def get_meta(self, key: str) -> str | None:
        """A note of the store about itself."""
        return self._database.read_one(
            lambda tx: tx.value("SELECT value FROM meta WHERE key = ?", key)
        )

    def set_meta(self, key: str, value: str) -> None:
        """Keep a note about the store itself."""
        self.write(
            lambda tx: tx.tuples(
                "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                key,
                value,
            )
        )

    # -- titles --------------------------------------------------------------------------------

    sanitize_title = staticmethod(titles.clean)

    def set_session_title(self, session_id: str, title: str | None) -> bool:
        """Title a session; raises TitleError (a ValueError) when another of the same person has it."""
        return self.write(lambda c: titles.set_title(c, session_id, title))

    def name_session(self, session_id: str, title: str, opening: NewSession) -> bool:
        """Give a conversation its title, before anything is said in it too; True when that makes it."""
        return self.write(lambda c: turns.name(c, session_id, title, opening))

    def begin_session(self, session_id: str, opening: NewSession) -> bool:
        """Make a session before anything is said in it; True when that makes it."""
        return self.write(lambda c: turns.begin_once(c, session_id, opening))

    def instruct_session(self, session_id: str, instructions: str) -> None:
        """Have a session run with these instructions of a program, in the place of others."""
        self.write(lambda c: sessions.instruct(c, session_id, instructions))

    def set_auto_title_if_empty(self, session_id: str, title: str) -> bool:
        """Title a conversation unless it has a title."""
        return self.write(lambda c: titles.set_if_empty(c, session_id, title))

    def get_session_title(self, session_id: str) -> str | None:
        """The title of a session's conversation."""
        return self._database.read_one(lambda c: titles.title_of(c, session_id))

    def get_session_by_title(self, title: str) -> Row | None:
        """The session with exactly this title; the terminal's before those of messengers."""
        return self.read(lambda c: titles.by_title(c, title))

    def resolve_session_by_title(self, title: str, scope: Scope | None = None) -> str | None:
        """The session a person means by a title: the newest of `title #N`, else the exact one."""
        return self.read(lambda c: titles.resolve(c, title, scope))

    def resolve_session(self, name: str, scope: Scope | None = None) -> str | None:
        """The session a person means: by its whole id, else its title, else the beginning of its id."""
        return self.read(lambda c: titles.meant(c, name, scope))

    def get_next_title_in_lineage(self, base_title: str) -> str:
        """A title that is free: the given one, or the same with the next number."""
        return self.read(lambda c: titles.next_in_lineage(c, base_title))

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

    def get_messages(
        self,
        session_id: str,
        include_inactive: bool = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[Row]:
        """Rows of a session in the order they were written."""
        return self.read(
            lambda c: messages.of_session(
                c, session_id, include_inactive=include_inactive, limit=limit, offset=offset
            )
        )

    def get_messages_as_conversation(
        self, session_id: str, include_ancestors: bool = False, include_inactive: bool = False
    ) -> list[Row]:
        """The messages as a model is shown them; with ancestors, the originals from the start."""
        door = self._database.read if include_ancestors else self._database.read_one
        return door(
            lambda c: messages.as_conversation(
                c,
                session_id,
                include_ancestors=include_ancestors,
                include_inactive=include_inactive,
            )
        )

    def get_conversation_page(
        self, session_id: str, before_id: int | None = None, limit: int = 50
    ) -> list[Row]:
        """The last original messages of a conversation, or those before a message."""
        return self.read(lambda c: messages.page(c, session_id, before_id=before_id, limit=limit))

    def get_messages_around(self, session_id: str, message_id: int, window: int = 5) -> Row:
        """A message and its neighbours."""
        return self.read(lambda c: messages.around(c, session_id, message_id, window))

    def rewind_to_message(self, session_id: str, message_id: int) -> Row:
        """Take back a user message and all after it; ValueError when it is none."""
        return self.write(lambda c: messages.rewind(c, session_id, message_id))

    def restore_rewound(self, session_id: str, since_message_id: int) -> int:
        """Bring back what a rewind took."""
        return self.write(lambda c: messages.restore(c, session_id, since_message_id))

    def list_recent_user_messages(
        self, session_id: str, limit: int = 20, include_inactive: bool = False
    ) -> list[Row]:
        """The last things the user said, newest first."""
        return self.read(
            lambda c: messages.recent_user_messages(
                c, session_id, limit=limit, include_inactive=include_inactive
            )
        )

    def message_count(self, session_id: str | None = None) -> int:
        """How many messages count, in a session or in all."""
        return self.read(lambda c: messages.count(c, session_id))

    def has_platform_message_id(self, session_id: str, platform_message_id: str) -> bool:
        """Whether a message with this id of its platform is in the session."""
        return self.read(lambda c: messages.has_platform_id(c, session_id, platform_message_id))

    # -- lineage -------------------------------------------------------------------------------

    def rotate_session(
        self,
        session_id: str,
        carried: Sequence[Carried],
        *,
        child_id: str | None = None,
        system_prompt: str | None = None,
        since: int | None = None,
        lease: Lease | None = None,
    ) -> str:
        """Compaction: end this session and go on in a new one, as one change; returns its id."""
        new = child_id or sessions.new_id()
        return self.write(
            lambda c: lineage.rotate(
                c,
                session_id,
                carried,
                child_id=new,
                system_prompt=system_prompt,
                since=since,
                lease=lease,
            )
        )

    def undo_rotation(self, session_id: str, *, lease: Lease | None = None) -> str:
        """Undo the last compaction of a conversation; returns the session it goes on in."""
        return self.write(lambda c: lineage.undo_rotation(c, session_id, lease=lease))

    def branch_session(
        self,
        session_id: str,
        *,
        until_message_id: int | None = None,
        child_id: str | None = None,
        title: str | None = None,
        place: Mapping[str, Any] | None = None,
    ) -> str:
        """Begin a new conversation from a copy of what is over in this one; returns its id.

        With a place (`chat_id`, `chat_type` and so on) it belongs there, else where this one does.
        Raises TitleError or NothingSaidError, and then there is no copy.
        """
        new = child_id or sessions.new_id()
        return self.write(
            lambda c: lineage.branch(
                c,
                session_id,
                child_id=new,
                until_message_id=until_message_id,
                title=title,
                place=place,
            )
        )

    def get_compression_tip(self, session_id: str) -> str:
        """Where the conversation of this session goes on."""
        return self._database.read_one(lambda c: lineage.tip(c, session_id))

    resolve_resume_session_id = get_compression_tip

    def get_conversation_root(self, session_id: str) -> str:
        """Where the conversation of this session began."""
        return self._database.read_one(lambda c: lineage.root(c, session_id))

    def get_compression_lineage(self, session_id: str) -> list[str]:
        """The sessions of the conversation, oldest first."""
        return self.read(lambda c: lineage.members(c, session_id))

    def get_session_tree(self, session_id: str) -> list[Row]:
        """Every session that hangs together with this one, parents before children."""
        return self.read(lambda c: lineage.tree(c, session_id))

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

    def stats(self) -> Row:
        """What there is, in numbers."""
        return self.read(listing.stats)

    # -- export, import ------------------------------------------------------------------------

    def export_session(self, session_id: str) -> dict[str, Any] | None:
        """One session with its messages as a dictionary."""
        return self.read(lambda c: transfer.export_session(c, session_id))

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
