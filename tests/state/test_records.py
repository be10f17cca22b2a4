"""What goes into a row comes out of it."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hermes_core.text import without_surrogates
from hermes_state import SessionDB
from hermes_state.records import decode, encode

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
        assert store.get_messages("a")[0]["content"] == without_surrogates(text)
