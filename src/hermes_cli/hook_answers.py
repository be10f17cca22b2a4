"""Results of hook callbacks: checks against `hookspecs`, and the choice between several.

A result that does not match the contract is logged and counts as None.
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
    """A result that does not match its hook; says what it was."""


def checked(hook: str, result: object) -> object:
    """Validate a result that is not None. Raises AnswerError.

    A refusal counts even without its text, so that a small mistake does not disable a guard. Results of
    observers are ignored.
    """
    refuse_unfinished(result)
    kinds = _kinds(hook)
    if not kinds:
        return result
    if not isinstance(result, Mapping):
        raise AnswerError(f"a {type(result).__name__} instead of a dict")
    answer = cast("Mapping[str, object]", result)
    action = answer.get("action")
    if not isinstance(action, str) or action not in kinds:
        raise AnswerError(f"the action {action!r} (allowed: {', '.join(kinds)})")
    field, kind = kinds[action]
    return {"action": action, field: _value(action, field, kind, answer.get(field))}


def refuse_unfinished(result: object) -> None:
    """Raise AnswerError for a coroutine or generator: its code has not run."""
    kind = type(result).__name__
    if isinstance(result, Coroutine):
        result.close()  # prevents a late warning of the interpreter
    if isinstance(result, Coroutine | Generator | AsyncGenerator):
        raise AnswerError(f"a {kind}; use a plain function")


def first_refusal_or_answer(answers: Sequence[Answer]) -> Answer | None:
    """Return the first refusal, else the first answer."""
    refusals = (answer for answer in answers if answer["action"] in _REFUSALS)
    return next(refusals, answers[0] if answers else None)


def _value(action: str, field: str, kind: type, value: object) -> object:
    if not isinstance(value, kind):
        if action in _REFUSALS:
            return ""
        raise AnswerError(f"{action!r} whose {field} is a {type(value).__name__}")
    if isinstance(value, str):
        return without_surrogates(value)
    try:  # a private copy, limited to JSON
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise AnswerError(f"{action!r} whose {field} are not JSON: {error}") from error


@cache
def _kinds(hook: str) -> dict[str, tuple[str, type]]:
    """Return the actions of a hook, each with its field and the type of that field."""
    kinds: dict[str, tuple[str, type]] = {}
    for shape in get_args(get_type_hints(hookspecs.SPECS[hook])["return"]):
        if is_typeddict(shape):
            fields = get_type_hints(shape)
            [action] = get_args(fields.pop("action"))
            [(field, kind)] = fields.items()
            kinds[action] = (field, get_origin(kind) or kind)
    return kinds
