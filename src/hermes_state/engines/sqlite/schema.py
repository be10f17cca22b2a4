"""Define the schema as an ordered list of migration steps.

A step and its record run in one transaction. A new database runs all steps, so there is no second
description of the schema; docs/reference/store.md shows the result. The triggers of state machines are
generated (`triggers`) and replace those of old steps, so a change of `hermes_state.transitions` needs a
step, even an empty one.
"""

from typing import NamedTuple

import apsw

from hermes_core import clock
from hermes_state.engines.sqlite import triggers

APPLICATION_ID = 0x48524D53
"""The application id in the header of our files."""


class Step(NamedTuple):
    """A step from one schema version to the next; it never changes once released."""

    name: str
    sql: str


_SESSIONS = """
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES ('store_id', lower(hex(randomblob(16))));

CREATE TABLE sessions (
    id                 TEXT PRIMARY KEY,
    conversation_id    TEXT NOT NULL,
    parent_session_id  TEXT REFERENCES sessions(id),
    relation           TEXT CHECK (relation IN ('continuation', 'branch', 'delegate', 'undone')),
    depth              INTEGER NOT NULL DEFAULT 0,
    is_tip             INTEGER NOT NULL DEFAULT 1 CHECK (is_tip IN (0, 1)),
    source             TEXT NOT NULL,
    user_id            TEXT,
    session_key        TEXT,
    chat_id            TEXT,
    chat_type          TEXT,
    thread_id          TEXT,
    display_name       TEXT,
    model              TEXT,
    model_config       TEXT,
    system_prompt      TEXT,
    cwd                TEXT,
    profile_name       TEXT,
    title              TEXT,
    preview            TEXT,
    started_at         REAL NOT NULL,
    last_active_at     REAL NOT NULL,
    ended_at           REAL,
    end_reason         TEXT,
    message_count      INTEGER NOT NULL DEFAULT 0,
    tool_call_count    INTEGER NOT NULL DEFAULT 0,
    api_call_count     INTEGER NOT NULL DEFAULT 0,
    input_tokens       INTEGER NOT NULL DEFAULT 0,
    output_tokens      INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens  INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens   INTEGER NOT NULL DEFAULT 0,
    cost_usd           REAL NOT NULL DEFAULT 0,
    rewind_count       INTEGER NOT NULL DEFAULT 0,
    archived           INTEGER NOT NULL DEFAULT 0 CHECK (archived IN (0, 1)),
    extra              TEXT,
    CHECK ((ended_at IS NULL) = (end_reason IS NULL)),
    CHECK ((parent_session_id IS NULL) = (relation IS NULL))
) STRICT;

-- A conversation has one line of continuations and so one tip; the database keeps it that way.
CREATE UNIQUE INDEX sessions_one_continuation ON sessions (parent_session_id)
    WHERE relation = 'continuation';
CREATE UNIQUE INDEX sessions_one_tip ON sessions (conversation_id) WHERE is_tip = 1;
CREATE UNIQUE INDEX sessions_title ON sessions (title) WHERE title IS NOT NULL;
CREATE INDEX sessions_parent ON sessions (parent_session_id) WHERE parent_session_id IS NOT NULL;
CREATE INDEX sessions_conversation ON sessions (conversation_id, depth);
CREATE INDEX sessions_recent ON sessions (last_active_at DESC)
    WHERE is_tip = 1 AND archived = 0 AND relation IS NOT 'delegate';
CREATE INDEX sessions_key ON sessions (session_key, started_at DESC) WHERE session_key IS NOT NULL;
CREATE INDEX sessions_ended ON sessions (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX sessions_open ON sessions (started_at) WHERE ended_at IS NULL;

CREATE TABLE messages (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id          TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    role                TEXT NOT NULL,
    content             TEXT,
    parts               TEXT,
    tool_calls          TEXT,
    tool_call_id        TEXT,
    tool_name           TEXT,
    timestamp           REAL NOT NULL,
    token_count         INTEGER,
    finish_reason       TEXT,
    reasoning           TEXT,
    platform_message_id TEXT,
    extra               TEXT,
    kind                TEXT NOT NULL DEFAULT 'message'
                        CHECK (kind IN ('message', 'summary', 'copy', 'partial')),
    origin_id           INTEGER,
    observed            INTEGER NOT NULL DEFAULT 0 CHECK (observed IN (0, 1)),
    active              INTEGER NOT NULL DEFAULT 1 CHECK (active IN (0, 1)),
    CHECK (content IS NULL OR parts IS NULL)
) STRICT;

CREATE INDEX messages_session ON messages (session_id);
CREATE INDEX messages_platform ON messages (session_id, platform_message_id)
    WHERE platform_message_id IS NOT NULL;

CREATE TRIGGER messages_counted AFTER INSERT ON messages BEGIN
    UPDATE sessions SET
        message_count = message_count + NEW.active,
        tool_call_count = tool_call_count
            + CASE WHEN NEW.tool_calls IS NULL THEN 0 ELSE json_array_length(NEW.tool_calls) END,
        last_active_at = max(last_active_at, NEW.timestamp),
        preview = coalesce(preview, CASE WHEN NEW.role = 'user' AND NEW.kind <> 'summary'
            THEN substr(trim(replace(replace(NEW.content, char(10), ' '), char(13), ' ')), 1, 120)
            END)
    WHERE id = NEW.session_id;
END;

CREATE TRIGGER messages_immutable BEFORE UPDATE OF
    id, role, content, parts, tool_calls, tool_call_id, tool_name, timestamp, token_count,
    finish_reason, reasoning, platform_message_id, extra, kind, origin_id, observed
ON messages BEGIN
    SELECT RAISE(ABORT, 'a stored message does not change');
END;

-- What the search index must forget; the index lives in a file of its own and follows later.
CREATE TABLE forgotten (message_id INTEGER PRIMARY KEY) STRICT;
CREATE TRIGGER messages_forgotten AFTER DELETE ON messages BEGIN
    INSERT OR IGNORE INTO forgotten (message_id) VALUES (OLD.id);
END;
"""

