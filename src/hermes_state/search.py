"""Search messages: turn any text that a person types into a valid query and run it.

Words are searched first; without a hit, fragments (trigrams), so that part of a name or of a line of
code is found too. The index is joined with the store, which decides whether a message is visible.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

import apsw

from hermes_core.text import one_line, without_surrogates
from hermes_state.engines.sqlite.index import IS_BEHIND, SearchIndex, searchable, split_unspaced
from hermes_state.engines.sqlite.tx import SqliteTx
from hermes_state.ledger import lineage, messages
from hermes_state.ledger.records import IS_OUT_OF_ORDER
from hermes_state.ledger.scope import condition
from hermes_state.values import Row, Scope, Sort

MAX_CHARACTERS = 2048
"""Characters of a query; the rest is ignored."""

_SNIPPET = 160

_TERM = re.compile(r'(-?)"([^"]*)"(\*?)|(\S+)')
_WORD = re.compile(r"\w+")
_PUNCTUATED = re.compile(r"\w+(?:[^\w\s]+\w+)+")
"""Words with punctuation between them; the index contains only the words."""
_EXCLUDED = re.compile(r"-(?![A-Za-z0-9]$)[@#.]?\w")
"""A minus excludes a word. `->next` and the option `-m` are ordinary text."""


_ORDERS: dict[Sort, str] = {
    "newest": "{table}.rowid DESC",
    "oldest": "{table}.rowid",
    "relevance": "{table}.rank",
}
"""The first two are index order; relevance must rank every match."""

_BY_TIME: dict[Sort, str] = {
    "newest": "m.timestamp DESC, m.id DESC",
    "oldest": "m.timestamp, m.id",
    "relevance": "{table}.rank",
}
"""The orders for a store with imports, where ids are not in the order of times."""


class Term(NamedTuple):
    """A text that a message must contain, or must not."""

    text: str
    negated: bool = False
    prefix: bool = False


class MessageFilter(NamedTuple):
    """Selects the messages to search."""

    role: str | Collection[str] | None = None
    source: str | None = None
    exclude_sources: Collection[str] = ()
    since: float | None = None
    until: float | None = None
    session_id: str | None = None
    include_inactive: bool = False
    scope: Scope | None = None
    once_per_conversation: bool = False
    """Only the first hit per conversation; a branch is a conversation of its own."""


def parse(query: str) -> list[list[Term]]:
    """Parse a query into alternatives (OR) of terms (AND); any text is valid."""
    groups: list[list[Term]] = [[]]
    for term, operator in _terms(query):
        if operator == "OR":
            groups.append([])
        elif not operator:
            groups[-1].append(term)
    groups = [group for group in groups if any(not term.negated for term in group)]
    return groups or parse_literally(query)


def parse_literally(query: str) -> list[list[Term]]:
    """Parse a query with `-`, AND, OR and NOT as ordinary text."""
    literal = [
        Term("-" * term.negated + term.text, prefix=term.prefix)
        for term, _operator in _terms(query)
    ]
    return [literal] if literal else []


def _terms(query: str) -> Iterator[tuple[Term, str]]:
    """Yield the terms between spaces, each with the operator that it may be."""
    # SQLite takes no lone surrogates, and a NUL would end the query.
    query = without_surrogates(query[:MAX_CHARACTERS]).replace("\0", " ")
    for minus, phrase, star, word in _TERM.findall(query):
        term = _term(word) if word else Term(phrase, bool(minus), bool(star))
        if term.text.strip():
            yield term, word if word in ("AND", "OR", "NOT") else ""


def _term(word: str) -> Term:
    negated = _EXCLUDED.match(word) is not None
    text = word[1:] if negated else word
    prefix = len(text) > 1 and text.endswith("*")
    return Term((text[:-1] if prefix else text).replace('"', ""), negated, prefix)


class _ParsedQuery(NamedTuple):
    """A parsed query; cached, because people page through hits."""

    groups: list[list[Term]]
    words: str
    fragments: str
    needle: "Needle"
    punctuated: list[list[str]]
    """For each alternative, the words with punctuation that a hit must contain literally."""
    literally: "_ParsedQuery | None" = None
    """The query with every minus as text, if one of them is an exclusion."""


@lru_cache(maxsize=128)
def _parse_cached(query: str) -> _ParsedQuery:
    parsed = _compile(parse(query))
    if any(term.negated for group in parsed.groups for term in group):
        return parsed._replace(literally=_compile(parse_literally(query)))
    return parsed


def _compile(groups: list[list[Term]]) -> _ParsedQuery:
    needles = [term.text for group in groups for term in group if not term.negated]
    punctuated = [
        [
            _folded(found[0])
            for t in group
            if not t.negated and (found := _PUNCTUATED.search(t.text))
        ]
        for group in groups
    ]
    return _ParsedQuery(groups, _words(groups), _fragments(groups), Needle(needles), punctuated)


def _contains_any(text: str, alternatives: list[list[str]]) -> bool:
    folded = _folded(text)
    return any(all(word in folded for word in alternative) for alternative in alternatives)


def find(
    index: SearchIndex,
    query: str,
    filters: MessageFilter,
    *,
    limit: int = 20,
    offset: int = 0,
    sort: Sort = "newest",
) -> list[Row]:
    """Return matching messages, each once, with a snippet."""
    parsed = _parse_cached(query[:MAX_CHARACTERS])
    if not parsed.groups or limit <= 0:
        return []
    search = _Query(parsed, filters, sort, offset + limit)
    hits = index.ask(search.words_at_once) or index.ask_up_to_date(search.words_or_fragments)
    return hits[offset:]


def _words(groups: list[list[Term]]) -> str:
    """Return the query for the word index with everything quoted, so that nothing is syntax."""
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
        pairs.pop()  # the last single character is for queries of one character
    alone = text != term.text and len(pairs) == 1 and len(pairs[0]) == 1
    return f'"{" ".join(pairs)}"' + ("*" if term.prefix or alone else "")


def _fragment_term(term: Term) -> str:
    text = term.text
    grams = {text[i : i + 3] for i in range(len(text) - 2)}
    return " AND ".join(f'"{gram}"' for gram in sorted(grams)) if grams else ""


_TITLE = (
    "iif(s.is_tip, s.title, (SELECT tip.title FROM main.sessions AS tip"
    " WHERE tip.conversation_id = s.conversation_id AND tip.is_tip = 1))"
)
"""SQL: the title of a conversation, which its tip has."""


@lru_cache(maxsize=64)
def _sql(table: str, terms: str, order: str) -> str:
    return (
        "SELECT m.id, m.session_id, s.conversation_id, m.role, m.tool_name, m.timestamp, s.source,"
        f" s.model, {_TITLE}, s.started_at, coalesce(m.origin_id, m.id), m.content, m.parts,"
        f" m.tool_calls, {IS_OUT_OF_ORDER} FROM search.{table}"
        f" CROSS JOIN main.messages AS m ON m.id = {table}.rowid"
        " CROSS JOIN main.sessions AS s ON s.id = m.session_id"
        f" WHERE {table} MATCH iif(? AND {IS_BEHIND}, '{_NOTHING}', ?) AND {terms}"
        f" ORDER BY {order.format(table=table)}"
    )


_NOTHING = '""'
"""A query without matches."""


class _Query:
    """Runs a query on the index, joined with the messages."""

    def __init__(
        self, parsed: _ParsedQuery, filters: MessageFilter, sort: Sort, count: int
    ) -> None:
        self._parsed = parsed
        self._is_loose = False
        self._filters = filters
        self._sort: Sort = sort
        self._count = count

    def words_at_once(self, conn: apsw.Connection) -> list[Row]:
        """Return messages with the words; none when the index is behind, which the query checks."""
        return self._ask(conn, "words", self._parsed.words, self._sort, unless_behind=True)

    def words_or_fragments(self, conn: apsw.Connection) -> list[Row]:
        """Return messages with the words, else the fragments, else with any punctuation between.

        Without a hit, a minus is searched as text: it may be an option of a command.
        """
        if hits := self._ask(conn, "words", self._parsed.words, self._sort):
            return hits
        sort = "newest" if self._sort == "relevance" else self._sort
        if hits := self._ask(conn, "trigrams", self._parsed.fragments, sort):
            return hits
        if any(self._parsed.punctuated):
            self._is_loose = True
            if hits := self._ask(conn, "words", self._parsed.words, self._sort):
                return hits
        if self._parsed.literally is None:
            return []
        literally = _Query(self._parsed.literally, self._filters, sort, self._count)
        return literally._ask(conn, "trigrams", self._parsed.literally.fragments, sort)

    def _ask(
        self,
        conn: apsw.Connection,
        table: str,
        expression: str,
        sort: Sort,
        order: str = "",
        *,
        unless_behind: bool = False,
    ) -> list[Row]:
        """Return enough hits, in order."""
        if not expression:
            return []
        terms, bindings = _conditions(conn, self._filters)
        sql = _sql(table, terms, order or _ORDERS[sort])
        hits: dict[int | str, Row] = {}
        size, offset = self._count, 0
        while len(hits) < self._count:
            # Literals, not parameters: SQLite plans a query again when its LIMIT is bound.
            limited = f"{sql} LIMIT {size} OFFSET {offset}"
            page = conn.execute(limited, (unless_behind, expression, *bindings)).fetchall()
            if not order and page and page[0][-1]:
                by_time = _BY_TIME[sort]
                return self._ask(
                    conn, table, expression, sort, by_time, unless_behind=unless_behind
                )
            self._add(hits, page, table)
            if len(page) < size:
                break
            unless_behind = False  # later messages need not be found
            offset += size
            size *= 4
        return list(hits.values())[: self._count]

    def _add(self, hits: dict[int | str, Row], page: list[tuple[Any, ...]], table: str) -> None:
        """Add the rows that really match, once per original message."""
        by_conversation = self._filters.once_per_conversation
        groups, needle = self._parsed.groups, self._parsed.needle
        fragments = table == "trigrams"
        is_exact = not fragments and not self._is_loose and any(self._parsed.punctuated)
        for (
            id_, session_id, conversation_id, role, tool_name, timestamp, source, model, title,
            started_at, original, content, parts, calls, _is_out_of_order,
        ) in page:  # fmt: skip
            key = conversation_id if by_conversation else original
            if key in hits:
                continue
            is_plain = content and calls is None and tool_name is None
            text = content if is_plain else searchable(content, parts, calls, tool_name)
            if fragments and not _contains(text, groups):
                continue  # has the trigrams, but not adjacent
            if is_exact and not _contains_any(text, self._parsed.punctuated):
                continue  # has the words, but other punctuation
            hits[key] = {
                "id": id_,
                "session_id": session_id,
                "conversation_id": conversation_id,
                "role": role,
                "tool_name": tool_name,
                "timestamp": timestamp,
                "source": source,
                "model": model,
                "title": title,
                "session_started": started_at,
                "snippet": snippet(text, needle),
            }


def _conditions(conn: apsw.Connection, filters: MessageFilter) -> tuple[str, list[Any]]:
    # Copies of an undone compaction are excluded; their originals are found.
    terms = "m.kind <> 'summary' AND (m.kind <> 'copy' OR s.relation IS NOT 'undone')"
    bindings = list[Any]()
    if not filters.include_inactive:
        terms += f" AND {messages.IS_VISIBLE.format(table='m.')}"
    if filters.role:
        roles = (filters.role,) if isinstance(filters.role, str) else filters.role
        terms += f" AND m.role IN ({_placeholders(roles)})"
        bindings += roles
    if filters.source:
        terms += " AND s.source = ?"
        bindings.append(filters.source)
    if filters.exclude_sources:
        terms += f" AND s.source NOT IN ({_placeholders(filters.exclude_sources)})"
        bindings += filters.exclude_sources
    if filters.since is not None:
        terms += " AND m.timestamp >= ?"
        bindings.append(filters.since)
    if filters.until is not None:
        terms += " AND m.timestamp < ?"
        bindings.append(filters.until)
    if filters.session_id is not None:
        terms += " AND s.conversation_id = ?"
        bindings.append(lineage.root(SqliteTx(conn), filters.session_id))
    if filters.scope is not None:
        whose, values = condition(filters.scope, "s")
        terms += f" AND {whose}"
        bindings += values
    return terms, bindings


def _placeholders(values: Collection[str]) -> str:
    return ", ".join("?" * len(values))


def _contains(text: str, groups: list[list[Term]]) -> bool:
    """Return whether a text contains the fragments; the index matches only their trigrams."""
    folded = _folded(text)
    return any(
        all((_folded(term.text) in folded) is not term.negated for term in group)
        for group in groups
    )


class Needle:
    """Finds and marks the searched terms in a text, ignoring case."""

    def __init__(self, texts: list[str]) -> None:
        longest_first = "|".join(map(re.escape, sorted(set(texts), key=len, reverse=True)))
        self._pattern = re.compile(longest_first or r"(?!)", re.IGNORECASE)
        # One plain word is the usual query, and the methods of `str` are faster than a pattern.
        self._word = texts[0] if len(texts) == 1 and texts[0].isascii() else ""
        self._lower = self._word.lower()
        self._marked = f">>>{self._word}<<<"
        self._texts = texts

    def first(self, text: str) -> int:
        """Return the position of the first match, or -1."""
        if self._word and text.isascii():
            at = text.lower().find(self._lower)
        else:
            found = self._pattern.search(text)
            at = found.start() if found else -1
        return at if at >= 0 else next((begin for begin, _end in self._as_words(text)), -1)

    def mark(self, text: str) -> str:
        """Return the text with every match marked."""
        word = self._word
        if word and text.isascii() and 0 < text.count(word) == text.lower().count(self._lower):
            return text.replace(word, self._marked)
        marked, count = self._pattern.subn(_marked, text)
        return marked if count else self._marked_words(text)

    def _marked_words(self, text: str) -> str:
        for begin, end in reversed(list(self._as_words(text))):
            text = f"{text[:begin]}>>>{text[begin:end]}<<<{text[end:]}"
        return text

    def _as_words(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield matches as the index finds them: words without accents or punctuation."""
        return (match.span() for match in self._words.finditer(_without_accents(text)))

    @cached_property
    def _words(self) -> re.Pattern[str]:
        terms = (re.findall(r"[^\W_]+", _without_accents(text)) for text in self._texts)
        pattern = "|".join(r"[\W_]+".join(map(_with_marks, words)) for words in terms if words)
        return re.compile(pattern or r"(?!)", re.IGNORECASE)


