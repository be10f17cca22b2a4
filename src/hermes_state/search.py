"""Full-text search: what a person types, turned into a query that cannot be wrong.

Words first; when no message has them, fragments (trigrams), so that part of a name or of a line of
code is found too. The index gives candidates; whether a message may be shown is asked of the store.
"""

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import apsw

from hermes_core.text import one_line
from hermes_state import lineage
from hermes_state.database import Database
from hermes_state.index import SearchIndex, searchable, split_unspaced
from hermes_state.records import Row, encode

MOST_CHARACTERS = 2048
"""Of a query; the rest is not read."""

_RANKED = 200
"""Up to so many matches are put in order of relevance; of more, the newest are shown first."""

_SNIPPET = 160
_MARK = (">>>", "<<<")

_TERM = re.compile(r'(-?)"([^"]*)"(\*?)|(\S+)')
_WORD = re.compile(r"\w+")

Sort = Literal["newest", "oldest"] | None


class Term(NamedTuple):
    """One thing a message must have, or must not."""

    text: str
    negated: bool = False
    prefix: bool = False


class Wanted(NamedTuple):
    """Which messages may be shown."""

    role: str | tuple[str, ...] | None = None
    source: str | None = None
    exclude_sources: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    session_id: str | None = None
    include_inactive: bool = False


def parse(query: str) -> list[list[Term]]:
    """Alternatives (OR) of terms that belong together; any text is a query, also a wrong one."""
    groups: list[list[Term]] = [[]]
    for minus, phrase, star, word in _TERM.findall(query[:MOST_CHARACTERS]):
        if word == "OR":
            groups.append([])
            continue
        if word in ("AND", "NOT"):
            continue
        term = _term(word) if word else Term(phrase, bool(minus), bool(star))
        if term.text.strip():
            groups[-1].append(term)
    return [group for group in groups if any(not term.negated for term in group)]


def _term(word: str) -> Term:
    negated = len(word) > 1 and word[0] == "-" and word[1] != "-"
    text = word[1:] if negated else word
    prefix = len(text) > 1 and text.endswith("*")
    return Term((text[:-1] if prefix else text).replace('"', ""), negated, prefix)


def find(
    database: Database,
    index: SearchIndex,
    query: str,
    wanted: Wanted,
    *,
    limit: int = 20,
    offset: int = 0,
    sort: Sort = None,
) -> list[Row]:
    """Messages that fit, each once, with a snippet around what was found."""
    groups = parse(query)
    if not groups or limit <= 0:
        return []
    index.catch_up()
    hits = _collect(database, index, "words", _words(groups), groups, wanted, limit + offset, sort)
    if not hits:
        fragments = _fragments(groups)
        hits = _collect(
            database, index, "trigrams", fragments, groups, wanted, limit + offset, sort
        )
    return [_shown(hit, groups) for hit in hits[offset : offset + limit]]


def _words(groups: list[list[Term]]) -> str:
    """The query for the word index: everything quoted, so that nothing in it is syntax."""
    return " OR ".join(filter(None, (_all_of(group, _word_term) for group in groups)))


def _fragments(groups: list[list[Term]]) -> str:
    return " OR ".join(filter(None, (_all_of(group, _fragment_term) for group in groups)))


def _all_of(group: list[Term], render: Any) -> str:  # noqa: ANN401 -- one of the two functions below
    positive = [text for term in group if not term.negated and (text := render(term))]
    negative = [text for term in group if term.negated and (text := render(term))]
    if not positive:
        return ""
    expression = " AND ".join(positive)
    return f"(({expression}) NOT ({' OR '.join(negative)}))" if negative else f"({expression})"


def _word_term(term: Term) -> str:
    text = split_unspaced(term.text)
    if not _WORD.search(text):
        return ""
    pairs = text.split()
    if text != term.text and len(pairs) > 1 and len(pairs[-1]) == 1:
        pairs.pop()  # the lone last character is there for queries of one character
    alone = text != term.text and len(pairs) == 1 and len(pairs[0]) == 1
    return f'"{" ".join(pairs)}"' + ("*" if term.prefix or alone else "")


def _fragment_term(term: Term) -> str:
    text = term.text
    grams = {text[i : i + 3] for i in range(len(text) - 2)}
    return " AND ".join(f'"{gram}"' for gram in sorted(grams)) if grams else ""


def _collect(
    database: Database,
    index: SearchIndex,
    table: str,
    expression: str,
    groups: list[list[Term]],
    wanted: Wanted,
    count: int,
    sort: Sort,
) -> list[Row]:
    """Take candidates from the index until enough of them may be shown."""
    if not expression:
        return []
    seen: set[int] = set()
    hits: list[Row] = []
    for ids in _candidates(index, table, expression, sort, count):
        for row in database.read(lambda c, ids=ids: _visible(c, ids, wanted)):
            original = row.pop("original")
            if original in seen or (table == "trigrams" and not _contains(row["text"], groups)):
                continue
            seen.add(original)
            hits.append(row)
            if len(hits) >= count:
                return hits
    return hits