_LEDGER = """
CREATE TABLE leases (
    conversation_id TEXT PRIMARY KEY,
    holder          TEXT NOT NULL,
    token           INTEGER NOT NULL,
    expires_at      REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- A fencing token only grows: who holds an older one can be told from who holds the newest.
CREATE TRIGGER leases_grow BEFORE UPDATE OF token ON leases
WHEN NEW.token < OLD.token BEGIN
    SELECT RAISE(ABORT, 'illegal transition: a lease token only grows');
END;

CREATE TABLE turns (
    id               TEXT PRIMARY KEY,
    session_id       TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    state            TEXT NOT NULL DEFAULT 'accepted'
                     CHECK (state IN ('accepted', 'running', 'answered', 'failed', 'interrupted')),
    idempotency_key  TEXT UNIQUE,
    user_message_id  INTEGER NOT NULL,
    final_message_id INTEGER,
    attempts         INTEGER NOT NULL DEFAULT 0,
    reason           TEXT,
    accepted_at      REAL NOT NULL,
    started_at       REAL,
    ended_at         REAL,
    CHECK ((state IN ('answered', 'failed', 'interrupted')) = (ended_at IS NOT NULL)),
    CHECK ((state = 'running') <= (started_at IS NOT NULL)),
    CHECK ((state = 'failed') <= (reason IS NOT NULL))
) STRICT;
CREATE INDEX turns_session ON turns (session_id);
CREATE INDEX turns_open ON turns (accepted_at) WHERE state IN ('accepted', 'running');

CREATE TRIGGER turns_begin BEFORE INSERT ON turns WHEN NEW.state <> 'accepted' BEGIN
    SELECT RAISE(ABORT, 'illegal transition: a turn begins as accepted');
END;
CREATE TRIGGER turns_move BEFORE UPDATE OF state ON turns
WHEN (OLD.state, NEW.state) NOT IN (VALUES
    ('accepted', 'running'), ('accepted', 'failed'), ('accepted', 'interrupted'),
    ('running', 'running'), ('running', 'answered'), ('running', 'failed'),
    ('running', 'interrupted'))
BEGIN
    SELECT RAISE(ABORT, 'illegal transition: a turn cannot go there from its state');
END;

CREATE TABLE effects (
    id                INTEGER PRIMARY KEY,
    turn_id           TEXT NOT NULL REFERENCES turns(id) ON DELETE CASCADE,
    step_message_id   INTEGER NOT NULL,
    tool_call_id      TEXT NOT NULL,
    tool_name         TEXT NOT NULL,
    arguments         TEXT NOT NULL,
    read_only         INTEGER NOT NULL CHECK (read_only IN (0, 1)),
    state             TEXT NOT NULL DEFAULT 'intended'
                      CHECK (state IN ('intended', 'started', 'done', 'unknown', 'cancelled')),
    result_message_id INTEGER,
    intended_at       REAL NOT NULL,
    started_at        REAL,
    ended_at          REAL,
    UNIQUE (step_message_id, tool_call_id),
    CHECK ((state IN ('done', 'unknown', 'cancelled')) = (ended_at IS NOT NULL)),
    CHECK ((state = 'done') <= (result_message_id IS NOT NULL))
) STRICT;
CREATE INDEX effects_turn ON effects (turn_id);

CREATE TRIGGER effects_begin BEFORE INSERT ON effects WHEN NEW.state <> 'intended' BEGIN
    SELECT RAISE(ABORT, 'illegal transition: an effect begins as intended');
END;
CREATE TRIGGER effects_move BEFORE UPDATE OF state ON effects
WHEN (OLD.state, NEW.state) NOT IN (VALUES
    ('intended', 'started'), ('intended', 'cancelled'), ('started', 'done'), ('started', 'unknown'))
AND NOT (OLD.state = 'started' AND NEW.state = 'started' AND OLD.read_only = 1)
BEGIN
    SELECT RAISE(ABORT, 'illegal transition: an effect cannot go there from its state');
END;

CREATE TABLE inbox (
    platform    TEXT NOT NULL,
    chat_id     TEXT NOT NULL,
    message_id  TEXT NOT NULL,
    payload     TEXT NOT NULL,
    outcome     TEXT CHECK (outcome IN ('turn', 'command', 'ignored')),
    turn_id     TEXT REFERENCES turns(id) ON DELETE SET NULL,
    received_at REAL NOT NULL,
    settled_at  REAL,
    PRIMARY KEY (platform, chat_id, message_id),
    CHECK ((outcome IS NULL) = (settled_at IS NULL)),
    CHECK (turn_id IS NULL OR outcome = 'turn')
) STRICT, WITHOUT ROWID;
CREATE INDEX inbox_unsettled ON inbox (received_at) WHERE outcome IS NULL;
CREATE INDEX inbox_turn ON inbox (turn_id) WHERE turn_id IS NOT NULL;

CREATE TRIGGER inbox_settled_once BEFORE UPDATE OF outcome ON inbox
WHEN OLD.outcome IS NOT NULL BEGIN
    SELECT RAISE(ABORT, 'illegal transition: what was delivered is settled once');
END;

CREATE TABLE outbox (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,
    turn_id             TEXT REFERENCES turns(id) ON DELETE CASCADE,
    platform            TEXT NOT NULL,
    chat_id             TEXT NOT NULL,
    thread_id           TEXT,
    piece               INTEGER NOT NULL,
    content             TEXT NOT NULL,
    state               TEXT NOT NULL DEFAULT 'pending'
                        CHECK (state IN ('pending', 'sending', 'sent', 'failed')),
    attempts            INTEGER NOT NULL DEFAULT 0,
    platform_message_id TEXT,
    error               TEXT,
    created_at          REAL NOT NULL,
    due_at              REAL NOT NULL,
    ended_at            REAL,
    UNIQUE (turn_id, piece),
    CHECK ((state IN ('sent', 'failed')) = (ended_at IS NOT NULL)),
    CHECK ((state = 'failed') <= (error IS NOT NULL))
) STRICT;
CREATE INDEX outbox_due ON outbox (due_at, id) WHERE state IN ('pending', 'sending');

CREATE TRIGGER outbox_begin BEFORE INSERT ON outbox WHEN NEW.state <> 'pending' BEGIN
    SELECT RAISE(ABORT, 'illegal transition: a piece begins as pending');
END;
CREATE TRIGGER outbox_move BEFORE UPDATE OF state ON outbox
WHEN (OLD.state, NEW.state) NOT IN (VALUES
    ('pending', 'sending'), ('pending', 'failed'),
    ('sending', 'sent'), ('sending', 'pending'), ('sending', 'failed'))
BEGIN
    SELECT RAISE(ABORT, 'illegal transition: a piece cannot go there from its state');
END;

CREATE TABLE routes (
    scope       TEXT NOT NULL DEFAULT '',
    session_key TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    entry       TEXT NOT NULL,
    updated_at  REAL NOT NULL,
    PRIMARY KEY (scope, session_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX routes_session ON routes (session_id);

CREATE TABLE usage (
    id                 INTEGER PRIMARY KEY,
    session_id         TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    turn_id            TEXT,
    task               TEXT NOT NULL DEFAULT '',
    model              TEXT NOT NULL,
    provider           TEXT NOT NULL DEFAULT '',
    input_tokens       INTEGER NOT NULL DEFAULT 0,
    output_tokens      INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens  INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens   INTEGER NOT NULL DEFAULT 0,
    cost_usd           REAL NOT NULL DEFAULT 0,
    timestamp          REAL NOT NULL
) STRICT;
CREATE INDEX usage_session ON usage (session_id);
CREATE INDEX usage_time ON usage (timestamp);

CREATE TRIGGER usage_summed AFTER INSERT ON usage BEGIN
    UPDATE sessions SET
        api_call_count = api_call_count + 1,
        input_tokens = input_tokens + NEW.input_tokens,
        output_tokens = output_tokens + NEW.output_tokens,
        cache_read_tokens = cache_read_tokens + NEW.cache_read_tokens,
        cache_write_tokens = cache_write_tokens + NEW.cache_write_tokens,
        reasoning_tokens = reasoning_tokens + NEW.reasoning_tokens,
        cost_usd = cost_usd + NEW.cost_usd,
        model = coalesce(model, NEW.model)
    WHERE id = NEW.session_id;
END;
"""

