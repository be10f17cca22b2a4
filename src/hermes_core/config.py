"""One settings schema: defaults, then config.toml, then the environment, then the command line.

The only module that reads the environment. A setting is a field of a section below; its name in the
file is `section.field`, in the environment `HERMES_SECTION_FIELD`, on the command line
`--set section.field=value`.
"""

import os
import types
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args, get_origin

import msgspec

from hermes_core.errors import ConfigError
from hermes_core.paths import Home, write_private


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The session store."""

    busy_timeout_s: Annotated[
        float,
        msgspec.Meta(
            gt=0, description="How long a write waits for another process before it fails."
        ),
    ] = 30.0


class SessionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long conversations are kept."""

    retention_days: Annotated[
        int, msgspec.Meta(ge=1, description="Age in days after which `prune` takes a conversation.")
    ] = 90


class PluginSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which plugins are loaded."""

    enabled: Annotated[
        list[str], msgspec.Meta(description="Plugins to load; all others stay off.")
    ] = []
    settings: Annotated[
        dict[str, dict[str, Any]],
        msgspec.Meta(description="One table a plugin, handed to it as it stands."),
    ] = {}


class LogSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is written to logs/hermes.log."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        msgspec.Meta(description="The least severe records that are kept."),
    ] = "info"


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every setting there is."""

    store: StoreSettings = StoreSettings()
    sessions: SessionSettings = SessionSettings()
    plugins: PluginSettings = PluginSettings()
    log: LogSettings = LogSettings()


class Option(msgspec.Struct, frozen=True):
    """One setting as the documentation and the error messages name it."""

    section: str
    field: str
    type: Any
    default: Any
    description: str

    @property
    def key(self) -> str:
        return f"{self.section}.{self.field}"

    @property
    def variable(self) -> str:
        return f"HERMES_{self.section}_{self.field}".upper()


@cache
def options() -> tuple[Option, ...]:
    """Every setting, in the order of the schema."""
    return tuple(
        Option(section.name, field.name, _kind(field), _default(field), _about(field))
        for section in msgspec.structs.fields(Settings)
        for field in msgspec.structs.fields(section.type)
    )


def _kind(field: msgspec.structs.FieldInfo) -> object:
    return get_args(field.type)[0]


def _default(field: msgspec.structs.FieldInfo) -> object:
    return field.default if field.default is not msgspec.NODEFAULT else field.default_factory()


def _about(field: msgspec.structs.FieldInfo) -> str:
    return get_args(field.type)[1].description


def home(environment: Mapping[str, str] | None = None) -> Home:
    """The home folder: HERMES_HOME, else ~/.hermes."""
    env = os.environ if environment is None else environment
    named = env.get("HERMES_HOME", "")
    return Home(Path(named).expanduser().absolute() if named else Path.home() / ".hermes")


def load(
    place: Home | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
) -> Settings:
    """Read the settings; an unknown key or a bad value raises ConfigError."""
    env = os.environ if environment is None else environment
    place = place or home(env)
    values = _read_file(place.config)
    settings = _checked(values, str(place.config))
    for option in options():
        if option.variable in env:
            _put(values, option, _parse(option, env[option.variable], option.variable))
            settings = _checked(values, f"the environment variable {option.variable}")
    for text in overrides:
        option, raw = _named(text)
        _put(values, option, _parse(option, raw, f"--set {option.key}"))
        settings = _checked(values, f"--set {option.key}")
    return settings


def change(place: Home, key: str, value: object) -> None:
    """Write one setting to config.toml and leave every comment and every other line as it is.

    A value of None removes the setting, so that its default holds again.
    """
    import tomlkit  # noqa: PLC0415 -- costs more than all other imports of a command together

    option = _option(key)
    place.create()
    _checked(_read_file(place.config), str(place.config))
    before = place.config.read_text("utf-8") if place.config.exists() else ""
    document = cast("dict[str, dict[str, object]]", tomlkit.parse(before))
    if value is not None:
        document.setdefault(option.section, cast("dict[str, object]", tomlkit.table()))
        _set(document[option.section], option.field, value)
    elif option.section in document:
        document[option.section].pop(option.field, None)
    text = tomlkit.dumps(document)
    _checked(_toml(text, place.config), f"the value given for {key}")
    write_private(place.config, text)


def _set(table: dict[str, object], field: str, value: object) -> None:
    """Assign a value; a list is changed member by member, so that comments between them stay."""
    present = table.get(field)
    if isinstance(present, list) and isinstance(value, list):
        members, wanted = cast("list[object]", present), cast("list[object]", value)
        for gone in [member for member in members if member not in wanted]:
            members.remove(gone)
        members.extend(member for member in wanted if member not in members)
        if members == wanted:
            return
    table[field] = cast("object", value)


def parse_value(key: str, text: str) -> object:
    """Turn the text of a value into the type that its setting has."""
    return _parse(_option(key), text, key)


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from error
    return _toml(text, path)


def _toml(text: str, path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 -- a home without settings does not pay for the parser

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{path} is not valid TOML: {error}.", fix="Correct that line."
        ) from error


def _checked(values: dict[str, Any], origin: str) -> Settings:
    for section, fields in values.items():
        known = [o.field for o in options() if o.section == section]
        if not known:
            sections = ", ".join(s.name for s in msgspec.structs.fields(Settings))
            raise ConfigError(
                f"{origin}: there is no section [{section}].",
                fix=f"Remove it, or use one of: {sections}.",
            )
        if not isinstance(fields, dict):
            raise ConfigError(f"{origin}: {section} must be a table.", fix=f"Write [{section}].")
        for field in cast("dict[str, Any]", fields):
            if field not in known:
                raise ConfigError(
                    f"{origin}: there is no setting {section}.{field}.",
                    fix=f"Remove it, or use one of: {', '.join(known)}.",
                )
    try:
        return msgspec.convert(values, Settings)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        key = where.strip("`$.") or "value"
        raise ConfigError(f"{origin}: {key}: {what}.", fix=_expectation(key)) from error


def _expectation(key: str) -> str:
    for option in options():
        if key.startswith(option.key):
            return f"Give {describe(option.type)}, for example {option.default!r}."
    return "Correct the value."


def describe(kind: object) -> str:
    """Name a setting's type in words."""
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(str(a) for a in get_args(kind))
    if get_origin(kind) is list:
        return "a list of texts"
    if get_origin(kind) in (dict, types.GenericAlias):
        return "a table"
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    return names.get(cast("type", kind), str(kind))


def _option(key: str) -> Option:
    for option in options():
        if option.key == key:
            return option
    known = ", ".join(o.key for o in options())
    raise ConfigError(f"There is no setting {key}.", fix=f"Use one of: {known}.")


def _named(text: str) -> tuple[Option, str]:
    key, equals, raw = text.partition("=")
    if not equals:
        raise ConfigError(f"--set {text}: no value.", fix="Write --set section.field=value.")
    return _option(key.strip()), raw.strip()


def _parse(option: Option, raw: str, origin: str) -> object:
    if get_origin(option.type) is list:
        return [part.strip() for part in raw.split(",") if part.strip()]
    try:
        return msgspec.to_builtins(msgspec.convert(raw, option.type, strict=False))
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"{origin}: {raw!r} does not fit.", fix=f"Give {describe(option.type)}."
        ) from error


def _put(values: dict[str, Any], option: Option, value: object) -> None:
    values.setdefault(option.section, {})[option.field] = value
