import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.models import arguments
from hermes_core.errors import ToolError

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False, width=32)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(), values, max_size=4)


@given(objects, st.booleans())
def test_valid_json_is_never_changed(value: dict[str, Any], is_cut: bool):
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=2)):
        assert arguments.parse(text, is_cut=is_cut) == value
        assert arguments.sendable(text) == text


@given(
    st.text()
    | objects.map(json.dumps).flatmap(lambda t: st.integers(0, len(t)).map(lambda n: t[:n]))
)
def test_whatever_is_read_is_an_object(text: str):
    try:
        read = arguments.parse(text)
    except ToolError as error:
        assert error.fix
        read = arguments.readable(text)
    assert isinstance(read, dict)
    assert json.loads(arguments.sendable(text)) == read


@given(objects)
def test_a_text_that_breaks_off_is_never_completed(value: dict[str, Any]):
    whole = json.dumps({**value, "last": "some text"})
    with pytest.raises(ToolError):
        arguments.parse(whole[:-4])
    with pytest.raises(ToolError):
        arguments.parse(whole[:-1], is_cut=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        (" \n", {}),
        ("null", {}),
        ('{"a": 1,}', {"a": 1}),
        ('{"a": [1, 2, ], "b": ",}"}', {"a": [1, 2], "b": ",}"}),
        ('{"a": "one\ntwo\tthree"}', {"a": "one\ntwo\tthree"}),
        ('{"a": {"b": ["c"]', {"a": {"b": ["c"]}}),
        ('{"a": "b"', {"a": "b"}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('```\n{"a": "```x```"}\n```', {"a": "```x```"}),
        ("{'a': True, 'b': None, 'c': (1, 2)}", {"a": True, "b": None, "c": [1, 2]}),
        ('"{\\"a\\": 1}"', {"a": 1}),
    ],
)
def test_what_leaves_no_doubt_is_mended(text: str, expected: dict[str, Any]):
    assert arguments.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "[1]",
        "3",
        '"words"',
        '{"a": ',
        '{"a": 12',
        '{"a": "b",',
        '{"a": tru',
        "{'a': open('x')}",
        '{"a": NaN}',
        '{"a": 1} and more',
        '{"a": "b"]',
        "rm -rf",
        "[" * 100_000,
    ],
)
def test_what_could_mean_anything_is_told_to_the_model(text: str):
    with pytest.raises(ToolError, match="not a JSON object"):
        arguments.parse(text)


def test_arguments_without_end_are_not_mended():
    with pytest.raises(ToolError):
        arguments.parse('{"a": "' + "x" * 1_000_001 + '",}')