_AGENT = """
-- Which user message a step, a result or an answer belongs to. What somebody says while a turn runs is
-- stored at once, in the middle of that turn; this is how the two are told apart again.
ALTER TABLE messages ADD COLUMN answers INTEGER;
DROP TRIGGER messages_immutable;
CREATE TRIGGER messages_immutable BEFORE UPDATE OF
    id, role, content, parts, tool_calls, tool_call_id, tool_name, timestamp, token_count,
    finish_reason, reasoning, platform_message_id, extra, kind, origin_id, observed, answers
ON messages BEGIN
    SELECT RAISE(ABORT, 'a stored message does not change');
END;

-- What a person is asked while a turn waits: may this run, or what did you mean.
CREATE TABLE questions (
    id           TEXT PRIMARY KEY,
    turn_id      TEXT NOT NULL REFERENCES turns(id) ON DELETE CASCADE,
    tool_call_id TEXT NOT NULL,
    kind         TEXT NOT NULL CHECK (kind IN ('approval', 'clarify')),
    tool_name    TEXT NOT NULL,
    text         TEXT NOT NULL,
    detail       TEXT NOT NULL DEFAULT '',
    choices      TEXT NOT NULL DEFAULT '[]',
    state        TEXT NOT NULL DEFAULT 'pending'
                 CHECK (state IN ('pending', 'answered', 'withdrawn')),
    answer       TEXT,
    answered_by  TEXT,
    asked_at     REAL NOT NULL,
    ended_at     REAL,
    UNIQUE (turn_id, tool_call_id, kind, text, detail),
    CHECK ((state = 'pending') = (ended_at IS NULL)),
    CHECK ((state = 'answered') = (answer IS NOT NULL))
) STRICT;
CREATE INDEX questions_pending ON questions (asked_at) WHERE state = 'pending';

CREATE TRIGGER questions_begin BEFORE INSERT ON questions WHEN NEW.state <> 'pending' BEGIN
    SELECT RAISE(ABORT, 'illegal transition: a question begins as pending');
END;
CREATE TRIGGER questions_move BEFORE UPDATE OF state ON questions WHEN OLD.state <> 'pending' BEGIN
    SELECT RAISE(ABORT, 'illegal transition: a question is settled once');
END;

-- A yes that lasts, for one conversation or (scope '') for all.
CREATE TABLE grants (
    scope      TEXT NOT NULL,
    key        TEXT NOT NULL,
    granted_at REAL NOT NULL,
    PRIMARY KEY (scope, key)
) STRICT, WITHOUT ROWID;

-- What a model call may cost is set aside before it is made; a call that nobody saw the end of
-- keeps what was set aside for it. The account is the turn that pays: a sub-agent's turn is paid by the
-- turn that sent it. Rows outlive their session: deleting one is no refund.
CREATE TABLE reservations (
    id          INTEGER PRIMARY KEY,
    turn_id     TEXT NOT NULL,
    account     TEXT NOT NULL,
    task        TEXT NOT NULL DEFAULT '',
    tokens      INTEGER NOT NULL,
    cost_usd    REAL NOT NULL,
    elapsed_s   REAL NOT NULL,
    state       TEXT NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'settled')),
    reserved_at REAL NOT NULL
) STRICT;
CREATE INDEX reservations_account ON reservations (account);
CREATE INDEX reservations_time ON reservations (reserved_at, cost_usd);
CREATE TRIGGER reservations_move BEFORE UPDATE ON reservations WHEN OLD.state <> 'open' BEGIN
    SELECT RAISE(ABORT, 'illegal transition: a reservation is settled once');
END;
"""

