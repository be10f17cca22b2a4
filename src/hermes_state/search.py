"""Full-text search: what a person types, turned into a query that cannot be wrong.

Words first; when no message has them, fragments (trigrams), so that part of a name or of a line of
code is found too. The index is joined with the store, which decides whether a message may be shown.
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

MOST_CHARACTERS = 2048
"""Of a query; the rest is not read."""

_SNIPPET = 160

_TERM = re.compile(r'(-?)"([^"]*)"(\*?)|(\S+)')
_WORD = re.compile(r"\w+")
_PUNCTUATED = re.compile(r"\w+(?:[^\w\s]+\w+)+")
"""Words with punctuation between them. The index has the words alone."""
_EXCLUDED = re.compile(r"-(?![A-Za-z0-9]$)[@#.]?\w")
"""What a minus makes an exclusion: a word. `->next` and the option `-m` are text of their own."""


_ORDERS: dict[Sort, str] = {
    "newest": "{table}.rowid DESC",
    "oldest": "{table}.rowid",
    "relevance": "{table}.rank",
}
"""The first two come out of the index as they are; relevance has to look at every match."""

_BY_TIME: dict[Sort, str] = {
    "newest": "m.timestamp DESC, m.id DESC",
    "oldest": "m.timestamp, m.id",
    "relevance": "{table}.rank",
}
"""The same in a store with imports, where what came last may have been said long ago."""


class Term(NamedTuple):
    """One thing a message must have, or must not."""

    text: str
    negated: bool = False
    prefix: bool = False


class Wanted(NamedTuple):
    """Which messages may be shown."""

    role: str | Collection[str] | None = None
    source: str | None = None
    exclude_sources: Collection[str] = ()
    since: float | None = None
    until: float | None = None
    session_id: str | None = None
    include_inactive: bool = False
    scope: Scope | None = None
    once_a_conversation: bool = False
    """Only the first find of each conversation; a branch counts as one, with its copies."""


def parse(query: str) -> list[list[Term]]:
    """Alternatives (OR) of terms that belong together; any text is a query, also a wrong one."""
    groups: list[list[Term]] = [[]]
    for term, operator in _terms(query):
        if operator == "OR":
            groups.append([])
        elif not operator:
            groups[-1].append(term)
    groups = [group for group in groups if any(not term.negated for term in group)]
    return groups or as_it_stands(query)


def as_it_stands(query: str) -> list[list[Term]]:
    """The same text where `-`, AND, OR and NOT mean nothing but themselves."""
    literal = [
        Term("-" * term.negated + term.text, prefix=term.prefix)
        for term, _operator in _terms(query)
    ]
    return [literal] if literal else []


def _terms(query: str) -> Iterator[tuple[Term, str]]:
    """What stands between the blanks, and the operator that it may be."""
    # Half characters cannot be sent to SQLite, and a NUL would end the query in the middle.
    query = without_surrogates(query[:MOST_CHARACTERS]).replace("\0", " ")
    for minus, phrase, star, word in _TERM.findall(query):
        term = _term(word) if word else Term(phrase, bool(minus), bool(star))
        if term.text.strip():
            yield term, word if word in ("AND", "OR", "NOT") else ""


def _term(word: str) -> Term:
    negated = _EXCLUDED.match(word) is not None
    text = word[1:] if negated else word
    prefix = len(text) > 1 and text.endswith("*")
    return Term((text[:-1] if prefix else text).replace('"', ""), negated, prefix)


class _Reading(NamedTuple):
    """What a query means; kept, because people page through hits and ask again."""

    groups: list[list[Term]]
    words: str
    fragments: str
    needle: "Needle"
    punctuated: list[list[str]]
    """For each alternative, what must stand there letter by letter: words joined by punctuation."""
    literally: "_Reading | None" = None
    """The same query with every minus as text, where one of them is read as an exclusion."""


@lru_cache(maxsize=128)
def _read(query: str) -> _Reading:
    reading = _meaning(parse(query))
    if any(term.negated for group in reading.groups for term in group):
        return reading._replace(literally=_meaning(as_it_stands(query)))
    return reading


def _meaning(groups: list[list[Term]]) -> _Reading:
    needles = [term.text for group in groups for term in group if not term.negated]
    punctuated = [
        [
            _folded(found[0])
            for t in group
            if not t.negated and (found := _PUNCTUATED.search(t.text))
        ]
        for group in groups
    ]
    return _Reading(groups, _words(groups), _fragments(groups), Needle(needles), punctuated)


def _has_any(text: str, alternatives: list[list[str]]) -> bool:
    folded = _folded(text)
    return any(all(one in folded for one in alternative) for alternative in alternatives)


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
    reading = _read(query[:MOST_CHARACTERS])
    if not reading.groups or limit <= 0:
        return []
    question = _Question(reading, wanted, sort, offset + limit)
    hits = index.ask(question.words_at_once) or index.ask_up_to_date(question.words_or_fragments)
    return hits[offset:]


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


_TITLE = (
    "iif(s.is_tip, s.title, (SELECT tip.title FROM main.sessions AS tip"
    " WHERE tip.conversation_id = s.conversation_id AND tip.is_tip = 1))"
)
"""The title of a conversation is at its tip."""


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
"""A query that nothing fits."""


class _Question:
    """A query on the index, joined with the messages it is about."""

    def __init__(self, reading: _Reading, wanted: Wanted, sort: Sort, count: int) -> None:
        self._reading = reading
        self._is_loose = False
        self._wanted = wanted
        self._sort: Sort = sort
        self._count = count

    def words_at_once(self, conn: apsw.Connection) -> list[Row]:
        """Messages with the words; none when the index is behind, which the same query finds out."""
        return self._ask(conn, "words", self._reading.words, self._sort, unless_behind=True)

    def words_or_fragments(self, conn: apsw.Connection) -> list[Row]:
        """Messages with the words; if there are none, with the fragments, whatever is between words.

        If there are none either without what a minus excludes, messages that have it, minus and all:
        it was the option of a command.
        """
        if hits := self._ask(conn, "words", self._reading.words, self._sort):
            return hits
        sort = "newest" if self._sort == "relevance" else self._sort
        if hits := self._ask(conn, "trigrams", self._reading.fragments, sort):
            return hits
        if any(self._reading.punctuated):
            self._is_loose = True
            if hits := self._ask(conn, "words", self._reading.words, self._sort):
                return hits
        if self._reading.literally is None:
            return []
        literally = _Question(self._reading.literally, self._wanted, sort, self._count)
        return literally._ask(conn, "trigrams", self._reading.literally.fragments, sort)

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
        """Hits in order, until there are enough."""
        if not expression:
            return []
        terms, bindings = _conditions(conn, self._wanted)
        sql = _sql(table, terms, order or _ORDERS[sort])
        hits: dict[int | str, Row] = {}
        size, offset = self._count, 0
        while len(hits) < self._count:
            # Numbers, not parameters: SQLite plans a query anew when its LIMIT is bound.
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
            unless_behind = False  # what is stored from now on need not be found
            offset += size
            size *= 4
        return list(hits.values())[: self._count]

    def _add(self, hits: dict[int | str, Row], page: list[tuple[Any, ...]], table: str) -> None:
        """Take what really fits, by the id of the original: a copy is not a second find."""
        by_conversation = self._wanted.once_a_conversation
        groups, needle = self._reading.groups, self._reading.needle
        fragments = table == "trigrams"
        is_exact = not fragments and not self._is_loose and any(self._reading.punctuated)
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
                continue  # it has the trigrams, but not next to each other
            if is_exact and not _has_any(text, self._reading.punctuated):
                continue  # it has the words, but something else between them
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


def _conditions(conn: apsw.Connection, wanted: Wanted) -> tuple[str, list[Any]]:
    # What an undone compaction carried over is in the conversation where it was said.
    terms = "m.kind <> 'summary' AND (m.kind <> 'copy' OR s.relation IS NOT 'undone')"
    bindings = list[Any]()
    if not wanted.include_inactive:
        terms += f" AND {messages.IS_VISIBLE.format(table='m.')}"
    if wanted.role:
        roles = (wanted.role,) if isinstance(wanted.role, str) else wanted.role
        terms += f" AND m.role IN ({_places(roles)})"
        bindings += roles
    if wanted.source:
        terms += " AND s.source = ?"
        bindings.append(wanted.source)
    if wanted.exclude_sources:
        terms += f" AND s.source NOT IN ({_places(wanted.exclude_sources)})"
        bindings += wanted.exclude_sources
    if wanted.since is not None:
        terms += " AND m.timestamp >= ?"
        bindings.append(wanted.since)
    if wanted.until is not None:
        terms += " AND m.timestamp < ?"
        bindings.append(wanted.until)
    if wanted.session_id is not None:
        terms += " AND s.conversation_id = ?"
        bindings.append(lineage.root(SqliteTx(conn), wanted.session_id))
    if wanted.scope is not None:
        whose, values = condition(wanted.scope, "s")
        terms += f" AND {whose}"
        bindings += values
    return terms, bindings


def _places(values: Collection[str]) -> str:
    return ", ".join("?" * len(values))


def _contains(text: str, groups: list[list[Term]]) -> bool:
    """Whether a candidate really has the fragments: the index knows only that their trigrams occur."""
    folded = _folded(text)
    return any(
        all((_folded(term.text) in folded) is not term.negated for term in group)
        for group in groups
    )


class Needle:
    """What was asked for, wherever and in whichever case it stands in a text."""

    def __init__(self, texts: list[str]) -> None:
        longest_first = "|".join(map(re.escape, sorted(set(texts), key=len, reverse=True)))
        self._pattern = re.compile(longest_first or r"(?!)", re.IGNORECASE)
        # One plain word is the usual query, and the methods of `str` are faster than a pattern.
        self._word = texts[0] if len(texts) == 1 and texts[0].isascii() else ""
        self._lower = self._word.lower()
        self._marked = f">>>{self._word}<<<"
        self._texts = texts

    def first(self, text: str) -> int:
        """Where it stands first; -1 when it does not."""
        if self._word and text.isascii():
            at = text.lower().find(self._lower)
        else:
            found = self._pattern.search(text)
            at = found.start() if found else -1
        return at if at >= 0 else next((begin for begin, _end in self._as_words(text)), -1)

    def mark(self, text: str) -> str:
        """The text with every find marked."""
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
        """Where it stands as the index has it: words without accents, whatever is between them."""
        return (match.span() for match in self._words.finditer(_without_accents(text)))

    @cached_property
    def _words(self) -> re.Pattern[str]:
        terms = (re.findall(r"[^\W_]+", _without_accents(text)) for text in self._texts)
        pattern = "|".join(r"[\W_]+".join(map(_with_marks, words)) for words in terms if words)
        return re.compile(pattern or r"(?!)", re.IGNORECASE)


def _with_marks(word: str) -> str:
    """A pattern for a word whose accents may stand as characters of their own."""
    return "".join(re.escape(letter) + "[\u0300-\u036f]*" for letter in word)


def _folded(text: str) -> str:
    return _without_accents(text.casefold())


def _without_accents(text: str) -> str:
    """The same text, as long as before, with plain letters."""
    return text if text.isascii() else text.translate(_plain_letters())


@cache
def _plain_letters() -> dict[int, str]:
    """What is left of a letter without its accents, for those that have some."""
    apart = {code: unicodedata.normalize("NFD", chr(code)) for code in range(0xC0, 0x2000)}
    return {
        code: letter[0]
        for code, letter in apart.items()
        if len(letter) > 1 and all(map(unicodedata.combining, letter[1:]))
    }


def _marked(match: re.Match[str]) -> str:
    return f">>>{match[0]}<<<"


def snippet(text: str, needle: Needle) -> str:
    """One line of the text around the first thing found, with every find marked."""
    if len(text) <= _SNIPPET:
        return _one_line(needle.mark(text))
    begin = max(0, needle.first(text) - _SNIPPET // 3)
    marked = _one_line(needle.mark(text[begin : begin + _SNIPPET]))
    before, after = "…" if begin else "", "…" if begin + _SNIPPET < len(text) else ""
    return before + marked + after


def _one_line(text: str) -> str:
    if text.isprintable() and "  " not in text:  # the only white space in it are single blanks
        return text.strip()
    return one_line(text)