def _with_marks(word: str) -> str:
    """Return a pattern for a word that allows combining accents."""
    return "".join(re.escape(letter) + "[\u0300-\u036f]*" for letter in word)


def _folded(text: str) -> str:
    return _without_accents(text.casefold())


def _without_accents(text: str) -> str:
    """Return the text without accents, at the same length."""
    return text if text.isascii() else text.translate(_plain_letters())


@cache
def _plain_letters() -> dict[int, str]:
    """Map accented letters to plain ones."""
    apart = {code: unicodedata.normalize("NFD", chr(code)) for code in range(0xC0, 0x2000)}
    return {
        code: letter[0]
        for code, letter in apart.items()
        if len(letter) > 1 and all(map(unicodedata.combining, letter[1:]))
    }


def _marked(match: re.Match[str]) -> str:
    return f">>>{match[0]}<<<"


def snippet(text: str, needle: Needle) -> str:
    """Return one line of text around the first match, with every match marked."""
    if len(text) <= _SNIPPET:
        return _one_line(needle.mark(text))
    begin = max(0, needle.first(text) - _SNIPPET // 3)
    marked = _one_line(needle.mark(text[begin : begin + _SNIPPET]))
    before, after = "…" if begin else "", "…" if begin + _SNIPPET < len(text) else ""
    return before + marked + after


def _one_line(text: str) -> str:
    if text.isprintable() and "  " not in text:  # only single spaces
        return text.strip()
    return one_line(text)