_GATEWAY = """
-- A piece has a name, so that nobody can put the same one twice, and may bring more than a text.
ALTER TABLE outbox ADD COLUMN key TEXT;
ALTER TABLE outbox ADD COLUMN extra TEXT;
CREATE UNIQUE INDEX outbox_key ON outbox (key) WHERE key IS NOT NULL;
CREATE INDEX outbox_open ON outbox (platform, chat_id, id) WHERE state IN ('pending', 'sending');
CREATE INDEX outbox_failed ON outbox (ended_at) WHERE state = 'failed';

-- The message in a chat that shows a reply while it is written. It is noted before it is sent; one
-- without the platform's id may or may not be there.
CREATE TABLE drafts (
    turn_id    TEXT PRIMARY KEY REFERENCES turns(id) ON DELETE CASCADE,
    platform   TEXT NOT NULL,
    chat_id    TEXT NOT NULL,
    message_id TEXT,
    created_at REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- Who was let in, and as what.
CREATE TABLE people (
    platform TEXT NOT NULL,
    user_id  TEXT NOT NULL,
    role     TEXT NOT NULL CHECK (role IN ('owner', 'member', 'guest')),
    name     TEXT,
    chat_id  TEXT,
    added_at REAL NOT NULL,
    added_by TEXT NOT NULL,
    PRIMARY KEY (platform, user_id)
) STRICT, WITHOUT ROWID;

-- Strangers who were shown a code. Only its salted hash is kept.
CREATE TABLE pairings (
    platform   TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    name       TEXT,
    chat_id    TEXT NOT NULL,
    salt       TEXT NOT NULL,
    code_hash  TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL NOT NULL,
    PRIMARY KEY (platform, user_id)
) STRICT, WITHOUT ROWID;

-- Wrong codes in a row, and how long nobody may try again.
CREATE TABLE pairing_failures (
    platform     TEXT PRIMARY KEY,
    failures     INTEGER NOT NULL,
    locked_until REAL NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

-- Whose day it is that pays for a call, where somebody's day is limited: platform and user id.
ALTER TABLE reservations ADD COLUMN person TEXT;
CREATE INDEX reservations_person ON reservations (person, reserved_at) WHERE person IS NOT NULL;

-- A title is one of the person's, or of the chat's that shares it: who is told that it is taken must not
-- learn what others talk about.
DROP INDEX sessions_title;
CREATE UNIQUE INDEX sessions_title ON sessions (title, iif(user_id IS NOT NULL,
    source || ' user ' || user_id, iif(chat_id IS NOT NULL, source || ' chat ' || chat_id, '')))
    WHERE title IS NOT NULL;
"""

