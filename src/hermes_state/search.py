"""Full-text search: what a person types, turned into a query that cannot be wrong.

Words first; when no message has them, fragments (trigrams), so that part of a name or of a line of
code is found too. The index is joined with the store, which decides whether a message may be shown.
"""

import re
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import apsw

from hermes_state import lineage
from hermes_state.index import SearchIndex, searchable, split_unspaced
from hermes_state.records import Row

MOST_CHARACTERS = 2048
"""Of a query; the rest is not read."""

_SNIPPET = 160

_TERM = re.compile(r'(-?)"([^"]*)"(\*?)|(\S+)')
_WORD = re.compile(r"\w+")

Sort = Literal["newest", "oldest", "relevance"]

_ORDERS: dict[Sort, str] = {"newest": "rowid DESC", "oldest": "rowid", "relevance": "rank"}
"""The first two come out of the index as they are; relevance has to look at every match."""


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
    index: SearchIndex,
    query: str,
    wanted: Wanted,
    *,
    limit: int = 20,
    offset: int = 0,
    sort: Sort = "newest",
) -> list[Row]:
    """Messages that fit, each once, with a snippet around what was found."""
    groups = parse(query)
    if not groups or limit <= 0:
        return []
    for table, render in (("words", _words), ("trigrams", _fragments)):
        question = _Question(table, render(groups), groups, wanted, sort, offset + limit)
        if hits := index.ask_up_to_date(question.answer):
            return hits[offset:]
    return []


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


@lru_cache(maxsize=64)
def _sql(table: str, terms: str, order: str) -> str:
    return (
        "SELECT m.id, m.session_id, s.conversation_id, m.role, m.tool_name, m.timestamp, s.source,"
        " s.model, s.title, s.started_at, coalesce(m.origin_id, m.id), m.content, m.parts,"
        f" m.tool_calls FROM search.{table}"
        f" CROSS JOIN main.messages AS m ON m.id = {table}.rowid"
        " CROSS JOIN main.sessions AS s ON s.id = m.session_id"
        f" WHERE {table} MATCH ? AND {terms} ORDER BY {table}.{order}"
    )


class _Question:
    """One query on one table of the index, joined with the messages it is about."""

    def __init__(
        self,
        table: str,
        expression: str,
        groups: list[list[Term]],
        wanted: Wanted,
        sort: Sort,
        count: int,
    ) -> None:
        self._table = table
        self._expression = expression
        self._groups = groups
        self._wanted = wanted
        self._order = _ORDERS[sort if table == "words" or sort != "relevance" else "newest"]
        self._count = count
        self._needle = _pattern([t.text for group in groups for t in group if not t.negated])

    def answer(self, conn: apsw.Connection) -> list[Row]:
        """Hits in order, until there are enough."""
        if not self._expression:
            return []
        terms, bindings = _conditions(conn, self._wanted)
        sql = _sql(self._table, terms, self._order)
        fragments = self._table == "trigrams"
        hits: dict[int, Row] = {}
        size, offset = self._count, 0
        while len(hits) < self._count:
            # Numbers, not parameters: SQLite plans a query anew when its LIMIT is bound.
            limited = f"{sql} LIMIT {size} OFFSET {offset}"
            page = conn.execute(limited, (self._expression, *bindings)).fetchall()
            for row in page:
                original, content, parts, calls = row[_OWN:]
                if original in hits:
                    continue  # a copy of something that was found already
                text = content if content and calls is None else searchable(content, parts, calls)
                if fragments and not _contains(text, self._groups):
                    continue  # it has the trigrams, but not next to each other
                hit: Row = dict(zip(_COLUMNS, row, strict=False))
                hit["snippet"] = snippet(text, self._needle)
                hits[original] = hit
            if len(page) < size:
                break
            offset += size
            size *= 4
        return list(hits.values())[: self._count]


_COLUMNS = (
    *("id", "session_id", "conversation_id", "role", "tool_name", "timestamp"),
    *("source", "model", "title", "session_started"),
)
_OWN = len(_COLUMNS)
"""What follows in a row is for us: the original's id, and what the text is made of."""


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


def _pattern(needles: list[str]) -> re.Pattern[str]:
    """What to mark in a snippet: the longest of what was asked for, wherever it stands."""
    pieces = {piece for needle in needles for piece in _pieces(needle)}
    longest_first = sorted(pieces, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)", re.IGNORECASE)


def _pieces(needle: str) -> list[str]:
    return [needle] if not needle.isascii() or not needle.isalnum() else _WORD.findall(needle)


def _marked(match: re.Match[str]) -> str:
    return f">>>{match[0]}<<<"


def snippet(text: str, needle: re.Pattern[str]) -> str:
    """One line of the text around the first thing found, with every find marked."""
    if len(text) <= _SNIPPET:
        return " ".join(needle.sub(_marked, text).split())
    first = needle.search(text)
    begin = max(0, first.start() - _SNIPPET // 3) if first else 0
    marked = " ".join(needle.sub(_marked, text[begin : begin + _SNIPPET]).split())
    before, after = "…" if begin else "", "…" if begin + _SNIPPET < len(text) else ""
    return before + marked + after
