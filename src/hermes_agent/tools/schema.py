"""Schemas of arguments: writing short ones, and checking what a model sent against them.

What is obviously meant is put right ("5" for 5, "true" for true, one text for a list of texts); the rest
raises a ToolError that tells the model what to send instead. Keywords beyond the few that tools here use
are not judged, so that a plugin's schema may say more.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from hermes_core.errors import ToolError
from hermes_core.text import similar, truncate

_WORDS = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
}
_YES = frozenset({"true", "yes", "1", "on"})
_NO = frozenset({"false", "no", "0", "off"})


def of(required: Sequence[str] = (), **properties: object) -> dict[str, Any]:
    """The schema of an object; a property given as a text is a string described by it."""
    described = {
        name: _described(value) if isinstance(value, str) else value
        for name, value in properties.items()
    }
    schema: dict[str, Any] = {"type": "object", "properties": described}
    if required:
        schema["required"] = list(required)
    return schema


def _described(text: str) -> dict[str, str]:
    return {"type": "string", "description": text} if text else {"type": "string"}


def check(parameters: Mapping[str, Any], args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, put right where that is safe; raises ToolError."""
    properties: Mapping[str, Any] = parameters.get("properties") or {}
    _refuse_unknown(parameters, properties, args)
    required: Sequence[str] = parameters.get("required") or ()
    # Models send null for what they leave out.
    present = {k: v for k, v in args.items() if v is not None or k in required}
    missing = [name for name in required if name not in present or present[name] is None]
    if missing:
        raise ToolError(
            f"The argument {missing[0]!r} is missing.", fix=_expectation(properties, missing[0])
        )
    checked = {
        name: _fitted(properties[name], value, name) if name in properties else value
        for name, value in present.items()
    }
    for name, rules in properties.items():
        if isinstance(rules, Mapping) and "default" in rules:
            checked.setdefault(name, cast("Mapping[str, Any]", rules)["default"])
    return checked


def _refuse_unknown(
    parameters: Mapping[str, Any], properties: Mapping[str, Any], args: Mapping[str, Any]
) -> None:
    if parameters.get("additionalProperties"):
        return
    for name in args:
        if name not in properties:
            close = similar(name, properties)
            meant = f" Did you mean {close[0]!r}?" if close else ""
            names = ", ".join(properties) or "none"
            raise ToolError(f"There is no argument {name!r}.{meant}", fix=f"Arguments: {names}.")


def _expectation(properties: Mapping[str, Any], name: str) -> str:
    rules: Mapping[str, Any] = properties.get(name) or {}
    about = rules.get("description", "")
    return f"Give {_kind(rules)}{f': {about}' if about else ''}."


def _kind(schema: Mapping[str, Any]) -> str:
    if schema.get("enum"):
        return "one of " + ", ".join(str(choice) for choice in schema["enum"])
    kind = schema.get("type")
    return _WORDS.get(kind, "a value") if isinstance(kind, str) else "a value"


def _fitted(schema: object, value: Any, name: str) -> Any:  # noqa: ANN401 -- whatever JSON is
    if not isinstance(schema, Mapping):
        return value
    rules = cast("Mapping[str, Any]", schema)
    kind = rules.get("type")
    if not isinstance(kind, str) or kind not in _WORDS:
        return value
    fitted = _coerced(kind, value)
    if not _is_a(kind, fitted):
        text = truncate(json.dumps(value, ensure_ascii=False, default=str), 60)
        raise ToolError(f"The argument {name!r} is {text}.", fix=f"Give {_kind(rules)}.")
    _check_limits(rules, fitted, name)
    if kind == "array" and "items" in rules:
        return [_fitted(rules["items"], item, f"{name}[{at}]") for at, item in enumerate(fitted)]
    if kind == "object" and rules.get("properties"):
        return _nested(rules, fitted, name)
    return fitted


def _nested(rules: Mapping[str, Any], value: Mapping[str, Any], name: str) -> dict[str, Any]:
    try:
        return check(rules, value)
    except ToolError as error:
        raise ToolError(f"In {name!r}: {error.message}", fix=error.fix) from error


def _coerced(kind: str, value: Any) -> Any:  # noqa: ANN401 -- whatever JSON is
    """Convert a value to what was obviously meant, or return it as it is."""
    if isinstance(value, str):
        return _from_text(kind, value)
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind == "string" and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if kind == "boolean" and isinstance(value, int) and value in (0, 1):
        return bool(value)
    if kind == "array" and isinstance(value, dict | int | float):
        return [cast("object", value)]
    return value


def _from_text(kind: str, text: str) -> Any:  # noqa: ANN401 -- whatever JSON is
    stripped = text.strip()
    if kind in ("integer", "number"):
        return _number(kind, stripped, text)
    if kind == "boolean":
        lowered = stripped.lower()
        return True if lowered in _YES else False if lowered in _NO else text
    if kind in ("array", "object") and stripped[:1] in ("[", "{"):
        try:
            decoded: Any = json.loads(stripped)
        except ValueError:
            decoded = text
        if isinstance(decoded, dict if kind == "object" else list):
            return cast("object", decoded)
    return [text] if kind == "array" else text


def _number(kind: str, stripped: str, text: str) -> int | float | str:
    try:
        number = float(stripped)
    except ValueError:
        return text
    if kind == "number":
        return number
    return int(number) if number.is_integer() else text


def _is_a(kind: str, value: object) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    kinds: dict[str, Any] = {
        "string": str,
        "integer": int,
        "number": int | float,
        "boolean": bool,
        "array": list,
        "object": dict,
    }
    return isinstance(value, kinds[kind])


def _check_limits(rules: Mapping[str, Any], value: Any, name: str) -> None:  # noqa: ANN401 -- as above
    choices = rules.get("enum")
    if choices and value not in choices:
        raise ToolError(f"The argument {name!r} is {value!r}.", fix=f"Give {_kind(rules)}.")
    if isinstance(value, int | float):
        least, most = rules.get("minimum"), rules.get("maximum")
        if least is not None and value < least:
            raise ToolError(f"The argument {name!r} is {value}.", fix=f"Give at least {least}.")
        if most is not None and value > most:
            raise ToolError(f"The argument {name!r} is {value}.", fix=f"Give at most {most}.")