_PARTIALS = """
-- What was streamed of a reply whose turn still runs.
CREATE TABLE partials (
    turn_id     TEXT PRIMARY KEY REFERENCES turns(id) ON DELETE CASCADE,
    text        TEXT NOT NULL,
    streamed_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
"""

_CUT_SHORT = """
-- A page of a long conversation asks which of its turns were cut short; few ever are. For a day the step
-- before made this index, so a store may have it.
DROP INDEX IF EXISTS turns_cut_short;
CREATE INDEX turns_cut_short ON turns (user_message_id) WHERE state IN ('failed', 'interrupted');
"""

_COMPACTED = """
-- A message that an import found replaced by a summary in its own session. The model is not shown it;
-- people and searches are.
ALTER TABLE messages ADD COLUMN compacted INTEGER NOT NULL DEFAULT 0 CHECK (compacted IN (0, 1));
CREATE INDEX messages_compacted ON messages (session_id) WHERE compacted = 1;
UPDATE messages SET compacted = 1
    WHERE active = 0 AND json_valid(extra) AND extra ->> '$.compacted' = 1;
"""

_WORKERS = """
-- Which surface a turn came from, which worker accepted it or runs it, and with whose permissions (JSON;
-- NULL: the owner at this machine). A turn belongs to its worker until that is gone.
ALTER TABLE turns ADD COLUMN surface TEXT NOT NULL DEFAULT '';
ALTER TABLE turns ADD COLUMN worker TEXT;
ALTER TABLE turns ADD COLUMN permissions TEXT;
UPDATE turns SET surface = 'gateway' WHERE id IN (SELECT turn_id FROM inbox);
CREATE INDEX turns_queue ON turns (session_id, user_message_id)
    WHERE state IN ('accepted', 'running');

-- The processes that have open turns, and when each was heard of last.
CREATE TABLE workers (
    name    TEXT PRIMARY KEY,
    seen_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
"""

