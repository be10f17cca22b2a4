"""SessionStore: which conversation each chat is in, and when it starts afresh.

The store's `routes` are the truth; the entries here are their copy in memory, and sessions.json is a
mirror for people. A change on the way of a turn costs one row.
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
"""Ends after which a chat does not go on in the same conversation."""
_PASSED_ON = "passed on"
_SHORT = timedelta(minutes=1)
"""What a crash may take of the time at which a chat was used."""


class SessionStore:
    """The routes of one gateway. May be used from several threads."""

    def __init__(
        self,
        sessions_dir: Path,
        config: GatewayConfig,
        has_active_processes_fn: Callable[[str], bool] | None = None,
        db: Store | None = None,
    ) -> None:
        self.sessions_dir = Path(sessions_dir)
        self.config = config
        self._has_active_processes = has_active_processes_fn or _none
        self._entries: dict[str, SessionEntry] = {}
        self._lock = threading.Lock()
        self._loaded = False
        self._db: Store | None = db if db is not None else _opened()
        self._stored: set[str] = set()
        """The keys that the store has a row of."""
        self._changed: set[str] = set()
        self._routes_file = RoutesFile(self.sessions_dir, lambda: list(self._entries.values()))
        self.on_renewed: Callable[[SessionEntry, SessionEntry], None] = _nothing
        """Told when a message finds its conversation over, with the old route and the new one: after
        both are stored, once, in the thread of that message."""

    # -- finding a conversation -----------------------------------------------------------------

    def get_or_create_session(
        self,
        source: SessionSource,
        force_new: bool = False,
        *,
        saves: bool = True,
    ) -> SessionEntry:
        """The conversation that a message from there belongs to; a new one when there is none.

        Who does not have the route of a new chat saved here stores `unsaved_route` with its first
        message, and tells `saved` afterwards.
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
                return found  # another message of this chat was faster
            if entry is None and not saves:
                return self._entries.setdefault(key, self.entry_for(key, sessions.new_id(), source))
            made = self._renew(key, source, entry, reason)
        if entry is not None and not force_new:
            self.on_renewed(entry, made)
        return made

    def in_session(self, source: SessionSource, session_id: str) -> SessionEntry:
        """The entry of a chat that is the conversation of this session, and stays in it.

        It has no route until it is kept: the conversation may be had elsewhere too, and ends there.
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
        """Make a route of an entry, unless its chat has one: something is to be noted with it."""
        with self._lock:
            if entry.session_key not in self._entries:
                self._replace(None, entry, RESET)

    def going_on(self, session_key: str, source: SessionSource) -> SessionEntry | None:
        """The conversation of a chat, unless there is none, or it is not to go on.

        The store is not asked: whether somebody has ended it shows when the message is stored.
        """
        self._ensure_loaded()
        entry = self._entries.get(session_key)
        if entry is None or self._reason_to_leave(entry, source) is not None:
            return None
        return self._used(entry)

    def used(self, session_key: str) -> None:
        """Note that somebody was answered in a chat, which is no silence.

        After a turn that took long it is stored at once: a crash must not make silence of it.
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
                logger.warning("that %s was used is stored later: %s", session_key, error)

    def unsaved_route(self, session_key: str) -> Route | None:
        """The route of a chat that the store does not know yet."""
        entry = self._entries.get(session_key)
        if entry is None or session_key in self._stored:
            return None
        return self._route(entry)

    def saved(self, session_key: str) -> None:
        """The store has got the route of a new chat."""
        with self._lock:
            self._stored.add(session_key)
        if self.config.write_sessions_json:
            self._routes_file.soon()

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
            entry.is_fresh_reset = True
            self._replace(old, entry, RESET)
            return entry

    def switch_session(self, session_key: str, target_id: str) -> SessionEntry | None:
        """Have a chat go on in another conversation; None when the chat is unknown."""
        self._ensure_loaded()
        with self._lock:
            old = self._entries.get(session_key)
            if old is None:
                return None
            if self._db is not None:
                target_id = self._db.read(lineage.tip, target_id)
                self._db.write(sessions.reopen, target_id)
            entry = self.entry_for(session_key, target_id, old.origin)
            entry.model_override = old.model_override  # chosen for the chat, wherever it goes
            self._replace(old, entry, SWITCH)
            return entry

    def lookup_by_session_id(self, session_id: str) -> SessionEntry | None:
        """The route that leads to a session."""
        self._ensure_loaded()
        with self._lock:
            return next((e for e in self._entries.values() if e.session_id == session_id), None)

    def peek(self, session_key: str) -> SessionEntry | None:
        """The route of a key; nothing is made or moved."""
        self._ensure_loaded()
        return self._entries.get(session_key)

    def person_in(self, session_key: str) -> str | None:
        """Whose conversation a direct chat is in, or would go on in; None when that is nobody's yet."""
        entry = self.peek(session_key)
        if entry is not None:
            return entry.origin.person if entry.origin is not None else None
        lost = self._db.read(routes.lost, session_key, OVER) if self._db is not None else None
        row = self._db.read(sessions.find, lost["id"]) if lost and self._db is not None else None
        return row["user_id"] if row is not None else None

    def peek_session_id(self, source: SessionSource) -> str | None:
        """The conversation that a chat is in; nothing is made or moved."""
        entry = self.peek(self._generate_session_key(source))
        return entry.session_id if entry is not None else None

    def model_of(self, session_id: str) -> str | None:
        """The model that answered last in a conversation; None when nothing was ever said in it."""
        row = self._db.read(sessions.find, session_id) if self._db is not None else None
        return (row["model"] or "") if row is not None else None

    def is_spoken_in(self, platform: str, chat_id: str) -> bool:
        """Whether somebody has a conversation in a chat."""
        origins = (entry.origin for entry in self.list_sessions())
        places = ((one.platform.value, one.chat_id) for one in origins if one is not None)
        return (platform, chat_id) in places

    def list_sessions(self, active_minutes: int | None = None) -> list[SessionEntry]:
        """The routes, the one used last first."""
        self._ensure_loaded()
        with self._lock:
            found = list(self._entries.values())
        if active_minutes is not None:
            since = now_local() - timedelta(minutes=active_minutes)
            found = [entry for entry in found if entry.updated_at >= since]
        return sorted(found, key=lambda entry: entry.updated_at, reverse=True)

    def key_of(self, source: SessionSource) -> str:
        """The key of the conversation that a message from there belongs to."""
        return self._generate_session_key(source)

    def is_shared(self, source: SessionSource) -> bool:
        """Whether several people speak in the conversation that a message from there belongs to."""
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
        """Put a new conversation in the place of another one; the lock is held."""
        entry = self.entry_for(key, sessions.new_id(), source)
        if old is not None and reason is not None:
            entry.was_auto_reset = True
            entry.auto_reset_reason = reason
            entry.reset_had_activity = self._was_spoken_in(old)
        if old is not None:
            entry.display_name = old.display_name
        self._replace(old, entry, RESET)
        return entry

    def entry_for(self, key: str, session_id: str, source: SessionSource | None) -> SessionEntry:
        """An entry for a conversation; it is no route until it is put among them."""
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
        """The way back to the conversation of a chat whose route was forgotten; None without one."""
        row = None
        if self._db is not None and not self._scope:  # a conversation does not know its scope
            row = self._db.read(routes.lost, key, OVER)
        if row is None or (not source.is_group and _differ(self.person_in(key), source.person)):
            return None
        with self._lock:
            if key not in self._entries:
                entry = self.entry_for(key, row["id"], source)
                entry.created_at = entry.updated_at = _local(row["last_active_at"])
                self._replace(None, entry, RESET)
            return self._entries[key]

    def _replace(self, old: SessionEntry | None, entry: SessionEntry, reason: str) -> None:
        """Put a route in the place of another one, whose conversation is over; what waits goes along.

        What cannot be stored did not happen: a chat must not go on where nobody finds it after a
        restart.
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
            chat_moves.succeed,
            self._route(entry),
            entry.session_id,
            former=old.session_id,
            reason=reason,
            opening=self.opening(entry),
            is_passed_on=entry.auto_reset_reason == _PASSED_ON,
        )
        self._noted([entry.session_key])

    def opening(self, entry: SessionEntry) -> NewSession:
        """The session that the first message of an entry makes: whose it is."""
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
        """Whether a chat goes on where its entry says. What another surface closed is opened again."""
        row = self._db.read(sessions.find, entry.session_id) if self._db is not None else None
        if row is None or row["ended_at"] is None or self._db is None:
            return True  # made with its first message
        if row["end_reason"] in OVER:
            return False
        tip = self._db.read(lineage.tip, entry.session_id)
        if tip == entry.session_id:
            self._db.write(sessions.reopen, tip)
        entry.session_id = tip
        return True

    def _used(self, entry: SessionEntry) -> SessionEntry:
        entry.updated_at = now_local()
        self._changed.add(entry.session_key)  # saved with the next change
        return entry

    def _was_spoken_in(self, entry: SessionEntry) -> bool:
        row = self._db.read(sessions.find, entry.session_id) if self._db is not None else None
        return bool(row and row["message_count"]) or entry.last_prompt_tokens > 0

    def catch_up(self, entry: SessionEntry) -> None:
        """Have an entry name the session that its conversation is in, wherever that was shortened."""
        if self._db is not None:
            entry.session_id = self._db.read(lineage.tip, entry.session_id)

    def is_elsewhere_too(self, entry: SessionEntry) -> bool:
        """Whether other chats are in the conversation of this one."""
        if self._db is None:
            return False
        return bool(
            self._db.read(routes.keys_of, entry.session_id, self._scope) - {entry.session_key}
        )

    def _end(self, entry: SessionEntry, reason: str) -> None:
        """End the conversation that a chat leaves, unless another chat is in it."""
        if self._db is None or self._db.read(sessions.find, entry.session_id) is None:
            return
        if not self.is_elsewhere_too(entry):
            self._db.write(sessions.end_for_reset, entry.session_id, reason)

    # -- when it starts afresh ------------------------------------------------------------------

    def _reason_to_leave(self, entry: SessionEntry, source: SessionSource) -> str | None:
        """Why a message begins another conversation in its chat; None when it goes on in the same.

        A room in which somebody is alone with us may pass to somebody else: what was said there in
        private is not theirs.
        """
        owner = entry.origin.person if entry.origin is not None else None
        if not source.is_group and not source.is_session and _differ(owner, source.person):
            return _PASSED_ON
        return self._reason_to_reset(entry)

    def _reason_to_reset(self, entry: SessionEntry) -> str | None:
        if entry.suspended:
            return "suspended"
        if entry.origin is not None and entry.origin.is_session:
            return None  # who names a session wants that one, however long it was silent
        policy = self.config.get_reset_policy(entry.platform, entry.chat_type)
        reason = policy.reason_to_reset(entry.updated_at, now_local())
        return None if reason is None or self._is_busy(entry.session_key) else reason

    def _is_session_expired(self, entry: SessionEntry) -> bool:
        return not entry.suspended and self._reason_to_reset(entry) is not None

    def _is_busy(self, session_key: str) -> bool:
        """Whether the conversation is at work; who cannot tell is taken for a yes."""
        try:
            return self._has_active_processes(session_key)
        except Exception:
            logger.exception("whether %s is at work is not known", session_key)
            return True

    def set_expiry_finalized(self, entry: SessionEntry) -> None:
        """Note that the end of an expired conversation was told, and end it."""
        with self._lock:
            self._end(entry, RESET)
            entry.expiry_finalized = True
            self._save(entry.session_key)

    def suspend_session(self, session_key: str) -> bool:
        """Have the next message of a chat find a new conversation."""
        return self._mark(session_key, suspended=True)

    def mark_resume_pending(self, session_key: str, reason: str = "restart_timeout") -> bool:
        """Note that a turn was cut off and goes on at the next start."""
        entry = self.peek(session_key)
        if entry is None or entry.suspended:
            return False
        return self._mark(
            session_key,
            resume_pending=True,
            resume_reason=reason,
            last_resume_marked_at=now_local(),
        )

    def clear_resume_pending(self, session_key: str) -> bool:
        entry = self.peek(session_key)
        if entry is None or not entry.resume_pending:
            return False
        return self._mark(session_key, resume_pending=False, resume_reason=None)

    def update_session(self, session_key: str, last_prompt_tokens: int | None = None) -> None:
        """Note that a chat was used, and how full its window is."""
        changes: dict[str, Any] = {"updated_at": now_local()}
        if last_prompt_tokens is not None:
            changes["last_prompt_tokens"] = last_prompt_tokens
        self._mark(session_key, **changes)

    def set_model_override(self, session_key: str, override: dict[str, str] | None) -> None:
        """Have a chat answered by another model."""
        self._mark(session_key, model_override=override)

    def _mark(self, session_key: str, **changes: object) -> bool:
        self._ensure_loaded()
        with self._lock:
            entry = self._entries.get(session_key)
            if entry is None:
                return False
            for name, value in changes.items():
                setattr(entry, name, value)
            self._save(session_key)
            return True

    def prune_old_entries(self, max_age_days: int) -> int:
        """Forget the routes of chats that were silent for so long; returns how many."""
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
        """Read the routes, and from the mirror those that the store does not know."""
        if self._loaded:
            return
        rows = self._db.read(routes.load, self._scope) if self._db is not None else {}
        for key, row in rows.items():
            self._take(key, lambda row=row: _said(row))
        self._stored = set(self._entries)  # a row that cannot be read is not ours to delete
        for key, said in self._routes_file.read().items():
            if key not in rows:
                self._take(key, lambda said=said: said)
        self._loaded = True

    def _take(self, key: str, said: Callable[[], Any]) -> None:
        """One entry; one that cannot be read is left out and the others are not."""
        try:
            self._entries[key] = SessionEntry.from_dict({**said(), "session_key": key})
        except (AttributeError, KeyError, TypeError, ValueError, msgspec.DecodeError):
            logger.warning("the route %r cannot be read and is left out", key)

    @property
    def _scope(self) -> str:
        """Whose routes these are: those of the home have no name, others that of their folder."""
        is_own = self._db is not None and self.sessions_dir == self.config.sessions_dir
        return "" if is_own else str(self.sessions_dir.resolve())

    def _save(self, session_key: str | None = None) -> None:
        """Tell the store what changed: one entry, or all of them. The mirror follows."""
        if self._db is None:
            self._routes_file.now()
            return
        if session_key is not None:
            self._changed.add(session_key)  # what cannot be saved now is saved with the next one
            changed: Iterable[str] = (session_key,)
        else:
            changed = self._changed | (self._entries.keys() - self._stored)
            gone = self._stored - self._entries.keys()
            if gone:
                self._db.write(routes.delete, gone, scope=self._scope)
                self._stored -= gone
        entries = [self._entries[key] for key in changed if key in self._entries]
        if entries:
            pairs = [(self._route(entry), entry.session_id) for entry in entries]
            self._db.write(routes.save_all, pairs)
        self._noted([entry.session_key for entry in entries])
        self._changed.difference_update(list(changed))

    def _noted(self, keys: Collection[str]) -> None:
        """The store has these routes as they are; the mirror follows."""
        self._stored.update(keys)  # `|=` with keys would copy them all
        self._changed.difference_update(keys)
        if self.config.write_sessions_json:
            self._routes_file.soon()

    def _route(self, entry: SessionEntry) -> Route:
        said = encode(entry.to_dict())
        return Route(entry.session_key, said, self._scope, expired=entry.expiry_finalized)

    def save_changes(self) -> None:
        """Tell the store of small changes that were not worth a write of their own."""
        with self._lock:
            if self._changed:
                self._save()

    def close(self) -> None:
        """Write what is still to be written."""
        self.save_changes()
        self._routes_file.close()


def _opened() -> Store | None:
    """The store of the home; without one the file alone keeps the routes."""
    try:
        return hermes_state.SessionDB()
    except StoreError:
        logger.exception("the store cannot be opened; routes are kept in the file alone")
        return None


def _said(row: Row) -> dict[str, Any]:
    """A stored route in the form of the file; its columns count."""
    said = msgspec.json.decode(row["entry"], type=dict[str, Any])
    moment = _local(row["updated_at"]).isoformat()
    columns = {"session_id": row["session_id"], "expiry_finalized": bool(row["expired"])}
    return {"created_at": moment, "updated_at": moment, **said, **columns}


def _none(_session_key: str) -> bool:
    return False


def _differ(one: str | None, other: str | None) -> bool:
    """Whether two are known and not the same."""
    return bool(one) and bool(other) and one != other


def _nothing(_old: SessionEntry, _new: SessionEntry) -> None:
    """Nobody wants to be told."""


def now_local() -> datetime:
    """The time of entries: local, without a zone."""
    return _local(clock.now())


def _local(seconds: float) -> datetime:
    return clock.date(seconds).astimezone().replace(tzinfo=None)
