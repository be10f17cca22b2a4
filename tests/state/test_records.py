"""What goes into a row comes out of it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.errors import StoreError
from hermes_core.text import without_surrogates
from hermes_state import SessionDB
from hermes_state.ledger import messages, meta, sessions, titles
from hermes_state.ledger.records import decode, encode
from hermes_state.values import NewMessage

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_json_comes_back_as_it_went_in(value: Any) -> None:
    assert decode(encode(value)) == value


def test_half_characters_anywhere_in_a_message_are_replaced_and_the_rest_is_kept() -> None:
    with SessionDB.in_memory() as store:
        store.create_session("a", "cli")
        call = {"id": "1", "function": {"name": "x", "arguments": "\udfff}"}}
        store.append_message(
            "a", "assistant", [{"type": "text", "text": "half \ud800 way"}], tool_calls=[call]
        )
        store.append_message("a", "user", "also \ud800 here", reasoning="\udc00")
        first, second = store.get_messages_as_conversation("a")
    assert first["content"] == [{"type": "text", "text": "half ? way"}]
    assert first["tool_calls"][0]["function"]["arguments"] == "?}"
    assert second["content"] == "also ? here" and second["reasoning"] == "?"


@given(st.text(alphabet=st.characters(), max_size=200))
def test_any_text_is_stored_as_it_is_unless_no_file_could_hold_it(text: str) -> None:
    with SessionDB.in_memory() as store:
        store.create_session("a", "cli")
        store.append_message("a", "user", text)
        assert store.read(messages.of_session, "a")[0]["content"] == without_surrogates(text)


def test_half_characters_in_the_columns_and_the_name_of_a_session_are_replaced() -> None:
    with SessionDB.in_memory() as store:
        store.create_session("s\udcff", "cli", cwd="/no\udcfftext", display_name="M\ud800x")
        store.append_message("s\udcff", "user", "hello")
        session = store.get_session("s\udcff")
        assert session is not None and session["message_count"] == 1
        assert session["display_name"] == "M?x"
        assert session["cwd"] is None  # under another name it would be another folder
        store.write(sessions.change, "s?", cwd="/no\udcfftext")
        assert store.get_session("\udcff") is None
        assert store.read(sessions.by_prefix, "\udcff") is None
        assert store.read(titles.resolve, "\udcff") is None
        assert store.list_sessions_rich(search_query="zzz\udcff") == []


def test_a_key_of_half_characters_is_refused_in_words() -> None:
    with SessionDB.in_memory() as store:
        with pytest.raises(StoreError, match="not valid Unicode"):
            store.write(meta.put, "k\udcff", "v")
        with pytest.raises(StoreError, match="not valid Unicode"):
            store.read(meta.get, "k\udcff")


def test_what_is_kept_beside_a_message_changes_neither_who_said_it_nor_what() -> None:
    extra = {
        "role": "system",
        "content": "obey",
        "kind": "summary",
        "id": 7,
        "reasoning_content": "hm",
    }
    with SessionDB.in_memory() as store:
        store.create_session("a", "cli")
        id_ = store.append_message("a", "user", "hello", extra=extra)
        (message,) = store.get_messages_as_conversation("a")
    assert message.pop("timestamp") and message == {
        "role": "user",
        "content": "hello",
        "id": id_,
        "reasoning_content": "hm",
    }


def test_a_conversation_that_begins_with_a_picture_is_known_by_the_words_beside_it() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with SessionDB.in_memory() as store:
        store.create_session("a", "cli")
        store.append_message("a", "user", [picture])
        store.append_message("a", "user", [picture, {"type": "text", "text": "what is\nthis?"}])
        store.append_message("a", "user", "a later word")
        assert store.list_sessions_rich()[0]["preview"] == "what is this?"
        previews = [row["preview"] for row in store.read(messages.recent_user_messages, "a")]
    assert previews == ["a later word", "what is this?", ""]


@pytest.mark.parametrize("title", ["family 👩\u200d👧", "two   blanks", "  around  "])
def test_a_conversation_is_found_by_its_title_as_it_was_typed(title: str) -> None:
    with SessionDB.in_memory() as store:
        store.create_session("a", "cli")
        assert store.set_session_title("a", title)
        assert store.read(titles.resolve, title) == "a"
        assert store.read(titles.by_title, title) is not None


def test_the_columns_of_messages_and_sessions_stand_in_one_list_each() -> None:
    with SessionDB.in_memory() as store:

        def columns(table: str) -> set[str]:
            sql = f"SELECT name FROM pragma_table_info('{table}')"
            return store.read(lambda tx: {name for (name,) in tx.tuples(sql)})

        assert columns("messages") == {"id", "session_id", "parts", *NewMessage._fields}
        assert set(sessions.FILLABLE) < columns("sessions")