_COLUMNS = """
-- What a query asks for is a column; the JSON beside it is the gateway's own.
-- Of an inbound message: the key of the chat it came from, the message it is a new version of, and the
-- messages that it was put together from.
ALTER TABLE inbox ADD COLUMN session_key TEXT;
ALTER TABLE inbox ADD COLUMN edits TEXT;
CREATE TABLE inbox_parts (
    platform   TEXT NOT NULL,
    chat_id    TEXT NOT NULL,
    part_id    TEXT NOT NULL,
    message_id TEXT NOT NULL,
    PRIMARY KEY (platform, chat_id, part_id, message_id),
    FOREIGN KEY (platform, chat_id, message_id) REFERENCES inbox ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
UPDATE inbox SET session_key = payload ->> '$.session_key', edits = payload ->> '$.edits'
    WHERE json_valid(payload);
INSERT INTO inbox_parts SELECT DISTINCT platform, chat_id, part.value, message_id
    FROM inbox, json_each(CASE WHEN json_valid(payload) THEN payload ELSE '{}' END, '$.parts') AS part
    WHERE part.type = 'text';
CREATE INDEX inbox_edits ON inbox (platform, chat_id, edits) WHERE edits IS NOT NULL;

-- The question that a part asks, and its buttons (JSON) while they are to be shown.
ALTER TABLE outbox ADD COLUMN question_id TEXT;
ALTER TABLE outbox ADD COLUMN buttons TEXT;
UPDATE outbox SET question_id = extra ->> '$.question', buttons = extra -> '$.buttons',
    extra = json_remove(extra, '$.question', '$.buttons')
    WHERE key >= 'question:' AND key < 'question;' AND json_valid(extra);
CREATE INDEX outbox_buttons ON outbox (question_id) WHERE buttons IS NOT NULL;

-- Whether the conversation of a route is over, as its chat was silent for too long.
ALTER TABLE routes ADD COLUMN expired INTEGER NOT NULL DEFAULT 0 CHECK (expired IN (0, 1));
UPDATE routes SET expired = 1
    WHERE json_valid(entry) AND json_type(entry, '$.expiry_finalized') = 'true';
"""

_CHECKPOINTS = """
-- What a workspace held before and after an attempt at a turn: git trees in the home's own repository
-- of that workspace. NULL before: none could be taken; NULL after: the attempt runs, or was killed. The
-- notes (JSON) say what is not in the trees.
CREATE TABLE checkpoints (
    id          INTEGER PRIMARY KEY,
    turn_id     TEXT NOT NULL REFERENCES turns(id) ON DELETE CASCADE,
    workspace   TEXT NOT NULL,
    before      TEXT,
    after       TEXT,
    notes       TEXT NOT NULL DEFAULT '[]',
    taken_at    REAL NOT NULL,
    ended_at    REAL,
    restored_at REAL,
    CHECK ((after IS NOT NULL) <= (ended_at IS NOT NULL))
) STRICT;
CREATE INDEX checkpoints_turn ON checkpoints (turn_id);
CREATE INDEX checkpoints_workspace ON checkpoints (workspace, taken_at);

-- What a tool call did, or may have done, that restoring files does not undo.
CREATE TABLE lasting_effects (
    turn_id      TEXT NOT NULL REFERENCES turns(id) ON DELETE CASCADE,
    tool_call_id TEXT NOT NULL,
    tool_name    TEXT NOT NULL,
    kind         TEXT NOT NULL CHECK (kind IN ('host', 'outside', 'unconfined', 'other')),
    detail       TEXT NOT NULL,
    noted_at     REAL NOT NULL,
    PRIMARY KEY (turn_id, tool_call_id, kind, detail)
) STRICT, WITHOUT ROWID;
"""

