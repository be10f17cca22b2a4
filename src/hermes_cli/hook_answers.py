"""What callbacks answer: a result checked against the contract of its hook, and which of several counts.

Whoever calls a hook gets answers that are as `hookspecs` says. A result of another form is a mistake of
its plugin: it is told in the log and counts as none.
"""

from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping, Sequence
from functools import cache
from typing import Any, cast, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from hermes_cli import hookspecs
from hermes_core.text import without_surrogates

Answer = dict[str, Any]

_REFUSALS = frozenset({"block", "drop"})


class AnswerError(ValueError):
    """A result that its hook does not take; says what it was."""


def checked(hook: str, result: object) -> object:
    """A result that is not None as the hook's caller gets it; raises AnswerError.

    A refusal counts even when its words are missing: who guards something is not to be passed over
    for a small mistake. What an observer returns is read by nobody.
    """
    refuse_unfinished(result)
    kinds = _kinds(hook)
    if not kinds:
        return result
    if not isinstance(result, Mapping):
        raise AnswerError(f"a {type(result).__name__} in place of a dict")
    answer = cast("Mapping[str, object]", result)
    action = answer.get("action")
    if not isinstance(action, str) or action not in kinds:
        raise AnswerError(f"the action {action!r}; it takes {' and '.join(kinds)}")
    field, kind = kinds[action]
    return {"action": action, field: _value(action, field, kind, answer.get(field))}


def refuse_unfinished(result: object) -> None:
    """Raise AnswerError for what an async function or a generator gives: nothing of it has run yet."""
    what = type(result).__name__
    if isinstance(result, Coroutine):
        result.close()  # it would be complained of on the terminal, long after and without a name
    if isinstance(result, Coroutine | Generator | AsyncGenerator):
        raise AnswerError(f"a {what}; plain functions are called here")


def decisive(answers: Sequence[Answer]) -> Answer | None:
    """The answer that counts: a refusal of any, else the first."""
    refusals = (one for one in answers if one["action"] in _REFUSALS)
    return next(refusals, answers[0] if answers else None)


def _value(action: str, field: str, kind: type, value: object) -> object:
    if not isinstance(value, kind):
        if action in _REFUSALS:
            return ""
        raise AnswerError(f"{action!r} whose {field} is a {type(value).__name__}")
    if isinstance(value, str):
        return without_surrogates(value)
    try:  # a copy that nobody else holds, of what a model could have given too
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise AnswerError(f"{action!r} whose {field} are no JSON: {error}") from error


@cache
def _kinds(hook: str) -> dict[str, tuple[str, type]]:
    """The actions that a hook takes, each with the field that goes along and its type."""
    kinds: dict[str, tuple[str, type]] = {}
    for shape in get_args(get_type_hints(hookspecs.SPECS[hook])["return"]):
        if is_typeddict(shape):
            fields = get_type_hints(shape)
            [action] = get_args(fields.pop("action"))
            [(field, kind)] = fields.items()
            kinds[action] = (field, get_origin(kind) or kind)
    return kinds
