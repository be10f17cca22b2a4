"""SessionStore: the conversation of each chat, and when it is reset.

The `routes` in the store are the truth; the entries here are a copy in memory, and sessions.json shows
them to people. A change during a turn costs one row.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

import hermes_state
from gateway.config import GatewayConfig
from gateway.entry import SessionEntry
from gateway.routes_file import RoutesFile
from gateway.source import (
    SessionSource,
    build_session_key,
    fields_of,
    is_shared_multi_user_session,
)
from hermes_core import clock
from hermes_core.errors import StoreError
from hermes_state.ledger import chat_moves, lineage, routes, sessions
from hermes_state.ledger.records import encode
from hermes_state.store import Store
from hermes_state.values import NewSession, Route, Row

__all__ = [
    "SessionEntry",
    "SessionSource",
    "SessionStore",
    "build_session_key",
    "is_shared_multi_user_session",
]

logger = logging.getLogger(__name__)

RESET = "session_reset"
SWITCH = "session_switch"
OVER = frozenset({RESET, SWITCH, "idle", "daily", "suspended"})
"""End reasons after which a chat does not continue in the same conversation."""
_PASSED_ON = "passed on"
_SHORT = timedelta(minutes=1)
"""How much a crash may lose of the time at which a chat was used."""


class SessionStore:
    """The routes of one gateway. May be used from several threads."""

    def __init__(
        self,
        sessions_dir: Path,
        config: GatewayConfig,
        has_active_processes_fn: Callable[[str], bool] | None = None,
        db: Store | None = None,
        *,
        on_renewed: Callable[[SessionEntry, SessionEntry], None] | None = None,
    ) -> None:
        """`on_renewed` gets the old and the new route when a message finds its conversation over: once,
        after both are stored, in the thread of that message.
        """
        self.sessions_dir = Path(sessions_dir)
        self.config = config
        self._has_active_processes = has_active_processes_fn or _none
        self._entries: dict[str, SessionEntry] = {}
        self._lock = threading.Lock()
        self._loaded = False
        self._db: Store | None = db if db is not None else _opened()
        self._stored: set[str] = set()
        """The keys that have a row in the store."""
        self._changed: set[str] = set()
        self._routes_file = RoutesFile(self.sessions_dir, lambda: list(self._entries.values()))
        self._on_renewed = on_renewed

    # -- finding a conversation -----------------------------------------------------------------

    def get_or_create_session(
        self,
        source: SessionSource,
        force_new: bool = False,
        *,
        saves: bool = True,
    ) -> SessionEntry:
        """Return the route of a chat, with a new conversation if need be.

        Without `saves`, the caller stores the `unsaved_route` of a new chat with its first message, and
        calls `saved` afterwards.
        """
        self._ensure_loaded()
        key = self._generate_session_key(source)
        entry = self._entries.get(key)
        if entry is None and not force_new:
            entry = self._recovered(key, source)
        reason = None if entry is None else self._reason_to_leave(entry, source)
        if entry is not None and not force_new and reason is None and self._is_open(entry):
            return self._used(entry)
        with self._lock:
            found = self._entries.get(key)
            if found is not None and found is not entry:
                return found  # of another message of this chat, which was faster
            if entry is None and not saves:
                return self._entries.setdefault(key, self.entry_for(key, sessions.new_id(), source))
            new = self._renew(key, source, entry, reason)
        if entry is not None and not force_new and self._on_renewed is not None:
            self._on_renewed(entry, new)
        return new

    def in_session(self, source: SessionSource, session_id: str) -> SessionEntry:
        """Return the entry of a chat that is the conversation of this session.

        It is not stored as a route until `keep`: the conversation may be in other chats too.
        """
        self._ensure_loaded()
        key = self._generate_session_key(source)
        if self._db is not None:
            session_id = self._db.read(lineage.tip, session_id)
        entry = self._entries.get(key)
        if entry is None:
            return self.entry_for(key, session_id, source)
        entry.session_id = session_id
        return self._used(entry)

    def keep(self, entry: SessionEntry) -> None:
        """Store an entry as a route, unless its chat has one."""
        with self._lock:
            if entry.session_key not in self._entries:
                self._replace(None, entry, RESET)

    def current_entry(self, session_key: str, source: SessionSource) -> SessionEntry | None:
        """Return the route of a chat; None when it has none or needs a new conversation.

        The store is not read: a conversation that has ended shows when the message is stored.
        """
        self._ensure_loaded()
        entry = self._entries.get(session_key)
        if entry is None or self._reason_to_leave(entry, source) is not None:
            return None
        return self._used(entry)

    def used(self, session_key: str) -> None:
        """Update the time at which a chat was used.

        After a long turn it is stored at once, so that a crash does not lose it.
        """
        entry = self.peek(session_key)
        if entry is None:
            return
        before = entry.updated_at
        self._used(entry)
        if entry.updated_at - before > _SHORT:
            try:
                self.save_changes()
            except StoreError as error:
                logger.warning("Could not store the time of use of %s: %s", session_key, error)

    def unsaved_route(self, session_key: str) -> Route | None:
        """Return the route of a chat that is not stored yet; None when it is."""
        entry = self._entries.get(session_key)
        if entry is None or session_key in self._stored:
            return None
        return self._route(entry)

    def saved(self, session_key: str) -> None:
        """Record that the route of a new chat is stored."""
        with self._lock:
            self._stored.add(session_key)
        if self.config.write_sessions_json:
            self._routes_file.schedule()

    def reset_session(
        self, session_key: str, display_name: str | None = None
    ) -> SessionEntry | None:
        """Start a new conversation in a chat and end the old one; None when the chat is unknown."""
        self._ensure_loaded()
        with self._lock:
            old = self._entries.get(session_key)
            if old is None:
                return None
            entry = self.entry_for(session_key, sessions.new_id(), old.origin)
            entry.display_name = display_name or old.display_name
            self._replace(old, entry, RESET)
            return entry

    def switch_session(self, session_key: str, target_id: str) -> SessionEntry | None:
        """Move a chat to another conversation; return None when the chat is unknown."""
        self._ensure_loaded()
        with self._lock:
            old = self._entries.get(session_key)
            if old is None:
                return None
            if self._db is not None:
                target_id = self._db.read(lineage.tip, target_id)
                self._db.write(sessions.reopen, target_id)
            entry = self.entry_for(session_key, target_id, old.origin)
            entry.model_override = old.model_override  # the choice belongs to the chat
            self._replace(old, entry, SWITCH)
            return entry

    def peek(self, session_key: str) -> SessionEntry | None:
        """Return the route of a chat without changing it."""
        self._ensure_loaded()
        return self._entries.get(session_key)

    def person_in(self, session_key: str) -> str | None:
        """Return the owner of a direct chat's conversation, also of a lost one, or None."""
        entry = self.peek(session_key)
        if entry is not None:
            return entry.origin.person if entry.origin is not None else None
        lost = (
            self._db.read(routes.last_conversation, session_key, OVER)
            if self._db is not None
            else None
        )
        row = self._db.read(sessions.find, lost["id"]) if lost and self._db is not None else None
        return row["user_id"] if row is not None else None

    def model_of(self, session_id: str) -> str | None:
        """Return the last model of a conversation; None when it has no session yet."""
        row = self._db.read(sessions.find, session_id) if self._db is not None else None
        return (row["model"] or "") if row is not None else None

    def has_conversation(self, platform: str, chat_id: str) -> bool:
        """Return whether a chat has a conversation."""
        origins = (entry.origin for entry in self.list_sessions())
        chats = (
            (source.platform.value, source.chat_id) for source in origins if source is not None
        )
        return (platform, chat_id) in chats

    def list_sessions(self) -> list[SessionEntry]:
        """Return the routes, the one used last first."""
        self._ensure_loaded()
        with self._lock:
            found = list(self._entries.values())
        return sorted(found, key=lambda entry: entry.updated_at, reverse=True)

    def key_of(self, source: SessionSource) -> str:
        """Return the session key of a chat."""
        return self._generate_session_key(source)

    def is_shared(self, source: SessionSource) -> bool:
        """Return whether the conversation of a chat has several people."""
        return is_shared_multi_user_session(
            source,
            group_sessions_per_user=self.config.group_sessions_per_user,
            thread_sessions_per_user=self.config.thread_sessions_per_user,
        )

    def _generate_session_key(self, source: SessionSource) -> str:
        return build_session_key(
            source, self.config.group_sessions_per_user, self.config.thread_sessions_per_user
        )

    def _renew(
        self, key: str, source: SessionSource | None, old: SessionEntry | None, reason: str | None
    ) -> SessionEntry:
        """Replace the conversation of a chat by a new one; the lock is held."""
        entry = self.entry_for(key, sessions.new_id(), source)
        if old is not None and reason is not None:
            entry.was_auto_reset = True
            entry.auto_reset_reason = reason
            entry.reset_had_activity = self._has_messages(old)
        if old is not None:
            entry.display_name = old.display_name
        self._replace(old, entry, RESET)
        return entry

    def entry_for(self, key: str, session_id: str, source: SessionSource | None) -> SessionEntry:
        """Return an entry for a conversation, not stored yet."""
        now = now_local()
        return SessionEntry(
            session_key=key,
            session_id=session_id,
            created_at=now,
            updated_at=now,
            origin=source,
            display_name=source.chat_name or source.user_name if source else None,
            platform=source.platform if source else None,
            chat_type=source.chat_type if source else "dm",
        )

    def _recovered(self, key: str, source: SessionSource) -> SessionEntry | None:
        """Restore the route of a chat that was pruned; return None without one."""
        row = None
        if self._db is not None and not self._scope:  # a session does not store its scope
            row = self._db.read(routes.last_conversation, key, OVER)
        if row is None or (not source.is_group and _differ(self.person_in(key), source.person)):
            return None
        with self._lock:
            if key not in self._entries:
                entry = self.entry_for(key, row["id"], source)
                entry.created_at = entry.updated_at = _local(row["last_active_at"])
                self._replace(None, entry, RESET)
            return self._entries[key]

    def _replace(self, old: SessionEntry | None, entry: SessionEntry, reason: str) -> None:
        """Replace the route of a chat; its queued turns move along.

        A change that cannot be stored is undone, so that the chat is the same after a restart.
        """
        key = entry.session_key
        if old is not None:
            self.catch_up(old)
        self._entries[key] = entry
        try:
            if old is not None and old.session_id != entry.session_id and self._db is not None:
                self._succeed(self._db, old, entry, reason)
            else:
                self._save(key)
        except StoreError:
            self._changed.discard(key)
            if old is None:
                del self._entries[key]
            else:
                self._entries[key] = old
            raise

    def _succeed(self, db: Store, old: SessionEntry, entry: SessionEntry, reason: str) -> None:
        db.write(
            chat_moves.move_chat,
            self._route(entry),
            entry.session_id,
            former=old.session_id,
            reason=reason,
            new_session=self.opening(entry),
            has_new_owner=entry.auto_reset_reason == _PASSED_ON,
        )
        self._mark_stored([entry.session_key])

    def opening(self, entry: SessionEntry) -> NewSession:
        """Return the session that the first message of an entry creates, with its owner."""
        origin = entry.origin
        fields: dict[str, Any] = {"session_key": entry.session_key}
        if origin is not None:
            fields |= fields_of(
                origin,
                group_sessions_per_user=self.config.group_sessions_per_user,
                thread_sessions_per_user=self.config.thread_sessions_per_user,
            )
        if entry.display_name:
            fields["display_name"] = entry.display_name
        return NewSession(entry.platform.value if entry.platform else "gateway", fields)

    def _is_open(self, entry: SessionEntry) -> bool:
        """Return whether a chat continues in its session; reopen one that another surface closed."""
        row = self._db.read(sessions.find, entry.session_id) if self._db is not None else None
        if row is None or row["ended_at"] is None or self._db is None:
            return True  # created with its first message
        if row["end_reason"] in OVER:
            return False
        tip = self._db.read(lineage.tip, entry.session_id)
        if tip == entry.session_id:
            self._db.write(sessions.reopen, tip)
        entry.session_id = tip
        return True

    def _used(self, entry: SessionEntry) -> SessionEntry:
        entry.updated_at = now_local()
        self._changed.add(entry.session_key)  # stored with the next change
        return entry

    def _has_messages(self, entry: SessionEntry) -> bool:
        row = self._db.read(sessions.find, entry.session_id) if self._db is not None else None
        return bool(row and row["message_count"])

    def catch_up(self, entry: SessionEntry) -> None:
        """Update an entry to the current session of its conversation, after a compaction elsewhere."""
        if self._db is not None:
            entry.session_id = self._db.read(lineage.tip, entry.session_id)

    def is_in_other_chats(self, entry: SessionEntry) -> bool:
        """Return whether other chats are in the conversation of this one."""
        if self._db is None:
            return False
        return bool(
            self._db.read(routes.keys_of, entry.session_id, self._scope) - {entry.session_key}
        )

    def _end(self, entry: SessionEntry, reason: str) -> None:
        """End the conversation that a chat leaves, unless another chat is in it."""
        if self._db is None or self._db.read(sessions.find, entry.session_id) is None:
            return
        if not self.is_in_other_chats(entry):
            self._db.write(sessions.end_for_reset, entry.session_id, reason)

    # -- when it starts afresh ------------------------------------------------------------------

    def _reason_to_leave(self, entry: SessionEntry, source: SessionSource) -> str | None:
        """Return why a message starts another conversation in its chat; None when it does not.

        A private room may pass to another person, who must not see what was said there before.
        """
        owner = entry.origin.person if entry.origin is not None else None
        if not source.is_group and not source.is_session and _differ(owner, source.person):
            return _PASSED_ON
        return self._reason_to_reset(entry)

    def _reason_to_reset(self, entry: SessionEntry) -> str | None:
        if entry.suspended:
            return "suspended"
        if entry.origin is not None and entry.origin.is_session:
            return None  # a program that names a session means that one
        policy = self.config.get_reset_policy(entry.platform, entry.chat_type)
        reason = policy.reason_to_reset(entry.updated_at, now_local())
        return None if reason is None or self._is_busy(entry.session_key) else reason

    def _is_session_expired(self, entry: SessionEntry) -> bool:
        return not entry.suspended and self._reason_to_reset(entry) is not None

    def _is_busy(self, session_key: str) -> bool:
        """Return whether the conversation is at work; a failure counts as yes."""
        try:
            return self._has_active_processes(session_key)
        except Exception:
            logger.exception("Could not check whether %s is at work", session_key)
            return True

    def set_expiry_finalized(self, entry: SessionEntry) -> None:
        """Store the end of an expired conversation."""
        with self._lock:
            self._end(entry, RESET)
            entry.expiry_finalized = True
            self._save(entry.session_key)

    def set_model_override(self, session_key: str, override: dict[str, str] | None) -> None:
        """Set the model of a chat."""
        self._ensure_loaded()
        with self._lock:
            if (entry := self._entries.get(session_key)) is not None:
                entry.model_override = override
                self._save(session_key)

    def prune_old_entries(self, max_age_days: int) -> int:
        """Delete the routes of chats that were not used for so long; return how many."""
        if max_age_days <= 0:
            return 0
        self._ensure_loaded()
        oldest = now_local() - timedelta(days=max_age_days)
        with self._lock:
            stale = [
                key
                for key, entry in self._entries.items()
                if entry.updated_at < oldest and not entry.suspended and not self._is_busy(key)
            ]
            for key in stale:
                del self._entries[key]
            if stale:
                self._save()
        return len(stale)

    # -- memory, store and mirror ---------------------------------------------------------------

    def _ensure_loaded(self) -> None:
        if not self._loaded:
            with self._lock:
                self._ensure_loaded_locked()

    def _ensure_loaded_locked(self) -> None:
        """Read the routes, and from the file those that are not in the store."""
        if self._loaded:
            return
        rows = self._db.read(routes.load, self._scope) if self._db is not None else {}
        for key, row in rows.items():
            self._add(key, lambda row=row: _entry_fields(row))
        self._stored = set(
            self._entries
        )  # also rows that cannot be read, which are not ours to delete
        for key, fields in self._routes_file.read().items():
            if key not in rows:
                self._add(key, lambda fields=fields: fields)
        self._loaded = True

    def _add(self, key: str, read: Callable[[], Any]) -> None:
        """Add an entry, unless it cannot be read."""
        try:
            self._entries[key] = SessionEntry.from_dict({**read(), "session_key": key})
        except (AttributeError, KeyError, TypeError, ValueError, msgspec.DecodeError):
            logger.warning("Route %r cannot be read and is ignored", key)

    @property
    def _scope(self) -> str:
        """The scope of the routes: empty for those of the home, else their folder."""
        is_own = self._db is not None and self.sessions_dir == self.config.sessions_dir
        return "" if is_own else str(self.sessions_dir.resolve())

    def _save(self, session_key: str | None = None) -> None:
        """Store one changed entry, or all of them; the file follows."""
        if self._db is None:
            self._routes_file.now()
            return
        if session_key is not None:
            self._changed.add(session_key)  # what cannot be stored now is stored with the next one
            changed: Iterable[str] = (session_key,)
        else:
            changed = self._changed | (self._entries.keys() - self._stored)
            deleted = self._stored - self._entries.keys()
            if deleted:
                self._db.write(routes.delete, deleted, scope=self._scope)
                self._stored -= deleted
        entries = [self._entries[key] for key in changed if key in self._entries]
        if entries:
            pairs = [(self._route(entry), entry.session_id) for entry in entries]
            self._db.write(routes.save_all, pairs)
        self._mark_stored([entry.session_key for entry in entries])
        self._changed.difference_update(list(changed))

    def _mark_stored(self, keys: Collection[str]) -> None:
        """Record that these routes are stored; the file follows."""
        self._stored.update(keys)  # `|=` with keys would copy them all
        self._changed.difference_update(keys)
        if self.config.write_sessions_json:
            self._routes_file.schedule()

    def _route(self, entry: SessionEntry) -> Route:
        fields = encode(entry.to_dict())
        return Route(entry.session_key, fields, self._scope, expired=entry.expiry_finalized)

    def save_changes(self) -> None:
        """Store small changes that were not worth a write of their own."""
        with self._lock:
            if self._changed:
                self._save()

    def close(self) -> None:
        """Store and write pending changes."""
        self.save_changes()
        self._routes_file.close()


def _opened() -> Store | None:
    """Open the store of the home; without one the file alone keeps the routes."""
    try:
        return hermes_state.SessionDB()
    except StoreError:
        logger.exception("Could not open the store; routes are kept in the file alone")
        return None


def _entry_fields(row: Row) -> dict[str, Any]:
    """Return a stored route in the form of the file; its columns have precedence."""
    fields = msgspec.json.decode(row["entry"], type=dict[str, Any])
    moment = _local(row["updated_at"]).isoformat()
    columns = {"session_id": row["session_id"], "expiry_finalized": bool(row["expired"])}
    return {"created_at": moment, "updated_at": moment, **fields, **columns}


def _none(_session_key: str) -> bool:
    return False


def _differ(first: str | None, second: str | None) -> bool:
    """Return whether two people are known and not the same."""
    return bool(first) and bool(second) and first != second


def now_local() -> datetime:
    """Return the time for entries: local, without a zone."""
    return _local(clock.now())


def _local(seconds: float) -> datetime:
    return clock.date(seconds).astimezone().replace(tzinfo=None)