_GRANTS = """
-- What a grant is for, in words for people: the key is a hash. Empty in grants of before; those of calls
-- match nothing any more.
ALTER TABLE grants ADD COLUMN tool_name TEXT NOT NULL DEFAULT '';
ALTER TABLE grants ADD COLUMN subject TEXT NOT NULL DEFAULT '';
ALTER TABLE grants ADD COLUMN folder TEXT NOT NULL DEFAULT '';
ALTER TABLE grants ADD COLUMN reasons TEXT NOT NULL DEFAULT '';
ALTER TABLE grants ADD COLUMN granted_by TEXT NOT NULL DEFAULT '';
"""

_TAINT = """
-- What a conversation has read: outside text, which may hold instructions of others, and private data.
-- When both are there, what sends or keeps anything asks first. A turn has no reference: a branch keeps
-- the rows of its parent.
CREATE TABLE taint (
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    kind       TEXT NOT NULL CHECK (kind IN ('outside', 'private')),
    source     TEXT NOT NULL,
    turn_id    TEXT,
    noted_at   REAL NOT NULL,
    PRIMARY KEY (session_id, kind, source)
) STRICT, WITHOUT ROWID;
CREATE INDEX taint_turn ON taint (turn_id) WHERE turn_id IS NOT NULL;
INSERT INTO taint SELECT session_id, 'outside', 'web pages', NULL, max(timestamp) FROM messages
    WHERE role = 'tool' AND tool_name IN ('web_fetch', 'web_search') GROUP BY session_id;
INSERT INTO taint SELECT session_id, 'private', 'notes or other conversations', NULL, max(timestamp)
    FROM messages WHERE role = 'tool' AND tool_name IN ('session_search', 'memory')
    GROUP BY session_id;
"""

STEPS: tuple[Step, ...] = (
    Step("m001_sessions_and_messages", _SESSIONS),
    Step("m002_ledger", _LEDGER),
    Step("m003_questions_and_reservations", _AGENT),
    Step("m004_delivery_and_people", _GATEWAY),
    Step("m005_partials", _PARTIALS),
    Step("m006_turns_cut_short", _CUT_SHORT),
    Step("m007_messages_compacted", _COMPACTED),
    Step("m008_workers", _WORKERS),
    Step("m009_columns", _COLUMNS),
    Step("m010_checkpoints", _CHECKPOINTS),
    Step("m011_grants", _GRANTS),
    Step("m012_taint", _TAINT),
)

SCHEMA_VERSION = len(STEPS)


def version_of(conn: apsw.Connection) -> int:
    """Return the schema version of a database: the number of steps it has taken."""
    return int(conn.pragma("user_version"))


def migrate(conn: apsw.Connection, version: int | None = None) -> None:
    """Take the missing steps up to a version (default: the newest), all in one transaction.

    Foreign keys are off meanwhile: a step that rebuilds a table drops the old one, and must not delete
    what refers to it.
    """
    version = SCHEMA_VERSION if version is None else version
    if version_of(conn) >= version:
        return
    enforced = conn.pragma("foreign_keys")
    conn.pragma("foreign_keys", 0)
    try:
        _take_missing(conn, version)
    finally:
        conn.pragma("foreign_keys", enforced)


def _take_missing(conn: apsw.Connection, version: int) -> None:
    conn.execute("BEGIN IMMEDIATE")
    try:
        for position in range(version_of(conn), version):  # another process may have been faster
            _take(conn, position)
        if version == SCHEMA_VERSION:
            triggers.install(conn)
    except BaseException:
        conn.execute("ROLLBACK")
        raise
    conn.execute("COMMIT")


def _take(conn: apsw.Connection, position: int) -> None:
    step = STEPS[position]
    conn.execute(step.sql)
    conn.execute(
        "INSERT INTO meta (key, value) VALUES (?, ?)", (f"migration.{step.name}", str(clock.now()))
    )
    conn.pragma("user_version", position + 1)
