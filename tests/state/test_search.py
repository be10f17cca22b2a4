"""Any text is a query; what is found is shown once, on one line, with the finds marked."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_state import SessionDB, search
from hermes_state.ledger import messages


def snippets(*texts: str, query: str) -> list[str]:
    with SessionDB.in_memory() as store:
        store.create_session("a", "cli")
        for text in texts:
            store.append_message("a", "user", text)
        return [hit["snippet"] for hit in store.search_messages(query, sort="oldest")]


@given(st.text(alphabet=st.characters() | st.sampled_from('ab*-"\0\ud800 '), max_size=40))
def test_no_text_is_a_wrong_query(query: str) -> None:
    with SessionDB.in_memory() as store:
        store.create_session("a", "cli")
        store.append_message("a", "user", "a b ab")
        store.search_messages(query)


@pytest.mark.parametrize(
    ("query", "marked"),
    [
        ("word", "a >>>word<<<, a >>>Word<<< and a >>>WORD<<<"),
        ("Word", "a >>>word<<<, a >>>Word<<< and a >>>WORD<<<"),
        ("word and", "a >>>word<<<, a >>>Word<<< >>>and<<< a >>>WORD<<<"),
        ('"a WORD"', ">>>a word<<<, >>>a Word<<< and >>>a WORD<<<"),
    ],
)
def test_finds_are_marked_in_whichever_case_they_stand(query: str, marked: str) -> None:
    assert snippets("a word, a Word and a WORD", query=query) == [marked]


@pytest.mark.parametrize(
    ("match", "query", "found"),
    [
        ("a café here", "cafe", ">>>café<<<"),
        ("a cafe\u0301 here", "café", ">>>cafe\u0301<<<"),
        ("a blue\n  house", '"blue house"', ">>>blue house<<<"),
        ("call foo.bar()", "foo-bar", ">>>foo.bar<<<"),
        ("a Gesamtübersicht", "ubersicht", ">>>übersicht<<<"),
    ],
)
def test_a_snippet_shows_what_the_index_took_for_the_same(
    match: str, query: str, found: str
) -> None:
    (snippet,) = snippets("before " * 100 + match + " after" * 100, query=query)
    assert found in snippet


def test_a_snippet_is_one_line_around_the_first_find() -> None:
    assert snippets("\n a\tneedle  here\u2028\n", query="needle") == ["a >>>needle<<< here"]
    (long,) = snippets("before " * 100 + "the NEEDLE" + " after" * 100, query="needle")
    assert re.fullmatch(r"…[before ]+the >>>NEEDLE<<<[ after]+…", long)


@given(
    st.lists(st.text(alphabet="aAbBſK你好", min_size=1, max_size=3), min_size=1, max_size=2),
    st.text(alphabet="aAbBſKk 你好\n", max_size=160),
)
def test_every_find_is_marked_and_nothing_else_is_changed(needles: list[str], text: str) -> None:
    longest_first = sorted(needles, key=len, reverse=True)
    finds = re.findall("|".join(longest_first), text, re.IGNORECASE)
    snippet = search.snippet(text, search.Needle(needles))
    assert snippet.count(">>>") == snippet.count("<<<") == len(finds)
    assert snippet.replace(">>>", "").replace("<<<", "") == " ".join(text.split())


def test_one_page_after_another_meets_every_hit_once() -> None:
    with SessionDB.in_memory() as store:
        store.create_session("a", "cli")
        ids = [store.append_message("a", "user", f"needle {number}") for number in range(25)]
        pages = [
            hit["id"]
            for offset in range(0, 30, 10)
            for hit in store.search_messages("needle", limit=10, offset=offset)
        ]
    assert pages == ids[::-1]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("->next", "head->next = tail"),
        ("->>", "data ->> 'key'"),
        ("-v", "run it with -v once"),
        ("git commit -m", 'git commit -m "fix: bug"'),
        ("rm -rf", "never rm -rf a folder"),
        ("-exclude", "tar -exclude"),
        ("AND", "and so on"),
        ("OR", "one or two"),
        ("NOT", "not at all"),
        ("AND OR NOT", "and, or, not"),
        ("ｶﾀ", "ｶﾀｶﾅ in half"),
        ("ﾅ", "ｶﾀｶﾅ in half"),
    ],
)
def test_what_reads_like_an_operator_is_found_where_it_is_text(query: str, text: str) -> None:
    assert snippets("something else", text, query=query)


def test_a_minus_excludes_a_word() -> None:
    texts = ("red apples", "green apples", "red pears")
    assert snippets(*texts, query="apples -green") == ["red >>>apples<<<"]
    assert snippets(*texts, query='-"red apples" apples') == ["green >>>apples<<<"]
    assert snippets("東京 東京", "東京 大阪", query="東京 -大阪") == [">>>東京<<< >>>東京<<<"]
    assert snippets("green apples", query="apples -green") == []


def found(query: str, *texts: str) -> list[str]:
    with SessionDB.in_memory() as store:
        store.create_session("s", "cli")
        for text in texts:
            store.append_message("s", "user", text)
        hits = store.search_messages(query)
        by_id = {row["id"]: row["content"] for row in store.read(messages.of_session, "s")}
        return [by_id[hit["id"]] for hit in hits]


def test_punctuation_between_words_counts() -> None:
    assert found("100%完成", "这是100完成", "这是100%完成") == ["这是100%完成"]
    assert found("self.foo", "self foo", "a Self.foo()") == ["a Self.foo()"]
    assert found("hello?", "hello there") == ["hello there"]


def test_without_an_exact_find_punctuation_is_ignored() -> None:
    assert found("100%完成", "这是100完成") == ["这是100完成"]
    assert found("well-known", "well known") == ["well known"]


def test_results_are_found_by_the_name_of_their_tool() -> None:
    with SessionDB.in_memory() as store:
        store.create_session("s", "cli")
        store.append_message("s", "tool", "42 files", tool_name="list_files", tool_call_id="c")
        (hit,) = store.search_messages("list_files")
        assert hit["snippet"] == ">>>list_files<<< 42 files"


def test_lists_of_filters_are_taken_as_well_as_tuples() -> None:
    with SessionDB.in_memory() as store:
        for source in ("cli", "tui"):
            store.create_session(source, source)
            store.append_message(source, "user", "hello")
        sources: Any = ["tui"]
        assert [r["id"] for r in store.list_sessions_rich(exclude_sources=sources)] == ["cli"]
        assert store.session_count(exclude_sources=sources) == 1
        assert len(store.search_messages("hello", exclude_sources=sources, role=["user"])) == 1