def _candidates(
    index: SearchIndex, table: str, expression: str, sort: Sort, count: int
) -> Iterator[list[int]]:
    """Ids of matching messages in order, at first as many as are wanted, then more at a time."""

    def page(order: str, limit: int, after: str = "", bindings: tuple[Any, ...] = ()) -> list[int]:
        sql = f"SELECT rowid FROM {table} WHERE {table} MATCH ?{after} ORDER BY {order} LIMIT ?"
        return index.ask(
            lambda c: [id_ for (id_,) in c.execute(sql, (expression, *bindings, limit))]
        )

    direction, after = ("ASC", " AND rowid > ?") if sort == "oldest" else ("DESC", " AND rowid < ?")
    ranked = sort is None and table == "words"
    ids = page(f"rowid {direction}", _RANKED + 1 if ranked else count)
    if ranked and 1 < len(ids) <= _RANKED:
        ids = page("rank", _RANKED)
    size = count
    while ids:
        for start in range(0, len(ids), size):
            yield ids[start : start + size]
        if ranked and len(ids) <= _RANKED:
            return
        size = min(size * 4, 10_000)
        ids = page(f"rowid {direction}", size, after, (ids[-1],))


def _visible(conn: apsw.Connection, ids: list[int], wanted: Wanted) -> list[Row]:
    """Those of the candidates that exist and pass the filters, in the order given."""
    terms, bindings = _conditions(conn, wanted)
    found = conn.execute(
        "SELECT m.id, m.session_id, s.conversation_id, m.role, m.content, m.parts, m.tool_calls,"
        " m.tool_name, m.timestamp, s.source, s.model, s.title, s.started_at,"
        " coalesce(m.origin_id, m.id)"
        " FROM json_each(?) AS given CROSS JOIN messages AS m ON m.id = given.value"
        f" CROSS JOIN sessions AS s ON s.id = m.session_id WHERE {terms} ORDER BY given.key",
        (encode(ids), *bindings),
    )
    return [
        {
            "id": id_,
            "session_id": session_id,
            "conversation_id": conversation_id,
            "role": role,
            "text": searchable(content, parts, calls),
            "tool_name": tool_name,
            "timestamp": timestamp,
            "source": source,
            "model": model,
            "title": title,
            "session_started": started,
            "original": original,
        }
        for (
            id_, session_id, conversation_id, role, content, parts, calls, tool_name, timestamp,
            source, model, title, started, original,
        ) in found
    ]  # fmt: skip


def _conditions(conn: apsw.Connection, wanted: Wanted) -> tuple[str, list[Any]]:
    terms, bindings = ["m.kind <> 'summary'"], list[Any]()
    if not wanted.include_inactive:
        terms.append("m.active = 1")
    roles = (wanted.role,) if isinstance(wanted.role, str) else wanted.role or ()
    for column, values, operator in (
        ("m.role", roles, "IN"),
        ("s.source", (wanted.source,) if wanted.source else (), "IN"),
        ("s.source", wanted.exclude_sources, "NOT IN"),
    ):
        if values:
            terms.append(f"{column} {operator} ({', '.join('?' * len(values))})")
            bindings += values
    if wanted.since is not None:
        terms.append("m.timestamp >= ?")
        bindings.append(wanted.since)
    if wanted.until is not None:
        terms.append("m.timestamp < ?")
        bindings.append(wanted.until)
    if wanted.session_id is not None:
        terms.append("s.conversation_id = ?")
        bindings.append(lineage.root(conn, wanted.session_id))
    return " AND ".join(terms), bindings


def _contains(text: str, groups: list[list[Term]]) -> bool:
    """Whether a candidate really has the fragments: the index knows only that their trigrams occur."""
    folded = text.casefold()
    return any(
        all((term.text.casefold() in folded) is not term.negated for term in group)
        for group in groups
    )


def _shown(hit: Row, groups: list[list[Term]]) -> Row:
    text = hit.pop("text")
    hit["snippet"] = snippet(text, [t.text for group in groups for t in group if not t.negated])
    return hit


def snippet(text: str, needles: list[str]) -> str:
    """One line of the text around the first thing found, with every find marked."""
    pieces = sorted(
        {piece for needle in needles for piece in _pieces(needle)}, key=len, reverse=True
    )
    if not pieces:
        return one_line(text[:_SNIPPET])
    pattern = re.compile("|".join(map(re.escape, pieces)), re.IGNORECASE)
    first = pattern.search(text)
    begin = max(0, first.start() - _SNIPPET // 3) if first else 0
    shown = text[begin : begin + _SNIPPET]
    marked = pattern.sub(lambda match: f"{_MARK[0]}{match[0]}{_MARK[1]}", shown)
    before, after = "…" if begin else "", "…" if begin + _SNIPPET < len(text) else ""
    return before + one_line(marked) + after


def _pieces(needle: str) -> list[str]:
    return [needle] if not needle.isascii() or not needle.isalnum() else _WORD.findall(needle)
