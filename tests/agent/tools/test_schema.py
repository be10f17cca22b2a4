"""Arguments of tools: what is put right, and what the model is told."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_agent.tools import schema
from hermes_core.errors import ToolError

PARAMETERS = schema.of(
    ["path"],
    path="where",
    count={"type": "integer", "minimum": 1, "maximum": 10},
    share={"type": "number"},
    all={"type": "boolean"},
    names={"type": "array", "items": {"type": "string"}},
    kind={"type": "string", "enum": ["a", "b"]},
    more={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    size={"type": "integer", "default": 5},
)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"count": 5}, {"count": 5}),
        ({"count": "5"}, {"count": 5}),
        ({"count": 5.0}, {"count": 5}),
        ({"count": " 5 "}, {"count": 5}),
        ({"share": "0.5"}, {"share": 0.5}),
        ({"share": 1}, {"share": 1}),
        ({"all": "true"}, {"all": True}),
        ({"all": "False"}, {"all": False}),
        ({"all": 1}, {"all": True}),
        ({"names": "x"}, {"names": ["x"]}),
        ({"names": '["x", "y"]'}, {"names": ["x", "y"]}),
        ({"names": ["x", 5]}, {"names": ["x", "5"]}),
        ({"more": '{"n": "3"}'}, {"more": {"n": 3}}),
        ({"kind": "a"}, {"kind": "a"}),
        ({"count": None}, {}),
        ({"path": 5}, {"path": "5"}),
    ],
)
def test_what_is_obviously_meant_is_put_right(arguments: Any, expected: Any) -> None:
    checked = schema.check(PARAMETERS, {"path": "x", **arguments})
    assert checked == {"path": "x", "size": 5, **expected}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "'path' is missing. Give a text: where."),
        ({"path": None}, "'path' is missing"),
        ({"path": "x", "count": "five"}, "'count' is \"five\". Give a whole number."),
        ({"path": "x", "count": 1.5}, "'count' is 1.5. Give a whole number."),
        ({"path": "x", "count": True}, "Give a whole number"),
        ({"path": "x", "count": 0}, "Give at least 1"),
        ({"path": "x", "count": 11}, "Give at most 10"),
        ({"path": "x", "all": "maybe"}, "Give true or false"),
        ({"path": "x", "kind": "c"}, "Give one of a, b"),
        ({"path": "x", "names": [{}]}, "'names[0]'"),
        ({"path": "x", "more": {}}, "In 'more': The argument 'n' is missing."),
        ({"path": ["x"]}, "Give a text"),
        ({"path": "x", "cuont": 1}, "no argument 'cuont'. Did you mean 'count'?"),
        ({"path": "x", "zzz": 1}, "Arguments: path, count"),
    ],
)
def test_what_is_wrong_is_told_with_what_to_send(arguments: Any, words: str) -> None:
    with pytest.raises(ToolError) as caught:
        schema.check(PARAMETERS, arguments)
    assert words in str(caught.value)


def test_a_schema_may_say_more_than_is_checked() -> None:
    foreign = {
        "type": "object",
        "properties": {"x": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "y": True},
        "additionalProperties": True,
    }
    arguments = {"x": 5, "y": [], "z": {}}
    assert schema.check(foreign, arguments) == arguments
    assert schema.check({}, {}) == {}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["path", "count", "share", "all", "names", "kind", "more", "other"])


@given(st.dictionaries(NAMES, JSON, max_size=4))
def test_any_arguments_are_either_right_or_refused_with_words(args: dict[str, Any]) -> None:
    try:
        checked = schema.check(PARAMETERS, args)
    except ToolError as error:
        assert error.message
        assert error.fix
    else:
        assert schema.check(PARAMETERS, checked) == checked
