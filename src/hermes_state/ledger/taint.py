"""Store the taint of conversations: the outside text and the private data that each has read.

What was read stays in a conversation: compaction rewrites it, a branch copies it, a sub-agent reports
it. So rows are added, and removed with their conversation only; rewinding keeps them too.
"""

from collections.abc import Iterable, Sequence

from hermes_core.secrets import redact
from hermes_core.text import one_line, truncate, visible
from hermes_state.store import Tx, one_statement
from hermes_state.values import Row, TaintSource

_MAX_SOURCE = 200
_OF_CONVERSATION = (
    "session_id IN (SELECT id FROM sessions WHERE conversation_id ="
    " (SELECT conversation_id FROM sessions WHERE id = ?1))"
)
_WEB, _PRIVATE = ("web_fetch", "web_search"), ("session_search", "memory")


def note(
    tx: Tx, session_id: str, sources: Iterable[TaintSource], turn_id: str | None = None
) -> None:
    """Record that the conversation of a session reads these sources."""
    for kind, source in sources:
        tx.run(
            "INSERT INTO taint (session_id, kind, source, turn_id, noted_at) SELECT ?1, ?2, ?3, ?4, ?5"
            f" WHERE NOT EXISTS (SELECT 1 FROM taint WHERE kind = ?2 AND source = ?3"
            f" AND {_OF_CONVERSATION})",
            session_id,
            kind,
            truncate(one_line(visible(redact(source))), _MAX_SOURCE),
            turn_id,
            tx.now,
        )


@one_statement
def of(tx: Tx, session_id: str) -> list[Row]:
    """Return what the conversation of a session has read, in the order in which it did."""
    return tx.rows(
        f"SELECT kind, source, turn_id, noted_at FROM taint WHERE {_OF_CONVERSATION}"
        " ORDER BY noted_at, kind, source",
        session_id,
    )


@one_statement
def latest(tx: Tx, limit: int) -> list[Row]:
    """Return the conversations that read something last: `conversation_id`, and when as `noted_at`."""
    return tx.rows(
        "SELECT s.conversation_id, max(t.noted_at) AS noted_at FROM taint AS t"
        " JOIN sessions AS s ON s.id = t.session_id"
        " GROUP BY s.conversation_id ORDER BY 2 DESC, 1 LIMIT ?",
        limit,
    )


def copy(tx: Tx, session_id: str, to_session_id: str) -> None:
    """Give a conversation the taint of another one."""
    tx.run(
        "INSERT INTO taint (session_id, kind, source, turn_id, noted_at)"
        f" SELECT CAST(?2 AS TEXT), kind, source, turn_id, noted_at FROM taint WHERE {_OF_CONVERSATION}"
        " ON CONFLICT (session_id, kind, source) DO NOTHING",
        session_id,
        to_session_id,
    )


def follow(tx: Tx, turn_id: str, to_session_id: str) -> None:
    """Give a conversation what came with a turn that moves there."""
    tx.run(
        "INSERT INTO taint (session_id, kind, source, turn_id, noted_at)"
        " SELECT CAST(?2 AS TEXT), kind, source, turn_id, noted_at FROM taint WHERE turn_id = ?1"
        " ON CONFLICT (session_id, kind, source) DO NOTHING",
        turn_id,
        to_session_id,
    )


def note_import(tx: Tx, session_id: str) -> None:
    """Record what a session has read that came from a file: somebody else may have written it."""
    note(tx, session_id, [TaintSource("outside", "an imported conversation")])
    _note_results(tx, session_id)


def note_history(tx: Tx, session_id: str) -> None:
    """Record what a session has read in the messages that a program sent with the first one."""
    has_results = tx.value(
        "SELECT EXISTS (SELECT 1 FROM messages WHERE session_id = ?"
        " AND role NOT IN ('user', 'assistant', 'system'))",
        session_id,
    )
    if has_results:
        note(tx, session_id, [TaintSource("outside", "results of tools of another program")])
        _note_results(tx, session_id)


def _note_results(tx: Tx, session_id: str) -> None:
    """Record what the results of our own tools in a session brought."""
    sources: list[TaintSource] = []
    for source, names in (
        (TaintSource("outside", "web pages"), _WEB),
        (TaintSource("private", "notes or other conversations"), _PRIVATE),
    ):
        is_there = tx.value(
            "SELECT EXISTS (SELECT 1 FROM messages WHERE session_id = ?1 AND role = 'tool'"
            f" AND {tx.among('tool_name', '?2')})",
            session_id,
            tx.many(names),
        )
        if is_there:
            sources.append(source)
    note(tx, session_id, sources)


@one_statement
def texts_with(
    tx: Tx, session_id: str, words: str, tool_names: Sequence[str], *, people: bool
) -> list[str]:
    """Return the texts with these words that came into a conversation from elsewhere.

    They are results of the named tools and, with `people`, messages of people; not what a model wrote.
    """
    found = tx.tuples(
        "SELECT coalesce(content, parts), extra FROM messages"
        f" WHERE {_OF_CONVERSATION} AND kind IN ('message', 'copy')"
        f" AND (role = 'tool' AND {tx.among('tool_name', '?3')} OR role = 'user' AND ?4)"
        " AND instr(coalesce(content, parts), ?2) > 0",
        session_id,
        words,
        tx.many(tool_names),
        people,
    )
    return [text for text, extra in found if '"is_error":true' not in (extra or "")]
